"""Runs on a real database: each step is one transaction, whoever makes it and however often."""

from typing import Any

import pytest
import redis
from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError

from loom_worker.core.errors import Conflict, Forbidden, Invalid, LoomError, NotFound, QueueFull
from loom_worker.core.settings import LimitSettings
from loom_worker.core.values.audit import AuditFilter
from loom_worker.core.values.json import Json
from loom_worker.core.values.runs import NewRun, Run
from loom_worker.core.values.tenants import Actor, WorkspaceUser
from loom_worker.core.values.turns import Turn
from loom_worker.core.values.webhooks import Webhook
from loom_worker.events.log import EventLog
from loom_worker.store.audit import AuditRows
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.outbox import Outbox
from loom_worker.store.run_journal import RunJournal
from loom_worker.store.run_steps import RunStep
from loom_worker.store.runs import Runs
from loom_worker.store.schema import turns
from loom_worker.store.sessions import Sessions
from loom_worker.store.tables import run_stages, workflow_runs
from loom_worker.store.turns import Turns
from loom_worker.store.workspaces import Workspaces
from tests.support.at_once import at_once
from tests.support.broken_off import breaking
from tests.support.played_worker import PlayedWorker
from tests.support.runs import pipeline, run_journal, workflow

W = "default"
NOW = 1_800_000_000_000
TWO = pipeline("One", "Two: {{.previous}}")
FORK: Json = {"type": "fork-join", "prompt": "Which?", "agent_ids": ["anna", "ben"], "merge_strategy": "concatenate"}
BY = Actor("key_1")
GATED = pipeline("One", "Two: {{.previous}}")
GATED["stages"][0]["approval"] = {"prompt": "Look: {{output}}", "timeout_seconds": 60}


class Played:
    """Runs whose turns a test answers."""

    def __init__(self, database: Database, valkey: redis.Redis) -> None:
        self.database = database
        self.journal = run_journal(database, LimitSettings())
        self.runs = Runs(database)
        self.worker = PlayedWorker(database, EventLog(valkey))
        self.now_ms = NOW

    def start(self, spec: Json, tenant: Any = W, **new: Any) -> Run:
        return self.journal.accept(tenant, workflow(spec), NewRun(**new), now_ms=self.now_ms)[0].run

    def advance(self, run: Run) -> RunStep | None:
        return self.journal.advance(run.id, now_ms=self.now_ms)

    def read(self, run: Run, tenant: Any = W) -> Run:
        return self.runs.get(tenant, run.id)

    def turn(self, run: Run, key: str) -> str:
        [turn_id] = [stage.turn_id for stage in self.read(run).stages if stage.key == key]
        assert turn_id is not None
        return turn_id

    def answer(self, run: Run, key: str, text: str = "done") -> Run:
        """The stage's turn ends, and the run goes on."""
        self.worker.finish(self.turn(run, key), text)
        self.advance(run)
        return self.read(run)

    def stages(self, run: Run) -> list[tuple[str, str]]:
        return [(stage.key, stage.status) for stage in self.read(run).stages]


@pytest.fixture
def played(database: Database, valkey: redis.Redis) -> Played:
    return Played(database, valkey)


def test_a_run_is_accepted_with_the_turn_of_its_first_stage(played: Played, database: Database) -> None:
    step, is_replay = played.journal.accept(W, workflow(TWO), NewRun(metadata={"a": 1}), now_ms=NOW)
    [turn] = step.begun
    assert not is_replay
    assert step.run.status == "in_progress"
    assert (turn.input, turn.agent, turn.run_id) == ("One", "default", step.run.id)
    assert turn.session_id == f"flow:default:{step.run.id}.1"
    assert Sessions(database).get(W, turn.session_id).metadata["run_id"] == step.run.id
    assert [each.type for each in played.runs.events(step.run.id, after=0, limit=10)] == [
        "run.started",
        "stage.started",
    ]


def test_a_pipeline_hands_each_output_on_and_ends_with_the_last(played: Played, database: Database) -> None:
    run = played.start(TWO)
    played.answer(run, "stages.0", "forty-two")
    assert Turns(database).get(W, played.turn(run, "stages.1")).input == "Two: forty-two"
    ended = played.answer(run, "stages.1", "the end")
    assert (ended.status, ended.merged_output, ended.duration_ms) == ("completed", "the end", 0)
    assert [stage.output_text for stage in ended.stages] == ["forty-two", "the end"]
    assert ended.usage.llm_calls == 2
    assert ended.as_json()["cost"] == {"usd": 0.002, "by_agent": {"default": 0.002}}


def test_a_fan_out_waits_for_the_last_answer_whatever_their_order(played: Played) -> None:
    run = played.start(FORK)
    assert played.stages(run) == [("agents.0", "queued"), ("agents.1", "queued")]
    assert played.answer(run, "agents.1", "B").status == "in_progress"
    assert played.answer(run, "agents.0", "A").merged_output == "[anna]\nA\n\n[ben]\nB"


def test_a_step_that_is_repeated_changes_nothing(played: Played) -> None:
    run = played.start(TWO)
    played.answer(run, "stages.0")
    for _ in range(3):
        step = played.advance(run)
        assert step is not None
        assert (step.begun, step.has_news) == ((), False)
    assert played.stages(run) == [("stages.0", "completed"), ("stages.1", "queued")]
    played.answer(run, "stages.1")
    assert played.advance(run) is None


def test_many_processes_that_go_on_with_a_run_begin_each_stage_once(played: Played, database: Database) -> None:
    run = played.start(FORK | {"merge_strategy": "summary"})
    for key in ("agents.0", "agents.1"):
        played.worker.finish(played.turn(run, key), key)
    steps = at_once(lambda _: played.advance(run), range(8))
    assert sum(len(step.begun) for step in steps if step) == 1
    with database.read() as tx:
        assert tx.execute(select(func.count()).where(turns.c.run_id == run.id)).scalar() == 3


def test_a_step_that_is_broken_off_wherever_it_is_leaves_nothing_of_it(played: Played, database: Database) -> None:
    run = played.start(FORK | {"merge_strategy": "summary"})
    for key in ("agents.0", "agents.1"):
        played.worker.finish(played.turn(run, key), key)
    broken = 0
    with breaking(database) as breaker:
        before = (played.stages(run), played.runs.events(run.id, after=0, limit=99))
        while broken < 10_000:
            breaker.left = broken + 1
            try:
                played.advance(run)
            except (SQLAlchemyError, LoomError):
                broken += 1
            else:
                break
            breaker.left = 0
            assert (played.stages(run), played.runs.events(run.id, after=0, limit=99)) == before
    assert broken > 10
    assert played.stages(run)[-1] == ("merge", "queued")


def test_the_end_of_a_stages_turn_makes_its_run_due_and_going_on_makes_it_not(played: Played) -> None:
    run = played.start(TWO)
    assert played.runs.due(now_ms=2**53, limit=9) == ()
    played.worker.finish(played.turn(run, "stages.0"))
    assert played.runs.due(now_ms=2**53, limit=9) == (run.id,)
    played.advance(run)
    assert played.runs.due(now_ms=2**53, limit=9) == ()


def test_a_failed_stage_fails_the_run_after_what_was_asked_beside_it(played: Played) -> None:
    run = played.start(FORK)
    played.worker.die(played.turn(run, "agents.0"), "provider")
    played.advance(run)
    assert played.read(run).status == "in_progress"
    ended = played.answer(run, "agents.1", "B")
    assert (ended.status, ended.reason, ended.failed_stage) == ("failed", "provider", "agents.0")
    assert ended.error is not None
    assert ended.error["stage"] == "agents.0"


def test_a_retry_takes_over_what_is_completed_and_pays_only_for_the_rest(played: Played) -> None:
    run = played.start(FORK)
    played.worker.finish(played.turn(run, "agents.1"), "B")
    played.worker.die(played.turn(run, "agents.0"), "provider")
    played.advance(run)
    step, _ = played.journal.retry(W, run.id, NewRun(), now_ms=NOW)
    again = step.run
    assert (again.retry_of, [turn.agent for turn in step.begun]) == (run.id, ["anna"])
    ended = played.answer(again, "agents.0", "A")
    assert ended.merged_output == "[anna]\nA\n\n[ben]\nB"
    assert [(stage.key, stage.is_reused) for stage in ended.stages] == [("agents.1", True), ("agents.0", False)]
    assert ended.usage.llm_calls == 1
    assert played.read(run).status == "failed"


def test_a_run_that_goes_on_or_is_completed_is_not_retried(played: Played) -> None:
    run = played.start(pipeline("One"))
    with pytest.raises(Conflict, match="did not fail, it is in_progress"):
        played.journal.retry(W, run.id, NewRun(), now_ms=NOW)
    played.answer(run, "stages.0")
    with pytest.raises(Conflict, match="it is completed"):
        played.journal.retry(W, run.id, NewRun(), now_ms=NOW)


def test_the_same_key_gives_the_same_run_and_another_request_is_refused(played: Played) -> None:
    first = played.start(TWO, idempotency_key="k", fingerprint="f")
    played.worker.start(played.turn(first, "stages.0"))
    step, is_replay = played.journal.accept(W, workflow(TWO), NewRun(idempotency_key="k", fingerprint="f"), now_ms=NOW)
    assert (step.run.id, is_replay, step.begun) == (first.id, True, ())
    assert [stage.status for stage in step.run.stages] == ["in_progress"]
    with pytest.raises(Invalid) as caught:
        played.start(TWO, idempotency_key="k", fingerprint="g")
    assert caught.value.slug == "idempotency-mismatch"
    assert played.start(TWO, WorkspaceUser(W, "maria"), idempotency_key="k", fingerprint="g").id != first.id


def test_a_cancelled_run_ends_its_queued_turns_at_once_and_waits_for_those_that_run(
    played: Played, database: Database
) -> None:
    run = played.start(FORK)
    played.worker.start(played.turn(run, "agents.0"))
    done = played.journal.cancel(W, run.id, now_ms=NOW)
    assert done.is_new
    assert sorted(turn.is_finished for turn in done.turns) == [False, True]
    assert played.read(run).status == "in_progress"
    played.worker.heed(played.turn(run, "agents.0"))
    played.advance(run)
    assert (played.read(run).status, played.read(run).reason) == ("cancelled", "interrupt")
    assert not played.journal.cancel(W, run.id, now_ms=NOW).is_new


def test_a_run_that_waits_for_a_person_goes_on_as_the_person_says(played: Played) -> None:
    run = played.start(GATED)
    asking = played.answer(run, "stages.0", "draft")
    assert asking.status == "requires_action"
    assert asking.stages[-1].prompt == "Look: draft"
    assert played.runs.due(now_ms=NOW + 59_999, limit=9) == ()
    step = played.journal.decide(W, run.id, "stages.0", ("revise", "Shorter."), BY, now_ms=NOW)
    [turn] = step.begun
    assert "Shorter." in turn.input
    assert turn.session_id == asking.stages[0].session_id
    played.answer(run, "stages.0.revision.1", "short")
    step = played.journal.decide(W, run.id, "stages.0", ("approve", None), BY, now_ms=NOW)
    assert [turn.input for turn in step.begun] == ["Two: short"]
    with pytest.raises(Conflict, match="decided: approve"):
        played.journal.decide(W, run.id, "stages.0", ("reject", None), BY, now_ms=NOW)
    with pytest.raises(NotFound):
        played.journal.decide(W, run.id, "stages.9", ("reject", None), BY, now_ms=NOW)


def test_an_approval_that_nobody_gives_in_time_is_decided_by_the_file(played: Played) -> None:
    run = played.start(GATED)
    played.answer(run, "stages.0")
    played.now_ms = NOW + 60_000
    assert played.runs.due(now_ms=played.now_ms, limit=9) == (run.id,)
    played.advance(run)
    assert (played.read(run).status, played.read(run).reason) == ("failed", "approval-timeout")


def test_a_deadline_holds_for_every_turn_and_for_the_time_between_them(played: Played, database: Database) -> None:
    run = played.start(GATED, deadline_s=30)
    assert Turns(database).get(W, played.turn(run, "stages.0")).deadline_ms == NOW + 30_000
    played.answer(run, "stages.0")
    played.now_ms = NOW + 30_000
    assert played.runs.due(now_ms=played.now_ms, limit=9) == (run.id,)
    played.advance(run)
    ended = played.read(run)
    assert (ended.status, ended.reason) == ("failed", "deadline")
    assert ended.stages[-1].status == "cancelled"


def test_a_stage_whose_session_is_deleted_fails_its_run(played: Played, database: Database) -> None:
    run = played.start(TWO)
    session_id = played.read(run).stages[0].session_id
    Sessions(database).delete(W, str(session_id))
    assert played.runs.due(now_ms=2**53, limit=9) == (run.id,)
    played.advance(run)
    assert (played.read(run).status, played.read(run).reason) == ("failed", "deleted")


def test_the_end_of_a_run_is_audited_and_reported_with_it(played: Played, database: Database) -> None:
    run = played.start(pipeline("One"), webhook=Webhook("http://there"))
    played.worker.finish(played.turn(run, "stages.0"))
    step = played.advance(run)
    assert step is not None
    assert step.delivery is not None
    [delivery] = Outbox(database).page(W, limit=9, after=None).items
    assert (delivery.id, delivery.run_id) == (step.delivery.id, run.id)
    rows = AuditRows(database).page(W, AuditFilter(), limit=50, after=None).items
    [row] = [each for each in rows if each.entry.action == "run.ended"]
    assert (row.entry.subject, row.entry.status, row.entry.agent) == (run.id, "completed", "flow")


def test_a_deleted_run_takes_the_sessions_of_its_stages_with_it(played: Played, database: Database) -> None:
    run = played.start(TWO)
    session_id = str(played.read(run).stages[0].session_id)
    played.journal.remove(W, run.id, now_ms=NOW)
    for find in (lambda: played.read(run), lambda: Sessions(database).get(W, session_id)):
        with pytest.raises(NotFound):
            find()
    assert played.advance(run) is None
    with database.read() as tx:
        assert tx.execute(select(func.count()).select_from(run_stages)).scalar() == 0


def test_runs_of_others_are_not_there(played: Played) -> None:
    run = played.start(TWO, WorkspaceUser(W, "maria"))
    assert played.read(run, WorkspaceUser(W, "maria")).user == "maria"
    for other in ("other", WorkspaceUser(W, "john")):
        for act in (
            lambda who: played.read(run, who),
            lambda who: played.journal.cancel(who, run.id, now_ms=NOW),
            lambda who: played.journal.retry(who, run.id, NewRun(), now_ms=NOW),
            lambda who: played.journal.remove(who, run.id, now_ms=NOW),
        ):
            with pytest.raises(NotFound):
                act(other)
        assert played.runs.page(other, {}, limit=9, after=None).items == ()
    assert [each.id for each in played.runs.page(W, {}, limit=9, after=None).items] == [run.id]


def test_a_full_or_disabled_workspace_takes_no_run(played: Played, database: Database) -> None:
    few = run_journal(database, LimitSettings(workspace_depth=1))
    few.accept(W, workflow(TWO), NewRun(), now_ms=NOW)
    with pytest.raises(QueueFull):
        few.accept(W, workflow(TWO), NewRun(), now_ms=NOW)
    Workspaces(database).patch(W, {"disabled": True}, now_ms=NOW)
    with pytest.raises(Forbidden):
        played.start(TWO)


def test_the_budget_of_a_run_is_the_smaller_of_the_files_and_the_requests(played: Played) -> None:
    flow = workflow(TWO, budget={"tokens": 100, "usd": 1})
    run = played.journal.accept(W, flow, NewRun(budget={"tokens": 500, "tool_calls": 3}), now_ms=NOW)[0].run
    assert run.budget == {"tokens": 100, "usd": 1, "tool_calls": 3}


def test_a_run_whose_workflow_cannot_be_read_any_more_says_so(played: Played, database: Database) -> None:
    run = played.start(TWO)
    with database.write(lock=WHOLE) as tx:
        tx.execute(workflow_runs.update().values(spec={"type": "dance"}))
    ended = played.answer(run, "stages.0")
    assert (ended.status, ended.reason) == ("failed", "workflow")


def test_turns_know_their_run(played: Played, database: Database) -> None:
    run = played.start(TWO)
    turn: Turn = Turns(database).get(W, played.turn(run, "stages.0"))
    assert (turn.run_id, turn.metadata["stage"]) == (run.id, "stages.0")
    assert isinstance(played.journal, RunJournal)
