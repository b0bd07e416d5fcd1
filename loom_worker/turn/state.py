"""A turn as saved state: its steps and calls, and the messages they make. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from loom_worker.core.values.budgets import Amount, Reservation
from loom_worker.core.values.calls import Call
from loom_worker.core.values.chat import Reply, Usage
from loom_worker.core.values.json import Json
from loom_worker.core.values.judges import Judgement, Verdict
from loom_worker.core.values.traces import Interval
from loom_worker.core.values.turns import PAID, Claim, Step, Turn, answer, standing
from loom_worker.core.values.webhooks import Webhook
from loom_worker.guard.rails import Checked
from loom_worker.llm.model import PaidTry
from loom_worker.memory.layers import correction
from loom_worker.store.journal import Entries
from loom_worker.store.rows import use_json

CLEARS_RECALLED = "clear_recalled_context"
"""The tool after which recalled context is left out, also in the turn that calls it."""


@dataclass(frozen=True, slots=True)
class Bill:
    """What budgets had to say to a reply and its calls."""

    held: tuple[Reservation, ...] = ()
    """What was set aside for them, until they are in the journal."""
    narrowed: str = ""
    """Which budget made the reply shorter than it might have been; empty: none."""
    refused: str = ""
    """Why none of its calls is made; empty: they are."""


UNLIMITED = Bill()


@dataclass(frozen=True, slots=True)
class TurnState:
    """Grows by steps; ``saved`` says how much of it the journal has."""

    claim: Claim
    steps: tuple[Step, ...]
    calls: tuple[Call, ...]
    saved_steps: int
    saved_calls: int
    usage: Usage
    patterns: tuple[Json, ...]
    first_token_ms: int | None
    held: tuple[Reservation, ...] = ()
    """What budgets have set aside for what the journal does not have."""
    verdicts: tuple[Verdict, ...] = ()
    """Verdicts of judges on its answers, those that are about to be asked for included."""
    saved_verdicts: int = 0

    @classmethod
    def begin(cls, claim: Claim) -> "TurnState":
        """Take up a turn where its journal ends."""
        answered_by = [str(step.payload["model"]) for step in claim.steps if step.kind == "reply"]
        turn = replace(claim.turn, model=answered_by[-1]) if answered_by else claim.turn
        return cls(
            claim=replace(claim, turn=turn),
            steps=claim.steps,
            calls=turn.calls,
            saved_steps=len(claim.steps),
            saved_calls=len(turn.calls),
            usage=_spent(claim) if claim.verdicts else turn.usage,
            patterns=turn.patterns,
            first_token_ms=turn.first_token_ms,
            verdicts=claim.verdicts,
            saved_verdicts=len(claim.verdicts),
        )

    @property
    def turn(self) -> Turn:
        """The row as it was claimed."""
        return self.claim.turn

    @property
    def next_n(self) -> int:
        """The number of the next step."""
        return len(self.steps)

    @property
    def is_matched(self) -> bool:
        """True once patterns were looked for."""
        return any(step.kind == "matched" for step in self.steps)

    @property
    def refused_for(self) -> tuple[str, ...]:
        """The kinds for which a model refused the input."""
        return tuple(
            kind for step in self.steps if step.kind == "matched" for kind in step.payload.get("refused_for", ())
        )

    @property
    def context(self) -> str:
        """The text added to the user's message, as first sent."""
        return next((str(step.payload["context"]) for step in self.steps if step.kind == "matched"), "")

    @property
    def recalled(self) -> str:
        """What was recalled before this turn, until the model clears it."""
        if any(call.name == CLEARS_RECALLED and call.status == "completed" for call in self.calls):
            return ""
        return next((str(step.payload.get("recalled", "")) for step in self.steps if step.kind == "matched"), "")

    @property
    def correction(self) -> float | None:
        """The provider's input tokens over our estimate, by its latest reply; None before any reply."""
        replies = (
            step.payload for step in reversed(self.steps) if step.kind == "reply" and step.payload.get("estimated")
        )
        latest = next(replies, None)
        if latest is None:
            return self.claim.token_correction
        sent = Usage.from_json(latest["usage"]).sent_tokens
        return correction(sent, int(latest["estimated"]))

    @property
    def replies(self) -> tuple[Step, ...]:
        """The steps that hold a reply, in order."""
        return tuple(step for step in self.steps if step.kind == "reply")

    @property
    def last_reply(self) -> Step | None:
        """The latest reply."""
        return next((step for step in reversed(self.steps) if step.kind == "reply"), None)

    @property
    def judged(self) -> dict[int, Json]:
        """What all verdicts on an answer came to, by the number of its reply."""
        return {step.payload["reply_n"]: step.payload for step in self.steps if step.kind == "judged"}

    @property
    def shaped(self) -> dict[int, Json]:
        """Whether an answer has its form, by the number of its reply."""
        return {step.payload["reply_n"]: step.payload for step in self.steps if step.kind == "shaped"}

    @property
    def was_reshaped(self) -> bool:
        """True if the latest answer that was looked at had to be given anew for its form."""
        looked = (step for step in reversed(self.steps) if step.kind in ("shaped", "judged"))
        return (latest := next(looked, None)) is not None and latest.kind == "shaped" and latest.takes_back

    @property
    def is_reshaping(self) -> bool:
        """True while the next reply is to give the last one's answer in its form."""
        return self.was_reshaped and not self.standing

    @property
    def standing(self) -> tuple[Step, ...]:
        """What the next reply is added to: the replies since an answer was last to be given anew."""
        return standing(self.steps)

    @property
    def is_correcting(self) -> bool:
        """True while the next reply takes the place of all that was said so far."""
        return any(step.takes_back for step in self.steps) and not self.standing

    @property
    def spoken(self) -> tuple[Step, ...]:
        """The replies as a reader knows them: what is to be given anew stands until the next one comes."""
        if not self.is_correcting:
            return self.standing
        last = next(n for n in reversed(range(len(self.steps))) if self.steps[n].takes_back)
        return standing(self.steps[:last])

    @property
    def judge(self) -> Json | None:
        """``judge`` of the Turn."""
        judged = list(self.judged.values())
        if not judged:
            return None
        last = judged[-1]
        return {**{name: last[name] for name in ("score", "passed", "verdicts")}, "attempts": len(judged)}

    @property
    def said(self) -> str | None:
        """The answer as far as there is one, as a reader knows it; None before any reply."""
        return answer(self.spoken) if self.replies else None

    @property
    def waits(self) -> int:
        """How often the provider was too busy since the last reply."""
        since = self.last_reply
        return sum(step.kind == "waited" for step in self.steps if since is None or step.n > since.n)

    @property
    def waited_last(self) -> Json | None:
        """What the journal has of the latest wait for the provider since the last reply; None: there was none."""
        last = next((step for step in reversed(self.steps) if step.kind in ("reply", "waited")), None)
        return last.payload if last is not None and last.kind == "waited" else None

    @property
    def last_error(self) -> str | None:
        """The model's latest error since its last reply."""
        waited = self.waited_last or {}
        return waited.get("last_error") or waited.get("why")

    @property
    def open_calls(self) -> tuple[Call, ...]:
        """Calls without a result."""
        return tuple(call for call in self.calls if call.is_open)

    def verdicts_on(self, reply_n: int) -> tuple[Verdict, ...]:
        """The verdicts on a reply, in the order of the panel."""
        return tuple(verdict for verdict in self.verdicts if verdict.reply_n == reply_n)

    @property
    def open_verdicts(self) -> tuple[Verdict, ...]:
        """Verdicts that judges have not given yet."""
        return tuple(verdict for verdict in self.verdicts if verdict.is_open)

    @property
    def unsaved(self) -> Entries:
        """What the journal does not have."""
        return Entries(self.unsaved_steps, self.unsaved_calls, self.verdicts[self.saved_verdicts :])

    @property
    def unsaved_steps(self) -> tuple[Step, ...]:
        """Steps that the journal does not have."""
        return self.steps[self.saved_steps :]

    @property
    def unsaved_calls(self) -> tuple[Call, ...]:
        """Calls that the journal does not have."""
        return self.calls[self.saved_calls :]

    @property
    def has_got_on(self) -> bool:
        """True once this owner saved a step: with it the count of deaths began anew."""
        return self.saved_steps > len(self.claim.steps)

    @property
    def unsaved_spending(self) -> Amount:
        """What the replies and calls took off budgets that the journal does not have."""
        paid = [step for step in self.unsaved_steps if step.kind in PAID]
        spent = (Usage.from_json(step.payload["usage"]).amount() for step in paid)
        return sum(spent, Amount(tool_calls=sum(call.is_open for call in self.unsaved_calls)))

    @property
    def usage_by_model(self) -> dict[str, Usage]:
        """What was used of each model that was asked."""
        used: dict[str, Usage] = {}
        for step in (step for step in self.steps if step.kind in PAID):
            model = str(step.payload["model"])
            used[model] = used.get(model, Usage()) + Usage.from_json(step.payload["usage"])
        return used

    @property
    def has_unsaved_spending(self) -> bool:
        """True if the journal does not know all that was paid for."""
        return any(step.kind in PAID for step in self.unsaved_steps)

    @property
    def has_progress(self) -> bool:
        """True if the journal must have something before anything else is done: what a model was asked for."""
        return any(step.kind in ("reply", "shaped", "judged") or "guard" in step.payload for step in self.unsaved_steps)

    def matched(
        self,
        context: str,
        recalled: str,
        patterns: Sequence[Json],
        *,
        took: Interval | None = None,
        checked: Checked[str] | None = None,
    ) -> "TurnState":
        """Patterns were looked up; context is added to the user's message from now on.

        Args:
            recalled: what is added to it in this turn only.
            took: the look, for the trace.
            checked: what a model said of the input; None: none was asked.
        """
        times = {"times": {"run": self.turn.fence, "at": took.as_json()}} if took else {}
        said = {"guard": list(checked.decisions), "refused_for": list(checked.blocked_for)} if checked else {}
        step = Step(self.next_n, "matched", {"context": context, "recalled": recalled, **times, **said})
        return replace(self, steps=(*self.steps, step), patterns=tuple(patterns))

    def replied(
        self,
        reply: Reply,
        calls: Sequence[Call],
        *,
        first_token_ms: int | None,
        estimated: int,
        bill: Bill = UNLIMITED,
        notes: Json | None = None,
    ) -> "TurnState":
        """The model answered, perhaps with tool calls.

        Args:
            estimated: tokens of what it was sent, estimated as before the first reply.
            notes: what else the step keeps: ``note``, which the model is told in addition to the results of its calls,
                and ``times``, for the trace.
        """
        by_budget = {"narrowed": bill.narrowed, "refused": bill.refused}
        known = {"estimated": estimated, **(notes or {}), **{name: why for name, why in by_budget.items() if why}}
        step = Step(self.next_n, "reply", {**reply_payload(reply), **known})
        return replace(
            self,
            claim=replace(self.claim, turn=replace(self.turn, model=reply.model)),
            held=(*self.held, *bill.held),
            steps=(*self.steps, step),
            calls=(*self.calls, *calls),
            usage=self.usage + reply.usage,
            first_token_ms=first_token_ms if self.first_token_ms is None else self.first_token_ms,
        )

    def tried(self, model: str, tries: Sequence[PaidTry], count: Callable[[str], int]) -> "TurnState":
        """Tries of the model came to nothing, and are paid for nevertheless; count: its tokens of a text."""
        used = sum((each.usage(model, count) for each in tries), Usage())
        step = Step(self.next_n, "tried", {"model": model, "usage": used.as_json()})
        held = (*self.held, *(each.held for each in tries if each.held))
        return replace(self, steps=(*self.steps, step), usage=self.usage + used, held=held)

    def reported_to(self, webhook: Webhook | None) -> "TurnState":
        """With the webhook that the client has set meanwhile."""
        return replace(self, claim=replace(self.claim, turn=replace(self.turn, webhook=webhook)))

    def waited(self, why: str, details: Json | None = None) -> "TurnState":
        """The provider was too busy.

        Args:
            details: as ModelWatch.parked reports them.
        """
        return replace(self, steps=(*self.steps, Step(self.next_n, "waited", {"why": why, **(details or {})})))

    def asked_judges(self, new: Sequence[Verdict]) -> "TurnState":
        """Judges are about to be asked for these verdicts."""
        return replace(self, verdicts=(*self.verdicts, *new))

    def with_verdicts(self, changed: Sequence[Verdict]) -> "TurnState":
        """Put verdicts in the place of their older selves."""
        newer = {(verdict.reply_n, verdict.position): verdict for verdict in changed}
        kept = (newer.get((verdict.reply_n, verdict.position), verdict) for verdict in self.verdicts)
        return replace(self, verdicts=tuple(kept))

    def concluded(self, answer: Step, found: Judgement, *, verdicts: Sequence[Json], correction: str) -> "TurnState":
        """All judges have looked at an answer.

        Args:
            verdicts: as readers see them.
            correction: what the model is told, to answer again; empty: the answer is the turn's last.
        """
        payload = {
            "reply_n": answer.n,
            "score": found.score,
            "passed": found.passed,
            "withheld_for": found.withheld_for,
            "is_last": not correction,
            "correction": correction,
            "verdicts": list(verdicts),
        }
        return replace(self, steps=(*self.steps, Step(self.next_n, "judged", payload)))

    def held_against_form(self, answer: Step, violation: str, *, correction: str) -> "TurnState":
        """It is known whether an answer has its form; correction: as of ``concluded``."""
        found = {"reply_n": answer.n, "violation": violation, "is_last": not correction, "correction": correction}
        return replace(self, steps=(*self.steps, Step(self.next_n, "shaped", found)))

    def with_events(self, log: Json | None) -> "TurnState":
        """Readers saw events that the journal must know of."""
        return self if log is None else replace(self, steps=(*self.steps, Step(self.next_n, "events", log)))

    def with_calls(self, changed: Sequence[Call]) -> "TurnState":
        """Put calls in the place of their older selves."""
        newer = {call.position: call for call in changed}
        return replace(self, calls=tuple(newer.get(call.position, call) for call in self.calls))

    def saved(self) -> "TurnState":
        """The journal has everything."""
        return replace(
            self, saved_steps=len(self.steps), saved_calls=len(self.calls), saved_verdicts=len(self.verdicts), held=()
        )


def reply_payload(reply: Reply) -> Json:
    """A reply as the journal keeps it."""
    return {
        "text": reply.text,
        "stop_reason": reply.stop_reason,
        "model": reply.model,
        "usage": reply.usage.as_json(),
        "tool_uses": [use_json(use) for use in reply.tool_uses],
        "opaque": list(reply.opaque),
        **({"guard": list(reply.guard)} if reply.guard else {}),
    }


def _spent(claim: Claim) -> Usage:
    """What replies and verdicts cost, as the journal has it: a late verdict may have come while the turn ran."""
    replies = (Usage.from_json(step.payload["usage"]) for step in claim.steps if step.kind in PAID)
    return sum((*replies, *(verdict.usage for verdict in claim.verdicts)), Usage())
