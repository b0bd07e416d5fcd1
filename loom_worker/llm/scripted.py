"""The model of the demo: no LLM and no network, yet it calls tools and answers from their rows.

It reads what a real model would read - the pattern beside the message, the tools' results - and what it says is a pure
function of the request, so the same conversation always gives the same replies. ``scripted-demo+1000ms`` takes its
time before the first words, as a real model does: so a load can be tried without one.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256

from loom_worker.errors import Interrupted, ProviderFailed
from loom_worker.llm.anthropic_stream import MAX_REPLY_BYTES
from loom_worker.llm.demo import (
    INTRODUCTION,
    Task,
    answer,
    missing_tables,
    read_result,
    read_task,
    read_today,
    unfenced,
)
from loom_worker.llm.slots import Slots, read
from loom_worker.llm.watched import POLL_S
from loom_worker.values.chat import ChatMessage, Reply, ReplyEvent, Request, TextDelta, ToolOutcome, ToolUse, Usage
from loom_worker.values.json import Json

_PIECE = re.compile(r"(?:\S+\s*){1,4}|\s+")
"""What streams at once: up to four words."""
_NAMED_CALL = re.compile(r"\s*([A-Za-z0-9_-]{1,64})\s+(\{.*\})\s*", re.DOTALL)
"""A message that is a tool's name and its arguments as a JSON object."""
_WITH_LATENCY = re.compile(r"scripted-demo\+(.*)", re.DOTALL)
_LATENCY = re.compile(r"([0-9]{1,5})ms")


@dataclass(frozen=True, slots=True)
class _Said:
    """What the script wants: a text to say, tools to call, or both."""

    text: str
    calls: tuple[tuple[str, Json], ...] = ()


class Scripted:
    """The scripted model, ``scripted-demo``."""

    name = "scripted-demo"

    def __init__(
        self,
        count: Callable[[str], int],
        *,
        model: str = name,
        is_stopping: Callable[[], bool] = lambda: False,
        max_reply_bytes: int = MAX_REPLY_BYTES,
    ) -> None:
        """Make the model that ``model`` names; any name is the demo's, and only its own may carry a latency.

        Args:
            count: tokens of a text, for the usage that replies report.
            is_stopping: asked several times a second while a reply waits; True ends it with Interrupted.
            max_reply_bytes: a longer reply is cut there, its calls are left out.

        Raises:
            ProviderFailed: the latency is not written as in ``scripted-demo+1000ms``.
        """
        self._count = count
        self._max_reply_bytes = max_reply_bytes
        self._latency_s = latency_s(model)
        self._is_stopping = is_stopping

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        """Stream the reply to a request, a few words at a time; nothing costs anything.

        Raises:
            Interrupted: this process was asked to stop meanwhile, or the request is given up.
        """
        whole = _script(request)
        said = _within(whole, self._max_reply_bytes)
        request.watch.asked()
        self._take_time(request)
        yield from (TextDelta(piece) for piece in _PIECE.findall(said.text))
        uses = tuple(ToolUse(_call_id(request, n), name, arguments) for n, (name, arguments) in enumerate(said.calls))
        yield Reply(
            text=said.text,
            stop_reason="reply_too_large" if said is not whole else "tool_use" if uses else "end_turn",
            usage=self._usage(request, said),
            model=self.name,
            tool_uses=uses,
        )

    def _take_time(self, request: Request) -> None:
        until_s = time.monotonic() + self._latency_s
        while (left_s := until_s - time.monotonic()) > 0:
            if self._is_stopping() or request.is_given_up():
                raise Interrupted("The reply was given up: this process stops, or nobody wants the reply any more.")
            request.watch.silent()
            time.sleep(min(left_s, POLL_S))  # as seldom as a real model's call looks, for a load shall cost the same

    def _usage(self, request: Request, said: _Said) -> Usage:
        # Text by text: those of earlier turns come again with every call, and a counter may remember them.
        texts = [request.system, request.memory, *(_as_text(message) for message in request.messages)]
        tools = json.dumps([[tool.name, tool.description, dict(tool.input_schema)] for tool in request.tools])
        output = said.text + (json.dumps(said.calls) if said.calls else "")
        return Usage(
            input_tokens=sum(map(self._count, texts)) + (self._count(tools) if request.tools else 0),
            output_tokens=self._count(output),
            cost_usd=0.0,
            llm_calls=1,
        )


def latency_s(model: str) -> float:
    """Seconds before the first words, as the name of a scripted model says: up to 99.999, 0 for a plain name.

    Raises:
        ProviderFailed: there is a latency, and it is not written as in ``scripted-demo+1000ms``.
    """
    given = _WITH_LATENCY.fullmatch(model)
    if given is None:
        return 0.0
    written = _LATENCY.fullmatch(given[1])
    if written is None:
        raise ProviderFailed(
            f"LOOM_MODEL, or the model of this session or agent, is {model!r}: after the + up to five digits and ms "
            "are needed, as in scripted-demo+1000ms."
        )
    return int(written[1]) / 1000


def _script(request: Request) -> _Said:
    """Decide the next step of the turn: call what was named, introduce, look at the tables, query, or answer."""
    question, outcomes = _current(request.messages)
    if (named := _named_call(request, question.text)) is not None:
        return _called(request, named, outcomes.get(named[0]))
    slots = read(question.text, read_today(question.context))
    task = read_task(question.context, slots.rest)
    if task is None or "execute_sql" not in _callable_names(request):
        return _Said(INTRODUCTION)
    queried = outcomes.get("execute_sql")
    if queried is not None:
        return _Said(_answer(task, slots, queried))
    if not request.may_call_tools:
        return _Said(f"I may call no more tools in this turn and have no rows yet, so I cannot answer. {INTRODUCTION}")
    looks = _looks(request, task)
    if looks and not outcomes:
        return _Said(f'I follow the pattern "{task.title}" and look at the tables first.', looks)
    return _query(task, slots, outcomes)


def _named_call(request: Request, text: str) -> tuple[str, Json] | None:
    """The call that a message spells out, so that users can try a tool of theirs without a model."""
    found = _NAMED_CALL.fullmatch(text)
    if found is None or found[1] not in _callable_names(request):
        return None
    try:
        arguments = json.loads(found[2])
    except ValueError:
        return None
    return (found[1], arguments) if isinstance(arguments, dict) else None


def _called(request: Request, call: tuple[str, Json], outcome: ToolOutcome | None) -> _Said:
    if outcome is not None:
        return _Said(f"{call[0]} {'failed' if outcome.is_error else 'gave'}: {unfenced(outcome.content)[:2000]}")
    if not request.may_call_tools:
        return _Said(f"I may call no more tools in this turn, so {call[0]} was not called.")
    return _Said(f"I call {call[0]}, as you say.", (call,))


def _within(said: _Said, max_bytes: int) -> _Said:
    """The same if it is no larger, else the beginning of its text alone."""
    text = said.text.encode()
    size_bytes = len(text) + (len(json.dumps(said.calls)) if said.calls else 0)
    return said if size_bytes <= max_bytes else _Said(text[:max_bytes].decode(errors="ignore"))


def _current(messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, dict[str, ToolOutcome]]:
    """The user message that is being answered, and the latest outcome of each tool since."""
    outcomes: dict[str, ToolOutcome] = {}
    for message in reversed(messages):
        if message.role == "user":
            return message, outcomes
        for outcome in reversed(message.outcomes):
            outcomes.setdefault(outcome.name, outcome)
    return ChatMessage("user"), outcomes


def _callable_names(request: Request) -> frozenset[str]:
    return frozenset(tool.name for tool in request.tools)


def _looks(request: Request, task: Task) -> tuple[tuple[str, Json], ...]:
    wanted: tuple[tuple[str, Json], ...] = (("list_tables", {}), ("get_schema", {"tables": list(task.tables())}))
    return tuple(call for call in wanted if call[0] in _callable_names(request))


def _query(task: Task, slots: Slots, outcomes: dict[str, ToolOutcome]) -> _Said:
    listed = outcomes.get("list_tables")
    missing = missing_tables(task.tables(), unfenced(listed.content)) if listed else ()
    if missing:
        return _Said(
            f'I have no answer: the pattern "{task.title}" ({task.pattern_id}) reads {", ".join(missing)}, and this '
            "database has no such table. The scripted demo model cannot adapt a pattern to other tables; an LLM can."
        )
    for outcome in outcomes.values():
        if outcome.is_error and outcome.name in ("list_tables", "get_schema"):
            return _Said(f"I could not look at the tables, so I have no answer. {unfenced(outcome.content)}")
    return _Said("The tables are there; now the query.", (("execute_sql", {"sql": task.query(slots)}),))


def _answer(task: Task, slots: Slots, queried: ToolOutcome) -> str:
    result = None if queried.is_error else read_result(unfenced(queried.content))
    if result is None:
        why = "failed" if queried.is_error else "gave a result I cannot read"
        return f'I have no answer: the query of the pattern "{task.title}" {why}. {unfenced(queried.content)[:500]}'
    return answer(task, slots, result)


def _as_text(message: ChatMessage) -> str:
    uses = [f"{use.name} {json.dumps(use.arguments)}" for use in message.tool_uses]
    return "\n".join([message.context, message.text, *uses, *(outcome.content for outcome in message.outcomes)])


def _call_id(request: Request, n: int) -> str:
    """An id that no other call of the conversation has: what was said before is part of it."""
    said = "\0".join(_as_text(message) for message in request.messages)
    return "toolu_" + sha256(f"{len(request.messages)} {n} {said}".encode("utf-8", "replace")).hexdigest()[:24]
