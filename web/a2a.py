"""The Agent2Agent protocol over HTTP: agent cards, JSON-RPC calls, and streams of a task's changes."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from flask import Response, request
from pydantic import ConfigDict

from loom_worker.core.errors import NotFound, Rejected
from loom_worker.core.values.json import Json
from loom_worker.core.values.notifications import Event
from loom_worker.core.values.sessions import DEFAULT_AGENT
from loom_worker.core.values.turns import NewTurn, Turn
from loom_worker.fronts.a2a import rpc, tasks, version_03
from loom_worker.fronts.a2a.front import CARD_PATH, A2aClient, A2aFront, card
from loom_worker.fronts.a2a.messages import SentMessage, history_length, task_id
from loom_worker.fronts.a2a.push import webhook_of
from loom_worker.fronts.a2a.rpc import METHODS, VERSION_HEADER, Method, RpcError, RpcId, RpcRequest, Version, method
from loom_worker.fronts.a2a.tasks import TaskUpdates
from web import rate_limits
from web.answers import encode, json_answer
from web.bodies import Body, fingerprint, json_body
from web.caller import caller
from web.check import ABSENT, word_of
from web.connection_limits import ConnectionLimiter
from web.detached import FinalAnswer
from web.events import EventStreams
from web.long_polls import EndAnswer, LongPolls
from web.operation import Operation, Views
from web.problems import Refused
from web.schemas import FREE, TEXT, Named, array
from web.strict_json import NO_OBJECT

if TYPE_CHECKING:
    from loom_worker.service.service import Service
    from loom_worker.service.waiting.readers import EventBatch
    from loom_worker.service.waiting.sources import Awaited

CANCEL_WAIT_S = 10
"""A running turn ends within a second of its cancel request; a client waits so long to see it."""


_ID: Json = {"type": ["string", "integer", "null"]}


class A2aCallBody(Body):
    """A call of JSON-RPC 2.0 with a method of the Agent2Agent protocol, version 1.0 or 0.3."""

    model_config = ConfigDict(extra="ignore")
    jsonrpc: Literal["2.0"]
    id: str | int | None = None
    method: Annotated[str, word_of(tuple(METHODS))]
    params: Json = ABSENT


A2A_ANSWER = Named(
    "A2aAnswer",
    {
        "type": "object",
        "description": "The answer of JSON-RPC 2.0: a result or an error. Methods that stream answer with server-sent "
        "events, each of which is one such answer.",
        "properties": {
            "jsonrpc": {"const": "2.0"},
            "id": _ID,
            "result": {},
            "error": {
                "type": "object",
                "properties": {"code": {"type": "integer"}, "message": TEXT, "data": array(FREE)},
                "required": ["code", "message"],
            },
        },
        "required": ["jsonrpc", "id"],
        "oneOf": [{"required": ["result"]}, {"required": ["error"]}],
        "examples": [{"jsonrpc": "2.0", "id": 1, "result": {}}],
    },
)
AGENT_CARD = Named(
    "AgentCard",
    {
        "type": "object",
        "description": "An agent card, readable for clients of both versions of the protocol.",
        "properties": {"name": TEXT, "description": TEXT, "version": TEXT, "skills": array(FREE)},
        "required": ["name", "description", "version", "supportedInterfaces", "capabilities", "skills", "url"],
    },
)


class A2aViews(Views, tag="a2a"):
    """The agent cards, and one address for the calls of each agent."""

    def __init__(self, service: "Service", limiter: ConnectionLimiter) -> None:
        super().__init__(service, limiter)
        self._front = A2aFront(service)
        self.polls = LongPolls(service.waiter, service.keys, limiter)
        self.streams = EventStreams(service.waiter, service.keys, limiter)

    @Operation(f"GET /{CARD_PATH}", AGENT_CARD, scope=None, problems=(403, 404))
    def default_card(self) -> Response:
        """The card of the default agent (A2A)."""
        return self._card(DEFAULT_AGENT)

    @Operation(f"GET /a2a/{{name}}/{CARD_PATH}", AGENT_CARD, scope=None, problems=(403, 404))
    def card(self, name: str) -> Response:
        """The card of an agent (A2A)."""
        return self._card(name)

    @Operation(
        "POST /a2a/{name}",
        A2A_ANSWER,
        scope="chat",
        problems=(400, 401, 403, 413, 415, 429, 503),
        body=A2aCallBody,  # read by the view: what is wrong with it is an error of JSON-RPC
    )
    def call(self, name: str) -> Response:
        """Call a method of the Agent2Agent protocol (JSON-RPC)."""
        request_id: RpcId = None
        try:
            body = _body()
            request_id = rpc.id_of(body)
            asked = RpcRequest.of(body)
            meant = method(asked.method, request.headers.get(VERSION_HEADER))
            agent = self._front.agent(name).name
            return _Call(self._front, meant, asked, self._client(agent, asked.params), self).answer()
        except Rejected as error:
            known = rpc.rpc_error(error)
            if known is None or isinstance(error, Refused):
                raise
            return json_answer(rpc.failed(request_id, known))

    def admit_turn(self) -> None:
        """Refuse what would be more than the key may use."""
        rate_limits.admit(self.service.rate_limits.look_at_tokens(caller().holder))

    def _card(self, name: str) -> Response:
        """For everyone who may see the pages."""
        agent = self._front.agent(name)
        needs_key = bool(self.service.settings.web.api_keys) or self.service.keys.are_required()
        url = f"{request.host_url}a2a/{agent.name}"
        return json_answer(card(agent, url=url, needs_key=needs_key))

    def _client(self, agent: str, params: Json) -> A2aClient:
        asking = caller()
        return A2aClient(
            tenant=asking.tenant,
            agent=agent,
            actor=asking.holder.actor,
            fingerprint=fingerprint(asking.workspace, f"/a2a/{agent}", {"message": params.get("message")}),
            origin=NewTurn(
                input="",
                traceparent=asking.traceparent,
                trace=asking.trace,
                request_id=asking.request_id,
                key_id=asking.holder.key_id,
            ),
        )


@dataclass(frozen=True, slots=True)
class TaskAnswer(EndAnswer):
    """The answer to a call that waits for a task: the task, in the form of its version."""

    request_id: RpcId = None
    version: Version = "1.0"
    is_wrapped: bool = False
    """True: 1.0 says that the result is a task, as it could be a message."""
    history_length: int | None = None
    until_end: bool = False
    """True: a question does not end the wait."""

    def is_open(self, awaited: "Awaited") -> bool:
        state = tasks.state_of(awaited.as_json())
        return not awaited.is_finished and (self.until_end or state != tasks.INPUT_REQUIRED)

    def body(self, awaited: "Awaited") -> Json:
        task = tasks.task_of(awaited.as_json(), history_length=self.history_length)
        if self.version == "0.3":
            return rpc.succeeded(self.request_id, version_03.old_task(task))
        return rpc.succeeded(self.request_id, {"task": task} if self.is_wrapped else task)

    def if_gone(self, error: NotFound, *, path: str, request_id: str) -> FinalAnswer:
        failed = rpc.failed(self.request_id, RpcError(str(error), rpc.TASK_NOT_FOUND))
        return FinalAnswer(200, {"Content-Type": "application/json"}, encode(failed))


class TaskFrames:
    """The changes of a task as server-sent events, each an answer of JSON-RPC."""

    def __init__(self, turn: Turn, request_id: RpcId, version: Version) -> None:
        self._updates = TaskUpdates(turn.as_json())
        self._request_id = request_id
        self._version = version

    @property
    def is_over(self) -> bool:
        return self._updates.is_over

    def opening(self) -> bytes:
        return self._frame(self._updates.first())

    def of_events(self, events: Sequence[Event]) -> bytes:
        return b"".join(map(self._frame, self._updates.of(events)))

    def of_batch(self, batch: "EventBatch") -> bytes:
        """See Frames: every reader has a request id of its own, so nothing is shared."""
        return self.of_events(batch.events)

    def _frame(self, response: Json) -> bytes:
        result = version_03.old_response(response) if self._version == "0.3" else response
        return b"data: %s\n\n" % encode(rpc.succeeded(self._request_id, result))


class _Call:
    def __init__(self, front: A2aFront, meant: Method, asked: RpcRequest, client: A2aClient, views: A2aViews) -> None:
        self._front = front
        self._method = meant
        self._asked = asked
        self._client = client
        self._views = views
        self._is_old = meant.version == "0.3"

    def answer(self) -> Response:
        match self._method.operation:
            case "send":
                return self._send()
            case "stream":
                return self._send_and_stream()
            case "get":
                return self._get()
            case "list":
                detail = "tasks are not listed here: GET /v1/turns, or /v1/sessions/{contextId}/turns, lists them"
                raise RpcError(detail, rpc.UNSUPPORTED_OPERATION)
            case "cancel":
                return self._cancel()
            case "subscribe":
                return self._subscribe()
            case "set_push":
                return self._set_push()
            case "get_push":
                return self._get_push()
            case "list_push":
                return self._list_push()
            case "delete_push":
                return self._delete_push()
            case "card":
                raise RpcError("the agent card says all there is", rpc.NO_EXTENDED_CARD)

    def _message(self) -> SentMessage:
        params = self._asked.params
        return SentMessage.of(version_03.send_params(params) if self._is_old else params, self._method.version)

    def _send(self) -> Response:
        message, since_s = self._message(), time.monotonic()
        self._views.admit_turn()
        turn = self._front.send(self._client, message)
        wait_s = self._views.max_wait_s if message.waits else 0
        task = self._task(wait_s, message.history_length, is_wrapped=True)
        return self._views.polls.of_known(turn, task, since_s=since_s)

    def _send_and_stream(self) -> Response:
        message = self._message()
        self._views.admit_turn()
        return self._stream(self._front.send(self._client, message))

    def _subscribe(self) -> Response:
        turn = self._front.task(self._client, task_id(self._asked.params))
        if turn.is_finished:
            raise RpcError(f"the task {turn.id} has ended; get it instead", rpc.UNSUPPORTED_OPERATION)
        return self._stream(turn)

    def _stream(self, turn: Turn) -> Response:
        return self._views.streams.behind(turn, 0, TaskFrames(turn, self._asked.id, self._method.version))

    def _get(self) -> Response:
        params = self._asked.params
        turn = self._front.task(self._client, task_id(params))
        return json_answer(self._task(0, history_length(params)).body(turn))

    def _cancel(self) -> Response:
        since_s = time.monotonic()
        turn = self._front.cancel(self._client, task_id(self._asked.params))
        return self._views.polls.of_known(turn, self._task(CANCEL_WAIT_S, None, until_end=True), since_s=since_s)

    def _set_push(self) -> Response:
        params = self._push_params()
        webhook = webhook_of(params, self._method.version)
        config = self._front.set_push(self._client, task_id(params, "taskId"), webhook)
        return self._succeeded(self._config(config))

    def _get_push(self) -> Response:
        return self._succeeded(self._config(self._front.push(self._client, *self._push_ids())))

    def _list_push(self) -> Response:
        params = self._push_params()
        configs = [self._config(each) for each in self._front.pushes(self._client, task_id(params, "taskId"))]
        return self._succeeded(configs if self._is_old else {"configs": configs})

    def _delete_push(self) -> Response:
        self._front.delete_push(self._client, *self._push_ids())
        return self._succeeded(None if self._is_old else {})

    def _push_params(self) -> Json:
        params = self._asked.params
        return version_03.push_params(params) if self._is_old else params

    def _push_ids(self) -> tuple[str, str | None]:
        params = self._push_params()
        config_id = params.get("id")
        if not isinstance(config_id, str | None):
            raise RpcError("the configuration's id must be a string", rpc.INVALID_PARAMS)
        return task_id(params, "taskId"), config_id

    def _config(self, config: Json) -> Json:
        return version_03.old_config(config) if self._is_old else config

    def _task(
        self, wait_s: int, history: int | None, *, is_wrapped: bool = False, until_end: bool = False
    ) -> TaskAnswer:
        return TaskAnswer(
            wait_s,
            request_id=self._asked.id,
            version=self._method.version,
            is_wrapped=is_wrapped,
            history_length=history,
            until_end=until_end,
        )

    def _succeeded(self, result: object) -> Response:
        return json_answer(rpc.succeeded(self._asked.id, result))


def _body() -> Json:
    """The body of the call.

    Raises:
        RpcError: PARSE_ERROR, or INVALID_REQUEST for a batch.
        Refused: 415 if it is not declared as JSON.
        RequestEntityTooLarge: over the limit.
    """
    try:
        return json_body()
    except Refused as error:
        if error.problem.status != 400:
            raise
        is_batch = error.problem.detail == NO_OBJECT
        detail = f"{error.problem.detail}; batches are not taken" if is_batch else error.problem.detail
        raise RpcError(detail, rpc.INVALID_REQUEST if is_batch else rpc.PARSE_ERROR) from error
