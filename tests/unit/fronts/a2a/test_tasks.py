"""A turn as a task; held against the protocol's own types."""

import pytest
from a2a.compat.v0_3 import types as types_03
from a2a.types.a2a_pb2 import Task, TaskState
from google.protobuf.json_format import ParseDict

from loom_worker.fronts.a2a.tasks import state_of, task_of
from loom_worker.fronts.a2a.version_03 import old_task
from tests.unit.fronts.a2a.made import USAGE, Json, call, turn

TURNS = [
    (turn("queued"), "SUBMITTED"),
    (turn("in_progress"), "WORKING"),
    (turn("requires_action", tool_calls=[call()]), "INPUT_REQUIRED"),
    (turn("requires_action", tool_calls=[call(approval="approved")]), "WORKING"),
    (turn("in_progress", tool_calls=[call()]), "INPUT_REQUIRED"),
    (turn("completed", output_text="42"), "COMPLETED"),
    (turn("failed", error={"message": "broken"}), "FAILED"),
    (turn("incomplete", reason="budget", output_text="4"), "FAILED"),
    (turn("cancelled", output_text="4"), "CANCELED"),
]


@pytest.mark.cases(("given", "state"), TURNS)
def test_every_turn_is_a_task_of_both_versions(given: Json, state: str) -> None:
    task = task_of(given)
    parsed = ParseDict(task, Task())  # an unknown member would be refused
    assert TaskState.Name(parsed.status.state) == f"TASK_STATE_{state}" == state_of(given)
    old = types_03.Task.model_validate(old_task(task))
    assert old.status.state.value == state.lower().replace("_", "-")
    assert (old.id, old.context_id) == (parsed.id, parsed.context_id) == ("turn_1", "s")


def test_the_answer_is_an_artifact_and_the_question_the_history() -> None:
    task = task_of(turn(output_text="42", metadata={"a2a": {"message_id": "m-1"}, "mine": 1}))
    assert [part["text"] for part in task["artifacts"][0]["parts"]] == ["42"]
    assert [(each["messageId"], each["parts"]) for each in task["history"]] == [("m-1", [{"text": "hello"}])]
    assert task["metadata"] == {"mine": 1, "loom": {"status": "completed", "reason": None, "usage": USAGE}}


@pytest.mark.parametrize(("length", "count"), [(None, 1), (0, 0), (1, 1), (9, 1)])
def test_the_history_is_as_long_as_the_client_wants(length: int | None, count: int) -> None:
    assert len(task_of(turn(), history_length=length).get("history", ())) == count


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (turn("failed", error={"message": "The provider is broken."}), "The provider is broken."),
        (turn("incomplete", reason="budget"), "The turn ended as incomplete (budget)."),
    ],
)
def test_a_failure_says_why(given: Json, text: str) -> None:
    assert task_of(given)["status"]["message"]["parts"] == [{"text": text}]


def test_a_question_names_the_calls_that_wait() -> None:
    calls = [call(), call("toolu_2", approval=None), call("toolu_3")]
    words, data = task_of(turn("requires_action", tool_calls=calls))["status"]["message"]["parts"]
    assert words["text"].startswith("May the agent call pay, pay?")
    assert [each["tool_call_id"] for each in data["data"]["tool_calls"]] == ["toolu_1", "toolu_3"]
