"""What goes back: compact JSON, and lists with a cursor."""

import json
import re
from collections.abc import Iterable, Mapping

from flask import Response

from loom_worker.core.errors import NotFound
from loom_worker.core.values.json import Json
from loom_worker.core.values.pages import PAGE_BYTES, L, Page, no_cursor
from loom_worker.core.values.tenants import USER_ID
from web.query import MAX_LIMIT, PageQuery

_USER = re.compile(USER_ID)
_ID = re.compile(r"[A-Za-z0-9._:+@-]{1,255}")


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


def page_answer(page: Page[L]) -> Response:
    """A page of a list."""
    return list_answer((item.as_json() for item in page.items), after=page.next)


def listed(items: Iterable[Json], key: str, asked: PageQuery) -> Json:
    """A page of a list that is there as a whole; 500 items unless fewer are asked for.

    Args:
        key: the member that identifies an item; its value is the cursor.

    Raises:
        Invalid: no item has that cursor.
    """
    found, most = list(items), asked.limit if "limit" in asked.model_fields_set else MAX_LIMIT
    if (after := asked.after) is not None:
        index = next((at for at, item in enumerate(found) if item[key] == after), None)
        if index is None:
            raise no_cursor(after)
        found = found[index + 1 :]
    page: list[Json] = []
    room = PAGE_BYTES
    for item in found:
        room -= len(encode(item))
        if page and (room < 0 or len(page) == most):
            return {"object": "list", "data": page, "has_more": True, "next": page[-1][key]}
        page.append(item)
    return {"object": "list", "data": page, "has_more": False, "next": None}


def known_user(text: str) -> str:
    """As ``known_id``, of a user."""
    return known_id(text, "user", _USER)


def known_id(text: str, kind: str, form: re.Pattern[str] = _ID) -> str:
    """The id itself, if a thing of this kind can have it.

    Raises:
        NotFound: nothing has such an id, so the store need not be asked.
    """
    if form.fullmatch(text) is None:
        raise NotFound(f"no such {kind}")
    return text
