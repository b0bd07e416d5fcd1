"""The operations of an OpenAPI document, each with the one JSON Schema that its arguments must fit. Pure."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from loom_worker.backends.rest.arguments import Arguments, RequestBody, RestParameter, fit, free, is_form, may_be_sent
from loom_worker.backends.rest.document import OpenApiFile
from loom_worker.core.errors import BadFile
from loom_worker.core.text import one_line
from loom_worker.core.values.json import Json, pointer_step

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
