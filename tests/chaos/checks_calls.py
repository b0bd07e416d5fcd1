"""I3, I6 and I7 as the model server saw them: what reached it, and when."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from loom_worker.core.settings_tree import USUAL_MODELS
from loom_worker.llm import tokens
from tests.chaos.chat_wire import MAKER
from tests.chaos.excuses import Excuses
from tests.chaos.facts import Facts, TurnFact
from tests.chaos.marks import mark_of, replies_in
from tests.chaos.model_script import agent_of, newest_question
from tests.chaos.panels import is_correction
from tests.chaos.records import Evidence, Json, ModelCall
from tests.chaos.verdict import Violation
from tests.support.memory_block import is_memory
from tests.support.messages_rules import blocks

Asked = tuple[TurnFact, ModelCall]
Looked = dict[tuple[int, str], tuple[list[str], list[tuple[str, int]]]]
"""By message and who is asked: the marks of the questions in it, and the replies."""
FIRST_MODEL = USUAL_MODELS["anthropic"]


def check_overlap(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I3: two turns of a session never run at the same time.

    Once a later turn has asked the model, an earlier one asks no more, and no reply to it is under way that arrives
    whole. A worker that lost its turn without knowing (stopped, cut off from the broker) may do both, if its reply
    did not get into the journal. A request that its client gave up says nothing: a thread that waits for a server
    that hangs outlives its turn. Cancelled turns are given up in the same way, so they only have to keep their
    replies out.
    """
    excuses = Excuses(evidence)
    for asked in _by_lane(evidence, facts):
        later = _later_began(asked)
        for turn, call in asked:
            is_stale = call.began_s > later[turn.seq] or (call.is_complete and call.ended_s > later[turn.seq])
            may_be = excuses.disturbed(call) or turn.status == "cancelled"
            if is_stale and not (may_be and (call.mark, call.nth) not in turn.kept):
                yield Violation("I3", f"{turn.name}: request {call.number} ran while a later turn had begun")


def check_history(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I3: each request shows the session as it was: its earlier turns in order, none left out, nothing else.

    The questions in a request, the newest apart, must be those of the turns directly before, in the order of
    ``seq`` (turns that keep no messages apart); only at the old end may some be missing, for want of room or because
    a summary stands for them (I11). Every reply shown is one that the journal of its turn has.
    """
    looked: Looked = {}
    for lane in _by_lane(evidence, facts):
        own = facts.by_lane[lane[0][0].row["lane"]]
        kept = frozenset(name for turn in own for name in turn.kept)
        for turn, call in lane:
            before = [each.mark for each in own if each.seq < turn.seq and each.messages]
            marks, replies = shown(call, looked)
            flaws = [f"{mark}.{nth}, never journaled" for mark, nth in replies if (mark, nth) not in kept]
            if marks[:-1] != before[len(before) - len(marks) + 1 :]:
                flaws.append(f"{marks} after {before[-5:]}")
            yield from (Violation("I3", f"{turn.name}: request {call.number} shows {flaw}") for flaw in flaws)


def check_wellformed(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I6: no request breaks a rule of the Messages API, and neither would one made of the stored messages.

    The server looks at each request as the real one does; here the stored messages are looked at too: each message
    with tool calls is followed by one with a result for each of them, in the same order, and no other has results.
    """
    for call in evidence.model_calls:
        if call.complaint is not None:
            yield Violation("I6", f"{call.mark}: request {call.number} was refused: {call.complaint}")
    for turn in facts.turns:
        messages = turn.messages
        for place, message in enumerate(messages):
            asked = [use["id"] for use in message["tool_calls_json"] or ()]
            after = messages[place + 1] if place + 1 < len(messages) else {}
            given = [each["tool_use_id"] for each in after.get("tool_result_json") or ()]
            if asked != given:
                yield Violation("I6", f"{turn.name}: calls {asked} are followed by results of {given}")


def check_budget(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I7: a request's tokens are within the input budget, and the newest message is in it, whole.

    Counted are all texts, names, arguments, results and schemas with cl100k, times the factor that Loom itself takes
    for the model; what the provider adds around them is left out, so this never counts more than Loom must. Requests
    for summaries and verdicts are held to the same budget. A request to a maker that stands in for the first one is
    counted as if the first one got it: a context is fitted to that one's window once, before it is known who answers.
    """
    counted: dict[int, int] = {}
    for call in evidence.model_calls:
        size = body_tokens(call.body, counted)
        if size > evidence.budget_tokens:
            yield Violation(
                "I7", f"{call.mark}: request {call.number} has {size} tokens, allowed are {evidence.budget_tokens}"
            )
        inputs = [turn.row["input"] for turn in facts.by_mark.get(call.mark, ())]
        is_reply = call.part is None and call.look is None
        if is_reply and inputs and newest_question(call.body) not in inputs:
            yield Violation("I7", f"{call.mark}: request {call.number} lacks the newest message as it was sent")


def _by_lane(evidence: Evidence, facts: Facts) -> Iterator[Sequence[Asked]]:
    """Each session's requests with their turns, by session; requests of unknown marks are another check's matter."""
    asked = [(facts.by_mark[call.mark][0], call) for call in evidence.turn_calls if call.mark in facts.by_mark]
    asked.sort(key=lambda pair: (pair[0].row["lane"], pair[0].seq, pair[1].began_s))
    for _, group in groupby(asked, key=lambda pair: pair[0].row["lane"]):
        yield list(group)


def _later_began(asked: Sequence[Asked]) -> dict[int, float]:
    """For each turn of a session when the first request of any later turn came; infinity for the last."""
    began = {seq: min(call.began_s for _, call in group) for seq, group in groupby(asked, lambda pair: pair[0].seq)}
    later: dict[int, float] = {}
    earliest_s = math.inf
    for seq in sorted(began, reverse=True):
        later[seq] = earliest_s
        earliest_s = min(earliest_s, began[seq])
    return later


def shown(call: ModelCall, looked: Looked) -> tuple[list[str], list[tuple[str, int]]]:
    """The marks of the questions in a request, and the replies in it; equal messages are read once."""
    marks: list[str] = []
    replies: list[tuple[str, int]] = []
    agent = agent_of(call.body)
    for message in call.body["messages"]:
        found = looked.get((id(message), agent))
        if found is None:
            found = looked[id(message), agent] = _read(message, agent)
        marks += found[0]
        replies += found[1]
    return marks, replies


def _read(message: Json, agent: str) -> tuple[list[str], list[tuple[str, int]]]:
    texts = [block["text"] for block in blocks(message["content"]) if block["type"] == "text"]
    if message["role"] == "user":
        asked = [text for text in texts if not is_memory(text) and not is_correction(text)]
        return [mark for text in asked if (mark := mark_of(text, agent))], []
    return [], [name for text in texts for name in replies_in(text)]


def body_tokens(body: Mapping[str, object], counted: dict[int, int]) -> int:
    """Tokens of a request as ``check_budget`` counts them.

    Args:
        counted: cl100k's tokens of parts that were counted before, by identity.
    """
    model = str(body["model"])
    factor = tokens.factor(FIRST_MODEL if model.startswith(MAKER) else model)
    parts = [*_list(body, "system"), *_list(body, "tools"), *_list(body, "messages")]
    return math.ceil(factor * sum(_part(part, counted) for part in parts))


def _list(body: Mapping[str, object], name: str) -> list[Json]:
    value = body.get(name, [])
    assert isinstance(value, list)
    return value


def _part(part: Json, counted: dict[int, int]) -> int:
    size = counted.get(id(part))
    if size is None:
        size = counted[id(part)] = sum(tokens.cl100k_tokens(text) for text in _texts(part))
    return size


def _texts(part: Json) -> Iterator[str]:
    if "role" in part:
        for block in blocks(part["content"]):
            yield from _texts(block)
    elif part.get("type") == "tool_use":
        yield f"{part['name']}{json.dumps(part['input'])}"
    elif part.get("type") == "tool_result":
        yield str(part.get("content", ""))
    elif "input_schema" in part:
        yield f"{part['name']}{part['description']}{json.dumps(part['input_schema'])}"
    else:
        yield str(part.get("text", ""))
