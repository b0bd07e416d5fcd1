"""Memory that agents share: its namespaces, and the tools that read, write and watch them.

The owner of a key comes from the caller and the session, never from what the model writes.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from loom_worker.core.errors import Conflict, Invalid, NotFound, ToolFailed, Unavailable
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.chat import ToolSpec, object_schema
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json, rfc3339
from loom_worker.core.values.tools import Caller, Tool
from loom_worker.store.shared_memory import (
    KEY_CHARS,
    MEMBERS,
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
POLL_S = 0.2
MOST_CHANGES = 50
"""In one answer; the next call returns more."""
USUAL_KEYS, MOST_KEYS = 50, 200
"""In one answer of a list."""
USUAL_WAIT_S, MOST_WAIT_S = 10, 20


def namespace_of(namespace: str, caller: Caller, owners: Mapping[str, tuple[str, object]]) -> Namespace:
    """The namespace with its owner.

    Args:
        namespace: one of NAMESPACES, in any case.
        owners: see SharedMemory.owners.

    Raises:
        ToolFailed: there is no such namespace, or the caller works for no workflow or swarm.
    """
    name = namespace.upper()
    if name not in NAMESPACES:
        raise ToolFailed(f"namespace must be one of {', '.join(NAMESPACES)}", "INVALID_INPUT")
    if name == "GLOBAL":
        return Namespace(caller.workspace, name, "")
    space, owner = (name, caller.agent) if name == "AGENT" else owners.get(name, (name, None))
    if not isinstance(owner, str) or not 1 <= len(owner) <= OWNER_CHARS or not is_plain(owner):
        text = f"no {name.lower()} of a run, and this session's metadata has no {MEMBERS.get(name, 'agent')}"
        raise ToolFailed(text, "INVALID_INPUT")
    return Namespace(caller.workspace, space, owner)


@dataclass(frozen=True, slots=True)
class SharedParts:
    """What the tools work with."""

    memory: SharedMemory
    stopping: Stopping
    """A watch ends early when the process is to stop."""
    clock_ms: Callable[[], int] = now_ms
    clock_s: Callable[[], float] = time.monotonic


def shared_tools(parts: SharedParts) -> tuple[Tool, ...]:
    """``shared_memory_write``, ``_read``, ``_list``, ``_delete`` and ``_watch``.

    Writing and deleting are not idempotent: repeated after an answer was lost, they would undo what another agent
    did in between.
    """

    def write(arguments: Json, caller: Caller) -> Json:
        with _namespace(parts, arguments, caller) as namespace:
            key = arguments["key"]
            version = parts.memory.write(namespace, key, arguments["value"], _change(parts, arguments, caller))
            return {"key": key, "version": version}

    def read(arguments: Json, caller: Caller) -> Json:
        with _namespace(parts, arguments, caller) as namespace:
            return _shown(parts.memory.read(namespace, arguments["key"]))

    def keys(arguments: Json, caller: Caller) -> Json:
        with _namespace(parts, arguments, caller) as namespace:
            limit, after = int(arguments.get("limit", USUAL_KEYS)), arguments.get("after")
            page = parts.memory.page(namespace, arguments.get("prefix", ""), limit=min(limit, MOST_KEYS), after=after)
            return {"keys": [_named(entry) for entry in page.items], "next": page.next}

    def remove(arguments: Json, caller: Caller) -> Json:
        with _namespace(parts, arguments, caller) as namespace:
            key = arguments["key"]
            return {"deleted": key, "version": parts.memory.delete(namespace, key, _change(parts, arguments, caller))}

    def wait(arguments: Json, caller: Caller) -> Json:
        with _namespace(parts, arguments, caller) as namespace:
            prefix, since = arguments.get("prefix", ""), int(arguments.get("since_version", 0))
            wait_s = min(float(arguments.get("wait_s", USUAL_WAIT_S)), MOST_WAIT_S)
            changes, is_anew = _watch(parts, namespace, prefix, since=since, wait_s=wait_s)
            return {
                "changes": [_shown(entry) for entry in changes.entries],
                "since_version": changes.revision,
                "has_more": changes.has_more,
                **({"note": "since_version was not of this namespace, so this is all there is"} if is_anew else {}),
            }

    return (
        Tool(_WRITE, write, is_idempotent=False, is_bounded=True, is_repeatable=False, occasion="seldom"),
        Tool(_READ, read, is_bounded=True, is_repeatable=False, occasion="seldom"),
        Tool(_LIST, keys, is_bounded=True, is_repeatable=False, occasion="seldom"),
        Tool(_DELETE, remove, is_idempotent=False, is_bounded=True, is_repeatable=False, occasion="seldom"),
        Tool(_WATCH, wait, is_repeatable=False, occasion="seldom"),
    )


@contextmanager
def _namespace(parts: SharedParts, arguments: Json, caller: Caller) -> Iterator[Namespace]:
    """The namespace of a call; errors of the store become errors for the model."""
    try:
        yield namespace_of(arguments.get("namespace", USUAL), caller, parts.memory.owners(caller.turn_id))
    except Conflict as error:
        raise ToolFailed(f"{error} Read it, then write with its version.", "INVALID_INPUT") from error
    except Invalid as error:
        raise ToolFailed(str(error), "INVALID_INPUT") from error
    except NotFound as error:
        raise ToolFailed(str(error), "ERROR_NOT_FOUND") from error
    except Unavailable as error:
        raise ToolFailed(str(error), "DATABASE_ERROR") from error


def _watch(
    parts: SharedParts, namespace: Namespace, prefix: str, *, since: int, wait_s: float
) -> tuple[SharedChanges, bool]:
    """Wait for changes after a revision; return none when time is up or the process stops.

    Args:
        since: 0 returns what there is at once. So does a revision that this namespace has not reached, because it
            belongs to another namespace.

    Returns:
        The changes, and whether they start from the beginning although the caller has seen some.
    """
    until_s = parts.clock_s() + wait_s
    while True:
        found = parts.memory.changes(namespace, prefix, since=since, limit=MOST_CHANGES)
        if since > found.revision:
            return parts.memory.changes(namespace, prefix, since=0, limit=MOST_CHANGES), True
        left_s = until_s - parts.clock_s()
        if found.entries or since == 0 or left_s <= 0 or parts.stopping.pause(min(POLL_S, left_s)):
            return found, False


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
        f"{USUAL} (default): yours alone; WORKFLOW, SWARM: of the one you are working in; GLOBAL: of all agents"
    ),
}
_KEY: Json = {"type": "string", "description": f"a name of 1 to {KEY_CHARS} characters"}
_PREFIX: Json = {"type": "string", "description": "only keys that begin so; taken literally, there are no wildcards"}
_EXPECTED = {"type": "integer", "minimum": 0}


def _spec(name: str, description: str, properties: Json, *required: str) -> ToolSpec:
    return ToolSpec(f"shared_memory_{name}", description, object_schema(*required, **properties, namespace=_NAMESPACE))


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
