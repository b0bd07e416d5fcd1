"""JSON Schemas of the audit's rows, and of the answer to the deletion of a user."""

from loom_worker.core.values.audit import ACTIONS, AuditEntry
from web.schemas import NUMBER, TEXT, TIME, WHOLE, Schema, answer, array, described, members, or_null

AUDIT_ROW = answer(
    {
        "id": described(TEXT, "`aud_`, then digits of `seq` and of `hash`: rows of a workspace sort by it."),
        "object": {"const": "audit.row"},
        "seq": described(WHOLE, "1, 2, 3… in the chain of the workspace."),
        "at": TIME,
        "kind": {"type": "string", "enum": list(ACTIONS)},
        "actor": or_null(
            described(
                TEXT,
                "Who did it: a key (`key_…`, or `env_…` for one of LOOM_API_KEYS), `local` for this machine without a "
                "key, `retention` for what was kept long enough. Of a turn: who submitted it.",
            )
        ),
        **members(
            AuditEntry,
            "workspace user channel agent model session_id turn_id subject status reason",
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
        "usage": or_null(
            answer(
                {"tokens": WHOLE, "cost_usd": described(or_null(NUMBER), "null: a price is not known.")},
                description="What a turn used; null for everything else.",
            )
        ),
        **members(AuditEntry, "duration_ms"),
        "prev_hash": described(TEXT, "The `hash` of the row before it; 64 zeros before the first."),
        "hash": described(TEXT, "SHA-256 of the row with `prev_hash`; docs/audit.md says of what exactly."),
    },
    description="What happened once, and who did it. Holds ids, names of tools and figures, never texts.",
)

DELETED_USER: Schema = answer(
    {"user": TEXT, "object": {"const": "user.deleted"}, "sessions": WHOLE, "turns": WHOLE, "keys": WHOLE},
    description="How many sessions and turns were deleted and how many keys revoked.",
)
