"""The tool results of one turn have a budget of their own: older ones leave a stub in their place.

The same function is applied to a turn while it runs and after it has ended, so what was sent stays as it was sent.
"""

import json
import re
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from loom_worker.core.text import short
from loom_worker.core.values.chat import ChatMessage, ToolOutcome, ToolSpec, ToolUse
from loom_worker.core.values.sessions import Message
from loom_worker.memory.layers import Count, chat_tokens, outcome_tokens, tools_tokens, with_added

RESULTS_SHARE = 0.30
"""Share of the input budget (0-1), for the tool results of one turn."""
STUB_CALL_CHARS = 100
"""Characters of a call, in the stub of its result."""
STUB_REFS = 20
"""References in a stub, the latest of its result."""
_REF = re.compile(r"(?<!\w)ref_[0-9a-f]{32}(?!\w)")


@dataclass(frozen=True, slots=True)
class _Result:
    place: tuple[int, int]
    """Place of the message in the turn, and of the result in the message."""
    stub: ToolOutcome
    tokens: int


def results_tokens(budget_tokens: int) -> int:
    """What the results of one turn may take of an input budget, in tokens."""
    return int(RESULTS_SHARE * budget_tokens)


def bounded(turn: Sequence[ChatMessage], *, budget_tokens: int, count: Count) -> tuple[ChatMessage, ...]:
    """Put stubs in the place of a turn's older tool results, so that the others keep within their budget.

    Whenever a message's results exceed it, the oldest go until half of it is free: so stubs come seldom, and the
    prefix that the provider has cached holds in between. The results of that very message stay whatever their size.
    A turn that has grown has the same stubs as before, and more only if it exceeded the budget again.

    Args:
        budget_tokens: of the results alone, see results_tokens.
    """
    if sum(outcome_tokens(outcome, count) for message in turn for outcome in message.outcomes) <= budget_tokens:
        return tuple(turn)
    uses = _uses(turn)
    kept: deque[_Result] = deque()
    gone: dict[tuple[int, int], ToolOutcome] = {}
    held_tokens = 0
    for place, message in enumerate(turn):
        if not message.outcomes:
            continue
        latest = _results(place, message, uses, count)
        held_tokens += sum(result.tokens for result in latest)
        most = budget_tokens if held_tokens <= budget_tokens else budget_tokens // 2
        while held_tokens > most and kept:
            oldest = kept.popleft()
            gone[oldest.place] = oldest.stub
            held_tokens -= oldest.tokens
        kept.extend(latest)
    return _replaced(turn, gone)


def stubbed(turn: Sequence[ChatMessage], *, spare: Collection[int] = (), count: Count) -> tuple[ChatMessage, ...]:
    """Put stubs in the place of all tool results that are longer than theirs; pairs of call and result stay whole.

    Args:
        spare: places of messages that stay as they are.
    """
    uses = _uses(turn)
    found = (_results(place, message, uses, count) for place, message in enumerate(turn) if place not in spare)
    return _replaced(turn, {result.place: result.stub for results in found for result in results})


def references(text: str) -> list[str]:
    """The references of large results in a text (``ref_`` and 32 hexadecimal digits), each once, in order."""
    # Nearly all texts have none, and the pattern needs 0.8 ms for 16 KB (measured).
    return list(dict.fromkeys(_REF.findall(text))) if "ref_" in text else []


def call_text(name: str, arguments: Mapping[str, object]) -> str:
    """A call as one reads it, its beginning if it is long: ``add({"a": 1})``."""
    return short(f"{name}({json.dumps(arguments, ensure_ascii=False)})", STUB_CALL_CHARS)


def _uses(turn: Sequence[ChatMessage]) -> dict[str, ToolUse]:
    return {use.id: use for message in turn for use in message.tool_uses}


def _results(place: int, message: ChatMessage, uses: Mapping[str, ToolUse], count: Count) -> list[_Result]:
    """The results that would be shorter as a stub; the others count for nothing."""
    results = []
    for at, outcome in enumerate(message.outcomes):
        stub = _stub(outcome, uses.get(outcome.tool_use_id))
        tokens = outcome_tokens(outcome, count)
        if count(stub.content) < tokens and (outcome.media or len(stub.content) < len(outcome.content)):
            results.append(_Result((place, at), stub, tokens))
    return results


def _stub(outcome: ToolOutcome, use: ToolUse | None) -> ToolOutcome:
    call = call_text(outcome.name, use.arguments if use else {})
    refs = references(outcome.content)[-STUB_REFS:]
    held = f" It named {', '.join(refs)}, which get_tool_result reads." if refs else ""
    note = f"[The result of {call}, {len(outcome.content)} characters, was left out to save room.{held}"
    note += " Call the tool again, for no more than you need, if you need it.]"
    return replace(outcome, content=note, media=())


def _replaced(turn: Sequence[ChatMessage], gone: Mapping[tuple[int, int], ToolOutcome]) -> tuple[ChatMessage, ...]:
    return tuple(
        replace(
            message,
            outcomes=tuple(gone.get((place, at), outcome) for at, outcome in enumerate(message.outcomes)),
        )
        for place, message in enumerate(turn)
    )


MOST_NAMES = 10
"""Calls that the line names."""


def rounds(turn: Sequence[ChatMessage]) -> int:
    """How many times the turn got results of calls."""
    return sum(bool(message.outcomes) for message in turn)


def folded(turn: Sequence[ChatMessage], number: int) -> tuple[ChatMessage, ...]:
    """Leave out the first rounds of a turn: the replies that asked for calls, and the results.

    Args:
        turn: begins with the user's message.
        number: of rounds, 0 to rounds(turn).
    """
    ends = [place + 1 for place, message in enumerate(turn) if message.outcomes]
    end = ends[number - 1] if number else 1
    names = [use.name for message in turn[1:end] for use in message.tool_uses]
    if not names:
        return tuple(turn)
    listed = ", ".join(names[:MOST_NAMES]) + (", …" if len(names) > MOST_NAMES else "")
    line = f"[{len(names)} earlier tool calls of this turn ({listed}) and their results are left out for want of room.]"
    return (with_added(turn[0], line), *turn[end:])


MOST_KEPT = 50_000
"""Sizes that are kept, some 200 bytes each; then counting begins anew."""

_Key = tuple[str, int, int, int]


@dataclass(frozen=True, slots=True)
class Size:
    """The size of one turn as it is sent."""

    tokens: int
    added_tokens: int
    """Those of them that are of texts that were added to the user's message."""
    is_whole: bool
    """False: some of its results leave a stub in their place."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of one agent, by the tokens of its model. Any thread may ask."""

    count: Count
    _turns: dict[_Key, Size] = field(default_factory=dict)
    _tools: dict[tuple[str, ...], int] = field(default_factory=dict)

    def of_tools(self, tools: Sequence[ToolSpec]) -> int:
        """Tokens of the tools that are offered; the agent has one of each name."""
        names = tuple(tool.name for tool in tools)
        known = self._tools.get(names)
        if known is None:
            known = self._tools[names] = tools_tokens(tools, self.count)
        return known

    def of_turn(self, turn: Sequence[Message], *, budget_tokens: int) -> Size:
        """What a turn takes.

        Args:
            turn: all of its messages.
            budget_tokens: of its tool results alone, see results_tokens.
        """
        # Results are fenced where they are sent, and as they came where memory is looked at: their length tells which.
        results_chars = sum(len(each.content) for message in turn for each in message.chat.outcomes)
        key = (turn[-1].id, len(turn), results_chars, budget_tokens)
        known = self._turns.get(key)
        if known is None:
            if len(self._turns) >= MOST_KEPT:
                self._turns.clear()
            known = self._turns[key] = self._counted(turn, budget_tokens)
        return known

    def sent(self, turn: Sequence[Message], size: Size, *, budget_tokens: int) -> tuple[ChatMessage, ...]:
        """A turn's messages as they are sent, its results bounded.

        Args:
            size: of the turn, with the same budget.
        """
        chats = tuple(message.chat for message in turn)
        return chats if size.is_whole else bounded(chats, budget_tokens=budget_tokens, count=self.count)

    def _counted(self, turn: Sequence[Message], budget_tokens: int) -> Size:
        chats = tuple(message.chat for message in turn)
        sent = bounded(chats, budget_tokens=budget_tokens, count=self.count)
        added_tokens = sum(self.count(chat.context) for chat in sent)
        return Size(chat_tokens(sent, self.count), added_tokens, sent == chats)
