"""Runs of workflows over HTTP, whose stages a test answers."""

from dataclasses import dataclass
from typing import Any

from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from loom_worker.core.values.json import Json
from tests.support.runs import pipeline
from tests.support.until import until
from tests.support.web_stage import WebStage
from tests.unit.web.test_events import Frame, frames

W = "default"
TWO = pipeline("Look for {{input}}.", "Write about: {{previous}}")
GATED = pipeline("Draft.", "Publish: {{previous}}")
GATED["stages"][0] |= {"id": "draft", "approval": {"prompt": "Good? {{output}}", "timeout_seconds": 60}}
FORK: Json = {"type": "fork-join", "prompt": "Which?", "agent_ids": ["default", "default"]}


@dataclass
class Flow:
    """Starts runs, and answers their stages as workers do."""

    client: FlaskClient
    stage: WebStage

    def post(self, body: Json | None = None, name: str = "two", **options: Any) -> TestResponse:
        return self.client.post(f"/v1/workflows/{name}/runs", json=body or {}, **options)

    def start(self, name: str = "two", **body: Any) -> dict[str, Any]:
        """A run that must be accepted."""
        answer = self.post(body, name)
        assert answer.status_code == 202, answer.text
        return dict(answer.get_json())

    def get(self, run_id: str, query: str = "") -> dict[str, Any]:
        answer = self.client.get(f"/v1/runs/{run_id}{query}")
        assert answer.status_code == 200, answer.text
        return dict(answer.get_json())

    def open_turn(self, run_id: str) -> str:
        """The first turn of the run that has not ended."""
        stages = self.stage.service.runs.run(W, run_id).stages
        return str(next(each.turn_id for each in stages if each.is_open and each.turn_id))

    def answer(self, run_id: str, *texts: str) -> None:
        """Answer one stage after the other."""
        for text in texts:
            self.stage.worker.finish(self.open_turn(run_id), text)
            self.stage.service.runs.turn_ended(run_id)

    def fail(self, run_id: str) -> None:
        """Let the stage that runs fail."""
        self.stage.worker.die(self.open_turn(run_id))
        self.stage.service.runs.turn_ended(run_id)

    def decide(self, run_id: str, decision: str, stage: str = "stages.0", **body: Any) -> TestResponse:
        return self.client.post(f"/v1/runs/{run_id}/approvals/{stage}", json={"decision": decision, **body})

    def await_waiters(self, count: int) -> None:
        """Block until so many wait for runs or read their events."""
        until(lambda: self.stage.service.runs.waiter.count == count, 60, f"{count} wait")


def refused(answer: TestResponse, *pointers: str) -> str:
    """The whole text of a 422 with flaws at these places."""
    assert answer.status_code == 422, answer.text
    assert [flaw["pointer"] for flaw in answer.get_json()["errors"]] == [*pointers]
    return answer.text


def read(flow: Flow, run_id: str, query: str = "", **headers: str) -> list[Frame]:
    answer = flow.client.get(f"/v1/runs/{run_id}/events{query}", headers=headers)
    assert (answer.status_code, answer.mimetype) == (200, "text/event-stream")
    return frames(answer.text)
