"""JSON Schemas of facts, and what the Context says of tiers."""

from typing import get_args

from loom_worker.core.values.facts import OBJECT_CHARS, RELATION_CHARS, Fact, FactSource
from loom_worker.core.values.tiers import Scope
from web.request_schemas import NOT_BLANK, object_of
from web.schemas import NUMBER, TEXT, TIME, WHOLE, Schema, answer, described, list_of, members, one_of, or_null

FACT_PATCH = object_of(
    {
        "object": {"type": "string", "pattern": NOT_BLANK, "maxLength": OBJECT_CHARS},
        "relation": {"type": "string", "pattern": NOT_BLANK, "maxLength": RELATION_CHARS},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        "until": described(or_null(TIME), "When it ceased to hold; null or absent: it holds."),
    },
    description="What a person says of a fact; absent members stay as they are, but for `confidence`, which becomes 1.",
) | {"minProperties": 1}

_FACT = answer(
    members(
        Fact,
        "id subject relation object since until superseded_by confidence source user session_id message_id "
        "last_said_at created_at",
        subject=described(TEXT, "`user` is whoever writes in the sessions of this user."),
        since=described(TIME, "When it began to hold, as far as is known; else when it was first said."),
        until=described(or_null(TIME), "When it ceased to hold; null: it holds."),
        superseded_by=described(or_null(TEXT), "The fact that took its place; it may be deleted."),
        confidence=described(NUMBER, "0 to 1; each time it is said raises it."),
        source={"type": "string", "enum": list(get_args(FactSource)), "description": "`user`: a person corrected it."},
        user=described(or_null(TEXT), "In whose session it was said."),
        message_id=described(or_null(TEXT), "The message that first said it; null if a person did, or it is deleted."),
        last_said_at=TIME,
    ),
    description="Something that is known beyond a session. `object` is a part of it: its third, after subject and "
    "relation.",
)

TIERS = answer(
    {
        "summaries": described(WHOLE, "Summaries by date of this session."),
        "summarized_messages": WHOLE,
        "summarized_until": or_null(TIME),
        "waiting_messages": described(WHOLE, "That have left L1 and make no batch so far."),
        "scope": one_of(Scope),
        "open_facts": described(WHOLE, "Facts that hold and that the session can be told, by the agent's scope."),
    },
    description="What the session has beyond its context; null for an agent without tiers of memory.",
)

FACT_REQUESTS: dict[str, Schema] = {"FactPatch": FACT_PATCH}
FACT_ANSWERS: dict[str, Schema] = {"Fact": _FACT, "FactList": list_of("Fact")}
