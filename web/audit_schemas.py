"""JSON Schemas of the audit's rows, and of the answer to the deletion of a user."""

from loom_worker.core.values.audit import ACTIONS, AuditEntry
from web.schemas import TEXT, TIME, WHOLE, Schema, answer, array, described, members, or_null

AUDIT_ROW = answer(
    {
        "seq": described(WHOLE, "1, 2, 3… in the chain of the workspace."),
        "object": {"const": "audit.row"},
        "at": TIME,
        **members(
            AuditEntry,
            "workspace action key_id user channel agent model session_id turn_id subject status reason",
            action={"type": "string", "enum": list(ACTIONS)},
            subject=or_null(described(TEXT, "The id of the key, user, call or delivery that was acted on.")),
        ),
        "tools": array(
            answer(
                {"name": TEXT, "calls": WHOLE, "outcomes": {"type": "object", "additionalProperties": WHOLE}},
                description="How often a turn called a tool, with how the calls ended.",
            )
        ),
        "decisions": array(
            answer(
                {"kind": TEXT, "name": TEXT, "outcome": {"type": ["string", "integer"]}},
                description="What was decided: of people on calls, of rules that were changed, of a key's scopes.",
            )
        ),
        **members(AuditEntry, "tokens duration_ms"),
        "cost_nano_usd": described(or_null(WHOLE), "Billionths of a USD; null: no price is known."),
        "previous_hash": TEXT,
        "hash": described(TEXT, "SHA-256 of the row with `previous_hash`; docs/audit.md says of what exactly."),
    },
    description="What happened once, and who did it. Holds ids, names of tools and figures, never texts.",
)

DELETED_USER: Schema = answer(
    {"user": TEXT, "object": {"const": "user.deleted"}, "sessions": WHOLE, "turns": WHOLE, "keys": WHOLE},
    description="How many sessions and turns were deleted and how many keys revoked.",
)
