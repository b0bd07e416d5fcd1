"""The audit: who did what, in the caller's workspace."""

from typing import Annotated

from flask import Response
from pydantic import Field

from loom_worker.core.values.audit import ACTIONS, AuditEntry, AuditFilter
from web.answers import page_answer
from web.caller import caller
from web.check import word_of
from web.operation import Operation, Views
from web.query import PRINTABLE, PeriodQuery, Text
from web.schemas import WHOLE, array, list_of, nullable, one_of, record


class _AuditQuery(PeriodQuery):
    kind: Annotated[str, word_of(ACTIONS)] | None = Field(None, description="Of this kind only.")
    user: Annotated[str, Field(max_length=256), PRINTABLE] | None = Field(None, description="Of this user only.")
    agent: Text | None = Field(None, description="Of this agent only.")
    session: Text | None = Field(None, description="Of this session only.")
    turn: Text | None = Field(None, description="Of this turn only.")


_TOOL = record(
    "",
    "How often a turn called a tool, with how the calls ended.",
    "name:text calls:whole",
    outcomes={"type": "object", "additionalProperties": WHOLE},
)
_DECISION = record(
    "",
    "What was decided: of people on calls, of rules that were changed, of a key's scopes.",
    "kind:text name:text",
    outcome={"type": ["string", "integer"]},
)
_USAGE = record(
    "", "What a turn used; null for everything else.", "tokens:whole", cost_usd="number? null: a price is not known."
)
AUDIT_ROW = record(
    "AuditRow",
    "What happened once, and who did it. Holds ids, names of tools and figures, never texts.",
    "object=audit.row at:time workspace user channel agent model session_id turn_id subject status reason duration_ms",
    AuditEntry,
    id="text `aud_`, then digits of `seq` and of `hash`: rows of a workspace sort by it.",
    seq="whole 1, 2, 3… in the chain of the workspace.",
    kind=one_of(ACTIONS),
    actor="text? Who did it: a key (`key_…`, or `env_…` for one of LOOM_API_KEYS), `local` for this machine without a "
    "key, `retention` for what was kept long enough. Of a turn: who submitted it.",
    subject="text? The id of the key, user, call or delivery that was acted on.",
    tools=array(_TOOL),
    decisions=array(_DECISION),
    usage=nullable(_USAGE),
    prev_hash="text The `hash` of the row before it; 64 zeros before the first.",
    hash="text SHA-256 of the row with `prev_hash`; docs/audit.md says of what exactly.",
)


class AuditViews(Views, tag="audit"):
    """The view under ``/v1/audit``."""

    @Operation("GET /v1/audit", list_of(AUDIT_ROW), scope="admin")
    def list(self, asked: _AuditQuery) -> Response:
        """List who did what, the newest first."""
        wanted = AuditFilter(
            action=asked.kind,
            user=asked.user,
            agent=asked.agent,
            session_id=asked.session,
            turn_id=asked.turn,
            since_ms=asked.since,
            until_ms=asked.until,
        )
        return page_answer(self.service.audit.page(caller().tenant, wanted, limit=asked.limit, after=asked.after))
