"""Runs as a service keeps them, on a real database and a real Valkey; what HTTP shows of them is tested there."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from loom_worker.core.errors import Invalid, NotFound, Unavailable
from loom_worker.core.settings import Settings
from loom_worker.core.values.runs import NewRun, Run
from loom_worker.core.values.webhooks import Webhook
from loom_worker.service.allowances import Terms
from loom_worker.service.waiting.sources import RunEventSource
from loom_worker.service.workflow_runs import WorkflowRuns
from loom_worker.store.runs import Runs
from loom_worker.workflows.load import Workflows
from tests.support.runs import pipeline, workflow
from tests.support.until import until
from tests.support.waiting import Clients, LoopThread
from tests.support.web_stage import WebStage, stages

W = "default"


@pytest.fixture
def stage(settings: Settings, valkey: redis.Redis) -> Iterator[WebStage]:
    with stages(settings, valkey) as make:
        made = make()
        made.workflows["two"] = workflow(pipeline("One", "Two"), "two")
        yield made


@pytest.fixture
def runs(stage: WebStage) -> WorkflowRuns:
    return stage.service.runs


def start(runs: WorkflowRuns, **new: Any) -> Run:
    return runs.start(W, "two", NewRun(**new))[0]


def answer(stage: WebStage, run_id: str) -> None:
    """Answer the stage that is open, and make the run go on."""
    runs = stage.service.runs
    (open_stage,) = (each for each in runs.run(W, run_id).stages if each.is_open)
    stage.worker.finish(str(open_stage.turn_id))
    runs.turn_ended(run_id)


def never() -> bool:
    return False


def test_a_repeated_request_wakes_nobody_and_is_told_of_once(
    stage: WebStage, runs: WorkflowRuns, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    new = NewRun(idempotency_key="k", fingerprint="f")
    (first, _), (again, is_replay) = (runs.start(W, "two", new) for _ in range(2))
    assert (again.id, is_replay, len(stage.book.woken)) == (first.id, True, 1)
    assert [record.message for record in caplog.records].count("run.accepted") == 1


def test_a_run_that_is_told_of_an_end_twice_goes_on_once(stage: WebStage, runs: WorkflowRuns) -> None:
    run = start(runs, webhook=Webhook("https://hooks.example/x"))
    answer(stage, run.id)
    runs.turn_ended(run.id)
    assert len(stage.book.woken) == 2
    answer(stage, run.id)
    runs.turn_ended(run.id)
    assert len(stage.book.delivered) == 1


@pytest.mark.parametrize("run_id", [None, "run_none"])
def test_the_end_of_a_turn_of_no_run_changes_nothing(stage: WebStage, runs: WorkflowRuns, run_id: str | None) -> None:
    runs.turn_ended(run_id)
    assert stage.book.woken == []


def test_the_end_of_a_run_is_logged_with_how_long_it_took(
    stage: WebStage, runs: WorkflowRuns, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    run = start(runs)
    answer(stage, run.id)
    answer(stage, run.id)
    (record,) = (record for record in caplog.records if record.message == "run.completed")
    assert (record.__dict__["run"], record.__dict__["workflow"]) == (run.id, "two")
    assert record.__dict__["duration_ms"] >= 0


def test_while_the_database_is_away_nothing_is_accepted_and_nobody_woken(stage: WebStage, runs: WorkflowRuns) -> None:
    stage.database.is_down = True
    with pytest.raises(Unavailable):
        start(runs)
    stage.database.is_down = False
    assert runs.runs(W, workflow=None, status=None, limit=9, after=None).items == ()
    assert stage.book.woken == []


def test_problems_of_files_and_of_agents_are_told_together(stage: WebStage, runs: WorkflowRuns) -> None:
    (stage.workflow_files / "broken.yaml").write_text("apiVersion: loom/v1\nkind: Workflow\nmetadata: {name: broken}\n")
    stage.workflows["lonely"] = workflow(pipeline("One", agents=("ghost",)), "lonely")
    broken, lonely = (str(problem) for problem in runs.problems())
    assert "broken.yaml:" in broken
    assert "there is no agent 'ghost'" in lonely
    assert [each.name for each in runs.workflows()] == ["lonely", "two"]
    with pytest.raises(Invalid, match=r"broken\.yaml"):
        runs.workflow("broken", "default")


class Away:
    """Lanes in a Redis that does not answer."""

    def forget(self, _lane: str) -> None:
        raise Unavailable("Redis does not answer")


def test_while_redis_is_away_a_run_is_deleted_all_the_same(
    stage: WebStage, runs: WorkflowRuns, request: pytest.FixtureRequest
) -> None:
    away: Any = Away()
    agents: Any = stage.service._agents
    live: Any = Workflows()
    announcer: Any = None
    cut_off = WorkflowRuns(
        stage.database,
        journal=stage.run_journal,
        workflows=live,
        agents=agents,
        announcer=announcer,
        terms=Terms(stage.service.settings, agents),
        events=stage.events,
        lanes=away,
        traces=stage.service.traces,
        waits=stage.service.waiter.waits,
    )
    request.addfinalizer(cut_off.waiter.close)
    run = start(runs)
    cut_off.delete(W, run.id)
    with pytest.raises(NotFound):
        runs.run(W, run.id)
    with pytest.raises(NotFound):
        stage.service.sessions.get(W, str(run.stages[0].session_id))


class EndingRuns(Runs):
    """Runs, one of which ends just after it was read."""

    def __init__(self, stage: WebStage) -> None:
        super().__init__(stage.database)
        self._stage = stage

    def has_ended(self, tenant: Any, run_id: str) -> bool:
        has_ended = super().has_ended(tenant, run_id)
        if not has_ended:
            answer(self._stage, run_id)
        return has_ended


def test_a_run_that_ends_while_its_events_are_read_is_shown_as_it_ended(stage: WebStage, runs: WorkflowRuns) -> None:
    run = start(runs)
    answer(stage, run.id)
    source = RunEventSource(EndingRuns(stage))
    place, _ = source.begin(W, runs.run(W, run.id), after=0)
    *_, last = source.advance(place)
    assert (last.type, last.data["status"]) == ("run.completed", "completed")
    assert place.is_over


def test_a_reader_has_the_last_event_before_the_end(stage: WebStage, runs: WorkflowRuns) -> None:
    run = start(runs)
    source = RunEventSource(Runs(stage.database))
    place, first = source.begin(W, run, after=0)
    assert (first, len(source.advance(place)), source.advance(place), place.is_over) == ((), 2, (), False)
    answer(stage, run.id)
    answer(stage, run.id)
    assert source.advance(place)[-1].is_final
    assert place.is_over


@pytest.fixture
def clients() -> Iterator[Clients]:
    with LoopThread() as loop:
        yield Clients(loop)


def test_a_reader_gets_all_to_the_end(stage: WebStage, runs: WorkflowRuns, clients: Clients) -> None:
    run = start(runs)
    reading = clients.events(runs.waiter, W, run.id)
    assert [next(reading).id for _ in range(2)] == [1, 2]
    answer(stage, run.id)
    answer(stage, run.id)
    assert [event.id for event in reading] == [3, 4, 5, 6]


def test_who_waits_is_sent_home_when_the_process_stops(runs: WorkflowRuns, clients: Clients) -> None:
    waiting = clients.wait(runs.waiter, W, start(runs).id)
    until(lambda: runs.waiter.count == 1, 20, "somebody waits")
    runs.waiter.drain()
    assert waiting.result(60).status == "in_progress"


def test_a_closed_service_follows_no_run_any_more(runs: WorkflowRuns, clients: Clients) -> None:
    run = start(runs)
    runs.waiter.close()
    assert clients.wait(runs.waiter, W, run.id).result(60).status == "in_progress"
    assert runs.waiter.count == 0


def test_the_trace_of_a_run_holds_that_of_all_its_turns(stage: WebStage, runs: WorkflowRuns) -> None:
    run = start(runs, traceparent=f"00-{'a' * 32}-{'b' * 16}-01")
    answer(stage, run.id)
    for status in (None, "completed"):
        spans = runs.trace(W, run.id)
        assert [span.name for span in spans].count("agent.chat") == 2
        assert {span.trace_id for span in spans} == {"a" * 32}
        (whole,) = (span for span in spans if span.name == "workflow.run")
        assert whole.attributes["loom.run.status"] == (status or "in_progress")
        assert {span.parent_id for span in spans if span.name == "agent.chat"} == {whole.span_id}
        if status is None:
            answer(stage, run.id)
    with pytest.raises(NotFound):
        runs.trace("other", run.id)
