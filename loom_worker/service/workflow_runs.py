"""Workflows and their runs, as clients ask for them."""

import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from loom_worker.agents.known import AgentSource
from loom_worker.core import crash_points
from loom_worker.core.errors import Flaw, Invalid, NotFound, Unavailable
from loom_worker.core.text import closest
from loom_worker.core.values.budgets import has_usd
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json, pointer_step
from loom_worker.core.values.pages import Page
from loom_worker.core.values.problems import Problem
from loom_worker.core.values.runs import NewRun, Run, RunDecision
from loom_worker.core.values.spans import TraceSpan
from loom_worker.core.values.tenants import LOCAL, Actor, Tenant, workspace_of
from loom_worker.core.values.workflows import Workflow, agent_ids
from loom_worker.events.log import EventLog
from loom_worker.lanes.lanes import Lanes
from loom_worker.service.allowances import Terms
from loom_worker.service.announcer import Announcer
from loom_worker.service.input_guard import InputGuard
from loom_worker.service.users import SETTLE_S
from loom_worker.service.waiting.reports import WaitReports
from loom_worker.service.waiting.sources import RunEventSource
from loom_worker.service.waiting.waiter import Waiter
from loom_worker.store.database import Database
from loom_worker.store.run_journal import RunJournal
from loom_worker.store.run_steps import RunStep
from loom_worker.store.runs import Runs
from loom_worker.trace.later import span_of_run
from loom_worker.trace.turn_spans import TurnTraces
from loom_worker.workflows.advance import log_step
from loom_worker.workflows.load import LiveWorkflows, faults
from loom_worker.workflows.placeholders import canonical, missing, surplus, variables_of

log = logging.getLogger(__name__)


def _misnamed(workflow: Workflow, new: NewRun) -> Iterator[Flaw]:
    """Report variables that the workflow does not have, and those given twice, as two names can mean the same."""
    unknown, seen = surplus(workflow, new.variables), dict[str, str]()
    for name in new.variables:
        first = seen.setdefault(canonical(name), name)
        if first != name:
            yield _flaw(name, f"is given twice: {first!r} is another name of it")
        elif name in unknown and canonical(name) != "input":
            yield _flaw(name, f"the workflow {workflow.name!r} has no variable {name!r}")


def _flaw(name: str, detail: str) -> Flaw:
    return Flaw(f"/variables/{pointer_step(name)}", detail)


class RunWaits:
    """Adds nothing to runs, whose turns say themselves what they wait for; people who look on are told it."""

    def __init__(self, waits: WaitReports) -> None:
        self._waits = waits

    def with_wait(self, run: Run) -> Run:
        return run

    def in_words(self, run: Run) -> str:
        """What its open stages wait for; NotFound if it was deleted meanwhile."""
        told = []
        for stage in (each for each in run.stages if each.is_open):
            turn = self._waits.turns.get(run.workspace, stage.turn_id) if stage.turn_id else None
            words = self._waits.in_words(turn) if turn else "waiting for a person's approval"
            told.append(f"{stage.name or stage.agent_id}: {words}")
        return "; ".join(told)


class WorkflowRuns:
    """Starts runs, and all that can be asked of them."""

    def __init__(
        self,
        database: Database,
        *,
        journal: RunJournal,
        workflows: LiveWorkflows,
        agents: AgentSource,
        announcer: Announcer,
        terms: Terms,
        events: EventLog,
        lanes: Lanes,
        traces: TurnTraces,
        waits: WaitReports,
    ) -> None:
        self._runs = Runs(database)
        self.waiter: Waiter[Run] = Waiter(RunEventSource(self._runs), events.feed(), RunWaits(waits))
        self._journal = journal
        self._workflows = workflows
        self._agents = agents
        self._announcer = announcer
        self._terms = terms
        self._events = events
        self._lanes = lanes
        self._traces = traces
        self._guard = InputGuard(database, agents)

    def workflows(self) -> tuple[Workflow, ...]:
        """All workflows, by name."""
        return tuple(workflow for _, workflow in sorted(self._workflows.current().workflows.items()))

    def problems(self) -> tuple[Problem, ...]:
        """What cannot be used of the files of workflows, or names agents that are not there."""
        found = self._workflows.current()
        of_agents = (each for workflow in found.workflows.values() for each in self._faults(workflow))
        return (*found.problems, *of_agents)

    def workflow(self, name: str, workspace: str) -> Workflow:
        """The workflow of that name, as the workspace may see it; NotFound, or Invalid if its file has an error."""
        found = self._workflows.current(name)
        if fault := found.fault(name):
            raise Invalid(fault, (Flaw("/workflow", "its file is broken"),), "workflow-broken")
        if name not in found.workflows:
            near = closest(name, found.workflows)
            known = f" Did you mean {near!r}?" if near else ""
            raise NotFound(f"There is no workflow {name!r}.{known}")
        return found.workflows[name].seen_by(workspace)

    def start(self, tenant: Tenant, name: str, new: NewRun) -> tuple[Run, bool]:
        """Accept a run; when this returns it will not be lost.

        Returns:
            The run, and True if it is an earlier one of the same idempotency key.

        Raises:
            NotFound: there is no such workflow.
            Invalid: its file has an error, it names an agent that is not there, or the variables are not its.
            QueueFull, Forbidden, Unavailable: nothing was accepted.
        """
        # What was accepted once is accepted again: the workflow's file may have changed since.
        if (earlier := self._journal.replayed(tenant, new)) is not None:
            return earlier, True
        workflow = self.workflow(name, workspace_of(tenant))
        self._check(workflow, new)
        names = [each for _, each in agent_ids(workflow.pattern)]
        self._terms.check_affords(tenant, "", names[0], "", workflow.budget, new.budget)
        places = {f"variables/{pointer_step(each)}": each for each in new.variables}
        given: Json = {place: new.variables[each] for place, each in places.items()} | {"metadata": new.metadata}
        kept = self._guard.kept(tenant, given, set(names), key_id=new.key_id)
        variables = variables_of(workflow, {each: kept[place] for place, each in places.items()})
        new = replace(new, variables=variables, metadata=kept["metadata"])
        crash_points.reached("web.received")
        step, is_replay = self._journal.accept(tenant, workflow, new, now_ms=now_ms())
        return self._accepted(step, is_replay=is_replay), is_replay

    def retry(self, tenant: Tenant, run_id: str, asked: NewRun) -> tuple[Run, bool]:
        """Accept a run that goes on from the failed stage of another one.

        Raises:
            NotFound: the tenant has no such run.
            Conflict: it did not fail.
            Invalid, QueueFull, Forbidden, Unavailable: nothing was accepted.
        """
        step, is_replay = self._journal.retry(tenant, run_id, asked, now_ms=now_ms())
        return self._accepted(step, is_replay=is_replay), is_replay

    def run(self, tenant: Tenant, run_id: str) -> Run:
        """Return a run, or raise NotFound."""
        return self._runs.get(tenant, run_id)

    def trace(self, tenant: Tenant, run_id: str) -> tuple[TraceSpan, ...]:
        """The spans of a run and of all its turns, in the order in which they began; or raise NotFound."""
        run = self._runs.get(tenant, run_id)
        own = span_of_run(run)
        spans = {} if own is None else {own.span_id: own}
        for turn_id in self._runs.turns_of(run):
            with suppress(NotFound):  # deleted with its session
                spans |= {span.span_id: span for span in self._traces.of_turn(tenant, turn_id)}
        return tuple(sorted(spans.values(), key=lambda span: span.start_us))

    def runs(
        self, tenant: Tenant, *, workflow: str | None, status: str | None, limit: int, after: str | None
    ) -> Page[Run]:
        """List runs, the newest first; a filter that is None lets all pass."""
        filters = {"workflow": workflow, "status": status}
        where = {name: value for name, value in filters.items() if value is not None}
        return self._runs.page(tenant, where, limit=limit, after=after)

    def cancel(self, tenant: Tenant, run_id: str) -> Run:
        """Cancel a run with all turns of it, or raise NotFound; one that has ended is returned as it is."""
        done = self._journal.cancel(tenant, run_id, now_ms=now_ms())
        if done.is_new:
            log.info("run.cancel", extra={"run": run_id})
            for turn in done.turns:
                if turn.is_finished:
                    self._announcer.ended(turn)
                else:
                    self._announcer.alert(turn.lane)
            self._tell(done.step)
        return self._runs.get(tenant, run_id)

    def decide(
        self, tenant: Tenant, run_id: str, stage: str, decision: RunDecision, comment: str | None, *, by: Actor
    ) -> Run:
        """Take a person's decision on a stage's output.

        Raises:
            NotFound: the tenant has no such run, or it asks nothing of that name.
            Conflict: it was decided already, or the run has ended.
            Invalid: a guardrail of an agent of the run blocks the comment.
        """
        agents = {each.agent_id for each in self._runs.get(tenant, run_id).stages}
        comment = self._guard.kept(tenant, {"reason": comment}, agents, key_id=by.key_id)["reason"]
        step = self._journal.decide(tenant, run_id, stage, (decision, comment), by, now_ms=now_ms())
        self._tell(step)
        return step.run

    def delete(self, tenant: Tenant, run_id: str, *, by: Actor = LOCAL) -> None:
        """Delete a run with the sessions of its stages, or raise NotFound; nothing sends their text from now on."""
        deleted = self._journal.remove(tenant, run_id, by, now_ms=now_ms())
        time.sleep(SETTLE_S)
        try:
            for each in deleted:
                self._lanes.forget(each.lane)
                self._events.forget(each.turns)
        except Unavailable:  # the sweep removes the event logs
            return

    def turn_ended(self, run_id: str | None) -> None:
        """A turn has ended without a worker: its run goes on, if it is a stage of one."""
        if run_id is not None and (step := self._journal.advance(run_id, now_ms=now_ms())) is not None:
            self._tell(step)

    def _accepted(self, step: RunStep, *, is_replay: bool) -> Run:
        crash_points.reached("web.committed")
        if not is_replay:
            log.info("run.accepted", extra={"run": step.run.id, "workflow": step.run.workflow})
            self._tell(step)
        crash_points.reached("web.answering")
        return step.run

    def _tell(self, step: RunStep) -> None:
        log_step(step)
        self._announcer.went_on(step)

    def _check(self, workflow: Workflow, new: NewRun) -> None:
        """Raise Invalid, with every flaw, for a run that could not be carried out."""
        broken = tuple(self._faults(workflow))
        if broken:
            flaws = tuple(Flaw("/workflow", str(each)) for each in broken)
            raise Invalid(f"The workflow {workflow.name!r} cannot run; correct its file.", flaws)
        flaws = tuple(Flaw(f"/variables/{each.field}", str(each)) for each in missing(workflow, new.variables))
        flaws += tuple(_misnamed(workflow, new))
        if flaws:
            raise Invalid(f"The variables are not those of the workflow {workflow.name!r}.", flaws)
        if has_usd(workflow.budget, new.budget):
            self._check_prices(workflow)

    def _check_prices(self, workflow: Workflow) -> None:
        for agent in dict.fromkeys(name for _, name in agent_ids(workflow.pattern)):
            if not self._terms.has_price(agent, None):
                raise Invalid(
                    f"The budget of this run is in USD, and Loom does not know the price of the model of {agent!r}: a "
                    "budget in tokens can be kept, another model named, or its price added to the file of LOOM_PRICES.",
                    (Flaw("/budget/usd", "the model has no known price"),),
                    "model-without-price",
                )

    def _faults(self, workflow: Workflow) -> tuple[Problem, ...]:
        return tuple(faults(workflow, self._agents.current()))
