"""The arguments of an operation: how the model names them, what they must fit, and where each of them goes. Pure."""

import re
from collections.abc import Container
from dataclasses import dataclass
from typing import Literal

from loom_worker.backends.rest.document import OpenApiFile
from loom_worker.backends.rest.schemas import MAX_DESCRIPTION_CHARS, Inliner
from loom_worker.core.text import one_line
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
        found: Json = {"type": "object", "properties": self._properties, "additionalProperties": False}
        if self._required:
            found["required"] = self._required
        return found

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
