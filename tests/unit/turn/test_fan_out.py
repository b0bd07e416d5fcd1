"""Many calls in one reply: so many at a time, each answered once, and the model told when a limit comes near."""

from dataclasses import replace

import pytest

from loom_worker.core.errors import Unavailable
from loom_worker.core.values.calls import Call
from loom_worker.core.values.tools import Caller, Outcome
from loom_worker.core.values.turns import Turn
from loom_worker.turn.entrypoints import serve_call
from tests.support.models import says, wants
from tests.support.stage import Stage, StageTools


def sums(count: int) -> list[tuple[str, dict[str, int]]]:
    return [("add", {"a": n, "b": 0}) for n in range(count)]


def few(stage: Stage, concurrency: int) -> None:
    stage.settings = replace(stage.settings, tools=replace(stage.settings.tools, concurrency=concurrency))


def sent(stage: Stage) -> list[int]:
    """Positions of all calls that were sent, in order."""
    return [call.position for fan in stage.book.fanned for call in fan[2]] + [
        call.position for _, call in stage.book.called
    ]


def begun(stage: Stage, calls: list[tuple[str, dict[str, int]]]) -> Turn:
    stage.model.scenes = [wants(*calls), says("Done.")]
    return stage.serve(stage.submit(), stage.worker("w1"))


def test_of_many_calls_so_many_are_sent_and_each_that_ends_sends_the_next(stage: Stage) -> None:
    few(stage, 3)
    turn, by = begun(stage, sums(7)), stage.worker("w2")
    assert sent(stage) == [0, 1, 2]
    queue = [(call.position, call.sends) for call in stage.book.fanned[0][2]]
    done: list[int] = []
    while queue:
        position, sends = queue.pop()  # the last first: order does not matter
        before = len(stage.book.called)
        serve_call(turn.id, position, sends, by)
        done.append(position)
        queue += [(call.position, call.sends) for _, call in stage.book.called[before:]]
    assert sorted(done) == list(range(7))
    assert sorted(sent(stage)) == list(range(7))
    assert stage.book.woken[-1:] == [turn.lane]
    turn = stage.serve(turn, by)
    assert [call.content for call in turn.calls] == [str(n) for n in range(7)]
    assert turn.status == "completed"


def test_a_chord_of_some_of_the_calls_does_not_pass_for_the_end_of_all(stage: Stage) -> None:
    few(stage, 2)
    turn = begun(stage, sums(3))
    assert stage.book.fanned[0][3].endswith(":part")
    few(stage, 3)
    other = stage.submit(session="s2")
    stage.model.scenes = [wants(*sums(3))]
    stage.serve(other, stage.worker("w1"))
    assert not stage.book.fanned[-1][3].endswith(":part")
    assert turn.lane != other.lane


def test_a_call_whose_sending_was_lost_is_sent_by_the_turn(stage: Stage) -> None:
    few(stage, 1)
    turn, by = begun(stage, sums(2)), stage.worker("w2")
    serve_call(turn.id, 0, 1, by)  # its worker woke the turn, as nothing was under way any more
    stage.serve(turn, by)
    assert sent(stage) == [0, 1]


def test_the_same_question_twice_is_asked_once(stage: Stage) -> None:
    turn, by = begun(stage, [*sums(1), *sums(1)]), stage.worker("w2")
    stage.answer_calls(turn, by)
    turn = stage.serve(turn, by)
    assert stage.ran == ["add"]
    assert [(call.status, call.content) for call in turn.calls] == [("completed", "0")] * 2


def test_a_later_reply_that_asks_the_same_again_is_answered_from_the_first(stage: Stage) -> None:
    stage.model.scenes = [wants(*sums(1)), wants(*sums(1), first_id=2), says("Done.")]
    turn, by = stage.submit(), stage.worker("w1")
    stage.serve(turn, by)
    stage.answer_calls(turn, by)
    turn = stage.serve(turn, by)
    assert (turn.status, stage.ran) == ("completed", ["add"])
    assert stage.live(turn) == stage.rebuilt(turn)


def test_a_tool_that_is_broken_is_answered_at_once(stage: Stage) -> None:
    stage.broken = {"add": 12.4}
    turn = begun(stage, sums(1))
    assert (turn.status, stage.ran) == ("completed", [])
    assert "not tried for 12 s" in str(turn.calls[0].content)
    assert [tool.name for tool in stage.model.asked[0].tools] == [tool.name for tool in stage.model.asked[1].tools]


def test_the_model_reads_beside_the_last_result_that_a_limit_comes_near(stage: Stage) -> None:
    few(stage, 10)
    stage.settings = replace(stage.settings, limits=replace(stage.settings.limits, max_tool_calls=4))
    stage.model.scenes = [wants(*sums(2)), wants(("add", {"a": 9, "b": 9}), first_id=3), says("Done.")]
    turn, by = stage.submit(), stage.worker("w1")
    for _ in range(2):
        stage.serve(turn, by)
        stage.answer_calls(turn, by)
    stage.serve(turn, by)
    contents = [outcome.content for message in stage.model.asked[-1].messages for outcome in message.outcomes]
    assert "Loom:" not in contents[1]
    assert "[Loom: 3 of 4 tool calls of this turn are used." in contents[2]
    assert contents[2].count("18") == 1


@pytest.mark.heavy
def test_a_result_outlives_a_database_that_is_away_while_it_is_kept(stage: Stage) -> None:
    fails = [Unavailable("locked"), Unavailable("locked")]

    class KeepsInTheEnd(StageTools):
        def with_outcome(self, call: Call, outcome: Outcome, caller: Caller) -> Call:
            if fails:
                raise fails.pop()
            return super().with_outcome(call, outcome, caller)

    turn = begun(stage, [("pay", {})])
    by = stage.worker("w2", tools=KeepsInTheEnd(1.0, {}, stage.failures, stage.files))
    stage.answer_calls(turn, by)
    turn = stage.serve(turn, by)
    assert (turn.status, stage.ran, turn.calls[0].content) == ("completed", ["pay"], "paid")
