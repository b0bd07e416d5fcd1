"""What a monitor is told of turns on a stage of real parts."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from loom_worker.core.errors import Overloaded, ProviderFailed, Unavailable
from loom_worker.core.monitor import UNMONITORED, Monitor, Work
from loom_worker.core.values.calls import Call
from loom_worker.core.values.json import Json
from loom_worker.core.values.judges import Panel, PanelMember
from loom_worker.core.values.tools import Caller, Outcome, Tool
from loom_worker.core.values.turns import Turn
from loom_worker.turn.reporting import tell_call, tell_end
from loom_worker.turn.worker import TurnWorker
from tests.support.models import Killed, says, wants
from tests.support.notes import Notes
from tests.support.stage import Stage, StageKnowledge, StageTools


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def worker(stage: Stage, notes: Notes) -> TurnWorker:
    return stage.worker("w1", monitor=notes)


def test_a_turn_is_one_piece_of_work_with_its_ids_and_times(stage: Stage, notes: Notes, worker: TurnWorker) -> None:
    turn = stage.answered(says("Three."), text="How many?", by=worker)
    began, ended = notes.all
    assert (began.how, ended.how, ended.words, ended.run_ms) == ("started", "succeeded", "completed", turn.run_ms)
    assert began.work == ended.work
    assert ended.work == Work(
        id=turn.id,
        kind="turn",
        ids=(turn.id, turn.session_id),
        entry=1,
        accepted_ms=turn.created_ms,
        started_ms=turn.started_ms,
        names={"agent": turn.agent, "workspace": turn.workspace},
    )


def test_a_turn_with_tools_waits_and_keeps_its_first_start(stage: Stage, notes: Notes, worker: TurnWorker) -> None:
    turn = stage.answered(wants(("add", {"a": 1, "b": 2}), ("fail", {})), says("3"), by=worker)
    stage.answer_calls(turn, worker)
    stage.now_ms += 1_000
    turn = stage.serve(turn, worker)
    assert notes.of("turn") == [
        *(("started", 1, ""), ("waits", 1, "tools (2)")),
        *(("started", 2, ""), ("succeeded", 2, "completed")),
    ]
    assert {note.work.started_ms for note in notes.all if note.work.kind == "turn"} == {turn.started_ms}
    calls = [(note.how, note.work.names, note.words) for note in notes.all if note.work.kind == "tool"]
    assert calls == [
        *(("started", {"tool": "add"}, ""), ("succeeded", {"tool": "add"}, "completed")),
        *(("started", {"tool": "fail"}, ""), ("failed", {"tool": "fail"}, "failed: DATABASE_ERROR")),
    ]
    work = next(note.work for note in notes.all if note.work.kind == "tool")
    assert (work.id, work.part_of, work.ids) == (f"{turn.id}:0", turn.id, (turn.id, turn.session_id, turn.calls[0].id))


def test_a_tool_that_runs_within_its_turn_is_reported_as_well(stage: Stage, notes: Notes, worker: TurnWorker) -> None:
    stage.answered(wants(("note", {})), says("Noted."), by=worker)
    assert notes.of("tool") == [("started", 1, ""), ("succeeded", 1, "completed")]


def test_a_call_of_a_tool_that_the_model_made_up_fails_without_its_name(
    stage: Stage, notes: Notes, worker: TurnWorker
) -> None:
    stage.answered(wants(("what the user said", {})), says("I cannot."), by=worker)
    assert notes.of("tool") == [("failed", 1, "failed")]
    assert [note.work.names for note in notes.all if note.work.kind == "tool"] == [{}]


def test_a_provider_that_refuses_makes_a_failure_with_the_id_of_the_error_and_not_its_text(
    stage: Stage, notes: Notes, worker: TurnWorker
) -> None:
    turn = stage.answered([ProviderFailed("No: 'How many?'")], text="How many?", by=worker)
    assert turn.error is not None
    assert notes.of("turn")[-1] == ("failed", 1, f"failed: provider ({turn.error['error_id']})")


def test_a_busy_provider_is_waited_for(stage: Stage, notes: Notes, worker: TurnWorker) -> None:
    stage.answered([Overloaded("busy", 7.0)], by=worker)
    assert notes.of("turn")[-1] == ("waits", 1, "the model, which is asked again in 7 s")


@pytest.mark.parametrize(
    ("error", "what_for"),
    [
        (Unavailable("disk I/O error: secret"), "the database"),
        (KeyError("secret"), "another attempt, after KeyError"),
    ],
)
def test_a_turn_that_is_given_back_waits_for_what_it_needs(
    stage: Stage, notes: Notes, error: Exception, what_for: str
) -> None:
    class Failing(StageKnowledge):
        def prompt_context(self, *_: object) -> Any:
            raise error

    stage.serve(stage.submit(), stage.worker("w1", monitor=notes, knowledge=Failing()))
    assert notes.of("turn") == [("started", 1, ""), ("waits", 1, what_for)]


def test_a_worker_that_stops_leaves_a_turn_that_waits_for_another(
    stage: Stage, notes: Notes, worker: TurnWorker
) -> None:
    stage.answered([worker.stopping.ask, *wants(("add", {"a": 1, "b": 2}))], by=worker)
    assert notes.of("turn")[-1] == ("waits", 1, "another worker")


def test_a_worker_that_was_overtaken_reports_so_with_its_own_lower_entry(
    stage: Stage, notes: Notes, worker: TurnWorker
) -> None:
    turn = stage.submit()
    overtake: Callable[[], object] = lambda: stage.claims.claim(turn.lane, worker="w2", now_ms=stage.now_ms)  # noqa: E731
    stage.model.scenes = [[overtake, *says("Too late.")]]
    turn = stage.serve(turn, worker)
    assert (notes.of("turn")[-1][:2], turn.fence) == (("cancelled", 1), 2)


@pytest.fixture
def last(stage: Stage) -> Turn:
    """A turn before its last attempt."""
    stage.model.scenes = [[Killed()], says("At last.")]
    turn = stage.submit(max_attempts=2)
    with pytest.raises(Killed):
        stage.serve(turn, stage.worker("w0"))
    stage.lapse(turn)
    return turn


def test_of_a_last_attempt_the_parent_reports_the_start_and_that_its_process_died(
    stage: Stage, notes: Notes, worker: TurnWorker, last: Turn
) -> None:
    stage.book.alone_status = -9
    stage.serve(last, worker)
    assert notes.of("turn") == [("started", 2, ""), ("waits", 2, "its end, as its process died with status -9")]


def test_of_a_last_attempt_the_process_of_its_own_reports_the_end(stage: Stage, notes: Notes, last: Turn) -> None:
    stage.serve(last, stage.worker("w2", monitor=notes, is_isolated=True))
    assert notes.of("turn") == [("succeeded", 2, "completed")]


def test_a_judge_that_gives_a_low_score_has_succeeded_and_one_without_a_score_is_dead(
    stage: Stage, notes: Notes, worker: TurnWorker
) -> None:
    low, broken = PanelMember("low", "contains", {"all": ["42"]}), PanelMember("broken", "llm", "Is it right?")
    stage.agent = replace(stage.agent, judges=Panel((low, broken), max_answers=1))
    stage.model.scenes, stage.judge.scenes = [says("Many.")], [[ProviderFailed("No: 'Many.'")]]
    turn = stage.serve(stage.submit(), worker)
    assert notes.of("turn")[-1] == ("waits", 1, "judges (2)")
    stage.give_verdicts(turn, worker)
    assert notes.of("judge") == [
        *(("started", 1, ""), ("succeeded", 1, "scored 0")),
        *(("started", 1, ""), ("failed", 1, "dead")),
    ]
    assert {note.work.part_of for note in notes.all if note.work.kind == "judge"} == {turn.id}


def test_a_call_whose_turn_has_ended_meanwhile_was_cancelled(stage: Stage, notes: Notes, worker: TurnWorker) -> None:
    turn = stage.answered(wants(("add", {"a": 1, "b": 2})), by=worker)

    class Late(StageTools):
        def run(self, tool: Tool, arguments: Json, caller: Caller) -> Outcome:
            stage.cancel(turn, "interrupt")
            assert stage.serve(turn, worker).status == "cancelled"
            return super().run(tool, arguments, caller)

    tools: Any = Late(1.0, {}, stage.failures, stage.files)
    stage.answer_calls(turn, replace(worker, tools=tools))
    assert notes.of("tool") == [("started", 1, ""), ("cancelled", 1, "too late: its turn has ended or went on")]
    assert notes.of("turn")[-1] == ("cancelled", 2, "cancelled: interrupt")


def test_a_call_that_a_person_rejects_is_cancelled(notes: Notes) -> None:
    denied = Call("toolu_1", "pay", {}, 0, 1, status="denied")
    tell_call(Work("turn_1:0", "tool", ("turn_1",), 1), denied, None, notes)
    assert notes.of("tool") == [("cancelled", 1, "denied")]


@pytest.mark.parametrize(
    ("status", "reason", "kind", "told"),
    [
        ("completed", None, None, ("succeeded", "completed")),
        ("cancelled", "rollback", None, ("cancelled", "cancelled: rollback")),
        ("failed", "dead", "dead", ("failed", "failed: dead")),
        ("incomplete", "limits", "timeout", ("failed", "incomplete: limits (timeout)")),
        ("incomplete", "max_tokens", None, ("failed", "incomplete: max_tokens")),
    ],
)
def test_only_a_completed_turn_has_succeeded(
    notes: Notes, status: Any, reason: str | None, kind: str | None, told: tuple[str, str]
) -> None:
    error = None if kind is None else {"type": kind, "message": "what the user wrote", "error_id": None}
    turn = Turn("turn_1", "lane", "s1", "default", "default", 1, status, "Hi", 0, reason=reason, error=error)
    tell_end(turn, notes)
    [note] = notes.all
    assert (note.how, note.words) == told


def test_nobody_needs_to_listen() -> None:
    monitor: Monitor = Monitor()
    work = Work("turn_1", "turn", ("turn_1",), 1)
    monitor.started(work)
    for tell in (UNMONITORED.waits, UNMONITORED.succeeded, UNMONITORED.failed, UNMONITORED.cancelled):
        tell(work, "words", run_ms=1)
