"""JSON Schemas of agents' versions."""

from typing import get_args

from loom_worker.core.values.agent_versions import LabelName
from web.request_schemas import object_of
from web.schemas import FLAG, TEXT, TIME, WHOLE, Schema, answer, array, described, list_of

_LABEL: Schema = {"type": "string", "enum": list(get_args(LabelName))}
AGENT_ACTIVATION = object_of(
    {
        "version": {
            "type": "string",
            "minLength": 1,
            "maxLength": 64,
            "description": "A version, a label, or `latest`: the label goes, and new sessions follow the file again.",
        },
        "as": {**_LABEL, "default": "production"},
        "share": {
            "type": "number",
            "minimum": 0,
            "maximum": 1,
            "description": "Of new sessions, for `canary`, which needs it.",
        },
        "sessions": {
            "type": "string",
            "enum": ["new", "all"],
            "default": "new",
            "description": "all: sessions of the workspace that have begun move to the version, too.",
        },
    },
    required=("version",),
    description="Which version of an agent sessions of the workspace are to get.",
)
_MEMBERS: dict[str, Schema] = {
    "object": {"const": "agent.version"},
    "agent": TEXT,
    "version": described(TEXT, "As the file declares it, with a number where another text had that already."),
    "digest": described(TEXT, "SHA-256 of the document."),
    "by": described(TEXT, "`file`: an edit was noticed."),
    "labels": described(array(_LABEL), "In the caller's workspace."),
    "active": described(FLAG, "New sessions of the workspace get it, those of the canary aside."),
    "created_at": described(TIME, "When it was noticed."),
}
AGENT_VERSION_REQUESTS: dict[str, Schema] = {"AgentActivation": AGENT_ACTIVATION}
AGENT_VERSION_ANSWERS: dict[str, Schema] = {
    "AgentVersion": answer(_MEMBERS, description="One text that an agent's file has had."),
    "AgentVersionList": list_of("AgentVersion"),
    "AgentVersionDocument": answer(
        {**_MEMBERS, "document": described({"type": "object"}, "All that the file says about the agent.")},
        description="A version with its text.",
    ),
    "AgentDiff": answer(
        {
            "object": {"const": "agent.diff"},
            "agent": TEXT,
            "from": TEXT,
            "to": TEXT,
            "diff": described(TEXT, "A unified diff of the documents as YAML; empty if they say the same."),
        },
        description="What a version of an agent changed.",
    ),
    "AgentActivated": answer(
        {**_MEMBERS, "moved_sessions": described(WHOLE, "Sessions that had another version, or none yet.")},
        description="The version that was activated.",
    ),
}
