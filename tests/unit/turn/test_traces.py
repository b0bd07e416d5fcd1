"""What the loop leaves for a turn's trace: each run, each request, and what its end knew."""

from collections.abc import Sequence

from loom_worker.core.errors import Overloaded, ProviderFailed
from loom_worker.core.values.chat import TextDelta
from loom_worker.core.values.spans import TraceSpan
from loom_worker.core.values.turns import Turn
from loom_worker.store.turn_records import TurnRecords
from loom_worker.trace.turn_spans import spans_of
from tests.support.models import Beat, Killed, says, wants
from tests.support.stage import WORKSPACE, Stage

SUMS = (("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4}))


def told(stage: Stage, turn: Turn) -> list[TraceSpan]:
    """The spans of a turn."""
    return list(spans_of(TurnRecords(stage.database).get(WORKSPACE, turn.id)))


def named(spans: Sequence[TraceSpan], name: str) -> list[TraceSpan]:
    return [span for span in spans if span.name == name]


def asked(stage: Stage, *beats: Beat) -> list[Beat]:
    """A scene of a model that says when it is asked, as adapters do."""
    return [lambda: stage.model.asked[-1].watch.asked("played"), *beats]


def test_a_turn_with_tools_has_a_run_for_each_time_that_it_was_taken(stage: Stage) -> None:
    turn, worker = stage.served(asked(stage, *wants(*SUMS, text="I add.")), asked(stage, *says("Ten.")))
    stage.answer_calls(turn, worker)
    spans = told(stage, stage.serve(turn, worker))
    runs = named(spans, "turn.run")
    assert [run.attributes["loom.run.end"] for run in runs][-1] == "ended"
    assert {run.attributes["loom.run.end"] for run in runs[:-1]} == {"parked"}
    first, last = named(spans, "llm.completion")
    assert (first.parent_id, last.parent_id) == (runs[0].span_id, runs[-1].span_id)
    assert [span.parent_id for span in named(spans, "context.build")] == [first.parent_id, last.parent_id]
    assert [span.parent_id for span in named(spans, "pattern.match")] == [runs[0].span_id]
    assert [span.attributes["gen_ai.response.finish_reasons"] for span in (first, last)] == [["tool_use"], ["end_turn"]]
    assert "gen_ai.response.time_to_first_chunk" in last.attributes
    assert len(named(spans, "tool.execute")) == 2


def test_what_was_journaled_before_a_death_is_there_and_the_dead_run_is_an_error(stage: Stage) -> None:
    cut = asked(stage, TextDelta("Hal"), Killed())
    stage.model.scenes = [asked(stage, *wants(("note", {}), text="Looking.")), cut, asked(stage, *says("Whole."))]
    turn = stage.submit()
    stage.die(turn)
    spans = told(stage, stage.serve(turn, stage.worker("w2")))
    dead, last = named(spans, "turn.run")
    assert (dead.status, dead.attributes["loom.worker"], dead.end_us) == ("Error", "w1", last.start_us)
    assert [span.parent_id for span in named(spans, "llm.completion")] == [dead.span_id, last.span_id]
    assert [span.attributes["gen_ai.tool.name"] for span in named(spans, "tool.execute")] == ["note"]


def test_an_interrupted_answer_is_one_request_with_what_it_used(stage: Stage) -> None:
    turn, worker = stage.submit(), stage.worker("w1")
    stage.model.scenes = [
        asked(stage, TextDelta("Half of "), lambda: stage.cancel(turn, "interrupt", worker), TextDelta("it")),
    ]
    spans = told(stage, stage.serve(turn, worker))
    (span,) = named(spans, "llm.completion")
    (chat,) = named(spans, "agent.chat")
    assert chat.status == "Unset"
    assert span.attributes["loom.tokens"] == chat.attributes["loom.tokens"]
    assert span.parent_id == named(spans, "turn.run")[0].span_id


def test_tries_before_a_wait_and_after_it_are_all_there(stage: Stage) -> None:
    busy = asked(stage, Overloaded("busy", 3.0))
    turn, worker = stage.served(busy, asked(stage, *says("Done.")))
    stage.lapse(turn)
    stage.now_ms += 60_000
    spans = told(stage, stage.serve(turn, worker))
    assert [(span.status, span.status_message) for span in named(spans, "llm.completion")] == [
        *(("Error", "busy"), ("OK", "")),
    ]


def test_a_failed_turn_tells_of_its_stored_error_and_an_ended_one_of_the_whole_conversation(stage: Stage) -> None:
    stage.model.scenes = [asked(stage, *says("One.")), asked(stage, ProviderFailed("No key."))]
    worker = stage.worker("w1")
    first = stage.serve(stage.submit("one"), worker)
    failed = stage.serve(stage.submit("two"), worker)
    (chat,), (before,) = (named(told(stage, turn), "agent.chat") for turn in (failed, first))
    assert (chat.attributes["conversation.turns"], before.attributes["conversation.turns"]) == (2, 1)
    assert chat.attributes["conversation.tokens.total"] == first.usage.tokens
    (stored,) = named(told(stage, failed), "error_store.store")
    assert stored.attributes["loom.error_id"] == (failed.error or {})["error_id"]
    assert not named(told(stage, first), "error_store.store")
