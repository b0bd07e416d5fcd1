"""Values as they stand in a URL or a header, in the styles of OpenAPI (RFC 6570). Pure."""

import json
from collections.abc import Callable, Iterator
from urllib.parse import quote

from loom_worker.backends.rest.arguments import RestParameter

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
