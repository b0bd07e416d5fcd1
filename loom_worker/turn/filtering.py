"""Holds what tools are called with and return, and what the model says, against the guardrails of a turn."""

import re
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from functools import partial

from loom_worker.core.text import KEY_CHARS, KEY_LETTERS
from loom_worker.core.values.chat import Reply, ReplyEvent, Restarted, TextDelta, ThinkingDelta, ToolUse
from loom_worker.core.values.guardrails import StageRules
from loom_worker.core.values.tools import Caller, Outcome
from loom_worker.guard.rails import check, check_json, decisions_on
from loom_worker.guard.stream import StreamFilter
from loom_worker.turn.agent_runtime import AgentRuntime

MOST_MARK_CHARS = 32  # the longest mark of a fence, its spaces included
WITHHELD = "GUARDRAIL"
"""The code of a failure: the result holds what the model may not read."""


def allowed(outcome: Outcome, rules: StageRules, runtime: AgentRuntime, caller: Caller) -> Outcome:
    """Return what the model may read of a tool's outcome; a model of the agent's may be asked about it."""
    if not rules:
        return outcome
    content, detail = (check("tool_result", text, rules) for text in (outcome.content, outcome.detail))
    if (asks := runtime.checks.get("tool_result")) is not None:
        content = asks.after(content, rules, caller)
    decisions = content.decisions + detail.decisions
    blocked_for = dict.fromkeys((*content.blocked_for, *detail.blocked_for))
    if blocked_for:
        text = f"The result is withheld by a guardrail: it holds {', '.join(blocked_for)}."
        return Outcome("failed", text, code=WITHHELD, guard=decisions)
    return replace(outcome, content=content.kept, detail=detail.kept, guard=decisions)


def with_checked_calls(reply: Reply, rules: StageRules) -> tuple[Reply, Mapping[str, str]]:
    """The reply with calls as they may leave the worker, and why some are refused, by id: these keep no arguments."""
    uses, why, decisions = list[ToolUse](), dict[str, str](), reply.guard
    for use in reply.tool_uses:
        # A name may be any text of the model, too: there may be no such tool.
        found = check_json("arguments", {use.name: use.arguments}, rules)
        decisions += found.decisions
        [(name, arguments)] = found.kept.items()
        if found.blocked_for:
            held = ", ".join(found.blocked_for)
            why[use.id] = f"Not run: a guardrail refuses the arguments, for they hold {held} (rules for arguments)."
            name, arguments = "blocked" if check("arguments", name, rules).blocked_for else name, {}
        uses.append(replace(use, name=name, arguments=arguments, flaw=why.get(use.id, use.flaw)))
    return replace(reply, tool_uses=tuple(uses), guard=decisions), why


def filtered(stream: Iterator[ReplyEvent], rules: StageRules, key: str) -> Generator[ReplyEvent]:
    """A model's reply without what the rules take out of answers, and without the marks of fences.

    A reply that may not be given ends where that began: nothing of it follows, its tool calls included; the model is
    listened to until it ends nevertheless, for what it costs.
    """
    try:
        unfenced = _filtered(stream, partial(_Unfenced, key))
        yield from _filtered(unfenced, partial(_Answer, rules)) if rules else unfenced
    finally:
        close = getattr(stream, "close", None)
        if close is not None:
            close()


def _filtered(stream: Iterator[ReplyEvent], begin: "Callable[[], _Answer | _Unfenced]") -> Iterator[ReplyEvent]:
    said, thought = begin(), begin()
    for event in stream:
        match event:
            case TextDelta(text):
                if seen := said.take(text):
                    yield TextDelta(seen)
            case ThinkingDelta(text):
                if seen := thought.take(text):
                    yield ThinkingDelta(seen)
            case Reply():
                if rest := thought.end():
                    yield ThinkingDelta(rest)
                if rest := said.end():
                    yield TextDelta(rest)
                yield thought.beside(said.of(event))
            case _:
                if isinstance(event, Restarted):
                    said, thought = begin(), begin()
                yield event


class _Unfenced:
    """One reply, as far as it has come, without the turn's key and any mark that fences results; blank, none of it."""

    def __init__(self, key: str) -> None:
        self._mark = re.compile(rf"(?i)</?data\s{{1,9}}[{KEY_LETTERS}]{{{KEY_CHARS}}}\s{{0,9}}>|{key}(?!\Z)")
        begun = "|".join(key[:size] for size in range(KEY_CHARS, 0, -1))
        mark = rf"</?(?:d(?:a(?:t(?:a(?:\s{{1,9}}(?:[{KEY_LETTERS}]{{1,6}}\s{{0,9}})?)?)?)?)?)?"
        self._begun_mark = re.compile(rf"(?i)(?:{mark}|{begun})\Z")
        self._held = ""
        self._seen: list[str] = []

    def take(self, text: str) -> str:
        text = self._without_marks(self._held + text)
        shown = self._shown()
        begun = self._begun_mark.search(shown + text)
        return self._see(text, max(begun.start() - len(shown), 0) if begun else len(text))

    def end(self) -> str:
        rest = self._without_marks(f"{self._held}\n")[:-1]
        return self._see(rest, len(rest))

    def of(self, reply: Reply) -> Reply:
        return replace(reply, text="".join(self._seen)) if self._mark.search(f"{reply.text}\n") else reply

    def beside(self, reply: Reply) -> Reply:
        return reply

    def _without_marks(self, text: str) -> str:
        """The text to be seen next, also without a mark that only comes to be where another one is taken out."""
        shown = self._shown()
        while (mark := self._mark.search(shown + text)) and mark.end() > len(shown):
            text = text[: max(mark.start() - len(shown), 0)] + text[mark.end() - len(shown) :]
        return text

    def _shown(self) -> str:
        return "".join(self._seen[-MOST_MARK_CHARS:])[-MOST_MARK_CHARS:]

    def _see(self, text: str, end: int) -> str:
        end = end if self._seen or text[:end].strip() else 0
        self._held = text[end:]
        self._seen += [text[:end]] if end else []
        return text[:end]


class _Answer:
    def __init__(self, rules: StageRules) -> None:
        self._rules = rules
        self._stops = frozenset(kind for kind, action in rules.items() if action == "block")
        self._filter = StreamFilter({kind: action for kind, action in rules.items() if action != "flag"})
        self._flags = partial(check, "output", rules={kind: act for kind, act in rules.items() if act == "flag"})
        self._seen: list[str] = []
        self._is_stopped = False

    def take(self, text: str) -> str:
        return self._see(self._filter.feed(text))

    def end(self) -> str:
        return self._see(self._filter.end())

    def of(self, reply: Reply) -> Reply:
        text = "".join(self._seen)
        whole = text if self._is_stopped else reply.text  # what is only noted may be part of what was taken out
        decisions = decisions_on("output", self._filter.found, self._rules) + self._flags(whole).decisions
        if not decisions:
            return reply
        if self._is_stopped:
            return replace(reply, text=text, stop_reason="guardrail", tool_uses=(), opaque=(), guard=decisions)
        return replace(reply, text=text, guard=decisions)

    def beside(self, reply: Reply) -> Reply:
        """The reply to this thinking, whose blocks are not kept if anything had to be taken out of it."""
        found = decisions_on("output", self._filter.found, self._rules)
        decisions = found + self._flags("".join(self._seen)).decisions
        if not decisions:
            return reply
        return replace(reply, opaque=() if found else reply.opaque, guard=reply.guard + decisions)

    def _see(self, text: str) -> str:
        if self._is_stopped:
            return ""
        if self._stops.intersection(self._filter.found):
            self._is_stopped = True
            return ""
        self._seen.append(text)
        return text
