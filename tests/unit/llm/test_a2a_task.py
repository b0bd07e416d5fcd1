"""What an agent elsewhere says, put together from results in either version's form."""

import pytest

from loom_worker.llm.a2a_task import Memo, Piece, RemoteTask


def artifact(text, *, name="a", append=False, version="1.0"):
    update = {
        "taskId": "t",
        "contextId": "c",
        "artifact": {"artifactId": name, "parts": [{"kind": "text", "text": text}]},
        "append": append,
    }
    return {"artifactUpdate": update} if version == "1.0" else {"kind": "artifact-update", **update}


def status(state, text="", *, version="1.0", **fields):
    message = {"message": {"parts": [{"text": text}]}} if text else {}
    update = {"taskId": "t", "contextId": "c", "status": {"state": state, **message}, **fields}
    return {"statusUpdate": update} if version == "1.0" else {"kind": "status-update", **update}


def task(state, *texts):
    artifacts = [{"artifactId": f"a{n}", "parts": [{"text": text}]} for n, text in enumerate(texts)]
    return {"id": "t", "contextId": "c", "status": {"state": state}, "artifacts": artifacts}


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_chunks_are_told_as_they_come(version):
    remote = RemoteTask()
    pieces = [
        remote.take(artifact(text, append=n > 0, version=version)) for n, text in enumerate(["One", " two", " three"])
    ]
    assert pieces == [Piece("One"), Piece(" two"), Piece(" three")]
    assert remote.text == "One two three"
    assert not remote.is_over()


def test_a_chunk_that_is_not_appended_takes_the_place_of_what_came_before():
    remote = RemoteTask()
    remote.take(artifact("half of it"))
    assert remote.take(artifact("all of it")) == Piece("all of it", is_anew=True)
    assert remote.text == "all of it"


def test_artifacts_are_told_one_after_the_other_with_an_empty_line_between():
    remote = RemoteTask()
    assert remote.take(artifact("first", name="a")) == Piece("first")
    assert remote.take(artifact("second", name="b")) == Piece("\n\nsecond")
    assert remote.take(artifact("!", name="a", append=True)) == Piece("first!\n\nsecond", is_anew=True)


@pytest.mark.cases(
    ("result", "state", "is_over"),
    [
        (status("TASK_STATE_WORKING"), "working", False),
        (status("TASK_STATE_INPUT_REQUIRED"), "input_required", True),
        (status("TASK_STATE_COMPLETED"), "completed", True),
        (status("input-required", version="0.3"), "input_required", True),
        (status("canceled", version="0.3"), "canceled", True),
        ({"task": task("TASK_STATE_SUBMITTED")}, "submitted", False),
        ({"kind": "task", **task("failed")}, "failed", True),
        (task("TASK_STATE_REJECTED"), "rejected", True),
    ],
)
def test_states_of_both_versions_are_read(result, state, is_over):
    remote = RemoteTask()
    remote.take(result)
    assert (remote.state, remote.is_over(), remote.id, remote.context_id) == (state, is_over, "t", "c")


def test_a_task_as_a_whole_adds_what_is_not_told_yet():
    remote = RemoteTask()
    remote.take(artifact("One", name="a0"))
    assert remote.take(task("TASK_STATE_WORKING", "One two")) == Piece(" two")
    assert remote.take(task("TASK_STATE_WORKING", "Another")) == Piece("Another", is_anew=True)


def test_a_question_is_kept_for_the_next_turn_and_what_was_told_before_is_not_told_again():
    first = RemoteTask()
    first.take(artifact("I pay."))
    first.take(status("TASK_STATE_INPUT_REQUIRED", "May I?"))
    assert first.closing() == "May I?"
    memo = Memo.of(first.memo().as_json())
    assert memo == Memo("c", "t", {"a": 6})

    second = RemoteTask(memo)
    second.take({"task": task("TASK_STATE_WORKING")})
    assert second.take(artifact("I pay.")) == Piece("")
    assert second.take(artifact("\n\nPaid.", append=True)) == Piece("Paid.")
    second.take(status("TASK_STATE_COMPLETED"))
    assert (second.text, second.memo()) == ("Paid.", Memo("c"))


@pytest.mark.cases("piece", ["Paid, all of it.", "Paid."])
def test_an_answer_that_takes_the_place_of_what_was_told_before_the_question_is_told_whole(piece):
    first = RemoteTask()
    first.take(artifact("I pay."))
    first.take(status("TASK_STATE_INPUT_REQUIRED", "May I?"))
    second = RemoteTask(Memo.of(first.memo().as_json()))
    second.take({"task": task("TASK_STATE_WORKING")})
    told = [second.take(artifact("I pay.")), second.take(artifact(piece)), second.take(status("TASK_STATE_COMPLETED"))]
    assert "".join(each.text for each in told) == second.text == piece


def test_another_task_tells_all_of_its_own():
    remote = RemoteTask(Memo("c", "earlier", {"a": 6}))
    assert remote.take(artifact("I pay.")) == Piece("I pay.")


def test_the_last_status_is_the_answer_where_there_is_no_artifact():
    remote = RemoteTask()
    remote.take(status("TASK_STATE_COMPLETED", "All done."))
    assert remote.closing() == "All done."


def test_what_another_loom_says_of_its_tokens_is_read():
    remote = RemoteTask()
    remote.take(status("TASK_STATE_COMPLETED", metadata={"loom": {"usage": {"input_tokens": 7}}}))
    assert remote.usage == {"input_tokens": 7}


@pytest.mark.cases(
    "result", [{}, {"task": None}, {"status": 3}, {"artifactUpdate": {"artifact": []}}, {"message": {"parts": "x"}}]
)
def test_what_makes_no_sense_breaks_nothing(result):
    remote = RemoteTask()
    assert remote.take(result) == Piece("")
