"""The log made anew from the journal alone."""

from dataclasses import replace
from typing import Any

from loom_worker.core.values.calls import Call
from loom_worker.core.values.json import Json
from loom_worker.core.values.turns import Step, Turn
from loom_worker.events.rebuild import rebuild

TURN = Turn("turn_1", "lane", "s1", "w", "default", 1, "in_progress", "How many?", 0)


def reply(n: int, text: str) -> Step:
    return Step(n, "reply", {"text": text})


def told(n: int, first: int, *log: Json) -> Step:
    return Step(n, "events", {"first": first, "log": list(log)})


def call(position: int, **facts: Any) -> Call:
    done = Call(
        f"toolu_{position}", "add", {}, position, 0, status="completed", worker="w1", finished_ms=5, content="3"
    )
    return replace(done, **facts)


def shown(turn: Turn, *journal: Step) -> list[tuple[int, str, object]]:
    """Id, type and what tells the event apart."""
    events = rebuild(turn, journal)
    return [(e.id, e.type, e.data.get("text", e.data.get("id") if "tool" in e.type else None)) for e in events]


def test_a_turn_without_a_journal_is_queued() -> None:
    assert rebuild(TURN, ())[0].data == {"turn_id": "turn_1", "session_id": "s1", "seq": 1}
    assert len(rebuild(TURN, ())) == 1


def test_deltas_are_cut_out_of_their_reply() -> None:
    journal = (reply(0, "Grüße!"), told(1, 2, {"type": "turn.started", "data": {}}, {"reply": 0, "cuts": [3, 0, 3]}))
    assert shown(TURN, *journal)[1:] == [
        (2, "turn.started", None),
        (3, "output_text.delta", "Grü"),
        (4, "output_text.delta", ""),
        (5, "output_text.delta", "ße!"),
    ]


def test_text_that_nobody_can_tell_any_more_leaves_empty_deltas_with_its_ids() -> None:
    journal = (told(0, 5, {"type": "turn.retrying", "data": {}}, {"lost": 2}),)
    assert shown(TURN, *journal) == [
        (1, "turn.queued", None),
        *[(n, "output_text.delta", "") for n in (2, 3, 4)],
        (5, "turn.retrying", None),
        *[(n, "output_text.delta", "") for n in (6, 7)],
    ]


def test_deltas_of_a_reply_that_is_not_in_the_journal_are_empty() -> None:
    assert shown(TURN, told(0, 2, {"reply": 7, "cuts": [4]})) == [
        (1, "turn.queued", None),
        (2, "output_text.delta", ""),
    ]


def test_results_come_in_the_order_in_which_tools_finished() -> None:
    turn = replace(TURN, calls=(call(0, finished_ms=9), call(1, finished_ms=7), call(2, finished_ms=9)))
    assert [shown_id for _, _, shown_id in shown(turn)[1:]] == ["toolu_1", "toolu_0", "toolu_2"]


def test_results_stand_between_the_parts_that_the_turn_told() -> None:
    turn = replace(TURN, calls=(call(0), call(1, finished_ms=6)))
    journal = (
        reply(0, ""),
        told(1, 2, {"type": "turn.started", "data": {}}),
        told(2, 5, {"type": "context.built", "data": {}}),
    )
    assert [kind for _, kind, _ in shown(turn, *journal)] == [
        "turn.queued",
        "turn.started",
        "tool_call.completed",
        "tool_call.completed",
        "context.built",
    ]


def test_a_result_that_the_turn_told_itself_is_not_told_twice() -> None:
    turn = replace(TURN, calls=(call(0), call(1)))
    own = {"type": "tool_call.completed", "data": {"id": "toolu_0"}}
    assert [shown_id for _, _, shown_id in shown(turn, told(0, 2, own))] == [None, "toolu_0", "toolu_1"]


def test_a_result_that_the_turn_tells_later_does_not_fill_a_gap_before() -> None:
    turn = replace(TURN, calls=(call(0),))
    own = {"type": "tool_call.completed", "data": {"id": "toolu_0"}}
    assert shown(turn, told(0, 3, own))[1:] == [(2, "output_text.delta", ""), (3, "tool_call.completed", "toolu_0")]


def test_a_result_never_fills_a_gap_from_before_its_call_began() -> None:
    turn = replace(TURN, calls=(call(0, reply_n=1),))
    journal = (told(0, 3, {"type": "turn.retrying", "data": {}}), reply(1, ""), told(2, 4, {"type": "x", "data": {}}))
    kinds = [kind for _, kind, _ in shown(turn, *journal)]
    assert kinds == ["turn.queued", "output_text.delta", "turn.retrying", "x", "tool_call.completed"]


def test_calls_that_never_ran_or_still_run_or_were_cancelled_have_no_result_of_their_own() -> None:
    turn = replace(
        TURN,
        calls=(call(0, worker=None), call(1, status="running"), call(2, status="cancelled"), call(3, status="timeout")),
    )
    assert [shown_id for _, _, shown_id in shown(turn)[1:]] == ["toolu_3"]


def test_a_finished_turn_ends_with_itself() -> None:
    done = replace(TURN, status="incomplete", reason="limits")
    last = rebuild(done, ())[-1]
    assert (last.id, last.type, last.data, last.is_final) == (2, "turn.incomplete", done.as_json(), True)


def test_deltas_of_the_answer_are_cut_out_of_the_turn_which_alone_has_its_text() -> None:
    ended = replace(TURN, status="completed", output_text="Grüße!", started_ms=1)
    journal = (Step(0, "reply", {"text": None}), told(1, 2, {"reply": 0, "cuts": [3, 3]}))
    assert [text for _, _, text in shown(ended, *journal)] == [None, "Grü", "ße!", None]


def test_texts_of_several_replies_are_parted_and_the_last_is_cut_out_of_the_turn() -> None:
    ended = replace(TURN, status="completed", output_text="Looking.\n\nThree.", started_ms=1)
    logs = [told(1, 2, {"reply": 0, "cuts": [8]}), told(4, 3, {"reply": 3, "cuts": [5, 3]})]
    journal = (reply(0, "Looking."), logs[0], reply(2, ""), Step(3, "reply", {"text": None}), logs[1])
    assert [text for _, _, text in shown(ended, *journal)][1:-1] == ["Looking.", "\n\nThr", "ee."]


def test_texts_that_an_older_version_told_without_parting_them_are_told_so_again() -> None:
    ended = replace(TURN, status="completed", output_text="Three.", started_ms=1)
    logs = [told(1, 2, {"reply": 0, "cuts": [8]}), told(4, 3, {"reply": 3, "cuts": [3, 3]})]
    journal = (reply(0, "Looking."), logs[0], Step(3, "reply", {"text": None}), logs[1])
    assert [text for _, _, text in shown(ended, *journal)][1:-1] == ["Looking.", "Thr", "ee."]


def test_a_turn_whose_journal_was_removed_tells_its_calls_its_answer_and_its_end() -> None:
    ended = replace(TURN, status="completed", output_text="Three.", started_ms=1, calls=(call(0),))
    assert shown(ended) == [
        (1, "turn.queued", None),
        (2, "tool_call.completed", "toolu_0"),
        (3, "output_text.delta", "Three."),
        (4, "turn.completed", None),
    ]


def test_a_turn_that_ended_before_it_ran_has_no_answer_to_tell() -> None:
    assert [kind for _, kind, _ in shown(replace(TURN, status="cancelled"))] == ["turn.queued", "turn.cancelled"]
