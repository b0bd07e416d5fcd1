"""The model of the demo: no LLM and no network, yet it calls tools and answers from their rows.

It reads what a real model would read - the question, the pattern shown with it, the tools' results - and its replies
are a pure function of the request (``questions/``): the same conversation always gives the same replies.
``scripted-demo+1000ms`` waits before the first words, as a real model does, so that load can be tested without one.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256

from loom_worker.core.errors import Interrupted, ProviderFailed
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.budgets import FREE
from loom_worker.core.values.chat import ChatMessage, Reply, ReplyEvent, Request, TextDelta, ToolSpec, ToolUse, Usage
from loom_worker.demo.steps import ScriptStep, next_step
from loom_worker.llm.assembly import MAX_REPLY_BYTES
from loom_worker.llm.response import POLL_S

_PIECE = re.compile(r"(?:\S+\s*){1,4}|\s+")
"""What streams at once: up to four words."""
_WITH_LATENCY = re.compile(r"scripted-demo\+(.*)", re.DOTALL)
_LATENCY = re.compile(r"([0-9]{1,5})ms")


class Scripted:
    """The scripted model, ``scripted-demo``."""

    name = "scripted-demo"

    def __init__(
        self,
        count: Callable[[str], int],
        *,
        model: str = name,
        stopping: Stopping | None = None,
        max_reply_bytes: int = MAX_REPLY_BYTES,
    ) -> None:
        """Make the model that ``model`` names; any name is the demo's, and only its own may carry a latency.

        Args:
            count: tokens of a text, for the usage that replies report.
            stopping: asked several times a second while a reply waits, which ends with Interrupted once it is due.
            max_reply_bytes: a longer reply is cut there, its calls are left out.

        Raises:
            ProviderFailed: the latency is not written as in ``scripted-demo+1000ms``.
        """
        self._count = count
        self._max_reply_bytes = max_reply_bytes
        self._latency_s = latency_s(model)
        self._stopping = stopping
        self._counted_tools: dict[tuple[tuple[str, str], ...], int] = {}

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        """Stream the reply to a request, a few words at a time; nothing costs anything.

        Raises:
            Interrupted: this process was asked to stop meanwhile, or the request is given up.
        """
        whole = next_step(request)
        is_large = len(_said(whole).encode()) > self._max_reply_bytes
        step = self._shortened(whole, is_large=is_large, max_tokens=request.max_tokens)
        cut = step is not whole
        request.watch.asked(self.name)
        self._take_time(request)
        yield from (TextDelta(piece) for piece in _PIECE.findall(step.text))
        uses = tuple(ToolUse(_call_id(request, n), name, arguments) for n, (name, arguments) in enumerate(step.calls))
        yield Reply(
            text=step.text,
            stop_reason=("reply_too_large" if is_large else "max_tokens")
            if cut
            else "tool_use"
            if uses
            else "end_turn",
            usage=self._usage(request, step),
            model=self.name,
            tool_uses=uses,
        )

    def _take_time(self, request: Request) -> None:
        until_s = time.monotonic() + self._latency_s
        while (left_s := until_s - time.monotonic()) > 0:
            if (self._stopping is not None and self._stopping.is_due) or request.is_given_up():
                raise Interrupted("The reply was given up: this process stops, or nobody wants the reply any more.")
            request.watch.silent()
            time.sleep(min(left_s, POLL_S))  # as rarely as a real model's call checks, so that load costs the same

    def _shortened(self, step: ScriptStep, *, is_large: bool, max_tokens: int) -> ScriptStep:
        """The same step if it is not too large and has no more tokens than it may; else the beginning of its text."""
        if is_large:
            step = ScriptStep(step.text.encode()[: self._max_reply_bytes].decode(errors="ignore"))
        if self._count(_said(step)) <= max_tokens:
            return step
        pieces = _PIECE.findall(step.text)
        while pieces and self._count("".join(pieces)) > max_tokens:
            pieces.pop()
        return ScriptStep("".join(pieces))

    def _usage(self, request: Request, step: ScriptStep) -> Usage:
        # Text by text: those of earlier turns recur with every call, and a counter may remember them.
        texts = [request.system, request.memory, *(text for each in request.messages for text in _texts(each))]
        return Usage(
            input_tokens=sum(self._count(text) for text in texts if text) + self._tools_tokens(request.tools),
            output_tokens=self._count(_said(step)),
            cost_usd=FREE,
            llm_calls=1,
        )

    def _tools_tokens(self, tools: Sequence[ToolSpec]) -> int:
        described = tuple((tool.name, tool.description) for tool in tools)
        if described not in self._counted_tools:
            whole = json.dumps([[tool.name, tool.description, dict(tool.input_schema)] for tool in tools])
            self._counted_tools[described] = self._count(whole) if tools else 0
        return self._counted_tools[described]


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


def _said(step: ScriptStep) -> str:
    return step.text + (json.dumps(step.calls) if step.calls else "")


def _texts(message: ChatMessage) -> list[str]:
    texts = [message.context, message.text]
    texts += [f"{use.name} {json.dumps(use.arguments)}" for use in message.tool_uses]
    texts += [outcome.content for outcome in message.outcomes]
    return texts


def _call_id(request: Request, n: int) -> str:
    """An id that no other call of the conversation has: it depends on all earlier messages."""
    earlier = "\0".join("\n".join(_texts(message)) for message in request.messages)
    return "toolu_" + sha256(f"{len(request.messages)} {n} {earlier}".encode("utf-8", "replace")).hexdigest()[:24]
