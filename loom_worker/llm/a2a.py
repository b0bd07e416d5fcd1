"""An agent elsewhere as a model: it gets the user's message by the Agent2Agent protocol, and what it says is the reply.

It has its own model, tools and memory, so of a request it gets the last message of the user alone. What connects the
turns of a session is the context, which each reply keeps in a block of its own (``a2a_task.Memo``).
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Literal
from urllib.parse import urljoin
from uuid import uuid4

from loom_worker.core.errors import Interrupted, LoomError, ProviderFailed, StreamBroken, Transient
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.chat import Reply, ReplyEvent, Request, Restarted, TextDelta, Usage
from loom_worker.core.values.json import Json
from loom_worker.guard.net.address import Target, target
from loom_worker.guard.net.http import HttpRequest
from loom_worker.llm.a2a_http import (
    Endpoint,
    HttpCall,
    Outgoing,
    RemoteAddress,
    about_task,
    card_urls,
    endpoint,
    sending,
    target_of,
)
from loom_worker.llm.a2a_task import BETWEEN, MEMO, Memo, RemoteTask
from loom_worker.llm.prices import A2A
from loom_worker.llm.sse import json_object

CARD_S = 300.0
"""How long a card counts as read."""
CARD_BYTES = 1024 * 1024
CARD_TIMEOUT_S = 15.0
POLL_S = 1.0
"""Between two looks at a task of an agent that does not stream."""
RESUMED = 3
"""How often a stream that breaks is taken up again."""
CANCEL_S = 5.0
_MOST_TOKENS = 10**9
_TASK_GONE = frozenset({-32001, -32004, -32602})
"""The task is not known any more, has ended, or belongs elsewhere."""
_EVENT_BYTES = 64 * 1024
FAILURES = frozenset({"failed", "rejected", "canceled", "auth_required"})
"""States of a task that give no answer."""


class RpcFailed(ProviderFailed):
    """The remote agent answered with an error of JSON-RPC; ``args[1]`` is its code."""

    @property
    def code(self) -> int:
        """The code of JSON-RPC, or of the protocol; 0 if it has none."""
        return int(self.args[1])


class A2aAgent:
    """A Model behind the Agent2Agent protocol."""

    def __init__(self, name: str, address: RemoteAddress, *, stopping: Stopping | None = None) -> None:
        """Nothing is connected before the first reply; Invalid: the URL may not be called.

        Args:
            name: of the agent here; the model's name is ``a2a/<name>``.
        """
        self._name = A2A + name
        self._address = address
        self._stopping = stopping
        self._cards = [target(url, allow_private=address.allow_private) for url in card_urls(address.url)]
        self._endpoint: tuple[float, Endpoint] | None = None

    @property
    def name(self) -> str:
        """The agent's name, with the prefix of the protocol."""
        return self._name

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        """The same request of the same turn has the same message id, so it asks no second time."""
        request.watch.asked(self.name)
        deadline_s = time.monotonic() + self._address.timeout_s
        memo, text = _last(request)
        message_id = request.key or f"msg-{uuid4().hex}"
        message = Outgoing(message_id, text, memo.context_id, memo.task_id)
        exchange = _Exchange(self._address, self._where(request, deadline_s), request, deadline_s, self._stopping)
        try:
            yield from self._answer(exchange, message, memo)
        except RpcFailed as error:
            if message.task_id is None or error.code not in _TASK_GONE:
                raise
            yield from self._answer(exchange, replace(message, task_id=None), Memo(memo.context_id))

    def _answer(self, exchange: "_Exchange", message: Outgoing, memo: Memo) -> Iterator[ReplyEvent]:
        task, has_ended = RemoteTask(memo), False
        said: list[str] = []
        size = 0
        try:
            for result in exchange.results(message, task):
                piece = task.take(result)
                if piece.is_anew and said:
                    yield Restarted("the remote agent began its answer anew")
                    said.clear()
                    size = 0
                if piece.text:
                    yield TextDelta(piece.text)
                    said.append(piece.text)
                    size += len(piece.text)
                if size > self._address.max_reply_bytes:
                    yield Reply("".join(said), "reply_too_large", Usage(llm_calls=1), self._name)
                    return
            has_ended = True
            yield from self._finished(task, "".join(said))
        finally:
            if not has_ended:
                exchange.withdraw(task)

    def _finished(self, task: RemoteTask, said: str) -> Iterator[ReplyEvent]:
        if task.state in FAILURES:
            why = f": {task.note[:300]}" if task.note else "."
            raise ProviderFailed(f"The remote agent's task is {task.state}{why}")
        if closing := task.closing():
            closing = f"{BETWEEN}{closing}" if said else closing
            yield TextDelta(closing)
        usage = replace(_usage(task.usage), llm_calls=1)
        yield Reply(said + closing, "end_turn", usage, self._name, opaque=(task.memo().as_json(),))

    def _where(self, request: Request, deadline_s: float) -> Endpoint:
        """Where its card says that it is called, which must be at the card's own origin: our secret goes there."""
        known = self._endpoint
        if known is not None and time.monotonic() - known[0] < CARD_S:
            return known[1]
        limit_s = min(deadline_s, time.monotonic() + CARD_TIMEOUT_S)
        self._endpoint = (time.monotonic(), self._found(request, limit_s))
        return self._endpoint[1]

    def _found(self, request: Request, limit_s: float) -> Endpoint:
        newest, *older = self._cards
        try:
            return self._read(newest, request, limit_s)
        except ProviderFailed:
            for place in older:
                with suppress(ProviderFailed):  # the newer place's refusal says more
                    return self._read(place, request, limit_s)
            raise

    def _read(self, place: Target, request: Request, limit_s: float) -> Endpoint:
        """What the card at a place says; ProviderFailed: there is no card, or it leads nowhere."""
        ask = HttpRequest("GET", place.path, {**self._address.headers, "Accept": "application/json"})
        body = HttpCall(self._address, place, ask, request, limit_s, self._stopping).body(CARD_BYTES)
        try:
            card = json_object(body)
        except StreamBroken as error:
            raise ProviderFailed(f"There is no card at {place.origin}{place.path}: its text is not JSON.") from error
        found = endpoint(card)
        url = urljoin(place.origin, found.url)
        if target_of(url, self._address).origin != place.origin:
            raise ProviderFailed(
                f"The remote agent's card leads to another origin ({url[:200]}), which is not followed: "
                "set a2a.url in the agent's file to a card there."
            )
        return replace(found, url=url)


class _Exchange:
    def __init__(
        self,
        address: RemoteAddress,
        where: Endpoint,
        request: Request,
        deadline_s: float,
        stopping: Stopping | None,
    ) -> None:
        self._address = address
        self._where = where
        self._request = request
        self._deadline_s = deadline_s
        self._stopping = stopping

    def results(self, message: Outgoing, task: RemoteTask) -> Iterator[Json]:
        """All results until the task is over; the caller has taken up each before it asks for the next."""
        if not self._where.streams:
            yield self._one(sending("send", message, self._where.version))
            while not task.is_over():
                self._rest()
                yield self._one(self._about("get", task))
            return
        body = sending("stream", message, self._where.version)
        for left in reversed(range(RESUMED)):
            try:
                yield from self._stream(body)
            except Transient:
                if task.id is None or not left:
                    raise
            if task.is_over():
                return
            if task.id is None:
                break
            yield self._one(self._about("get", task))
            if task.is_over():
                return
            body = self._about("subscribe", task)
        raise StreamBroken("The remote agent's stream ended before its task did.")

    def withdraw(self, task: RemoteTask) -> None:
        """Cancel the task if the client does not want it any more; if the turn only goes on elsewhere, leave it."""
        is_stopping = self._stopping is not None and self._stopping.is_due
        if task.id is None or task.is_over() or is_stopping or not self._request.is_given_up():
            return
        try:
            if self._request.may_be_sent():
                call = self._call(self._about("cancel", task), time.monotonic() + CANCEL_S, is_wanted=True)
                call.body(_EVENT_BYTES)
        except LoomError:
            return  # It was asked; whether it heard changes nothing here.

    def _about(self, call: Literal["get", "cancel", "subscribe"], task: RemoteTask) -> bytes:
        return about_task(call, task.id or "", self._where.version)

    def _one(self, body: bytes) -> Json:
        return _result(json_object(self._call(body, self._deadline_s).body(self._most_bytes)))

    def _stream(self, body: bytes) -> Iterator[Json]:
        for event in self._call(body, self._deadline_s).events(self._most_bytes):
            yield _result(event)

    @property
    def _most_bytes(self) -> int:
        return 2 * self._address.max_reply_bytes + _EVENT_BYTES

    def _call(self, body: bytes, deadline_s: float, *, is_wanted: bool = False) -> "HttpCall":
        goal = target_of(self._where.url, self._address)
        headers = {
            **self._address.headers,
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "A2A-Version": self._where.version,
        }
        request = replace(self._request, is_given_up=lambda: False) if is_wanted else self._request
        ask = HttpRequest("POST", goal.path, headers, body)
        return HttpCall(self._address, goal, ask, request, deadline_s, self._stopping)

    def _rest(self) -> None:
        until_s = min(self._deadline_s, time.monotonic() + POLL_S)
        while (left_s := until_s - time.monotonic()) > 0:
            if self._request.is_given_up() or (self._stopping is not None and self._stopping.is_due):
                raise Interrupted("The call was given up: this process stops, or nobody wants the reply any more.")
            time.sleep(min(left_s, 0.1))
        if time.monotonic() >= self._deadline_s:
            raise StreamBroken(f"The remote agent had no answer within {self._address.timeout_s:g} s.")


def _last(request: Request) -> tuple[Memo, str]:
    text = next((each.text for each in reversed(request.messages) if each.role == "user"), "")
    blocks = (block for each in reversed(request.messages) for block in each.opaque if block.get("type") == MEMO)
    return Memo.of(next(blocks, {})), text


def _result(answer: Json) -> Json:
    error = answer.get("error")
    if isinstance(error, dict):
        code = error.get("code")
        text = f"The remote agent refused: {str(error.get('message') or 'it does not say why')[:300]}"
        raise RpcFailed(text, code if isinstance(code, int) else 0)
    result = answer.get("result")
    if not isinstance(result, dict):
        raise StreamBroken("The remote agent's answer is neither a result nor an error of JSON-RPC.")
    return result


def _usage(given: Json) -> Usage:
    """Tokens as another Loom says it; what they cost is paid there."""

    def tokens(name: str) -> int:
        n = given.get(name)
        return n if isinstance(n, int) and 0 <= n < _MOST_TOKENS else 0

    return Usage(
        tokens("input_tokens"), tokens("output_tokens"), tokens("cache_read_tokens"), tokens("cache_write_tokens")
    )
