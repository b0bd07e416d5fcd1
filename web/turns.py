"""Turns: submit one, look at it, wait for its end, cancel it, run it again, list them."""

import time
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from flask import Response

from loom_worker.core.values.turns import Turn, TurnStatus
from web import rate_limits
from web.answers import Route, json_answer, known_id, listed, page_answer
from web.bodies import cancel_action, decision, json_body, new_turn, retry
from web.caller import caller
from web.connection_limits import ConnectionLimiter
from web.long_polls import EndAnswer, LongPolls
from web.problems import RETRY_S
from web.query import choice_argument, page_wanted, text_argument, whole_argument

if TYPE_CHECKING:
    from loom_worker.service.service import Service


class TurnViews:
    """The views of turns, but for their events."""

    def __init__(self, service: "Service", limiter: ConnectionLimiter) -> None:
        self._service = service
        self._polls = LongPolls(service.waiter, limiter)
        self._max_wait_s = service.settings.web.max_wait_s

    def routes(self) -> tuple[Route, ...]:
        """Where the views are mounted."""
        return (
            Route("POST", "/v1/sessions/<session_id>/turns", self.submit),
            Route("GET", "/v1/sessions/<session_id>/turns", self.list_of_session),
            Route("GET", "/v1/turns", self.list),
            Route("GET", "/v1/turns/<turn_id>", self.get),
            Route("GET", "/v1/turns/<turn_id>/trace", self.trace),
            Route("POST", "/v1/turns/<turn_id>/cancel", self.cancel),
            Route("POST", "/v1/turns/<turn_id>/retry", self.retry),
            Route("POST", "/v1/turns/<turn_id>/approvals/<call_id>", self.decide),
        )

    def submit(self, session_id: str) -> Response:
        """Accept a turn; wait for its end as long as the client prefers to."""
        rate_limits.admit(self._service.rate_limits.look_at_tokens(caller().holder))
        body = json_body()
        new = new_turn(body, session_id, caller())
        if new.webhook is not None:
            self._service.check_webhook(new.webhook)
        asked_s = time.monotonic()
        turn, is_replay = self._service.submit(caller().tenant, session_id, new, agent=body.get("agent"))
        return self._accepted(turn, is_replay=is_replay, asked_s=asked_s)

    def get(self, turn_id: str) -> Response:
        """Look at one turn, or wait for its end."""
        wait_s = min(whole_argument("wait", 0), self._max_wait_s)
        return self._polls.of(known_id(turn_id, "turn"), EndAnswer(wait_s))

    def trace(self, turn_id: str) -> Response:
        """List the spans of a turn, while it runs and after."""
        spans = self._service.traces.of_turn(caller().tenant, known_id(turn_id, "turn"))
        return json_answer(listed((span.as_json() for span in spans), "span_id"))

    def cancel(self, turn_id: str) -> Response:
        """Cancel a turn; one that has ended is returned as it is."""
        turn = self._service.cancel(caller().tenant, known_id(turn_id, "turn"), cancel_action())
        later = {} if turn.is_finished else {"Retry-After": str(RETRY_S)}
        return json_answer(turn.as_json(), 202, {"Location": f"/v1/turns/{turn.id}", **later})

    def decide(self, turn_id: str, call_id: str) -> Response:
        """Decide on a tool call that waits for a person."""
        decided = replace(decision(json_body()), by=caller().holder.actor)
        known, known_call = known_id(turn_id, "turn"), known_id(call_id, "tool call")
        turn = self._service.approvals.decide(caller().tenant, known, known_call, decided)
        return json_answer(turn.as_json())

    def retry(self, turn_id: str) -> Response:
        """Run a failed turn's question again, as a new turn at the tail of its lane."""
        rate_limits.admit(self._service.rate_limits.look_at_tokens(caller().holder))
        known, asked_s = known_id(turn_id, "turn"), time.monotonic()
        turn, is_replay = self._service.retry(caller().tenant, known, retry(known, caller()))
        return self._accepted(turn, is_replay=is_replay, asked_s=asked_s)

    def list(self) -> Response:
        """List the workspace's turns."""
        return self._listed(None)

    def list_of_session(self, session_id: str) -> Response:
        """List a session's turns."""
        return self._listed(known_id(session_id, "session"))

    def _listed(self, session_id: str | None) -> Response:
        limit, after = page_wanted()
        page = self._service.turns(
            caller().tenant,
            session_id=session_id,
            status=choice_argument("status", get_args(TurnStatus)),
            reason=text_argument("reason"),
            limit=limit,
            after=after,
        )
        return page_answer(page)

    def _accepted(self, turn: Turn, *, is_replay: bool, asked_s: float) -> Response:
        where, most_s = f"/v1/turns/{turn.id}", self._max_wait_s
        return self._polls.of_accepted(turn, where, is_replay=is_replay, asked_s=asked_s, most_s=most_s)
