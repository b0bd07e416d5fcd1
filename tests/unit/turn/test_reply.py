"""One call of the model."""

from dataclasses import replace

from loom_worker.core.errors import ProviderFailed, StreamBroken
from loom_worker.core.values.chat import FellBack, Reply, TextDelta, ThinkingDelta
from loom_worker.core.values.spans import span_id_of
from loom_worker.store.agent_errors import AgentErrors
from loom_worker.store.ledger import Ledger
from loom_worker.store.turn_records import TurnRecords
from loom_worker.trace.turn_spans import spans_of
from loom_worker.turn.decide import MAX_WAITS
from tests.support.models import ONE_CALL, Beat, says, wants
from tests.support.stage import WORKSPACE, Stage
from tests.support.until import until


def test_a_stream_that_ends_without_a_reply_is_never_an_answer(stage: Stage) -> None:
    turn = stage.answered([TextDelta("Half an ans")])
    assert (turn.status, turn.output_text, stage.lane_state(turn)) == ("in_progress", None, "parked")
    [waited] = [step for step in stage.journal(turn) if step.kind == "waited"]
    assert "without a reply" in waited.payload["why"]


def test_a_broken_stream_leaves_no_text_in_the_journal(stage: Stage) -> None:
    turn = stage.answered([TextDelta("Half"), StreamBroken("cut")])
    assert "Half" not in str(stage.journal(turn))
    assert [event.id for event in stage.live(turn)] == [event.id for event in stage.rebuilt(turn)]


def test_a_stream_that_always_breaks_fails_the_turn(stage: Stage) -> None:
    turn, worker = stage.submit(), stage.worker("w1")
    for _ in range(MAX_WAITS + 1):
        stage.model.scenes = [
            [lambda: stage.model.asked[-1].watch.asked("played"), TextDelta("Half"), StreamBroken("cut")],
        ]
        turn = stage.serve(turn, worker)
        stage.lapse(turn)
    assert (turn.status, turn.reason, turn.error is not None) == ("failed", "provider", True)
    spans = spans_of(TurnRecords(stage.database).get(WORKSPACE, turn.id))
    asked = [span for span in spans if span.name == "llm.completion"]
    assert (len(asked), {span.status_message for span in asked}) == (MAX_WAITS, {"cut"})
    error = AgentErrors(stage.database).get(WORKSPACE, (turn.error or {})["error_id"])
    assert error.span_id == asked[-1].span_id


def test_an_error_of_a_model_that_could_not_be_asked_is_that_of_the_turn(stage: Stage) -> None:
    turn = stage.answered([ProviderFailed("There is no key.")])
    error = AgentErrors(stage.database).get(WORKSPACE, (turn.error or {})["error_id"])
    assert error.span_id == span_id_of(turn.id)


def test_every_stream_is_closed(stage: Stage) -> None:
    stage.answered(wants(("note", {})), says("Noted."))
    assert stage.model.closed == 2


def test_readers_see_text_before_the_reply_is_complete(stage: Stage) -> None:
    turn = stage.submit()

    def read() -> None:
        until(lambda: stage.told(turn)[-1] == "output_text.delta", 5, "the first words are written")

    stage.model.scenes = [[TextDelta("First"), read, *says(" words", pieces=1)]]
    assert stage.serve(turn, stage.worker("w1")).status == "completed"


def test_the_first_token_is_counted_from_acceptance(stage: Stage) -> None:
    turn = stage.submit()
    stage.now_ms += 250
    stage.model.scenes = [says("Done.")]
    assert stage.serve(turn, stage.worker("w1")).first_token_ms == 250


def test_readers_are_told_what_the_context_costs(stage: Stage) -> None:
    turn = stage.answered(says("Done."))
    [built] = [event.data for event in stage.live(turn) if event.type == "context.built"]
    assert built["budget_tokens"] == stage.budget_tokens
    assert set(built["tokens"]) == {"tools", "rom", "kernel", "l2", "l1", "recalled", "patterns", "turn"}


def test_a_tool_call_is_shown_when_it_is_asked_for_and_when_it_has_a_result(stage: Stage) -> None:
    turn, worker = stage.served(wants(("gone", {}), ("add", {"a": 1, "b": 2})))
    stage.answer_calls(turn, worker)
    shown = [(event.type, event.data["id"]) for event in stage.live(turn) if event.type.startswith("tool_call")]
    assert shown == [
        ("tool_call.started", "toolu_1"),
        ("tool_call.completed", "toolu_1"),
        ("tool_call.started", "toolu_2"),
        ("tool_call.completed", "toolu_2"),
    ]


def test_what_the_model_thinks_is_told_in_few_pieces_and_is_no_part_of_the_answer(stage: Stage) -> None:
    thought = [ThinkingDelta("hm ") for _ in range(100)]
    turn = stage.answered([*thought, *says("Five."), ThinkingDelta("never told")])
    told = [event.data["text"] for event in stage.live(turn) if event.type == "reasoning.delta"]
    assert ("".join(told), len(told)) == ("hm " * 100, 2)
    assert turn.output_text == "Five."
    assert stage.live(turn) == stage.rebuilt(turn)


def test_a_turn_says_which_model_answered_in_the_place_of_its_own(stage: Stage) -> None:
    def asked(name: str) -> Beat:
        return lambda: stage.model.asked[-1].watch.asked(name)

    other = replace(ONE_CALL, input_tokens=7)
    reply = Reply("Five.", "end_turn", other, "groq/llama")
    fell = FellBack("groq/llama", "played", "busy")
    turn = stage.answered([asked("played"), fell, asked("groq/llama"), TextDelta("Five."), reply])
    assert (turn.model, turn.output_text) == ("groq/llama", "Five.")
    assert [event.data for event in stage.live(turn) if event.type == "model.fallback"] == [
        {"model": "groq/llama", "instead_of": "played", "reason": "busy"}
    ]
    assert stage.live(turn) == stage.rebuilt(turn)
    [row] = Ledger(stage.database).totals(WORKSPACE, group_by="model")
    assert row["key"] == "groq/llama"
    spans = spans_of(TurnRecords(stage.database).get(WORKSPACE, turn.id))
    asked_models = [span.attributes["llm.model"] for span in spans if span.name == "llm.completion"]
    assert asked_models == ["played", "groq/llama"]
