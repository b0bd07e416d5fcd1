"""I8 and I14: judges are asked once, and what they said is what became of the answer."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from tests.chaos import panels
from tests.chaos.checks_calls import Looked, shown
from tests.chaos.checks_repeats import in_order, repeated
from tests.chaos.excuses import Excuses
from tests.chaos.facts import Facts, Row, TurnFact, grouped
from tests.chaos.marks import replies_in
from tests.chaos.records import Evidence, ModelCall
from tests.chaos.verdict import Violation

MOST_VERDICTS = 5
"""Of one judge on one answer that may be paid for: after so many deaths it is given up."""
Key = tuple[str, int, str]
"""Mark, number of the reply, judge."""


def check_verdict_calls(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I8: a judge is asked again only if its verdict was lost with its process, and never once it is stored.

    Requests of one judge on one answer ask for the same verdict. Only answers that the journal has are judged. A
    verdict that is stored is not asked for again, but by a worker that slept meanwhile; one that was sent whole and is
    asked for again was lost with its worker, or the worker may have lost it while living (see excuses). Where a
    worker that lives was given up, each sending may be paid for once. None is paid for more than five times.
    """
    excuses = Excuses(evidence)
    stored = _stored(facts)
    for key, calls in verdict_stages(evidence).items():
        name = f"{key[0]}: the verdict of {key[2]} on reply {key[1]}"
        row = stored.get(key)
        if row is None:
            yield _i8(f"{name} was asked for, and the database has none")
            continue
        most = min(MOST_VERDICTS, excuses.most_times(row["sends"], row["sent_ms"]))
        if most == 1:
            yield from _asked_again(name, calls, row, excuses)
            most = MOST_VERDICTS
        if (paid := sum(call.is_complete for call in calls)) > most:
            yield _i8(f"{name} was paid for {paid} times")


def _asked_again(name: str, calls: Sequence[ModelCall], row: Row, excuses: Excuses) -> Iterator[Violation]:
    stored_s = row["finished_ms"] / 1000 if row["status"] in ("scored", "dead") else float("inf")
    for call in calls:
        if call.began_s > stored_s and not excuses.disturbed(call):
            yield _i8(f"{name} is stored and was asked for again, request {call.number}")
    for call in repeated(calls):
        if not excuses.lost(call):
            yield _i8(f"{name} was whole (request {call.number}), unused, and asked for again")


def verdict_stages(evidence: Evidence) -> Mapping[Key, Sequence[ModelCall]]:
    """The requests for the same verdict, in order of arrival."""
    looked = ((call.look.key, call) for call in in_order(evidence.judge_calls) if call.look is not None)
    return {key: [call for _, call in pairs] for key, pairs in grouped(looked, lambda pair: pair[0]).items()}


def _stored(facts: Facts) -> Mapping[Key, Row]:
    return {(turn.mark, turn.nth_of(row["reply_n"]), row["name"]): row for turn in facts.turns for row in turn.verdicts}


def check_judged(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I14: an answer is judged if its agent has judges, by all of them, and given anew if it falls short.

    Each completed turn of the agent with a panel has been judged, each of its answers once, by each member of the
    panel. Whether an answer passed is what its verdicts come to; one that fell short is the last only if its judges all
    are dead, the turn has no answer left, or its client wanted it finished. One that was to be given anew is the answer
    only if the model could not be asked: its request failed, or a budget may have refused it. Scores are those that the
    model server gave.
    """
    said = {key: {call.said for call in calls if call.is_complete} for key, calls in verdict_stages(evidence).items()}
    hurried = {sent.turn_id for sent in evidence.submitted if "finish" in sent.cancel_actions}
    failed = {call.mark for call in evidence.turn_calls if not call.is_complete}
    thrifty = {session["lane"] for session in facts.sessions if session["budget"]}
    for turn in facts.turns:
        flaws = [*_scores(turn, said)]
        if turn.row["agent"] != panels.JUDGED:
            flaws += ["was judged, and its agent has no judges"] if turn.row["judge"] or turn.verdicts else []
        elif turn.status == "completed" or (turn.judged and turn.row["reason"] != "rollback"):
            may_be_stuck = turn.mark in failed or turn.row["budget"] or turn.row["lane"] in thrifty
            flaws += _attempts(turn, may_be_stuck=bool(may_be_stuck))
            for judged in turn.judged:
                flaws += _judgement(turn, judged, is_hurried=turn.id in hurried)
        yield from (_i14(f"{turn.name}: {flaw}") for flaw in flaws)


def _scores(turn: TurnFact, said: Mapping[Key, set[str]]) -> Iterator[str]:
    for row in turn.verdicts:
        if row["type"] != "llm" or row["score"] is None:
            continue
        given = said.get((turn.mark, turn.nth_of(row["reply_n"]), row["name"]), set())
        if str(row["score"]) not in given:
            yield f"has the score {row['score']} of {row['name']}, the model said {sorted(given)}"


def _attempts(turn: TurnFact, *, may_be_stuck: bool) -> Iterator[str]:
    judge, judged = turn.row["judge"] or {}, turn.judged
    if not judged or judge.get("attempts") != len(judged):
        yield f"says that {judge.get('attempts')} answers were judged, its journal has {len(judged)}"
        return
    shown = {name: judge[name] for name in ("score", "passed", "verdicts")}
    if shown != {name: judged[-1][name] for name in shown}:
        yield "says something else of its answer than its judges"
    early = [each["reply_n"] for each in judged[:-1] if each["is_last"]]
    if early or len(judged) > panels.MOST_ANSWERS:
        yield f"was judged {len(judged)} times, the last time for good on reply {early or judged[-1]['reply_n']}"
    if turn.status == "completed" and not judged[-1]["is_last"] and not may_be_stuck:
        yield f"reply {judged[-1]['reply_n']} was to be given anew, and is the answer"


def _judgement(turn: TurnFact, judged: Row, *, is_hurried: bool) -> Iterator[str]:
    rows = [row for row in turn.verdicts if row["reply_n"] == judged["reply_n"]]
    scores = [row["score"] for row in rows]
    live = [Fraction(str(score)) for score in scores if score is not None]
    threshold = Fraction(str(panels.THRESHOLD))
    passed = sum(live) / len(live) >= threshold if live else None
    if len(rows) != panels.MEMBERS or [each["score"] for each in judged["verdicts"]] != scores:
        yield f"reply {judged['reply_n']} was judged by {[each['score'] for each in judged['verdicts']]}, not {scores}"
    if judged["passed"] is not passed:
        yield f"reply {judged['reply_n']} passed: {judged['passed']}, its scores are {scores}"
    falls_short = passed is False and any(score < threshold for score in live)
    place = [each["reply_n"] for each in turn.judged].index(judged["reply_n"])
    has_another = place + 1 < panels.MOST_ANSWERS
    is_due = falls_short and has_another
    if judged["is_last"] is is_due and not (is_due and is_hurried):
        what = "is the last answer" if judged["is_last"] else "was given anew"
        yield f"reply {judged['reply_n']} with {scores} {what}, after {place} others"


def check_rejected(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I14: what was said before an answer was given anew is in no message, and no later turn's request shows it."""
    rejected = {name for turn in facts.turns for name in replaced(turn)}
    for message in facts.messages:
        if message["role"] == "assistant" and rejected.intersection(replies_in(message["content"])):
            yield _i14(f"message {message['id']} holds an answer that was given anew: {message['content'][:80]!r}")
    looked: Looked = {}
    for call in evidence.turn_calls:
        _, replies = shown(call, looked)
        for mark, nth in rejected.intersection(replies):
            if mark != call.mark:
                yield _i14(f"{call.mark}: request {call.number} shows {mark}.{nth}, which was given anew")


def replaced(turn: TurnFact) -> Iterator[tuple[str, int]]:
    """The replies of a turn, those with calls of tools included, in whose place others came."""
    replies = [step for step in turn.steps if step["kind"] == "reply"]
    # One that was given up before its first word takes no other's place.
    last_n = max(
        (step["n"] for step in replies if step["payload"]["text"] != "" or step["payload"]["tool_uses"]), default=0
    )
    said: list[tuple[str, int]] = []
    for step in turn.steps:
        if step["kind"] == "reply":
            said.append((turn.mark, turn.nth_of(step["n"])))
        if step["kind"] == "judged" and not step["payload"]["is_last"] and step["n"] < last_n:
            yield from said
            said.clear()


def _i8(text: str) -> Violation:
    return Violation("I8", text)


def _i14(text: str) -> Violation:
    return Violation("I14", text)
