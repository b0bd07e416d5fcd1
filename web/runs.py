"""Workflows and their runs: start one, look at it, wait for its end, decide, cancel, go on from where it failed."""

import time
from typing import TYPE_CHECKING, get_args

from flask import Response

from loom_worker.core.values.runs import Run, RunStatus
from web import rate_limits
from web.answers import Route, json_answer, known_id, listed, page_answer
from web.bodies import cancel_run, json_body, new_run, retry_run, run_decision
from web.caller import caller
from web.connection_limits import ConnectionLimiter
from web.events import EventStreams
from web.long_polls import EndAnswer, LongPolls
from web.problems import RETRY_S
from web.query import choice_argument, page_wanted, text_argument, whole_argument

if TYPE_CHECKING:
    from loom_worker.service.service import Service


class RunViews:
    """The views of workflows and runs."""

    def __init__(self, service: "Service", limiter: ConnectionLimiter) -> None:
        self._service = service
        self._runs = service.runs
        self._polls = LongPolls(service.runs.waiter, limiter)
        self._streams = EventStreams(service.runs.waiter, service.keys, limiter)
        self._max_wait_s = service.settings.web.max_wait_s

    def routes(self) -> tuple[Route, ...]:
        """Where the views are mounted."""
        return (
            Route("GET", "/v1/workflows", self.workflows),
            Route("GET", "/v1/workflows/<name>", self.workflow),
            Route("POST", "/v1/workflows/<name>/runs", self.start),
            Route("GET", "/v1/runs", self.list),
            Route("GET", "/v1/runs/<run_id>", self.get),
            Route("DELETE", "/v1/runs/<run_id>", self.delete),
            Route("GET", "/v1/runs/<run_id>/events", self.stream),
            Route("GET", "/v1/runs/<run_id>/trace", self.trace),
            Route("POST", "/v1/runs/<run_id>/cancel", self.cancel),
            Route("POST", "/v1/runs/<run_id>/retry", self.retry),
            Route("POST", "/v1/runs/<run_id>/approvals/<stage_id>", self.decide),
        )

    def workflows(self) -> Response:
        """List the workflows, and what of their files cannot be used."""
        page = listed((each.seen_by(caller().workspace).as_json() for each in self._runs.workflows()), "name")
        return json_answer({**page, "errors": [str(problem) for problem in self._runs.problems()]})

    def workflow(self, name: str) -> Response:
        """Look at one workflow."""
        return json_answer(self._runs.workflow(name, caller().workspace).as_json())

    def start(self, name: str) -> Response:
        """Accept a run; wait for its end as long as the client prefers to."""
        rate_limits.admit(self._service.rate_limits.look_at_tokens(caller().holder))
        new = new_run(json_body(), name, caller())
        if new.webhook is not None:
            self._service.check_webhook(new.webhook)
        asked_s = time.monotonic()
        run, is_replay = self._runs.start(caller().tenant, name, new)
        return self._accepted(run, is_replay=is_replay, asked_s=asked_s)

    def list(self) -> Response:
        """List the workspace's runs."""
        limit, after = page_wanted()
        page = self._runs.runs(
            caller().tenant,
            workflow=text_argument("workflow"),
            status=choice_argument("status", get_args(RunStatus)),
            limit=limit,
            after=after,
        )
        return page_answer(page)

    def get(self, run_id: str) -> Response:
        """Look at one run, or wait for its end."""
        wait_s = min(whole_argument("wait", 0), self._max_wait_s)
        return self._polls.of(known_id(run_id, "run"), EndAnswer(wait_s))

    def delete(self, run_id: str) -> Response:
        """Delete a run."""
        self._runs.delete(caller().tenant, known_id(run_id, "run"), by=caller().holder.actor)
        return Response(status=204)

    def stream(self, run_id: str) -> Response:
        """Stream a run's events until its final one."""
        return self._streams.of(known_id(run_id, "run"))

    def trace(self, run_id: str) -> Response:
        """List the spans of a run and of its turns, while it goes on and after."""
        spans = self._runs.trace(caller().tenant, known_id(run_id, "run"))
        return json_answer(listed((span.as_json() for span in spans), "span_id"))

    def cancel(self, run_id: str) -> Response:
        """Cancel a run; one that has ended is returned as it is."""
        cancel_run()
        run = self._runs.cancel(caller().tenant, known_id(run_id, "run"))
        later = {} if run.is_finished else {"Retry-After": str(RETRY_S)}
        return json_answer(run.as_json(), 202, {"Location": f"/v1/runs/{run.id}", **later})

    def retry(self, run_id: str) -> Response:
        """Go on from where a run failed."""
        rate_limits.admit(self._service.rate_limits.look_at_tokens(caller().holder))
        known, asked_s = known_id(run_id, "run"), time.monotonic()
        run, is_replay = self._runs.retry(caller().tenant, known, retry_run(known, caller()))
        return self._accepted(run, is_replay=is_replay, asked_s=asked_s)

    def decide(self, run_id: str, stage_id: str) -> Response:
        """Decide on a stage's output."""
        known_id(stage_id, "stage")
        decision, reason = run_decision(json_body())
        by = caller().holder.actor
        run = self._runs.decide(caller().tenant, known_id(run_id, "run"), stage_id, decision, reason, by=by)
        return json_answer(run.as_json())

    def _accepted(self, run: Run, *, is_replay: bool, asked_s: float) -> Response:
        where, most_s = f"/v1/runs/{run.id}", self._max_wait_s
        return self._polls.of_accepted(run, where, is_replay=is_replay, asked_s=asked_s, most_s=most_s)
