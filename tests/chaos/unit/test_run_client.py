"""A client of workflow runs, against a service that is played."""

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Any

from tests.chaos.client import Log
from tests.chaos.run_client import Desk, RunLog
from tests.chaos.run_plan import RunJob
from tests.chaos.run_records import RunDecided, RunStarted

JOB = RunJob("R00001", "chain", {"begin": "Begin."})
START, RETRY = "POST /v1/workflows/chain/runs", "POST /v1/runs/run_1/retry"
DECIDE = "POST /v1/runs/run_1/approvals/stages.2.approval"


class Instant(Event):
    """Nobody waits in a test."""

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


@dataclass
class Answer:
    status: int
    run: Mapping[str, Any] = field(default_factory=dict)

    @property
    def data(self) -> bytes:
        return json.dumps(self.run).encode()


@dataclass
class Service:
    """Gives each request its next answer, None for a lost one; whoever asks for more is stopped."""

    answers: dict[str, list[Answer | None]]
    asked: list[tuple[str, Any, Any]] = field(default_factory=list)
    log: Log = field(default_factory=Log)
    stop: Event = field(default_factory=Instant)
    hook_url: str = "http://hooks"

    def ask(self, method: str, path: str, body: Any = None, headers: Any = None) -> Any:
        name = f"{method} {path.partition('?')[0]}"
        self.asked.append((name, body, headers))
        waiting = self.answers.get(name, [])
        if not waiting:
            self.stop.set()
            return None
        return waiting.pop(0)


def accepted(run_id: str = "run_1") -> Answer:
    return Answer(202, {"id": run_id})


def ended(status: str = "completed") -> Answer:
    return Answer(200, {"id": "run_1", "status": status})


def waiting() -> Answer:
    stages = [{"id": "stages.1", "status": "completed"}, {"id": "stages.2.approval", "status": "requires_action"}]
    return Answer(200, {"id": "run_1", "status": "requires_action", "stages": stages})


def served(job: RunJob, service: Service) -> RunLog:
    """What the client has seen."""
    log, clients = RunLog(), service
    Desk(clients, log, deque([job])).run()  # type: ignore[arg-type]
    return log


def test_a_run_is_started_under_one_key_until_there_is_an_answer() -> None:
    service = Service({START: [None, Answer(503), accepted()], "GET /v1/runs/run_1": [ended()]})
    log = served(JOB, service)
    assert log.started == [RunStarted("run_1", JOB, "run-R00001", ("run_1",))]
    keys = {headers["Idempotency-Key"] for name, _, headers in service.asked if name == START}
    assert keys == {"run-R00001"}
    assert [poll.is_last for poll in log.polled] == [True]
    assert service.log.runs_done == 1


def test_a_run_that_is_sent_twice_has_two_answers() -> None:
    job = replace(JOB, is_sent_twice=True, hook="ok", tokens=9)
    service = Service({START: [accepted(), accepted("run_2")], "GET /v1/runs/run_1": [ended()]})
    assert served(job, service).started[0].answers == ("run_1", "run_2")
    body = service.asked[0][1]
    assert (body["webhook"], body["budget"]) == ({"url": "http://hooks/ok/R00001"}, {"tokens": 9})


def test_a_refusal_is_noted() -> None:
    service = Service({START: [Answer(422)]})
    assert served(JOB, service).started == []
    assert service.log.refused == ["POST /v1/workflows/chain/runs: 422 b'{}'"]


def test_a_run_that_no_budget_pays_for_is_asked_for_once() -> None:
    service = Service({START: [Answer(429, {"type": "/problems/budget-exceeded"})] * 2})
    assert served(replace(JOB, is_sent_twice=True), service).started == []
    assert (service.log.unpaid_runs, service.log.refused, len(service.asked)) == (2, [], 2)


def test_an_output_is_decided_on_until_that_is_heard_and_then_the_opposite_is_said() -> None:
    job = replace(JOB, decisions=("revise",), is_opposed=True)
    answers: dict[str, list[Answer | None]] = {
        START: [accepted()],
        "GET /v1/runs/run_1": [Answer(200, {"status": "in_progress"}), waiting(), ended()],
        DECIDE: [None, Answer(200), Answer(409)],
    }
    service = Service(answers)
    log = served(job, service)
    assert log.decided == [RunDecided("run_1", "stages.2.approval", "revise", (0, 200), 409)]
    said = [body for name, body, _ in service.asked if name == DECIDE]
    assert [each["decision"] for each in said] == ["revise", "revise", "reject"]
    assert said[0]["reason"] == "run_1 words=3"


def test_a_run_that_failed_is_tried_again_once() -> None:
    answers: dict[str, list[Answer | None]] = {
        START: [accepted()],
        "GET /v1/runs/run_1": [ended("failed")],
        RETRY: [None, accepted("run_2")],
        "GET /v1/runs/run_2": [ended("failed")],
    }
    log = served(JOB, Service(answers))
    assert [(each.run_id, each.key, each.retry_of) for each in log.started] == [
        ("run_1", "run-R00001", None),
        ("run_2", "again-1-R00001", "run_1"),
    ]
    assert [(poll.run_id, poll.is_last) for poll in log.polled] == [("run_1", False), ("run_2", True)]


def test_a_run_that_is_cancelled_is_tried_again_beyond_its_retries() -> None:
    answers: dict[str, list[Answer | None]] = {
        START: [accepted()],
        "POST /v1/runs/run_1/cancel": [None, Answer(202)],
        "GET /v1/runs/run_1": [ended("cancelled")],
        RETRY: [accepted("run_2")],
        "GET /v1/runs/run_2": [ended()],
    }
    log = served(replace(JOB, cancel_after_s=0.1, retries=0), Service(answers))
    assert [each.run_id for each in log.cancelled] == ["run_1"]
    assert [poll.run_id for poll in log.polled] == ["run_1", "run_2"]
