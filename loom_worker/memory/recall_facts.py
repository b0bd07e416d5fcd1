"""What a model wants to be kept in mind for the session: the tool, and how its request changes what is known."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from loom_worker.core.errors import NotFound, ToolFailed
from loom_worker.core.values.chat import ToolSpec, object_schema
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Caller, Tool
from loom_worker.memory.kernel import facts_tokens
from loom_worker.memory.layers import Count
from loom_worker.memory.recalled import compact
from loom_worker.store.sessions import Sessions

KEEP_FACTS = "update_session_context"
MERGED = ("preferences", "notes")
"""Objects whose members are set one by one."""


class _Stale(Exception):
    """What is known has changed since the change to it was made."""


def update_tool(sessions: Sessions, *, budget_tokens: int, count: Count) -> Tool:
    """The tool ``update_session_context``; ``budget_tokens``: the kernel's share of the input budget."""

    def tokens(known: Json) -> int:
        return facts_tokens(known, count)

    def fits(known: Json) -> None:
        if tokens(known) > budget_tokens:
            text = f"This needs {tokens(known)} tokens, {budget_tokens} may be kept: shorten it, or remove some by null"
            raise ToolFailed(text, "INVALID_INPUT")

    def run(arguments: Json, caller: Caller) -> str:
        known = _updated(sessions, caller, arguments, fits)
        return compact({"updated": sorted(arguments), "tokens": tokens(known), "budget_tokens": budget_tokens})

    return Tool(_SPEC, run, is_bounded=True)


def _updated(sessions: Sessions, caller: Caller, wanted: Json, fits: Callable[[Json], None]) -> Json:
    while True:  # a stale writer means that another one succeeded
        with suppress(_Stale):
            return _update_once(sessions, caller, wanted, fits)


def _update_once(sessions: Sessions, caller: Caller, wanted: Json, fits: Callable[[Json], None]) -> Json:
    changes = _changes(_kernel(sessions, caller), wanted)

    def check(known: Json) -> None:
        # The store merges whole fields; two calls that run side by side may each set members of the same one.
        if _changes(_kernel(sessions, caller), wanted) != changes:
            raise _Stale
        fits(known)

    return sessions.merge_kernel(caller.lane, changes, fits=check)


def _kernel(sessions: Sessions, caller: Caller) -> Json:
    try:
        session = sessions.get(caller.workspace, caller.session_id)
    except NotFound as error:
        raise ToolFailed(str(error), "ERROR_NOT_FOUND") from error
    if session.lane != caller.lane:  # another one of the same name
        raise ToolFailed("The session is deleted.", "ERROR_NOT_FOUND")
    return session.kernel


def _changes(known: Json, wanted: Json) -> Json:
    """The new value of each field of a request; None for those to be removed."""
    return {name: _value(known.get(name), value, is_merged=name in MERGED) for name, value in wanted.items()}


def _value(before: Any, after: Any, *, is_merged: bool) -> Any:
    if not is_merged or after is None:
        return after or None
    members = {**(before if isinstance(before, dict) else {}), **after}
    return {key: value for key, value in members.items() if value is not None} or None


def _nullable(kind: str, description: str, **more: object) -> Json:
    return {"type": [kind, "null"], "description": description, **more}


_SPEC = ToolSpec(
    name=KEEP_FACTS,
    description=(
        "Keep in mind for good who the user is, what they want to reach and how they like things done, when they tell. "
        "Name only what changes; null removes."
    ),
    input_schema=object_schema(
        user=_nullable("string", "who the user is"),
        goals=_nullable("array", "all goals; replaces those before", items={"type": "string"}, maxItems=50),
        preferences=_nullable("object", 'set one by one, {"language": "German"}'),
        notes=_nullable("object", "other facts by name, set one by one"),
    )
    | {"minProperties": 1},
)
