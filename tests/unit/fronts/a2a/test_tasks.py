"""A turn as a task, its events as responses of a stream; held against the protocol's own types."""

import pytest
from a2a.compat.v0_3 import types as types_03
from a2a.types.a2a_pb2 import StreamResponse, Task, TaskState
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.values.notifications import Event
from loom_worker.fronts.a2a.tasks import TaskUpdates, state_of, task_of
from loom_worker.fronts.a2a.version_03 import old_response, old_task
from tests.support.a2a_client import Heard
from tests.unit.fronts.a2a.made import USAGE, Json, call, turn

TURNS = [
    (turn("queued"), "SUBMITTED"),
    (turn(input=[{"type": "image", "file_id": "file_1"}, {"type": "text", "text": "?"}]), "COMPLETED"),
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


OLD = {
    "task": types_03.Task,
    "status-update": types_03.TaskStatusUpdateEvent,
    "artifact-update": types_03.TaskArtifactUpdateEvent,
}


def events(*told: tuple[str, Json]) -> list[Event]:
    return [Event(n, kind, data) for n, (kind, data) in enumerate(told, start=1)]


def delta(text: str) -> tuple[str, Json]:
    return "output_text.delta", {"text": text}


def heard(told: list[Event], begun: Json | None = None) -> Heard:
    """What a reader makes of them; every response must be one of both versions."""
    updates, found = TaskUpdates(begun or turn("queued")), Heard()
    for response in [updates.first(), *updates.of(told)]:
        found.take(ParseDict(response, StreamResponse()))
        old = old_response(response)
        OLD[old["kind"]].model_validate(old)
    assert updates.is_over == bool(told and (told[-1].is_final or told[-1].type == "approval.required"))
    return found


END = ("turn.completed", turn(output_text="42"))


def names(found: Heard) -> list[str]:
    return [
        StreamResponse.DESCRIPTOR.file.enum_types_by_name["TaskState"].values_by_number[n].name[11:]
        for n in found.states
    ]


def test_a_plain_answer() -> None:
    found = heard(events(("turn.queued", {}), ("turn.started", {}), delta("4"), delta("2"), END))
    assert (found.text, found.is_last, names(found)) == ("42", True, ["SUBMITTED", "WORKING", "COMPLETED"])


def test_what_is_taken_back_is_replaced_by_what_comes() -> None:
    told = [
        ("turn.started", {}),
        delta("half"),
        ("turn.retrying", {}),
        ("turn.started", {}),
        delta("4"),
        delta("2"),
        END,
    ]
    assert heard(events(*told)).text == "42"


def test_commentary_is_replaced_by_the_answer() -> None:
    told = [delta("I look."), delta("\n\n"), ("output_text.commentary", {}), delta("4"), delta("2"), END]
    assert heard(events(*told)).text == "42"


def test_an_answer_that_was_changed_at_its_end_is_given_anew() -> None:
    assert heard(events(delta("4"), delta("3"), END)).text == "42"
    assert heard(events(END)).text == "42"


def test_what_was_said_in_vain_is_taken_back() -> None:
    found = heard(events(delta("half"), ("turn.cancelled", turn("cancelled"))))
    assert (found.text, found.is_last, names(found)[-1]) == ("", True, "CANCELED")


def test_a_question_ends_the_stream_unless_it_was_answered_before() -> None:
    asked = events(delta("I pay."), ("approval.required", call()))
    found = heard(asked)
    assert (found.text, names(found)[-1]) == ("I pay.", "INPUT_REQUIRED")
    answered = turn("in_progress", tool_calls=[call(approval="approved")])
    again = heard([*asked, *events(END)], answered)
    assert (again.text, names(again)[-1]) == ("42", "COMPLETED")


def test_what_comes_after_the_end_is_not_told() -> None:
    updates = TaskUpdates(turn("queued"))
    list(updates.of(events(END)))
    assert list(updates.of(events(delta("more")))) == []


@given(st.lists(st.one_of(st.text(min_size=1), st.just(None)), max_size=12), st.text(max_size=6))
def test_the_chunks_put_together_are_always_the_answer(pieces: list[str | None], end: str) -> None:
    """None is a place where all before it is taken back."""
    told = [("turn.retrying", {}) if piece is None else delta(piece) for piece in pieces]
    said = "".join(piece for piece in pieces[_last(pieces) :] if piece is not None)
    for output in (said, end):
        assert heard(events(*told, ("turn.completed", turn(output_text=output or None)))).text == output


def _last(pieces: list[str | None]) -> int:
    return max((n for n, piece in enumerate(pieces) if piece is None), default=0)


@pytest.mark.parametrize("kind", ["context.built", "tool_call.started", "memory.compressed", "judge.verdict"])
def test_what_the_protocol_has_no_word_for_is_left_out(kind: str) -> None:
    assert list(TaskUpdates(turn("queued")).of(events((kind, {"id": "x"})))) == []
