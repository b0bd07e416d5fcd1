"""What goes back: compact JSON, lists with a cursor; and the query parameters that all lists share."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from flask import Response, request

from loom_worker.core.values.json import Json
from loom_worker.core.values.pages import PAGE_BYTES, Page, T, no_cursor
from web.problems import malformed

DEFAULT_LIMIT = 50
MAX_LIMIT = 500
_WHOLE = re.compile(r"[0-9]{1,15}")
_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


class Route(NamedTuple):
    """A view and where it is mounted."""

    method: str
    path: str
    view: Callable[..., Response]


def encode(data: object) -> bytes:
    """Compact UTF-8 JSON; lone surrogates (a broken reply of a model) are escaped, for UTF-8 has none."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(data, separators=(",", ":")).encode("ascii")


def json_answer(data: Json, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(encode(data), status, headers=headers, content_type="application/json")


def list_answer(data: Iterable[Json], *, after: str | None = None) -> Response:
    """A list; ``after`` is the cursor of the next page, None at the end."""
    return json_answer({"object": "list", "data": list(data), "has_more": after is not None, "next": after})


def page_answer(page: Page[T], as_json: Callable[[T], Json]) -> Response:
    """A page of a list."""
    return list_answer((as_json(item) for item in page.items), after=page.next)


def listed(items: Iterable[Json], key: str) -> Json:
    """A page, for ``?limit`` and ``?after``, of a list that is there as a whole; 500 items unless fewer are asked for.

    Args:
        key: the member that tells items apart, and whose value is the cursor.

    Raises:
        Refused: 400 for anything else.
        Invalid: no item has that cursor.
    """
    limit, after = page_wanted(MAX_LIMIT)
    found = list(items)
    if after is not None:
        place = next((at for at, item in enumerate(found) if item[key] == after), None)
        if place is None:
            raise no_cursor(after)
        found = found[place + 1 :]
    page: list[Json] = []
    room = PAGE_BYTES
    for item in found:
        room -= len(encode(item))
        if page and (room < 0 or len(page) == limit):
            return {"object": "list", "data": page, "has_more": True, "next": page[-1][key]}
        page.append(item)
    return {"object": "list", "data": page, "has_more": False, "next": None}


def page_wanted(usual: int = DEFAULT_LIMIT) -> tuple[int, str | None]:
    """``?limit`` (1-500, larger counts as 500) and ``?after`` of the current request.

    Args:
        usual: the limit where none is given.

    Raises:
        Refused: 400 for anything else.
    """
    limit = whole_argument("limit", usual)
    if limit < 1:
        raise malformed("limit must be a whole number from 1 to 500")
    return min(limit, MAX_LIMIT), text_argument("after", longest=512)


def whole_argument(name: str, default: int) -> int:
    """A query parameter that must be a whole number >= 0.

    Raises:
        Refused: 400 for anything else.
    """
    raw = request.args.get(name)
    return default if raw is None else whole_number(raw, name)


def whole_number(raw: str, name: str) -> int:
    """Digits alone, at most 15; ``int`` would take signs, spaces and underscores too.

    Raises:
        Refused: 400 for anything else.
    """
    if not _WHOLE.fullmatch(raw):
        raise malformed(f"{name} must be a whole number, 0 or more")
    return int(raw)


def text_argument(name: str, *, longest: int = 128) -> str | None:
    """A query parameter without control characters; None if absent or empty.

    Raises:
        Refused: 400 if longer, or with control characters.
    """
    raw = request.args.get(name) or None
    if raw is not None and (len(raw) > longest or not raw.isprintable()):
        raise malformed(f"{name} must be at most {longest} printable characters")
    return raw


def choice_argument(name: str, choices: Iterable[str]) -> str | None:
    """A query parameter that must be one of some words; None if absent.

    Raises:
        Refused: 400 for another word.
    """
    raw = text_argument(name)
    known = tuple(choices)
    if raw is not None and raw not in known:
        raise malformed(f"{name} must be one of {', '.join(known)}")
    return raw


def is_id(text: str) -> bool:
    """True for what can be the id of anything; the rest need not be looked up."""
    return _ID.fullmatch(text) is not None
