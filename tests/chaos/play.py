"""One scenario from its first process to its verdict."""

import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.chaos import collector, equipment, model_log, receiver, rest, starved
from tests.chaos.checker import check, figures
from tests.chaos.client import Clients
from tests.chaos.nemeses import DYING_S, Nemeses, Schedule
from tests.chaos.records import Evidence, Injection
from tests.chaos.recovery import Recoveries
from tests.chaos.run_client import RunClients
from tests.chaos.run_plan import RunJob
from tests.chaos.run_records import RunWitness
from tests.chaos.verdict import Violation
from tests.chaos.workload import Sessions, count
from tests.chaos.world import LATE, Plan, World
from tests.support.until import until


@dataclass(frozen=True)
class Scenario:
    """What is asked, and what is done meanwhile."""

    name: str
    plan: Plan
    sessions: Sessions
    deeds: tuple[str, ...] = ()
    apart_s: float = 0.3
    """Least time between two deeds."""
    points: tuple[str, ...] = ()
    """Crash points that must be hit."""
    runs: tuple[RunJob, ...] = ()
    """Of workflows."""
    depth: int = 6
    """Unfinished turns of a session at most."""
    is_queued_first: bool = False
    """The workers start only after all turns are accepted."""
    timeout_s: float = 600.0
    """For all turns to end, on a machine that is busy with other things as well."""
    rest_s: float = 180.0
    is_patient: bool = True
    """Waits at the end until Celery has given back what killed workers had."""


@dataclass(frozen=True)
class Outcome:
    """What came of it."""

    scenario: Scenario
    evidence: Evidence
    violations: tuple[Violation, ...]
    exits: tuple[str, ...]
    """Processes that ended though nobody had asked for it."""
    left_out: tuple[str, ...]
    """Deeds that could not be done here, and why."""
    recoveries_s: tuple[float, ...]
    numbers: dict[str, float] = field(default_factory=dict)
    folder: Path = Path()

    @property
    def injected(self) -> Counter[str]:
        """How often what was done."""
        return Counter(
            f"{injection.kind} of the {injection.target}" if injection.kind == "full" else injection.kind
            for injection in self.evidence.injections
        )

    def discard(self) -> None:
        """Delete all files."""
        shutil.rmtree(self.folder, ignore_errors=True)


def play(scenario: Scenario, folder: Path | None = None) -> Outcome:
    """Run it; its files stay."""
    began_s = time.monotonic()
    with World(scenario.plan, folder) as world:
        clients, recoveries = Clients(world.url, world.hook_url, depth=scenario.depth), Recoveries(world)
        run_clients = RunClients(clients)
        ready_s = time.monotonic() - began_s
        is_done = _run(scenario, world, run_clients, clients, recoveries)
        worked_s = time.monotonic() - began_s - ready_s
        final = rest.Rest(world, clients)
        left = final.come(scenario.rest_s if is_done else 1.0, is_patient=scenario.is_patient)
        rested_s = time.monotonic() - began_s - ready_s - worked_s
        left += (*world.stop(), *final.files())
        exits = tuple(_explain(world))
    evidence = _evidence(world, clients, left, scenario, run_clients.log.witness())
    log = clients.log
    numbers = {
        **figures(evidence),
        "seconds": time.monotonic() - began_s,
        "ready_s": ready_s,
        "worked_s": worked_s,
        "rested_s": rested_s,
        "retries": log.retries,
        "abandoned": log.abandoned,
        "unpaid": log.unpaid + log.unpaid_runs,
        "replayed": final.replayed,
    }
    own = tuple(Violation("client", text) for text in log.refused)
    own += tuple(Violation("exit", text) for text in exits)
    asked = {call.body["model"] for call in evidence.model_calls if call.is_complete}
    idle = [name for name in scenario.plan.fallbacks if name not in asked]
    own += tuple(Violation("plan", f"{name} stood in for nobody") for name in idle)
    found = (*check(evidence), *own)
    return Outcome(
        scenario, evidence, found, exits, tuple(world.left_out), tuple(recoveries.seconds), numbers, world.folder
    )


def _run(scenario: Scenario, world: World, run_clients: RunClients, clients: Clients, recoveries: Recoveries) -> bool:
    """True if all turns and runs ended."""
    total = count(scenario.sessions)
    if not scenario.is_queued_first:
        world.start_workers()
    recoveries.start()
    clients.begin(scenario.sessions)
    run_clients.begin(scenario.runs)
    if scenario.is_queued_first:
        until(lambda: len(clients.log.submitted) >= total - clients.log.lost, scenario.timeout_s, "all is queued")
        world.start_workers()
    nemeses = Nemeses(world, recoveries, seed=scenario.plan.seed)
    schedule = Schedule(nemeses, list(scenario.deeds), seed=scenario.plan.seed, apart_s=scenario.apart_s)

    def progress() -> float:
        done, log = len(clients.log.polled) + clients.log.runs_done, clients.log
        return done / max(1, total - log.lost + len(scenario.runs))

    schedule.run(progress, scenario.timeout_s)
    is_done = clients.wait(scenario.timeout_s)
    recoveries.stop()
    return is_done


def _explain(world: World) -> Iterator[str]:
    """Find a reason for each process that ended: what we did, a crash point, a turn that kills; yield the others."""
    crashed = rest.crashes(world.home)
    world.injections += [Injection("crash", point, at_s, at_s + DYING_S) for point, at_s in crashed]
    killed = [each for each in world.injections if each.kind in ("kill", "tree", "broker", "database", "crash")]
    for ended in world.crew.ended:
        if ended.status == -9 and not any(abs(each.at_s - ended.at_s) < 0.5 for each in killed):
            world.injections.append(Injection("kill", f"{ended.name} (by its turn)", ended.at_s, ended.at_s))
        elif ended.status not in (0, -9, -15):
            yield f"{ended.name} ({ended.pid}) ended with status {ended.status}"


def _evidence(world: World, clients: Clients, left: tuple[str, ...], scenario: Scenario, runs: RunWitness) -> Evidence:
    lost = starved.read(world.folder / "logs", lease_s=Evidence.lease_s)
    return Evidence(
        submitted=tuple(clients.log.submitted),
        polled=tuple(clients.log.polled),
        model_calls=model_log.read(world.model_log),
        hooks=receiver.read(world.hook_log),
        effects=equipment.read(world.effects),
        injections=tuple(sorted((*world.injections, *lost), key=lambda each: each.at_s)),
        home=world.home,
        leftovers=left,
        budget_tokens=world.budget_tokens,
        planned_points=scenario.points,
        memory=world.memory,
        embeds="embeddings" in world.plan.memory,
        agent_budgets=world.agent_budgets,
        decided=tuple(clients.log.decided),
        read=tuple(clients.log.read),
        runs=runs,
        exports=tuple(collector.read(world.trace_log)),
        most_trace_messages=world.most_trace_messages,
        deaths={each.pid: each.at_s for each in world.crew.ended if not each.name.startswith(LATE)},
    )


def with_mutant(scenario: Scenario, name: str) -> Scenario:
    """The same, with a seeded bug (or several, with commas) in every process of Loom's."""
    return replace(scenario, name=f"mutant {name}", plan=replace(scenario.plan, mutant=name))
