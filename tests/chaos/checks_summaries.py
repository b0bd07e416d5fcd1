"""I8 and I11 as the model server saw them: what it was asked to summarize, and what turns were shown in its place."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from loom_worker.memory import layers
from loom_worker.turn.context import MARGIN
from tests.chaos.checks_calls import Looked, body_tokens, shown
from tests.chaos.checks_repeats import in_order, repeated
from tests.chaos.excuses import Excuses
from tests.chaos.facts import Facts, TurnFact, grouped
from tests.chaos.records import Evidence, ModelCall
from tests.chaos.summaries import marks_in
from tests.chaos.verdict import Violation
from tests.support.memory_block import is_memory
from tests.support.messages_rules import blocks

ANY = ""
"""Stands for a session that is not known."""


def check_summaries(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I8: a summary is asked for again only if the one before was lost with its process.

    Requests for the part that begins with the same turn, or for a digest of the same notes, ask for the same. Every
    part is of turns of one session; its ledger has at most one entry for each whole summary.
    """
    excuses = Excuses(evidence)
    for calls in summary_stages(evidence).values():
        for call in repeated(calls):
            if not excuses.lost(call):
                yield Violation("I8", f"{call.mark}: summary {call.number} was whole, unused, and asked for again")
    written: Counter[str] = Counter()
    for call in evidence.summary_calls:
        of = {turn.row["session_id"] for mark in _marks(call) for turn in facts.by_mark.get(mark, ())}
        if len(of) > 1 or (not of and not _is_digest(call)):
            yield _i11(call, f"is for a summary of the sessions {sorted(of)}")
        # Notes that were made without the model may name no turn: their digest may be any session's.
        written.update((of or {ANY}) if call.is_complete else ())
    for (_, session), charges in facts.memory_charges.items():
        charged = sum(charge["kind"] == "summary" for charge in charges)
        if charged > (most := written[session] + written[ANY]):
            yield Violation("I9", f"session {session} was charged {charged} summaries, {most} were written")


def summary_stages(evidence: Evidence) -> Mapping[str, Sequence[ModelCall]]:
    """The requests for the same summary, in order of arrival."""
    return grouped(in_order(evidence.summary_calls), lambda call: call.mark)


def check_covered(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I11: a turn that is not shown any more has been summarized, or there was no room for it.

    Where a request begins later than its session, a summary must have been asked for before it of a part that ends
    with the turn before the first one shown, and a block of memory stand before the messages (if the session has a
    budget, it may have been summarized by rules, without asking anybody). Else the newest turn
    that is missing must not have fitted: the request and that turn are over the budget, by Loom's own count of what
    the provider adds. Nothing is shown twice, as it was said and in the block of memory.
    """
    ends: dict[str, float] = {}
    for call in evidence.summary_calls:
        for mark in _marks(call)[-1:]:
            ends[mark] = min(call.began_s, ends.get(mark, call.began_s))
    looked: Looked = {}
    counted: dict[int, int] = {}
    thrifty = {session["lane"] for session in facts.sessions if session["budget"]}
    for call in evidence.turn_calls:
        marks, _ = shown(call, looked)
        memory = memory_of(call)
        if twice := sorted(set(marks) & set(marks_in(memory))):
            yield _i11(call, f"shows {', '.join(twice)} and a summary of it")
        missing = _missing(call, marks, facts)
        if missing is None:
            continue
        if memory and (missing.row["lane"] in thrifty or ends.get(missing.mark, call.began_s) < call.began_s):
            continue
        if _would_fit(call, missing, counted, evidence.budget_tokens):
            yield _i11(call, f"lacks {missing.mark}, which was not summarized and would have fitted")


def memory_of(call: ModelCall) -> str:
    """The block of memory in a request, "" if it has none."""
    texts = [block["text"] for block in blocks(call.body["messages"][0]["content"]) if block["type"] == "text"]
    return "\n".join(text for text in texts if is_memory(text) and "Summary of the conversation" in text)


def _missing(call: ModelCall, marks: Sequence[str], facts: Facts) -> TurnFact | None:
    """The newest turn of the session that is older than all that are shown; None if there is none."""
    turn = next(iter(facts.by_mark.get(call.mark, ())), None)
    if turn is None:
        return None
    before = [each for each in facts.by_lane[turn.row["lane"]] if each.seq < turn.seq and each.messages]
    number = len(before) - (len(marks) - 1)
    return before[number - 1] if number > 0 else None


def _would_fit(call: ModelCall, turn: TurnFact, counted: dict[int, int], budget_tokens: int) -> bool:
    said = [block for message in call.body["messages"] for block in blocks(message["content"])]
    calls = sum(block["type"] == "tool_use" for block in said)
    tools = len(call.body.get("tools", ()))
    around = layers.REQUEST_OVERHEAD_TOKENS + layers.TOOLS_OVERHEAD_TOKENS + layers.CALL_OVERHEAD_TOKENS * calls
    around += layers.MESSAGE_OVERHEAD_TOKENS * (len(said) + tools)
    left_out = sum(message["token_count"] for message in turn.messages)
    return bool(body_tokens(call.body, counted) + around + left_out <= budget_tokens / MARGIN)


def _marks(call: ModelCall) -> tuple[str, ...]:
    return call.part.marks if call.part else ()


def _is_digest(call: ModelCall) -> bool:
    return call.part is not None and call.part.is_digest


def _i11(call: ModelCall, text: str) -> Violation:
    return Violation("I11", f"{call.mark}: request {call.number} {text}")
