"""The clients of workflow runs: they start them, wait, read, decide, cancel, and have done again what failed."""

import json
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.client import FINAL, POLL_S, Clients, is_unpaid
from tests.chaos.decisions import LOOK_S, THINK_S, until_settled
from tests.chaos.reader import read_run
from tests.chaos.run_plan import RunJob, RunVerdict
from tests.chaos.run_records import RunCancelled, RunDecided, RunPolled, RunRead, RunStarted, RunWitness

DESKS = 12
"""Clients at work side by side."""
OPPOSITE: Mapping[RunVerdict, RunVerdict] = {"approve": "reject", "reject": "approve", "revise": "reject"}


@dataclass
class RunLog:
    """What they have seen; lists only grow."""

    started: list[RunStarted] = field(default_factory=list)
    polled: list[RunPolled] = field(default_factory=list)
    read: list[RunRead] = field(default_factory=list)
    decided: list[RunDecided] = field(default_factory=list)
    cancelled: list[RunCancelled] = field(default_factory=list)

    def witness(self) -> RunWitness:
        """All of it, for good."""
        return RunWitness(
            tuple(self.started), tuple(self.polled), tuple(self.read), tuple(self.decided), tuple(self.cancelled)
        )


class RunClients:
    """Starts runs through the clients of a world."""

    def __init__(self, clients: Clients) -> None:
        self.log = RunLog()
        self._clients = clients

    def begin(self, jobs: tuple[RunJob, ...], desks: int = DESKS) -> None:
        """Start; each desk has one run at a time."""
        waiting = deque(jobs)
        for n in range(min(desks, len(jobs))):
            self._clients.add(f"desk-{n}", Desk(self._clients, self.log, waiting).run)


class Desk:
    """One client."""

    def __init__(self, clients: Clients, log: RunLog, jobs: "deque[RunJob]") -> None:
        self._clients, self._log, self._jobs = clients, log, jobs
        self._decisions: deque[RunVerdict] = deque()

    def run(self) -> None:
        """Have runs done until there are no more, or the clients are told to stop."""
        while not self._clients.stop.is_set():
            try:
                job = self._jobs.popleft()
            except IndexError:
                return
            self._serve(job)
            self._clients.log.runs_done += 1

    def _serve(self, job: RunJob) -> None:
        """A run and its retries."""
        self._decisions = deque(job.decisions)
        run_id = self._start(job)
        retries = job.retries + (job.cancel_after_s is not None)
        for attempt in range(1, retries + 2):
            if run_id is None:
                return
            is_last = attempt > retries
            status = self._follow(job, run_id, is_first=attempt == 1, is_last=is_last)
            if status in ("", "completed") or is_last:
                return
            run_id = self._again(job, run_id, attempt)

    def _start(self, job: RunJob) -> str | None:
        body: dict[str, Any] = {"variables": dict(job.variables), "metadata": {"name": job.name}}
        if job.hook:
            body["webhook"] = {"url": f"{self._clients.hook_url}/{job.hook}/{job.name}"}
        if job.tokens:
            body["budget"] = {"tokens": job.tokens}
        return self._post(job, f"/v1/workflows/{job.workflow}/runs", body, f"run-{job.name}", None)

    def _again(self, job: RunJob, run_id: str, attempt: int) -> str | None:
        return self._post(job, f"/v1/runs/{run_id}/retry", None, f"again-{attempt}-{job.name}", run_id)

    def _post(self, job: RunJob, path: str, body: Any, key: str, retry_of: str | None) -> str | None:
        """Have a run accepted, perhaps twice."""
        times = 2 if job.is_sent_twice else 1
        answers = [run_id for run_id in (self._accepted(path, body, key) for _ in range(times)) if run_id]
        if not answers:
            return None
        self._log.started.append(RunStarted(answers[0], job, key, tuple(answers), retry_of))
        return answers[0]

    def _accepted(self, path: str, body: Any, key: str) -> str | None:
        answer = self._clients.until_answered("POST", path, body, {"Idempotency-Key": key})
        if answer is None:
            return None
        if is_unpaid(answer):
            self._clients.log.unpaid_runs += 1
            return None
        if answer.status not in (200, 202):
            self._clients.refused(f"POST {path}", answer)
            return None
        return str(json.loads(answer.data)["id"])

    def _follow(self, job: RunJob, run_id: str, *, is_first: bool, is_last: bool) -> str:
        """Until it has ended: how; empty if everything was stopped before."""
        if is_first and job.cancel_after_s is not None:
            self._clients.stop.wait(job.cancel_after_s)
            self._cancel(run_id)
        if job.is_read and not job.decisions:
            self._log.read += filter(None, [read_run(self._clients, run_id)])
        while not self._clients.stop.is_set():
            answer = self._clients.until_answered("GET", f"/v1/runs/{run_id}?wait={POLL_S}")
            if answer is None:
                break
            if answer.status != 200:
                self._clients.refused(f"GET {run_id}", answer)
                break
            run = json.loads(answer.data)
            if run["status"] in FINAL:
                if job.is_read and job.decisions:
                    self._log.read += filter(None, [read_run(self._clients, run_id)])
                is_over = is_last or run["status"] == "completed"
                self._log.polled.append(RunPolled(run_id, answer.data, is_over))
                return str(run["status"])
            if run["status"] == "requires_action":
                self._decide(job, run)
        return ""

    def _cancel(self, run_id: str) -> None:
        answer = self._clients.until_answered("POST", f"/v1/runs/{run_id}/cancel")
        if answer is not None and answer.status == 202:
            self._log.cancelled.append(RunCancelled(run_id, time.time()))
        elif answer is not None:
            self._clients.refused(f"POST {run_id}/cancel", answer)

    def _decide(self, job: RunJob, run: Mapping[str, Any]) -> None:
        waiting = [each["id"] for each in run["stages"] if each["status"] == "requires_action"]
        self._clients.stop.wait(THINK_S if waiting else LOOK_S)
        for approval in waiting:
            verdict = self._decisions.popleft() if self._decisions else "approve"
            answers = self._said(run["id"], approval, verdict)
            opposed = None
            if job.is_opposed and answers:
                opposed = next(reversed(self._said(run["id"], approval, OPPOSITE[verdict])), None)
            if answers:
                self._log.decided.append(RunDecided(run["id"], approval, verdict, answers, opposed))

    def _said(self, run_id: str, approval: str, verdict: RunVerdict) -> tuple[int, ...]:
        body = {"decision": verdict, **({"reason": f"{run_id} words=3"} if verdict == "revise" else {})}
        return until_settled(self._clients, f"/v1/runs/{run_id}/approvals/{approval}", body)
