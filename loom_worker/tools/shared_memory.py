"""What agents keep for themselves and for each other: namespaces, the tools that read and write them, and watching.

The owner of a key comes from the caller and the session, never from what the model writes.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from loom_worker.core.errors import Conflict, Invalid, NotFound, ToolFailed, Unavailable
from loom_worker.core.values.chat import ToolSpec
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json, rfc3339
from loom_worker.core.values.tools import Caller, Tool
from loom_worker.store.shared_memory import (
    KEY_CHARS,
    VALUE_BYTES,
    KeyWrite,
    Namespace,
    SharedChanges,
    SharedEntry,
    SharedMemory,
    is_plain,
)

NAMESPACES = ("AGENT", "WORKFLOW", "SWARM", "GLOBAL")
USUAL = "AGENT"
OWNER_CHARS = 128
_MEMBERS = {"WORKFLOW": "workflow_id", "SWARM": "swarm_id"}
"""Of the session's metadata: which workflow or swarm it belongs to."""


def shelf_of(namespace: str, caller: Caller, scope: Mapping[str, object]) -> Namespace:
    """The shelf that a caller means.

    Args:
        namespace: one of NAMESPACES, in whatever case.
        scope: the session's metadata.

    Raises:
        ToolFailed: there is no such namespace, or the session belongs to no workflow or swarm.
    """
    name = namespace.upper()
    if name not in NAMESPACES:
        raise ToolFailed(f"namespace must be one of {', '.join(NAMESPACES)}", "INVALID_INPUT")
    if name == "GLOBAL":
        return Namespace(caller.workspace, name, "")
    owner = caller.agent if name == "AGENT" else scope.get(_MEMBERS[name])
    if not isinstance(owner, str) or not 1 <= len(owner) <= OWNER_CHARS or not is_plain(owner):
        text = f"this session has no {_MEMBERS.get(name, 'agent')} in its metadata, so no {name} namespace"
        raise ToolFailed(text, "INVALID_INPUT")
    return Namespace(caller.workspace, name, owner)


POLL_S = 0.2
MOST_CHANGES = 50
"""In one answer; the next call gives more."""


@dataclass(frozen=True, slots=True)
class WaitClock:
    """How time passes."""

    pause: Callable[[float], bool]
    """Waits so many seconds, as ``Event.wait``: less if told to stop, and then it says True."""
    clock_s: Callable[[], float]
    """Never goes back."""


def watch(
    memory: SharedMemory, waiting: WaitClock, shelf: Namespace, prefix: str, *, since: int, wait_s: float
) -> tuple[SharedChanges, bool]:
    """Return the changes after a revision, as soon as there are some; none when time is up or the process stops.

    Args:
        since: 0: what is there now, at once. So, too, one that the shelf has not reached: it is another shelf's.

    Returns:
        The changes, and whether they begin anew though the caller has seen some.
    """
    until_s = waiting.clock_s() + wait_s
    while True:
        found = memory.changes(shelf, prefix, since=since, limit=MOST_CHANGES)
        if since > found.revision:
            return memory.changes(shelf, prefix, since=0, limit=MOST_CHANGES), True
        left_s = until_s - waiting.clock_s()
        if found.entries or since == 0 or left_s <= 0 or waiting.pause(min(POLL_S, left_s)):
            return found, False


USUAL_KEYS, MOST_KEYS = 50, 200
"""In one answer of a list."""
USUAL_WAIT_S, MOST_WAIT_S = 10, 20


@dataclass(frozen=True, slots=True)
class SharedParts:
    """What the tools work with."""

    memory: SharedMemory
    scope_of: Callable[[Caller], Mapping[str, object]]
    """The metadata of the caller's session; its workflow_id and swarm_id are looked at."""
    waiting: WaitClock
    clock_ms: Callable[[], int] = now_ms


def shared_tools(parts: SharedParts) -> tuple[Tool, ...]:
    """``shared_memory_write``, ``_read``, ``_list``, ``_delete`` and ``_watch``.

    Writing and deleting are not idempotent: done again after an answer that was lost, they would undo what another
    agent did in between.
    """

    def write(arguments: Json, caller: Caller) -> Json:
        with _told(parts, arguments, caller) as shelf:
            key = arguments["key"]
            version = parts.memory.write(shelf, key, arguments["value"], _change(parts, arguments, caller))
            return {"key": key, "version": version}

    def read(arguments: Json, caller: Caller) -> Json:
        with _told(parts, arguments, caller) as shelf:
            return _shown(parts.memory.read(shelf, arguments["key"]))

    def keys(arguments: Json, caller: Caller) -> Json:
        with _told(parts, arguments, caller) as shelf:
            limit, after = int(arguments.get("limit", USUAL_KEYS)), arguments.get("after")
            page = parts.memory.page(shelf, arguments.get("prefix", ""), limit=min(limit, MOST_KEYS), after=after)
            return {"keys": [_named(entry) for entry in page.items], "next": page.next}

    def remove(arguments: Json, caller: Caller) -> Json:
        with _told(parts, arguments, caller) as shelf:
            key = arguments["key"]
            return {"deleted": key, "version": parts.memory.delete(shelf, key, _change(parts, arguments, caller))}

    def wait(arguments: Json, caller: Caller) -> Json:
        with _told(parts, arguments, caller) as shelf:
            return _watched(parts, shelf, arguments)

    return (
        Tool(_WRITE, write, is_idempotent=False, is_bounded=True, is_repeatable=False, occasion="seldom"),
        Tool(_READ, read, is_bounded=True, is_repeatable=False, occasion="seldom"),
        Tool(_LIST, keys, is_bounded=True, is_repeatable=False, occasion="seldom"),
        Tool(_DELETE, remove, is_idempotent=False, is_bounded=True, is_repeatable=False, occasion="seldom"),
        Tool(_WATCH, wait, is_repeatable=False, occasion="seldom"),
    )


@contextmanager
def _told(parts: SharedParts, arguments: Json, caller: Caller) -> Iterator[Namespace]:
    """The shelf of a call; what goes wrong with it is told to the model."""
    try:
        yield shelf_of(arguments.get("namespace", USUAL), caller, parts.scope_of(caller))
    except Conflict as error:
        raise ToolFailed(f"{error} Read it, then write with its version.", "INVALID_INPUT") from error
    except Invalid as error:
        raise ToolFailed(str(error), "INVALID_INPUT") from error
    except NotFound as error:
        raise ToolFailed(str(error), "ERROR_NOT_FOUND") from error
    except Unavailable as error:
        raise ToolFailed(str(error), "DATABASE_ERROR") from error


def _watched(parts: SharedParts, shelf: Namespace, arguments: Json) -> Json:
    prefix, since = arguments.get("prefix", ""), int(arguments.get("since_version", 0))
    wait_s = min(float(arguments.get("wait_s", USUAL_WAIT_S)), MOST_WAIT_S)
    changes, is_anew = watch(parts.memory, parts.waiting, shelf, prefix, since=since, wait_s=wait_s)
    return {
        "changes": [_shown(entry) for entry in changes.entries],
        "since_version": changes.revision,
        "has_more": changes.has_more,
        **({"note": "since_version was not of this namespace, so this is all there is"} if is_anew else {}),
    }


def _change(parts: SharedParts, arguments: Json, caller: Caller) -> KeyWrite:
    expected = arguments.get("expected_version")
    return KeyWrite(caller.agent, parts.clock_ms(), None if expected is None else int(expected))


def _named(entry: SharedEntry) -> Json:
    changed = {"updated_by": entry.updated_by, "updated_at": rfc3339(entry.updated_ms)}
    return {"key": entry.key, "version": entry.version, **changed}


def _shown(entry: SharedEntry) -> Json:
    return {**_named(entry), **({"deleted": True} if entry.is_deleted else {"value": entry.value})}


_NAMESPACE: Json = {
    "type": "string",
    "description": (
        f"{USUAL} (default): yours alone; WORKFLOW, SWARM: of the one this conversation belongs to; GLOBAL: of all "
        "agents"
    ),
}
_KEY: Json = {"type": "string", "description": f"a name of 1 to {KEY_CHARS} characters"}
_PREFIX: Json = {"type": "string", "description": "only keys that begin so; taken literally, there are no wildcards"}
_EXPECTED = {"type": "integer", "minimum": 0}


def _spec(name: str, description: str, properties: Json, *required: str) -> ToolSpec:
    schema = {"type": "object", "properties": {**properties, "namespace": _NAMESPACE}, "additionalProperties": False}
    return ToolSpec(f"shared_memory_{name}", description, {**schema, "required": list(required)})


_WRITE = _spec(
    "write",
    "Keep a value under a key, beyond this conversation. Other namespaces than AGENT are read and written by others, "
    "too: pass expected_version there, so that nobody's change is lost.",
    {
        "key": _KEY,
        "value": {"description": f"any JSON value of at most {VALUE_BYTES:,} bytes"},
        "expected_version": {
            **_EXPECTED,
            "description": "write only if the key has this version, as it was read; 0: only if there is no such key",
        },
    },
    "key",
    "value",
)
_READ = _spec("read", "Read the value of a key, and its version.", {"key": _KEY}, "key")
_LIST = _spec(
    "list",
    "List keys, without values.",
    {
        "prefix": _PREFIX,
        "limit": {"type": "integer", "minimum": 1, "maximum": MOST_KEYS, "default": USUAL_KEYS},
        "after": {"type": "string", "description": "next of the former answer, to go on"},
    },
)
_DELETE = _spec(
    "delete",
    "Remove a key.",
    {"key": _KEY, "expected_version": {**_EXPECTED, "description": "remove it only if it has this version"}},
    "key",
)
_WATCH = _spec(
    "watch",
    "Wait for keys to be written or deleted. Without since_version it gives all values there are, at once; then pass "
    "the since_version of each answer to the next call to hear what has changed after it.",
    {
        "prefix": _PREFIX,
        "since_version": {"type": "integer", "minimum": 0, "default": 0},
        "wait_s": {"type": "number", "minimum": 0, "maximum": MOST_WAIT_S, "default": USUAL_WAIT_S},
    },
)
