"""I1 to I3 in the database: every accepted turn ends, says one thing, in the order it was accepted."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise, takewhile

from loom_worker.core.values.turns import BETWEEN_REPLIES, UNFINISHED
from tests.chaos.facts import Facts, Row, TurnFact
from tests.chaos.marks import replies_in
from tests.chaos.records import Evidence, Submitted
from tests.chaos.verdict import Violation


def check_accepted(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I1: every 202 is one turn of the database, and has ended.

    The turn that a 202 named must exist, be of the session it was asked for, hold the mark it was sent with, and have
    a final status. All answers to one idempotency key name the same turn, and no mark stands in two turns (a client
    without a key takes a new mark when it tries again). Nothing is cancelled that nobody asked to cancel.
    """
    for sent in evidence.submitted:
        turn = facts.by_id.get(sent.turn_id)
        if turn is None:
            yield _i1(f"{sent.mark}: {sent.turn_id} was accepted and is not in the database")
            continue
        yield from (_i1(f"{turn.name}: {text}") for text in _flaws_of_acceptance(sent, turn))
    for mark, turns in facts.by_mark.items():
        if mark and len(turns) > 1:
            yield _i1(f"{mark} was sent once, and the database has {', '.join(turn.id for turn in turns)}")


def _flaws_of_acceptance(sent: Submitted, turn: TurnFact) -> Iterator[str]:
    if turn.status in UNFINISHED:
        yield f"accepted, never ended: {turn.status}"
    if turn.mark != sent.mark:
        yield f"accepted for {sent.mark}"
    if turn.row["session_id"] != sent.session:
        yield f"accepted for session {sent.session}"
    if strangers := set(sent.answers) - {sent.turn_id}:
        yield f"the same key was also answered {', '.join(sorted(strangers))}"
    if turn.status == "cancelled" and not sent.cancel_actions:
        yield "cancelled, and nobody asked for that"


def check_messages(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I2: a turn keeps one message of the user and at most one final answer, its own.

    Completed: the user's message (its input) comes first, the answer (assistant, no tool calls) last, and it is the
    text of a reply to this very mark that the model server sent whole; ``output_text`` is what its messages say after
    the last call of tools, in order. Failed and incomplete: the user's message, and at most one answer, at the end.
    Cancelled: perhaps nothing; nothing at all after a rollback; the user's message if a reply had been journaled before
    an interrupt. No reply is kept twice, no reply of another turn is kept.
    """
    cancels = {sent.turn_id: sent.cancel_actions for sent in evidence.submitted}
    said = {(call.mark, call.nth): call.said for call in evidence.turn_calls if call.is_complete}
    for turn in facts.turns:
        flaws = [*_shape(turn), *_replies(turn)]
        if turn.status == "completed":
            flaws += _answer(turn)
            if not cancels.get(turn.id):
                flaws += _source(turn, said)
        elif turn.status == "cancelled":
            flaws += _cancelled(turn, cancels.get(turn.id, ()))
        elif turn.status not in UNFINISHED and not turn.messages:
            flaws.append("ended without the user's message")
        yield from (Violation("I2", f"{turn.name}: {flaw}") for flaw in flaws)


def _shape(turn: TurnFact) -> Iterator[str]:
    roles = [message["role"] for message in turn.messages]
    finals = [place for place, message in enumerate(turn.messages) if _is_final(message)]
    if roles.count("user") > 1:
        yield f"{roles.count('user')} messages of the user"
    if roles and (roles[0] != "user" or turn.messages[0]["content"] != turn.row["input"]):
        yield "does not begin with the user's message, as it was sent"
    if len(finals) > 1:
        yield f"{len(finals)} final answers"
    if finals and finals[-1] != len(roles) - 1:
        yield "goes on after its final answer"


def _is_final(message: Row) -> bool:
    return message["role"] == "assistant" and not message["tool_calls_json"]


def _replies(turn: TurnFact) -> Iterator[str]:
    for (mark, nth), times in Counter(name for text in _said(turn) for name in replies_in(text)).items():
        if times > 1:
            yield f"keeps reply {mark}.{nth} {times} times"
        if mark != turn.mark:
            yield f"keeps {mark}.{nth}, a reply to another turn"


def _said(turn: TurnFact) -> list[str]:
    return [message["content"] for message in turn.messages if message["role"] == "assistant"]


def _given(turn: TurnFact) -> list[str]:
    said = [message for message in turn.messages if message["role"] == "assistant"]
    return [each["content"] for each in reversed([*takewhile(_is_final, reversed(said))])]


def _answer(turn: TurnFact) -> Iterator[str]:
    if not turn.messages or not _is_final(turn.messages[-1]):
        yield "completed without a final answer"
    elif BETWEEN_REPLIES.join(_given(turn)) != turn.row["output_text"]:
        yield "its messages do not say its output_text"


def _source(turn: TurnFact, said: dict[tuple[str, int], str]) -> Iterator[str]:
    answer = (_said(turn) or [""])[-1]
    if answer not in [said.get(name) for name in replies_in(answer)[:1]]:
        yield f"its answer is not what the model said: {answer[:80]!r}"


def _cancelled(turn: TurnFact, cancel_actions: Sequence[str]) -> Iterator[str]:
    reason = turn.row["reason"]
    if cancel_actions and reason not in cancel_actions:
        yield f"cancelled by {reason}, and asked for was {' or '.join(cancel_actions)}"
    if reason == "rollback" and turn.messages:
        yield f"rolled back, and keeps {len(turn.messages)} messages"
    if reason == "interrupt" and turn.kept and not turn.messages:
        yield "interrupted after it had said something, and keeps nothing"


def check_order(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I3: a session's turns have the numbers in which they were accepted, and its messages stand in that order.

    The client submits the next turn of a session after the 202 of the one before, so ``seq`` must rise with its own
    ``order``. Messages are compared in the order they were written: turns ascend, and none comes in two pieces.
    """
    by_session = sorted(evidence.submitted, key=lambda sent: (sent.session, sent.order))
    for session, group in groupby(by_session, key=lambda sent: sent.session):
        known = [facts.by_id[sent.turn_id] for sent in group if sent.turn_id in facts.by_id]
        for one, other in pairwise(known):
            if one.seq >= other.seq:
                yield Violation("I3", f"{session}: {one.name} was accepted before {other.name}")
    by_lane = sorted(facts.messages, key=lambda message: (message["lane"], message["n"]))
    for _, written in groupby(by_lane, key=lambda message: message["lane"]):
        ids = [turn_id for turn_id, _ in groupby(written, key=lambda message: message["turn_id"])]
        turns = [facts.by_id[turn_id] for turn_id in ids if turn_id in facts.by_id]
        for one, other in pairwise(turns):
            if one.seq >= other.seq:
                yield Violation("I3", f"{other.name} has messages after those of {one.name}")


def _i1(text: str) -> Violation:
    return Violation("I1", text)
