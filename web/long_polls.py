"""Requests that wait for a turn's end: they hold a slot, but no thread."""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flask import Response, request

from loom_worker.core import log_context
from loom_worker.core.errors import NotFound, Transient
from loom_worker.core.values.tenants import Tenant
from loom_worker.core.values.turns import Turn
from web.answers import encode, json_answer
from web.caller import caller
from web.connection_limits import ConnectionLimiter
from web.detached import FinalAnswer, HttpTask, can_detach, detach
from web.problems import MEDIA_TYPE, RETRY_S, body_of, problem_of

if TYPE_CHECKING:
    from loom_worker.service.end_waits import EndWait
    from loom_worker.service.service import Service
    from loom_worker.service.turn_waiter import TurnWaiter


@dataclass(frozen=True, slots=True)
class TurnAnswer:
    """How a turn is answered that was waited for."""

    wait_s: int
    """How long, at most; 0: not at all."""
    accepted: Mapping[str, str] | None = None
    """Headers of the answer to a submit: 200 once the turn has ended, 202 before."""

    def headers(self, turn: Turn, *, has_waited: bool) -> tuple[int, Mapping[str, str]]:
        """Status and headers.

        Args:
            has_waited: False where there was no slot to wait in, or nobody wished to.
        """
        if self.accepted is None:
            return 200, {}
        headers = {**self.accepted, **({"Preference-Applied": f"wait={self.wait_s}"} if has_waited else {})}
        return (200, headers) if turn.is_finished else (202, {**headers, "Retry-After": str(RETRY_S)})


class LongPolls:
    """Answers with a turn once it has ended, asks for a person, or the time is up."""

    def __init__(self, service: "Service", limiter: ConnectionLimiter) -> None:
        self._service = service
        self._limiter = limiter

    def of(self, turn_id: str, how: TurnAnswer) -> Response:
        """The answer to a request for a turn.

        Raises:
            NotFound: the caller has no such turn.
        """
        if not how.wait_s or not can_detach():
            return self.of_known(self._service.turn(caller().tenant, turn_id), how)
        waiter = self._service.waiter
        wait = waiter.expect(turn_id)
        try:
            turn = waiter.look(caller().tenant, turn_id)
        except BaseException:
            wait.close()
            raise
        return self._answer(turn, how, wait)

    def of_known(self, turn: Turn, how: TurnAnswer, *, since_s: float | None = None) -> Response:
        """The answer to a request whose turn is known.

        Args:
            since_s: by ``time.monotonic``, a moment before the turn was as it is known.
        """
        if turn.is_finished or not how.wait_s:
            status, headers = how.headers(turn, has_waited=True)
            return json_answer(turn.as_json(), status, headers)
        if can_detach():
            return self._answer(turn, how, self._service.waiter.expect(turn.id, since_s=since_s))
        return self._in_this_thread(turn, how)

    def _answer(self, turn: Turn, how: TurnAnswer, wait: "EndWait") -> Response:
        must_wait = not turn.is_finished and turn.status != "requires_action"
        holders = caller().holders
        has_slot = must_wait and self._limiter.enter(*holders)
        if not has_slot:
            wait.close()
            status, headers = how.headers(turn, has_waited=not must_wait)
            return json_answer(self._service.waiter.waits.with_wait(turn).as_json(), status, headers)
        detach(_LongPoll(self._service.waiter, self._limiter, wait, turn, how))
        return Response(content_type="application/json")

    def _in_this_thread(self, turn: Turn, how: TurnAnswer) -> Response:
        """For servers that let no request leave its thread."""
        with self._limiter.slot(*caller().holders) as has_slot:
            # What was accepted stays accepted: an error now would make the client submit it again.
            with suppress(Transient):
                if has_slot:
                    is_stopping = self._limiter.leaving()
                    turn = self._service.waiter.wait(
                        caller().tenant, turn.id, timeout_s=float(how.wait_s), is_stopping=is_stopping
                    )
            status, headers = how.headers(turn, has_waited=has_slot)
            return json_answer(turn.as_json(), status, headers)


class _LongPoll:
    """A request that waits without a thread."""

    holds_answer = True

    def __init__(
        self, waiter: "TurnWaiter", limiter: ConnectionLimiter, wait: "EndWait", turn: Turn, how: TurnAnswer
    ) -> None:
        self._waiter = waiter
        self._limiter = limiter
        self._wait = wait
        self._turn = turn
        self._how = how
        self._until_s = time.monotonic() + how.wait_s
        self._tenant: Tenant = caller().tenant
        self._holders = caller().holders
        self._path, self._request_id = request.path, caller().request_id
        self._ids = log_context.ids()
        self._task: HttpTask | None = None
        self._has_left = False

    def begin(self, task: HttpTask) -> None:
        self._task = task
        self._wait.begin(self, until_s=self._until_s)

    def over(self) -> None:
        if self._task is not None:
            self._task.end()

    def leave(self) -> None:
        self._has_left = True
        self._wait.stop()

    def resume(self) -> None:
        pass  # Nothing is sent before the end.

    def conclude(self) -> FinalAnswer | bool:
        self._wait.renew()
        with log_context.about(self._ids):
            try:
                self._turn = self._waiter.look(self._tenant, self._turn.id)
                if self._must_wait():
                    return False
                self._turn = self._waiter.waits.with_wait(self._turn)
            except NotFound as error:
                problem = problem_of(error)
                body = body_of(problem, path=self._path, request_id=self._request_id).encode()
                return FinalAnswer(problem.status, {"Content-Type": MEDIA_TYPE, **problem.headers}, body)
            except Transient:
                pass  # What was accepted stays accepted: an error now would make the client submit it again.
            status, headers = self._how.headers(self._turn, has_waited=True)
            return FinalAnswer(status, headers, encode(self._turn.as_json()))

    def close(self) -> None:
        self._wait.close()
        self._limiter.leave(*self._holders)

    def _must_wait(self) -> bool:
        is_open = not self._turn.is_finished and self._turn.status != "requires_action"
        is_over = self._has_left or self._limiter.is_draining or time.monotonic() >= self._until_s
        return is_open and not is_over
