"""JSON Schemas of what is remembered of a session: what searches find, the Context, snapshots."""

from loom_worker.core.values.memory import Snapshot
from loom_worker.core.values.pages import Excerpt, Hit
from web.fact_schemas import TIERS
from web.schemas import NUMBER, TEXT, TIME, WHOLE, Schema, answer, members, or_null, ref

_SHORT: Schema = {"type": "string", "maxLength": 200}

_EXCERPT = answer(
    members(Excerpt, "message_id turn_id role text", text=_SHORT),
    description="What is shown of one message of a passage.",
)
_HIT = answer(
    members(
        Hit,
        "message_id turn_id role snippet score passage created_at",
        created_at=TIME,
        snippet=_SHORT,
        passage={
            "type": "array",
            "items": _EXCERPT,
            "maxItems": 5,
            "description": "The message and up to two on each side of it, in the order of the conversation.",
        },
    ),
    description="A message that a search found; a larger score is better, within one search.",
)

_LAYER = answer(
    {"tokens": WHOLE, "share": {**NUMBER, "minimum": 0}},
    description="What one layer takes; `share` is of the input budget, 0 to 1.",
)
_LAYER_OF_MESSAGES: Schema = {
    **_LAYER,
    "properties": {**_LAYER["properties"], "messages": WHOLE},
    "required": ["messages", *_LAYER["required"]],
}
_CONTEXT = answer(
    {
        "object": {"const": "context"},
        "layers": answer(
            {
                "tools": _LAYER,
                "rom": _LAYER,
                "kernel": _LAYER,
                "l2": _LAYER,
                "l1": _LAYER_OF_MESSAGES,
                "recalled": _LAYER_OF_MESSAGES,
                "patterns": _LAYER,
            },
            description="In the order of a request.",
        ),
        "input_budget_tokens": WHOLE,
        "used_tokens": WHOLE,
        "model": TEXT,
        "rom_digest": TEXT,
        "agent_version": or_null(TEXT),
        "learned": {"anyOf": [ref("LearnedPart"), {"type": "null"}]},
        "memory_version": WHOLE,
        "tiers": {"anyOf": [TIERS, {"type": "null"}]},
        "embeddings": or_null(
            answer({"model": TEXT, "messages": WHOLE, "missing": WHOLE}, description="With vectors, and without.")
        ),
    },
    description="What the model would be sent now, without the next question. Tokens are the provider's, as its latest "
    "reply reported them.",
)

_SNAPSHOT = answer(
    members(
        Snapshot,
        "id object session_id snapshot_type content token_count from_message_id to_message_id created_at",
        object={"const": "snapshot"},
    ),
    description="Summaries that left the context when they had grown too long, with the messages they speak of.",
)

MEMORY_ANSWERS: dict[str, Schema] = {
    "Hit": _HIT,
    "Context": _CONTEXT,
    "Snapshot": _SNAPSHOT,
}
