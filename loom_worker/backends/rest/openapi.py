"""The operations of an OpenAPI document, each with the one JSON Schema that its arguments must fit. Pure."""

import re
from collections.abc import Collection, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from loom_worker.backends.rest.document import MAX_DESCRIPTION_CHARS, Inliner, OpenApiFile
from loom_worker.core.errors import BadFile
from loom_worker.core.text import one_line
from loom_worker.core.values.chat import object_schema
from loom_worker.core.values.json import Json, pointer_step

Place = Literal["path", "query", "header"]
MAX_NAME_CHARS = 64

_PLACES: dict[str, Place] = {"path": "path", "query": "query", "header": "header", "querystring": "query"}
_STYLES: dict[Place, tuple[str, ...]] = {
    "path": ("simple",),
    "query": ("form", "deepObject", "spaceDelimited", "pipeDelimited"),
    "header": ("simple",),
}
"""Those that are served, the usual one first."""
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OURS = re.compile(
    r"(accept|accept-encoding|authorization|connection|content-.*|cookie2?|date|expect|forwarded|from|host|keep-alive"
    r"|max-forwards|origin|proxy-.*|referer|sec-.*|te|trailer|transfer-encoding|upgrade|user-agent|via|x-forwarded-.*"
    r"|x-http-method.*|x-method-override|x-original-.*|x-real-ip|x-rewrite-.*)",
    re.IGNORECASE,
)
"""Headers that decide where a request goes, who asks and how it is framed: the model has no say in them."""


@dataclass(frozen=True, slots=True)
class RestParameter:
    """One value that is not in the body."""

    name: str
    """As the API has it."""
    argument: str
    """As the model has it."""
    place: Place
    style: str
    is_exploded: bool
    is_json: bool = False
    """True: the value is written as JSON, whatever the style."""


@dataclass(frozen=True, slots=True)
class RequestBody:
    """The body of a request."""

    argument: str
    media_type: str

    @property
    def is_form(self) -> bool:
        """True for a form; else it is JSON."""
        return self.media_type.lower().startswith("application/x-www-form-urlencoded")


class Arguments:
    """Gathers the arguments of one operation, and the schema they must fit."""

    def __init__(self, document: OpenApiFile) -> None:
        self._document = document
        self._inliner = Inliner(document)
        self._properties: dict[str, Json] = {}
        self._required: list[str] = []

    def parameter(self, node: Json, place: str) -> RestParameter:
        """Add a parameter.

        Raises:
            BadFile: it cannot be served.
        """
        name, where = node.get("name"), _PLACES.get(str(node.get("in")))
        if not isinstance(name, str) or not name or where is None:
            raise self._document.wrong(
                place, "a parameter needs a name, and path, query, header or cookie as its place"
            )
        style, served = str(node.get("style") or _STYLES[where][0]), _STYLES[where]
        if style not in served:
            raise self._document.wrong(place, f"style {style!r} is not served in a {where}: {', '.join(served)}")
        argument = fit(name)
        if argument in self._properties:
            argument = free(fit(f"{where}_{name}"), self._properties)
        is_required = where == "path" or node.get("required") is True
        self._add(argument, self._parameter_schema(node, place), is_required=is_required)
        is_exploded = node.get("explode", style == "form") is True
        is_json = "content" in node and node["in"] != "querystring"
        return RestParameter(name, argument, where, style, is_exploded, is_json)

    def body(self, node: Json, place: str) -> RequestBody:
        """Add the body.

        Raises:
            BadFile: it is neither JSON nor a form.
        """
        content, place = self._document.mapping(node.get("content", {}), f"{place}/content")
        served = [kind for is_served in (_is_json, is_form) for kind in map(str, content) if is_served(kind)]
        if not served:
            kinds = ", ".join(map(str, content)) or "no type"
            raise self._document.wrong(place, f"a body of {kinds[:200]} cannot be sent: only JSON and forms")
        argument = free("body", self._properties)
        self._add(argument, self._media_schema(content, served[0], place), is_required=node.get("required") is True)
        return RequestBody(argument, served[0])

    def schema(self) -> Json:
        """The schema of all arguments; whether it is a valid one is not looked at."""
        return object_schema(*self._required, **self._properties)

    def _add(self, argument: str, schema: Json, *, is_required: bool) -> None:
        self._properties[argument] = schema
        self._required += [argument] if is_required else []

    def _parameter_schema(self, node: Json, place: str) -> Json:
        if "content" in node:
            content, at = self._document.mapping(node["content"], f"{place}/content")
            schema = self._media_schema(content, next(map(str, content), ""), at)
        else:
            schema = self._inliner.schema(node.get("schema", {}), f"{place}/schema")
        text = node.get("description")
        if not isinstance(text, str) or not text.strip():
            return schema
        return {**schema, "description": one_line(text, MAX_DESCRIPTION_CHARS)}

    def _media_schema(self, content: Json, kind: str, place: str) -> Json:
        media, at = self._document.mapping(content.get(kind), f"{place}/{pointer_step(kind)}")
        return self._inliner.schema(media.get("schema", {}), f"{at}/schema")


def fit(text: str) -> str:
    """Text as a name that providers take: 1-64 of A-Z a-z 0-9 _ -."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_")[:MAX_NAME_CHARS] or "unnamed"


def free(wanted: str, taken: Container[str]) -> str:
    """The name itself, or with a number behind it where it is taken; at most MAX_NAME_CHARS."""
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted[: MAX_NAME_CHARS - 1 - len(str(number))]}_{number}"
    return name


def may_be_sent(header: str) -> bool:
    """True for a header whose value the model may choose."""
    return _TOKEN.fullmatch(header) is not None and _OURS.fullmatch(header) is None


def _is_json(media_type: str) -> bool:
    return re.fullmatch(r"application/([a-z0-9.+-]+\+)?json(;[ -~]*)?", str(media_type), re.IGNORECASE) is not None


def is_form(media_type: str) -> bool:
    """True for the media type of a form."""
    return re.fullmatch(r"application/x-www-form-urlencoded(;[ -~]*)?", str(media_type), re.IGNORECASE) is not None


BODILESS = ("GET", "HEAD")
READING = (*BODILESS, "QUERY")
METHODS = (*READING, "POST", "PUT", "PATCH", "DELETE")
"""Others (OPTIONS, TRACE) tell of the server, not of what it serves."""
MAX_SUMMARY_CHARS = 500


@dataclass(frozen=True, slots=True)
class ListedOperation:
    """An operation as it stands in the document."""

    name: str
    """Fit to be a tool's name, unlike all others."""
    id: str
    """``operationId``, or method and path."""
    method: str
    path: str
    item: Json
    """The path's own entry, which may hold parameters for all its operations."""
    node: Json
    place: str
    fault: BadFile | None = None

    @property
    def is_reading(self) -> bool:
        """True if it changes nothing."""
        return self.method in READING


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation that can be called."""

    name: str
    method: str
    path: str
    """With ``{name}`` where a path parameter stands."""
    summary: str
    parameters: tuple[RestParameter, ...]
    body: RequestBody | None
    input_schema: Json
    needs_approval: bool


def listed(document: OpenApiFile) -> tuple[ListedOperation, ...]:
    """All operations, by path and method in the document's own order; a path that cannot be read is its GET.

    Raises:
        BadFile: the paths are no object.
    """
    paths, place = document.mapping(document.root.get("paths") or {}, "#/paths")
    found: dict[str, ListedOperation] = {}
    for path, entry in paths.items():
        if str(path).startswith("x-"):
            continue
        item, where, fault = _tried(document, entry, f"{place}/{pointer_step(path)}")
        if not str(path).startswith("/"):
            fault = document.wrong(f"{place}/{pointer_step(path)}", "a path must begin with /")
        for method in METHODS:
            if (key := method.lower()) in item or (fault and method == "GET"):
                node, at, own_fault = _tried(document, item.get(key, {}), f"{where}/{key}")
                wanted = str(node.get("operationId") or f"{method} {path}")
                name = free(fit(wanted), found)
                found[name] = ListedOperation(name, wanted, method, str(path), item, node, at, fault or own_fault)
    return tuple(found.values())


def _tried(document: OpenApiFile, node: object, place: str) -> tuple[Json, str, BadFile | None]:
    try:
        return *document.mapping(node, place), None
    except BadFile as error:
        return {}, place, error


def operation(document: OpenApiFile, entry: ListedOperation, *, withheld: Collection[str] = ()) -> Operation:
    """Make an operation of what stands in the document.

    Args:
        withheld: headers, in lower case, whose values the model may not set, apart from those never sent.

    Raises:
        BadFile: something about it cannot be served; the text names file and place.
    """
    if entry.fault:
        raise entry.fault
    arguments, body = Arguments(document), None
    parameters = tuple(arguments.parameter(*found) for found in _parameters(document, entry, withheld))
    _check_path(document, entry, parameters)
    if "requestBody" in entry.node and entry.method not in BODILESS:  # a GET's body means nothing (RFC 9110, 9.3.1)
        body = arguments.body(*document.mapping(entry.node["requestBody"], f"{entry.place}/requestBody"))
    return Operation(
        name=entry.name,
        method=entry.method,
        path=entry.path,
        summary=_summary(entry),
        parameters=parameters,
        body=body,
        input_schema=arguments.schema(),
        needs_approval=entry.node.get("x-loom-approval") is True,
    )


def _parameters(document: OpenApiFile, entry: ListedOperation, withheld: Collection[str]) -> Iterator[tuple[Json, str]]:
    """The operation's own parameters and those of its path that it does not replace; no cookies, not all headers."""
    path_place = entry.place.rpartition("/")[0]
    found: dict[tuple[str, str], tuple[Json, str]] = {}
    for source, base in ((entry.item, path_place), (entry.node, entry.place)):
        for node, place in document.entries(source.get("parameters"), f"{base}/parameters"):
            parameter, where = document.mapping(node, place)
            found[str(parameter.get("name")), str(parameter.get("in"))] = (parameter, where)
    for (name, kind), (parameter, where) in found.items():
        is_ours = kind == "header" and (name.lower() in withheld or not may_be_sent(name))
        # A query string as a whole (3.2) is taken where it is a form.
        is_raw = kind == "querystring" and not any(map(is_form, document.mapping(parameter.get("content"), where)[0]))
        if kind != "cookie" and not is_ours and not is_raw:
            yield parameter, where


def _check_path(document: OpenApiFile, entry: ListedOperation, parameters: Sequence[RestParameter]) -> None:
    known = {parameter.name for parameter in parameters if parameter.place == "path"}
    if missing := sorted(set(re.findall(r"\{([^{}]*)\}", entry.path)) - known):
        raise document.wrong(entry.place, f"no path parameter is named {', '.join(missing)}")


def _summary(entry: ListedOperation) -> str:
    texts = [text for text in (entry.node.get("summary"), entry.node.get("description")) if isinstance(text, str)]
    mark = "Deprecated. " if entry.node.get("deprecated") is True else ""
    return one_line(mark + " — ".join(dict.fromkeys(texts)), MAX_SUMMARY_CHARS)
