"""A run with workflows, made as Loom makes them, whose agents answer as the harness' model does."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from loom_worker.core.settings import LimitSettings
from loom_worker.core.values.runs import NewRun, RunStage
from loom_worker.core.values.runs import Run as WorkflowRun
from loom_worker.core.values.tenants import Actor
from loom_worker.core.values.traces import TurnTrace
from loom_worker.core.values.turns import Ending
from loom_worker.core.values.webhooks import Webhook
from loom_worker.core.values.workflows import Workflow
from loom_worker.store.outbox import Outbox
from loom_worker.store.run_steps import RunStep
from loom_worker.store.runs import Runs
from loom_worker.trace.later import of_attempt
from loom_worker.turn.state import TurnState
from loom_worker.workflows import load
from tests.chaos import workflow_files
from tests.chaos.records import Hook
from tests.chaos.run_plan import RunJob
from tests.chaos.run_records import RunCancelled, RunDecided, RunPolled, RunRead, RunStarted
from tests.chaos.unit.made import HOOK_URL, MOMENT, NOW_MS, TRACEPARENT, WORKSPACE, Run
from tests.support.runs import run_journal

CHAIN = RunJob(
    "R00001",
    "chain",
    {
        "begin": "Begin.",
        "draft": 'ends={"n":"one"} tools=charge',
        "mend": 'ends={"n":2}',
        "check": "ends=ready",
        "look": "yesif=ready",
        "redo": "ends=ready",
        "sign": "words=3",
        "last": "words=2",
    },
    decisions=("revise", "approve"),
    hook="ok",
)
FORK = RunJob("R00002", "fork-first", {"ask": "words=2"})
REJECTED = replace(CHAIN, name="R00003", ends="rejected", decisions=("reject",), hook="")


@cache
def workflows() -> dict[str, Workflow]:
    """Those of the harness, as Loom reads them."""
    with TemporaryDirectory() as folder:
        workflow_files.write(Path(folder) / "workflows")
        return dict(load.load(Path(folder) / "workflows").workflows)


def workflow_run(run: Run, job: RunJob, *, cancels: bool = False) -> str:
    """A run from its acceptance to its end, which its client waits for and reads; its id.

    Args:
        cancels: its client cancels it before any of its stages is done.
    """
    hook = Webhook(HOOK_URL) if job.hook else None
    new = NewRun(
        dict(job.variables), hook, traceparent=TRACEPARENT, trace=TurnTrace(NOW_MS * 1000), metadata={"name": job.name}
    )
    journal = run_journal(run.database, LimitSettings())
    step, _ = journal.accept(WORKSPACE, workflows()[job.workflow], new, now_ms=NOW_MS)
    run.runs.started.append(RunStarted(step.run.id, job, f"run-{job.name}", (step.run.id,)))
    if cancels:
        journal.cancel(WORKSPACE, step.run.id, now_ms=NOW_MS + 90)
        run.runs.cancelled.append(RunCancelled(step.run.id, (NOW_MS + 90) / 1000))
    return _followed(run, job, step.run.id)


def retried(run: Run, job: RunJob, run_id: str) -> str:
    """The run that goes on for one that failed, from its acceptance to its end."""
    journal = run_journal(run.database, LimitSettings())
    step, _ = journal.retry(WORKSPACE, run_id, NewRun(traceparent=TRACEPARENT), now_ms=NOW_MS + 200)
    run.runs.started.append(RunStarted(step.run.id, job, f"again-{job.name}", (step.run.id,), run_id))
    return _followed(run, job, step.run.id)


def _followed(run: Run, job: RunJob, run_id: str) -> str:
    journal, said = run_journal(run.database, LimitSettings()), list(job.decisions)
    while not (known := Runs(run.database).get(WORKSPACE, run_id)).is_finished:
        open_stages = [stage for stage in known.stages if stage.is_open]
        for stage in open_stages:
            if stage.role == "approval":
                _decided(run, known, stage, said.pop(0) if said else "approve")
            else:
                _answered(run, stage)
        step = journal.advance(run_id, now_ms=NOW_MS + 100)
        assert step is not None or Runs(run.database).get(WORKSPACE, run_id).is_finished
        _told(run, step)
    _seen(run, known)
    return run_id


def _answered(run: Run, stage: RunStage) -> None:
    """A stage's turn, from its claim to its end."""
    lane = run.row("SELECT lane FROM turns WHERE id = ?", stage.turn_id)[0]
    work = run.asked(TurnState.begin(run.claimed(lane)).matched("Context.", "", ()))
    while work.open_calls:
        work = run.asked(run.ran_tools(work))
    run.ended(work, Ending("completed", output_text=work.said))


def _decided(run: Run, known: WorkflowRun, stage: RunStage, verdict: str) -> None:
    journal = run_journal(run.database, LimitSettings())
    comment = f"{known.id} words=3" if verdict == "revise" else None
    said = (verdict, comment)
    step = journal.decide(WORKSPACE, known.id, stage.key, said, Actor("key_1"), now_ms=NOW_MS + 90)  # type: ignore[arg-type]
    run.runs.decided.append(RunDecided(known.id, stage.key, verdict, (200,), 409))  # type: ignore[arg-type]
    _told(run, step)


def _told(run: Run, step: RunStep | None) -> None:
    """The webhook of a run that has ended is delivered."""
    delivery = None if step is None else step.delivery
    if delivery is None:
        return
    tried = replace(delivery, status="delivered", attempts=1, next_ms=None)
    Outbox(run.database).save(tried, of_attempt(tried, MOMENT, error=None))
    run.hooks.append(Hook(delivery.id, delivery.run_id or "", delivery.body.encode(), run.now_s(), True, 204))


def _seen(run: Run, known: WorkflowRun) -> None:
    shown = known.as_json()
    run.runs.polled.append(RunPolled(known.id, json.dumps(shown).encode(), is_last=True))
    events = Runs(run.database).events(known.id, after=0, limit=1000)
    *told, last = [(event.id, event.type, json.loads(json.dumps(event.data))) for event in events]
    run.runs.read.append(RunRead(known.id, (*told, (*last[:2], json.loads(json.dumps(shown)))), 0, ()))
