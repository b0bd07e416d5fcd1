"""What a turn needs next: a pure function of its journal."""

from dataclasses import dataclass, replace

from loom_worker.core.settings import LimitSettings
from loom_worker.core.values.calls import Call
from loom_worker.core.values.json import Json
from loom_worker.core.values.judges import Judgement, Panel, Verdict
from loom_worker.core.values.turns import CancelAction, Ending, Step
from loom_worker.turn.agent_calls import NOTHING_TO_DO, AgentCallCheck, next_look_ms
from loom_worker.turn.judging import NO_PANEL, NO_VERDICTS, Conclusion, VerdictCheck, concluded, given, planned
from loom_worker.turn.state import TurnState
from loom_worker.turn.tool_plan import Check

MAX_WAITS = 6
"""A provider that stays busy this often in a row, with growing pauses, fails the turn (about two minutes in all)."""
MOST_PAUSES = 2
"""Replies in a row that only pause, before the turn ends: nothing would be new in the next request."""

CALL_AS_TEXT = (
    "The model wrote a tool's call as text. It was not run: the tool is unknown or may change something, the call is "
    "not readable, or none was allowed. Use a model and a server that call tools, for example llama.cpp with --jinja."
)


@dataclass(frozen=True, slots=True)
class Match:
    """Look for patterns."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Call the model."""

    may_call_tools: bool


@dataclass(frozen=True, slots=True)
class CallHere:
    """Run one bounded tool in place: a chord costs 14-24 ms."""

    call: Call


@dataclass(frozen=True, slots=True)
class Close:
    """Store the end of calls that nobody will answer any more."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Approve:
    """Store that calls may run although nobody said so."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class FanOut:
    """Send calls to the tool queue and wait for all that are open."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class BeginChildren:
    """Accept turns of other agents for calls, or let calls wait for messages."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Receive:
    """Take messages of other agents for a call."""

    call: Call


@dataclass(frozen=True, slots=True)
class WaitForAgents:
    """Nothing to do but wait for other agents."""

    until_ms: int | None
    """One of them is given up then."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do but wait for calls under way."""


@dataclass(frozen=True, slots=True)
class AskPerson:
    """Wait, for as long as it takes, until a person has decided on calls."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class CheckForm:
    """Hold an answer against the form that it must have."""

    answer: Step
    may_correct: bool
    """False: the turn fails if it has not."""


@dataclass(frozen=True, slots=True)
class AskJudges:
    """Send verdicts to the judge queue and wait for all that are open."""

    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Store that judges gave no verdict."""

    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, slots=True)
class Conclude:
    """All judges have looked at an answer."""

    conclusion: Conclusion


@dataclass(frozen=True, slots=True)
class End:
    """The turn ends."""

    ending: Ending


Decision = (
    Match | Ask | CallHere | Close | Approve | FanOut | BeginChildren | Receive | Wait | WaitForAgents | AskPerson
) | (CheckForm | AskJudges | GiveUp | Conclude | End)


@dataclass(frozen=True, slots=True)
class Situation:
    """What decide needs to know in addition to the journal."""

    now_ms: int
    run_ms: int
    """For how long the turn has run so far: not queued, not parked."""
    check: Check
    """What the calls under way need."""
    bounded: frozenset[str] = frozenset()
    """Tools of open calls that may run in place."""
    cancel: CancelAction | None = None
    """How the client asks the turn to end."""
    own_limits: frozenset[str] = frozenset()
    """Limits (``max_turns``, ``timeout_seconds``) that come from the agent's file, not from settings."""
    is_shaped: bool = False
    """True: the answer must have a form."""
    panel: Panel | None = None
    """Judges an answer before it is given; None: nobody does."""
    verdicts: VerdictCheck = NO_VERDICTS
    """What the verdicts under way need."""
    agents: AgentCallCheck = NOTHING_TO_DO
    """What the calls need that other agents answer."""


def decide(state: TurnState, limits: LimitSettings, now: Situation) -> Decision:
    """Return what the turn needs next."""
    is_cut = now.cancel in ("interrupt", "rollback")
    ending = Ending("cancelled", now.cancel) if is_cut else _ended_from_outside(state, limits, now)
    if ending is not None:
        return _end(state, ending)
    if state.open_calls:
        return _cancel_calls(state, now) if now.cancel == "finish" else _tend_calls(state, now)
    if not state.is_matched:
        return Match()
    if state.refused_for:
        text = f"A guardrail refuses input: it holds {', '.join(state.refused_for)}."
        return _end(state, Ending("failed", "guardrail", error=problem("guardrail-blocked", text)))
    last = state.last_reply
    if last is None or last.payload["tool_uses"] or last.payload["stop_reason"] in ("pause_turn", "unasked_calls"):
        return _ask(state, limits, now)
    return _formed(state, last, limits, now)


def _formed(state: TurnState, last: Step, limits: LimitSettings, now: Situation) -> Decision:
    """Go on with an answer that has its form; one that has not is given anew once, then the turn fails."""
    if (found := state.shaped.get(last.n)) is None:
        if not now.is_shaped or last.payload["stop_reason"] not in ("end_turn", "stop_sequence"):
            return _judged(state, last, limits, now)
        has_calls_left = now.cancel != "finish" and len(state.replies) < limits.max_llm_calls
        return CheckForm(last, may_correct=has_calls_left and not state.was_reshaped)
    if not found["is_last"]:
        return _ask(state, limits, now)
    if found["violation"]:
        text = f"The answer does not have its response_format: {found['violation']}"
        return _end(state, Ending("failed", "invalid-output", error=problem("invalid-output", text)))
    return _judged(state, last, limits, now)


def _judged(state: TurnState, last: Step, limits: LimitSettings, now: Situation) -> Decision:
    """End with an answer once its judges have looked at it, or have it given anew.

    Judges that were asked count, also where the agent's file has none any more.
    """
    if (judged := state.judged.get(last.n)) is not None:
        return _end(state, given(Judgement.of_step(judged))) if judged["is_last"] else _ask(state, limits, now)
    ending, verdicts = _answer(last), state.verdicts_on(last.n)
    if ending.status != "completed" or not (now.panel or verdicts):
        return _end(state, ending)
    panel = now.panel or NO_PANEL
    if not verdicts:
        return AskJudges(planned(panel, last, now_ms=now.now_ms))
    if now.verdicts.dead:
        return GiveUp(now.verdicts.dead)
    if now.verdicts.send:
        return AskJudges(now.verdicts.send)
    if any(verdict.is_open for verdict in verdicts):
        return Wait()
    may_correct = now.panel is not None and now.cancel != "finish" and len(state.replies) < limits.max_llm_calls
    return Conclude(concluded(state, last, panel, may_correct=may_correct))


def _end(state: TurnState, ending: Ending) -> End:
    """End with all that was said, however the turn ends; one that is rolled back has said nothing."""
    return End(replace(ending, output_text=state.said if ending.leaves_messages else None))


def _ended_from_outside(state: TurnState, limits: LimitSettings, now: Situation) -> Ending | None:
    turn = state.turn
    if turn.deaths >= turn.max_attempts:
        text = f"The turn was given up after {turn.deaths} attempts: each time the worker that ran it died."
        return Ending("failed", "dead", error=problem("dead", text))
    if turn.deadline_ms is not None and now.now_ms >= turn.deadline_ms:
        text = f"The turn's deadline has passed.{_model_said(state)}"
        return Ending("incomplete", "deadline", error=problem("deadline", text))
    if now.run_ms >= limits.turn_timeout_s * 1000:
        source = _source("timeout_seconds", "LOOM_TURN_TIMEOUT_S", state, now)
        text = f"The turn ran for {limits.turn_timeout_s:g} s, the most it may ({source})."
        text += _model_said(state)
        return Ending("incomplete", "limits", error=problem("timeout", text))
    if state.waits >= MAX_WAITS:
        text = f"The model could not be reached. {state.last_error or ''}".strip()
        return unanswered(state, Ending("failed", "provider", error=problem("provider", text)))
    return None


def _model_said(state: TurnState) -> str:
    """The model's last error, as a sentence to follow another; empty if it has replied since, or never failed."""
    return f" The model's last error was: {state.last_error}" if state.last_error else ""


def _cancel_calls(state: TurnState, now: Situation) -> Decision:
    """What is under way is not waited for: the answer is wanted now."""
    content = "Cancelled: the user wants the answer now, without further tool calls."
    return Close(
        tuple(replace(call, status="cancelled", finished_ms=now.now_ms, content=content) for call in state.open_calls)
    )


def _tend_calls(state: TurnState, now: Situation) -> Decision:
    if closed := (*now.check.close, *now.agents.close):
        return Close(closed)
    if now.check.approve:
        return Approve(now.check.approve)
    if now.agents.receive:
        return Receive(now.agents.receive[0])
    if now.agents.begin:
        return BeginChildren(now.agents.begin)
    if len(now.check.send) == len(state.open_calls) == 1 and now.check.send[0].name in now.bounded:
        return CallHere(now.check.send[0])
    if now.check.send:
        return FanOut(now.check.send)
    if all(call.is_awaiting for call in state.open_calls):
        return WaitForAgents(next_look_ms(state.open_calls))
    waiting = [call.approve_by_ms or 0 for call in state.open_calls if call.is_waiting]
    # A call under way is looked after every few seconds; a twin of one that waits comes after it.
    if not waiting or any(call.sent_ms is not None for call in state.open_calls):
        return Wait()
    return AskPerson(min([*waiting, *([state.turn.deadline_ms] if state.turn.deadline_ms else [])]))


def _ask(state: TurnState, limits: LimitSettings, now: Situation) -> Decision:
    last = state.last_reply
    if last is not None and last.payload.get("refused"):
        return _end(state, Ending("incomplete", "budget", error=problem("budget", last.payload["refused"])))
    asked = len(state.replies)
    if asked >= MOST_PAUSES and all(_is_empty_pause(step) for step in state.replies[-MOST_PAUSES:]):
        text = f"The model paused {MOST_PAUSES} times without saying anything."
        return _end(state, Ending("incomplete", "limits", error=problem("paused", text)))
    unasked = sum(step.payload["stop_reason"] == "unasked_calls" for step in state.replies)
    if unasked > 1 or asked >= limits.max_llm_calls + unasked:
        source = _source("max_turns", "LOOM_MAX_LLM_CALLS", state, now)
        why = "it calls tools even if sent none" if unasked > 1 else f"the most there may be ({source})"
        text = f"No answer after {asked} calls of the model: {why}."
        return _end(state, Ending("incomplete", "limits", error=problem("limits", text)))
    is_spent = asked >= limits.max_llm_calls - 1 or len(state.calls) >= limits.max_tool_calls
    is_last = now.cancel == "finish" or unasked > 0 or is_spent
    return Ask(may_call_tools=not (is_last or state.is_reshaping))


def _is_empty_pause(step: Step) -> bool:
    """True if the next request would be the same as the one before it."""
    return step.payload["stop_reason"] == "pause_turn" and not (
        step.payload["text"].strip() or step.payload["tool_uses"]
    )


def _source(own: str, setting: str, state: TurnState, now: Situation) -> str:
    return f"{own} of the agent {state.turn.agent!r}" if own in now.own_limits else setting


def _answer(last: Step) -> Ending:
    text, stop = last.payload["text"], last.payload["stop_reason"]
    if stop == "max_tokens" and last.payload.get("narrowed"):
        return Ending("incomplete", "budget", error=problem("budget", last.payload["narrowed"]))
    if stop == "guardrail":
        held = ", ".join(each["name"].partition(".")[2] for each in last.payload["guard"] if each["outcome"] == "block")
        text = f"The answer is withheld by a guardrail from here on: it holds {held}."
        return Ending("incomplete", "guardrail", error=problem("guardrail", text))
    if stop == "tool_call_as_text":
        return Ending("incomplete", stop, error=problem(stop, CALL_AS_TEXT))
    if stop in ("max_tokens", "refusal", "reply_too_large"):
        return Ending("incomplete", stop)
    if not text.strip():
        return Ending("incomplete", "limits", error=problem("empty", "The model gave no answer."))
    return Ending("completed")


def over_budget(state: TurnState, message: str) -> End:
    """A call does not fit a budget, so it is not made; what was said before stays."""
    return _end(state, unanswered(state, Ending("incomplete", "budget", error=problem("budget", message))))


def failed(state: TurnState, reason: str, message: str) -> End:
    """The model cannot be asked any more; what it said before stays."""
    return _end(state, unanswered(state, Ending("failed", reason, error=problem(reason, message))))


def unanswered(state: TurnState, ending: Ending) -> Ending:
    """The end of a turn whose model cannot be asked: where judges had it answer again, its last answer is given."""
    if not state.is_correcting or state.is_reshaping:
        return ending
    *_, latest = state.judged.values()
    return given(Judgement.of_step(latest))


def problem(kind: str, message: str) -> Json:
    """The ``error`` of a Turn."""
    return {"type": kind, "message": message, "error_id": None}
