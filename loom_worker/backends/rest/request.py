"""What the API is asked, given a call's arguments: they fill in values and never move the question elsewhere. Pure.

They stand in a URL or a header in the styles of OpenAPI (RFC 6570).
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from urllib.parse import quote, unquote

from loom_worker.backends.rest.openapi import Operation, RequestBody, RestParameter
from loom_worker.core.errors import ToolFailed
from loom_worker.core.values.json import Json
from loom_worker.guard.net.http import HttpRequest

Encode = Callable[[str], str]

_SEPARATORS = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}


def encoded(text: str) -> str:
    """Text in which only letters, digits and ``-._~`` stand for themselves."""
    return quote(text, safe="", errors="replace")


def simple(parameter: RestParameter, value: object, encode: Encode) -> str:
    """A value in a path or a header: ``blue,black``, ``R,100,G,200`` or, exploded, ``R=100,G=200``."""
    if parameter.is_json:
        return encode(_json(value))
    if isinstance(value, dict) and parameter.is_exploded:
        return ",".join(f"{encode(str(key))}={encode(text(entry))}" for key, entry in value.items())
    return ",".join(encode(piece) for piece in _flat(value))


def pairs(parameter: RestParameter, value: object) -> Iterator[str]:
    """The ``name=value`` pairs of a query or a form; none for an empty list or object."""
    name = encoded(parameter.name)
    if parameter.is_json or not isinstance(value, (list, dict)):
        yield f"{name}={encoded(_json(value) if parameter.is_json else text(value))}"
    elif isinstance(value, dict) and parameter.style == "deepObject":
        yield from (f"{name}%5B{encoded(str(key))}%5D={encoded(text(entry))}" for key, entry in value.items())
    elif isinstance(value, dict) and parameter.is_exploded:
        yield from (f"{encoded(str(key))}={encoded(text(entry))}" for key, entry in value.items())
    elif parameter.is_exploded:
        yield from (f"{name}={encoded(text(entry))}" for entry in value)
    elif value:
        separator = _SEPARATORS.get(parameter.style, ",")
        yield f"{name}={separator.join(encoded(piece) for piece in _flat(value))}"


def text(value: object) -> str:
    """One value: a whole number without a fraction, what is nested as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return _json(value)


def _flat(value: object) -> list[str]:
    if isinstance(value, dict):
        return [piece for key, entry in value.items() for piece in (str(key), text(entry))]
    return [text(entry) for entry in value] if isinstance(value, list) else [text(value)]


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


MAX_PATH_CHARS = 8_000
"""With the query; servers refuse longer ones."""
MAX_UNQUOTED = 5
"""Layers of percent-encoding that are looked through for ``..``."""

_PRINTABLE = re.compile(r"[\x20-\x7e]*")
_SHOWN = re.compile(r"\{([^{}]*)\}")


def question(operation: Operation, arguments: Json, *, prefix: str) -> HttpRequest:
    """Return what is to be sent.

    Args:
        arguments: they passed the operation's input schema.
        prefix: the path of the base URL, without a slash at its end.

    Raises:
        ToolFailed: a value that would reach beyond its place, INVALID_INPUT.
    """
    given = [
        (each, arguments[each.argument]) for each in operation.parameters if arguments.get(each.argument) is not None
    ]
    filled = {each.name: _segment(each, value) for each, value in given if each.place == "path"}
    query = "&".join(pair for each, value in given if each.place == "query" for pair in pairs(each, value))
    path = prefix + _path(operation.path, filled)
    headers = {each.name: _header(each, value) for each, value in given if each.place == "header"}
    body = _body(operation.body, arguments) if operation.body else None
    if operation.body and body is not None:
        headers["Content-Type"] = operation.body.media_type
    whole = f"{path}?{query}" if query else path
    if len(whole) > MAX_PATH_CHARS:
        raise _invalid(f"path and query are longer than {MAX_PATH_CHARS} characters")
    return HttpRequest(operation.method, whole, headers, body)


def _path(template: str, filled: dict[str, str]) -> str:
    pieces = []
    for place, piece in enumerate(_SHOWN.split(template)):
        is_name = place % 2 == 1
        if is_name and not filled.get(piece):
            raise _invalid(f"the path parameter {piece!r} needs a value")
        pieces.append(filled[piece] if is_name else quote(piece, safe="/:@!$&'()*+,;=%-._~"))
    path = "".join(pieces)
    _check_segments(path)
    return path


def _segment(parameter: RestParameter, value: object) -> str:
    text = simple(parameter, value, encoded)
    plain = unquote(text)
    if any(unicodedata.category(char) == "Cc" for char in plain):
        raise _invalid(f"control characters in the path parameter {parameter.name!r}")
    return text


def _check_segments(path: str) -> None:
    """Refuse what a server that decodes too early or too often would take for a way up."""
    plain = path
    for _ in range(MAX_UNQUOTED):
        if any(piece.partition(";")[0].strip() in (".", "..") for piece in re.split(r"[/\\]", plain)):
            raise _invalid("a path parameter must not hold the segments . or ..")
        plain, before = unicodedata.normalize("NFKC", unquote(plain)), plain
        if plain == before:
            return
    raise _invalid("a path parameter is percent-encoded too many times")


def _header(parameter: RestParameter, value: object) -> str:
    text = simple(parameter, value, str)
    if not _PRINTABLE.fullmatch(text):
        raise _invalid(f"the header {parameter.name!r} takes printable ASCII characters only")
    return text.strip()


def _body(body: RequestBody, arguments: Json) -> bytes | None:
    if body.argument not in arguments:
        return None
    value = arguments[body.argument]
    if not body.is_form:
        return json.dumps(value, separators=(",", ":")).encode()
    if not isinstance(value, dict):
        raise _invalid("a form is an object of named values")
    fields = [(_field(str(name)), entry) for name, entry in value.items() if entry is not None]
    return "&".join(pair for field, entry in fields for pair in pairs(field, entry)).encode()


def _field(name: str) -> RestParameter:
    """A field of a form: lists are repeated, objects written as ``name[key]``, as most servers read them."""
    return RestParameter(name, name, "query", "deepObject", is_exploded=True)


def _invalid(detail: str) -> ToolFailed:
    return ToolFailed(detail, "INVALID_INPUT")
