"""A turn, its journal, and what a client asks for when submitting one."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from loom_worker.core.text import clean
from loom_worker.core.values.budgets import Payer
from loom_worker.core.values.calls import Call
from loom_worker.core.values.channels import Channel
from loom_worker.core.values.chat import Usage
from loom_worker.core.values.children import Ancestor, AncestorBudget
from loom_worker.core.values.cutting import FIELD_BYTES, cut_mark, entries, fit, items, text
from loom_worker.core.values.json import Json, rfc3339, strict_json
from loom_worker.core.values.judges import Verdict, shortened
from loom_worker.core.values.media import InputPart
from loom_worker.core.values.schedules import Firing
from loom_worker.core.values.sessions import Choice
from loom_worker.core.values.traces import NO_TRACE, RunEnd, TurnTrace, WorkerRun
from loom_worker.core.values.waiting import Waiting
from loom_worker.core.values.webhooks import Webhook
from loom_worker.core.values.workspaces import NO_RULES, Rules

TurnStatus = Literal["queued", "in_progress", "requires_action", "completed", "failed", "cancelled", "incomplete"]
UNFINISHED: tuple[TurnStatus, ...] = ("queued", "in_progress", "requires_action")
_GLANCE_CHARS = 1000

CancelAction = Literal["interrupt", "rollback", "finish"]
"""How a client asks a turn to end: what was said stays · as if it never ran · one last call without tools."""
STRENGTH: dict[CancelAction | None, int] = {None: 0, "finish": 1, "interrupt": 2, "rollback": 3}
"""The stronger one of two asks holds, whatever their order."""

LISTED_CALLS = 50
"""Tool calls of one turn in a list."""


@dataclass(frozen=True, slots=True)
class NewTurn:
    """A turn as a client submits it, already validated."""

    input: str
    """The text; of parts, all that stands for them in it."""
    parts: tuple[InputPart, ...] = ()
    """What it was made of; empty: the client gave a text."""
    webhook: Webhook | None = None
    deadline_s: float | None = None
    max_attempts: int | None = None
    metadata: Json = field(default_factory=dict)
    budget: Json | None = None
    double_texting: Literal["enqueue", "reject", "interrupt", "rollback"] = "enqueue"
    """What becomes of the turn that runs: it is waited for, the new one refused, or it is cancelled so."""
    idempotency_key: str | None = None
    fingerprint: str | None = None
    """SHA-256 of the request, to recognize a different request with the same idempotency key."""
    traceparent: str | None = None
    trace: TurnTrace = NO_TRACE
    """When its request came, and from whom its trace is."""
    request_id: str | None = None
    retry_of: str | None = None
    said_ms: int | None = None
    """When it was said elsewhere, ms since 1970; None: it is said now."""
    key_id: str | None = None
    """Id of the API key with which it is submitted; None where none is needed."""
    user: str | None = None
    """Who asks, as the channel names the user, or Loom if there is no channel; None: nobody in particular."""
    channel: Channel | None = None
    """Where the answer is read; None: the client makes of it what it likes."""
    guard: list[Json] | None = None
    """What guardrails decided on the input, as the audit keeps it; None: nothing."""
    run_id: str | None = None
    """Id of the workflow's run that it is a stage of, or works for; None: of none."""
    ancestors: tuple[Ancestor, ...] = ()
    """The turns that wait for it, the one that asked it last."""
    firing: Firing | None = None
    """The due time of a schedule that begins it; None: a client does."""
    response_format: Json | None = None
    """The form of the answer, ``{name, schema}``; empty: a text; None: as the agent's file says."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The request to have a failed turn's input answered after all."""

    idempotency_key: str | None = None
    fingerprint: str | None = None
    traceparent: str | None = None
    trace: TurnTrace = NO_TRACE
    request_id: str | None = None
    key_id: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """A row of the journal: what was done and need not be done again."""

    n: int
    kind: Literal["matched", "reply", "waited", "events", "shaped", "judged", "tried"]
    """matched: patterns found · reply: the model answered · waited: it was too busy · events: what readers saw ·
    shaped: whether a reply has its form · judged: what all verdicts on a reply come to · tried: what requests used that
    came to nothing."""
    payload: Json
    version: int = 1

    @property
    def takes_back(self) -> bool:
        """True if the next reply takes the place of all that was said so far."""
        return self.kind in ("shaped", "judged") and not self.payload["is_last"]


PAID = ("reply", "tried")
"""The kinds of steps that have a model and what it used."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn's row. ``lane`` is the session's internal key and never leaves the system."""

    id: str
    lane: str
    session_id: str
    workspace: str
    agent: str
    seq: int
    status: TurnStatus
    input: str
    created_ms: int
    said_ms: int | None = None
    """The date of its messages, where a client gave one."""
    reason: str | None = None
    fence: int = 0
    deaths: int = 0
    """Owners that died while holding it, since the journal last grew."""
    max_attempts: int = 3
    output_text: str | None = None
    error: Json | None = None
    usage: Usage = field(default_factory=Usage)
    patterns: tuple[Json, ...] = ()
    metadata: Json = field(default_factory=dict)
    webhook: Webhook | None = None
    deadline_ms: int | None = None
    budget: Json | None = None
    trace_id: str | None = None
    request_id: str | None = None
    key_id: str | None = None
    """Id of the API key with which it was submitted; None where no key was needed."""
    channel: Channel | None = None
    output_parts: tuple[str, ...] | None = None
    """The answer as messages of its channel; None without a channel, or while there is no answer."""
    guard: list[Json] | None = None
    """What guardrails decided on the input, as the audit keeps it; None: nothing."""
    judge: Json | None = None
    """What judges made of the latest answer that all of them have looked at; None: of none so far."""
    run_id: str | None = None
    """Id of the workflow's run that it is a stage of, or works for."""
    ancestors: tuple[Ancestor, ...] = ()
    """The turns that wait for it, the one that asked it last."""
    retry_of: str | None = None
    cancel: CancelAction | None = None
    started_ms: int | None = None
    completed_ms: int | None = None
    first_token_ms: int | None = None
    """Milliseconds from acceptance to the first piece of text."""
    run_ms: int = 0
    """Milliseconds spent running: not queued, not parked."""
    calls: tuple[Call, ...] = ()
    held_by: str | None = None
    """The worker that runs it; None while it is queued, parked, released or finished."""
    parked_until_ms: int | None = None
    """A turn without an owner goes on then, should nobody wake it; None: it is not parked."""
    position: int = 0
    """Unfinished turns of the session before this one."""
    learned_version: int | None = None
    """Version of the learned layer that its session has; 0: none, None: it was never claimed."""
    waiting: Waiting | None = field(default=None, compare=False)
    """What it waits for, where somebody has looked; None for a turn that has ended."""
    is_cut: bool = False
    """True for a turn in a list whose fields are longer than shown."""
    agent_version: str | None = None
    """Version of the agent that ran it; None before it has run."""
    model: str | None = None
    """The model that answers it; None before it has run, or if the agent cannot work."""
    user: str | None = None
    """The user of its session, when it was accepted."""
    response_format: Json | None = None
    """As of NewTurn; once it has run, the agent's with ``by: agent`` where it has none of its own."""
    parts: tuple[InputPart, ...] = ()
    """What the input was made of; empty: a text."""

    @property
    def given(self) -> str | list[Json]:
        """The input as the client gave it, files named by their ids."""
        return [part.as_json() for part in self.parts] or self.input

    def brief(self) -> "Turn":
        calls = tuple(call.brief() for call in self.calls[:LISTED_CALLS])
        fields: Json = {
            "input": fit(self.input, FIELD_BYTES, text),
            "parts": self.parts if fit(self.given, FIELD_BYTES, lambda _whole, _budget: None) else (),
            "output_text": fit(self.output_text, FIELD_BYTES, text),
            "output_parts": self.output_parts and tuple(fit(list(self.output_parts), FIELD_BYTES, items)),
            "metadata": fit(self.metadata, FIELD_BYTES, entries),
            "error": fit(self.error, FIELD_BYTES, entries),
            "judge": fit(self.judge, FIELD_BYTES, shortened),
            "patterns": tuple(fit(list(self.patterns), FIELD_BYTES, items)),
            "calls": calls if calls != self.calls else self.calls,
        }
        is_cut = any(value != getattr(self, name) for name, value in fields.items())
        return replace(self, **fields, is_cut=is_cut, response_format=None)

    @property
    def output_parsed(self) -> Any:
        """The object that a whole answer of a given form is; None: it is none, or the turn is in a list."""
        with suppress(ValueError):
            return strict_json(self.output_text or "") if self.response_format and self.status == "completed" else None
        return None

    @property
    def is_finished(self) -> bool:
        return self.status not in UNFINISHED

    @property
    def attempt(self) -> int:
        """1 for the first owner, one more for each that died; 0 before the first."""
        return 0 if self.started_ms is None else self.deaths + 1

    def as_json(self) -> Json:
        queued_until = self.started_ms or self.completed_ms
        return {
            "id": self.id,
            "object": "turn",
            "session_id": self.session_id,
            "seq": self.seq,
            "agent": self.agent,
            "agent_version": self.agent_version,
            "model": self.model,
            "user": self.user,
            "budget": self.budget,
            "status": self.status,
            "reason": self.reason,
            "position": self.position,
            "attempt": self.attempt,
            "input": self.given,
            "output_text": self.output_text,
            "output_parsed": self.output_parsed,
            "output_parts": None if self.output_parts is None else list(self.output_parts),
            "channel": None if self.channel is None else self.channel.as_json(),
            "tool_calls": [call.as_json() for call in self.calls],
            "patterns": list(self.patterns),
            "judge": self.judge,
            "learned_version": self.learned_version or None,
            "usage": self.usage.as_json(),
            "error": self.error,
            "waiting": None if self.waiting is None else self.waiting.as_json(),
            "timings": {
                "queued_ms": None if queued_until is None else queued_until - self.created_ms,
                "run_ms": self.run_ms if self.is_finished else None,
                "first_token_ms": self.first_token_ms,
            },
            "trace_id": self.trace_id,
            "metadata": self.metadata,
            "retry_of": self.retry_of,
            "run_id": self.run_id,
            "parent_turn_id": self.ancestors[-1].turn_id if self.ancestors else None,
            "cancel": self.cancel,
            "said_at": rfc3339(self.said_ms),
            "created_at": rfc3339(self.created_ms),
            "started_at": rfc3339(self.started_ms),
            "completed_at": rfc3339(self.completed_ms),
            **cut_mark(self.is_cut, f"/v1/turns/{self.id}"),
        }


@dataclass(frozen=True, slots=True)
class Claim:
    """A turn that this worker may run now, with what it needs of its session."""

    turn: Turn
    steps: tuple[Step, ...]
    rom: str | None
    """The session's system text as first sent; None before the first turn."""
    kernel: Json
    choice: Choice
    user: str | None
    spent: Usage = field(default_factory=Usage)
    """What the session has used before this turn."""
    token_correction: float | None = None
    """As of the session."""
    memory_seen: int = 0
    """The version of the session's memory that readers have an event of."""
    budget: Json | None = None
    """The session's."""
    run_budget: Json | None = None
    """Budget of the workflow's run that the turn is a stage of."""
    ancestor_budgets: tuple[AncestorBudget, ...] = ()
    """Budgets of the turns that wait for it, and of their sessions."""
    rules: Rules = NO_RULES
    """What the workspace's administrator has set."""
    verdicts: tuple[Verdict, ...] = ()
    """On its answers so far."""
    claimed_us: int = 0
    """When it was claimed, in microseconds since 1970."""
    trace: TurnTrace = NO_TRACE
    """As of that moment."""

    def payer(self, agent_budget: Json | None) -> Payer:
        """On whose budgets its calls are made."""
        turn = self.turn
        names = (turn.workspace, turn.lane, turn.agent)
        return Payer(*names, agent_budget, turn.id, turn.ancestors, turn.run_id or "", is_owner=True)

    def trace_until(self, now_us: int, end: RunEnd) -> TurnTrace:
        """The turn's trace with the run that began with this claim, and ends now."""
        turn = self.turn
        return self.trace.with_run(WorkerRun(turn.fence, turn.held_by or "", self.claimed_us, now_us, end))

    def is_limited(self, agent_budget: Json | None) -> bool:
        """True if any budget limited the turn when it was claimed."""
        payer = self.payer(agent_budget)
        budgets = {"turn": self.turn.budget, "session": self.budget, "workspace": self.rules.budget}
        run = (self.turn.run_id or "", self.run_budget)
        return bool(payer.limits(**budgets, run=run, above=self.ancestor_budgets, now_ms=0))


@dataclass(frozen=True, slots=True)
class Ending:
    """How a turn ends."""

    status: TurnStatus
    reason: str | None = None
    output_text: str | None = None
    error: Json | None = None
    output_parts: tuple[str, ...] | None = None
    """The text as messages of the turn's channel; None without one, or without a text."""

    @property
    def leaves_messages(self) -> bool:
        """False for a turn that was rolled back, or whose input was refused: the conversation goes on without it."""
        return (self.status, self.reason) not in (("cancelled", "rollback"), ("failed", "guardrail"))


BETWEEN_REPLIES = "\n\n"
"""Parts the pieces of an answer that its model gave in more than one reply."""


def continued(replies: Iterable[Step]) -> tuple[Step, ...]:
    """Those of a turn's replies whose text the next reply goes on with; none after a call of tools."""
    pieces: list[Step] = []
    for step in replies:
        pieces += [step] if step.payload["text"].strip() else []
        if step.payload["tool_uses"] or step.payload["stop_reason"] == "unasked_calls":
            pieces.clear()
    return tuple(pieces)


def answer(replies: Sequence[Step]) -> str:
    """What a turn said last, with what that goes on with; all that it said earlier is commentary. Empty: nothing."""
    latest = next((n for n in reversed(range(len(replies))) if replies[n].payload["text"].strip()), -1)
    pieces = (*continued(replies[:latest]), replies[latest]) if latest >= 0 else ()
    return BETWEEN_REPLIES.join(step.payload["text"] for step in pieces)


def standing(steps: Iterable[Step]) -> tuple[Step, ...]:
    """The replies of a journal since an answer was last to be given anew; all of them where none ever was.

    One that was given up before its first word takes the place of nothing, and is left out there.
    """
    replies: list[Step] = []
    is_anew = False
    for step in steps:
        if step.takes_back:
            replies.clear()
            is_anew = True
        elif step.kind == "reply" and (not is_anew or step.payload["text"].strip() or step.payload["tool_uses"]):
            replies.append(step)
    return tuple(replies)


def is_blank(text: str) -> bool:
    """True if nothing of the text can be seen: blanks and invisible characters alone, or nothing at all."""
    # The beginning is nearly always enough, and a long text would take a while.
    return not (clean(text[:_GLANCE_CHARS]).strip() or clean(text).strip())
