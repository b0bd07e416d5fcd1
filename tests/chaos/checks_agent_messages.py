"""I22: a message between agents is kept once and read once, in its order; references are passed on."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from loom_worker.core.values.calls import Call
from loom_worker.core.values.turns import UNFINISHED
from tests.chaos.excuses import is_disturbed_between
from tests.chaos.facts import Facts, Row, TurnFact, grouped
from tests.chaos.model_script import REF
from tests.chaos.records import Evidence
from tests.chaos.verdict import Violation

NONE = "No messages."
TO_TAKE_MS = 1_000
"""Between the look at the clock and the commit that takes messages."""


@dataclass(frozen=True)
class Received:
    """A completed call that has read messages."""

    turn: TurnFact
    call: Call
    ids: tuple[str, ...]
    """In the order in which the model was shown them."""


def received(facts: Facts) -> Sequence[Received]:
    """All such calls."""
    return [
        Received(turn, call, tuple(each["id"] for each in json.loads(call.content)))
        for turn in facts.turns
        for call in turn.calls
        if call.name == "receive_messages" and call.status == "completed" and call.content not in (NONE, None)
    ]


def check_sent(_evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I22: what a completed call has sent exists, once, as it was sent; and every message was sent by one call."""
    by_id = {message["id"]: message for message in facts.agent_messages}
    texts = Counter(_beginning(message["body"]) for message in facts.agent_messages)
    asked = {
        (turn.id, _beginning(call.arguments["message"]))
        for turn in facts.turns
        for call in turn.calls
        if call.name == "send_agent"
    }
    for turn in facts.turns:
        for call in turn.calls:
            if call.name != "send_agent" or call.status != "completed":
                continue
            message = by_id.get(json.loads(call.content or "{}").get("sent"))
            if message is None:
                yield _i22(f"{turn.name}: {call.id} is completed, and its message is not in the database")
            elif (message["from_turn_id"], message["to_agent"], _beginning(message["body"])) != (
                *(turn.id, call.arguments["agent"]),
                _beginning(call.arguments["message"]),
            ):
                yield _i22(f"{turn.name}: {call.id} has sent {message['id']}, which is another message")
    for message in facts.agent_messages:
        text = _beginning(message["body"])
        if texts[text] > 1:
            yield _i22(f"{message['id']} ({text}) is there {texts[text]} times")
        if (message["from_turn_id"], text) not in asked:
            yield _i22(f"{message['id']} ({text}) was sent by no call")


def _beginning(text: str) -> str:
    """The words that no other message has; also what a preview begins with, behind its fence."""
    return text[at : text.find(".", at)] if (at := text.find("News T")) >= 0 else text[:40]


def check_taken(_evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I22: what a completed turn has received is done, and what is done was received by the turn that it names.

    No message is received by two completed turns, or by two calls of one; at rest none is taken. A message that waits
    has no end, one that is done or dead has one.
    """
    by_id = {message["id"]: message for message in facts.agent_messages}
    takers: dict[str, list[Received]] = defaultdict(list)
    for each in received(facts):
        for message_id in each.ids:
            if message_id not in by_id:
                yield _i22(f"{each.turn.name}: has received {message_id}, which is not in the database")
            elif by_id[message_id]["to_agent"] != each.turn.row["agent"]:
                yield _i22(f"{each.turn.name}: has received {message_id}, which is for another agent")
            elif each.turn.status == "completed":
                takers[message_id].append(each)
    for message in facts.agent_messages:
        flaws = _flaws(message, takers.get(message["id"], ()), facts)
        yield from (_i22(f"{message['id']} ({_beginning(message['body'])}) {flaw}") for flaw in flaws)


def _flaws(message: Row, takers: Sequence[Received], facts: Facts) -> Iterator[str]:
    status, turn = message["status"], facts.by_id.get(message["turn_id"] or "")
    if len(takers) > 1:
        yield f"was received {len(takers)} times, by {', '.join(each.turn.name for each in takers)}"
    if status == "taken" and (turn is None or turn.status not in UNFINISHED):
        yield f"is taken by {message['turn_id']}, which has ended"
    if takers and (status, message["turn_id"]) != ("done", takers[0].turn.id):
        yield f"was received by {takers[0].turn.name}, and is {status} (turn {message['turn_id']})"
    if status == "done" and not takers:
        yield f"is done, and {turn.name if turn else message['turn_id']} has not received it"
    if (status in ("done", "dead")) != (message["ended_ms"] is not None):
        yield f"is {status}, and ended at {message['ended_ms']}"


def check_order_of_messages(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I22: messages are received in the order in which they came, by whoever takes them.

    Within a call that holds always. Of two messages of one queue that were taken once each, the later one is not taken
    earlier, unless a turn that took one of them lost its worker, or something was done to workers that live: then the
    moments that the calls have are not those at which they took.
    """
    place = {message["id"]: message["n"] for message in facts.agent_messages}
    taken_ms: dict[str, int] = {}
    for each in received(facts):
        numbers = [place.get(message_id, 0) for message_id in each.ids]
        if numbers != sorted(numbers):
            yield _i22(f"{each.turn.name}: {each.call.id} has received messages in the order {numbers}")
        if not each.turn.row["deaths"] and each.turn.status == "completed":
            taken_ms |= dict.fromkeys(each.ids, each.call.finished_ms or 0)
    for queue in _queues(facts).values():
        known = [row for row in queue if row["attempts"] == 1 and row["id"] in taken_ms]
        for one, other in pairwise(known):
            early_ms = taken_ms[one["id"]] - taken_ms[other["id"]]
            if early_ms > TO_TAKE_MS and not is_disturbed_between(evidence, taken_ms[other["id"]], taken_ms[one["id"]]):
                yield _i22(f"{other['id']} was received {early_ms} ms before {one['id']}, which came before it")


def _queues(facts: Facts) -> Mapping[tuple[str, str, str], Sequence[Row]]:
    return grouped(facts.agent_messages, lambda each: (each["workspace"], each["to_agent"], each["scope"]))


def check_passed(_evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I22: a session may read a large result that it did not make only if it was passed on to it.

    Passed on is what the question of its turn names, the answer of a turn that it asked for, or a message that was
    taken in it; and only by a session that may read it itself.
    """
    may_read = {(row["ref"], row["lane"]) for row in facts.passed}
    may_read |= {(ref, row["lane"]) for ref, row in facts.blobs.items()}
    for row in facts.passed:
        if not any((row["ref"], lane) in may_read for lane in _givers(row["ref"], row["lane"], facts)):
            yield _i22(f"lane {row['lane']} may read {row['ref']}, and nobody has passed it on")


def _givers(ref: str, lane: str, facts: Facts) -> Iterator[str]:
    """Lanes that have passed a reference on to another."""
    for turn in facts.by_lane.get(lane, ()):
        if turn.turn.ancestors and ref in REF.findall(turn.row["input"]):
            yield turn.turn.ancestors[-1].lane
        for call in turn.calls:
            child = facts.by_id.get(call.child_turn_id or "")
            if child is not None and (ref == call.ref or ref in REF.findall(child.row["output_text"] or "")):
                yield child.row["lane"]
    agents = {turn.row["agent"] for turn in facts.by_lane.get(lane, ())}
    for message in facts.agent_messages:
        is_named = ref == message["ref"] or ref in REF.findall(message["body"])
        taker, sender = facts.by_id.get(message["turn_id"] or ""), facts.by_id.get(message["from_turn_id"])
        is_ours = taker is not None and taker.row["lane"] == lane
        if sender is not None and is_named and (is_ours or (message["attempts"] > 1 and message["to_agent"] in agents)):
            yield sender.row["lane"]


def _i22(text: str) -> Violation:
    return Violation("I22", text)
