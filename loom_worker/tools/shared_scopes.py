"""Whose a key is: the owner comes from the caller and the session, never from what the model writes. Pure."""

from collections.abc import Mapping

from loom_worker.core.errors import ToolFailed
from loom_worker.core.values.tools import Caller
from loom_worker.store.shared import Shelf, is_plain

NAMESPACES = ("AGENT", "WORKFLOW", "SWARM", "GLOBAL")
USUAL = "AGENT"
OWNER_CHARS = 128
_MEMBERS = {"WORKFLOW": "workflow_id", "SWARM": "swarm_id"}
"""Of the session's metadata: which workflow or swarm it belongs to."""


def shelf_of(namespace: str, caller: Caller, scope: Mapping[str, object]) -> Shelf:
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
        return Shelf(caller.workspace, name, "")
    owner = caller.agent if name == "AGENT" else scope.get(_MEMBERS[name])
    if not isinstance(owner, str) or not 1 <= len(owner) <= OWNER_CHARS or not is_plain(owner):
        text = f"this session has no {_MEMBERS.get(name, 'agent')} in its metadata, so no {name} namespace"
        raise ToolFailed(text, "INVALID_INPUT")
    return Shelf(caller.workspace, name, owner)
