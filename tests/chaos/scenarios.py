"""What a run consists of, by form. Every figure that is not plain says why it is what it is."""

from collections.abc import Mapping
from dataclasses import replace

from loom_worker.core.crash_points import POINTS
from tests.chaos.agent_plan import plan_agents
from tests.chaos.play import Scenario, with_mutant
from tests.chaos.run_plan import RunMix, plan_runs
from tests.chaos.workload import Mix, plan
from tests.chaos.world import FULL_MEMORY, SHORT_MEMORY, Plan

PATIENT_ATTEMPTS = {"LOOM_MAX_ATTEMPTS": "20"}
"""Where kills come every other second, a turn may meet three in a row that are none of its fault."""
ALL_FAULTS = (
    "rate429,rate429_absurd,overloaded529,server500,drip,reset,cut,early_end,error_event,garbage,bad_tool_json,"
    "unknown_tool,fifty_calls"
)
PASSING_FAULTS = ("--fault-rate", "0.01", "--faults", "rate429,overloaded529,drip,reset,cut,error_event")
"""Those that hardly make a turn fail: a run has several, and one that fails takes it along."""
WITH_FAULTS = ("--fault-rate", "0.02", "--faults", ALL_FAULTS, "--latency-s", "0.02")

HANDLED = {"tools=refund": 1.5, "tools=report,charge:0.4": 1}
"""What a person decides on, and what is too large for a conversation; runs of children long enough to be met."""
TALKS = {
    "tools=ask_agent@ann >tools=ask_agent@ben": 1,
    "tools=delegate@ann,delegate@ben": 1,
    "tools=send_agent@ann,send_agent@ann tools=delegate@ann >tools=receive_messages": 2,
}
"""So that processes die while agents wait for each other."""
SWEPT = tuple(point for point in POINTS if not point.startswith(("schedule.", "form.", "web.file")))
"""Nothing is due in these plans, and no form is asked for; tests/unit/service/test_schedules.py and
tests/journeys/test_shapes.py die at the others."""
PROCESSES = ("kill", "kill", "kill", "kill", "tree", "term")
BROKER = ("broker", "flush", "swallow", "freeze")
SERVER = ("database", "database", "pooler")
TURNS = ("stop", "duplicate", "race", "hooks", "collector")
HANDS = ("tools", "tools", "tools", "blackout")


def _varied(mix: Mix) -> Mix:
    """With judges and budgets."""
    return replace(mix, judged=0.34, thrifty=0.2, budgeted=0.1)


def sweep(seed: int, *, times: int = 1, turns: int = 60) -> Scenario:
    """Die at every crash point, so many times each."""
    points = ",".join(f"{point}*{times}" for point in SWEPT)
    says = {"plain": 4, "tools=note,charge": 3, "tools=note,note": 3, "slow=0.3": 2, **HANDLED}
    return Scenario(
        "sweep",
        Plan(seed=seed, environ={**PATIENT_ATTEMPTS, "LOOM_CRASHPOINTS": points}),
        {
            **plan(turns, sessions=8, seed=seed, mix=_varied(Mix(says, webhooks=0.4))),
            **plan_agents(12 * times, sessions=4, seed=seed, mix=Mix(TALKS)),
        },
        runs=plan_runs(8, seed=seed),
        points=SWEPT,
        is_patient=False,
    )


def smoke(seed: int) -> Scenario:
    """The sweep with kills, a flush and repeated messages in it."""
    swept = sweep(seed, turns=64)
    deeds = ("kill", "kill", "tools", "tree", "flush", "duplicate", "blackout")
    return Scenario(**{**vars(swept), "name": "smoke", "deeds": deeds, "timeout_s": 240.0, "rest_s": 120.0})


def workflows(seed: int, *, runs: int, deeds: tuple[str, ...], apart_s: float = 0.8) -> Scenario:
    """Runs of every type beside some turns, while all that serves them dies."""
    return Scenario(
        "workflows",
        Plan(seed=seed, model=(*PASSING_FAULTS, "--latency-s", "0.02"), environ=PATIENT_ATTEMPTS),
        plan(20, sessions=4, seed=seed),
        runs=plan_runs(runs, seed=seed),
        deeds=deeds,
        apart_s=apart_s,
        is_patient=False,
        timeout_s=600.0 + runs,
    )


def agents(seed: int, *, turns: int, deeds: tuple[str, ...], apart_s: float = 0.8) -> Scenario:
    """Agents that ask each other and send each other messages, while all that serves them dies."""
    return Scenario(
        "agents",
        Plan(seed=seed, model=(*PASSING_FAULTS, "--latency-s", "0.02"), environ=PATIENT_ATTEMPTS),
        {
            **plan(10, sessions=2, seed=seed, mix=Mix({"plain": 1})),
            **plan_agents(turns, sessions=max(12, turns // 6), seed=seed),
        },
        deeds=deeds,
        apart_s=apart_s,
        is_patient=False,
        timeout_s=600.0 + turns,
    )


def storm(seed: int, *, turns: int, deeds: tuple[str, ...], apart_s: float = 0.7, name: str = "storm") -> Scenario:
    """Everything that may happen to processes, broker, database, model and receiver."""
    return Scenario(
        name,
        Plan(seed=seed, has_small_disk=True, model=WITH_FAULTS, environ=PATIENT_ATTEMPTS),
        plan(turns, sessions=24, seed=seed, mix=_varied(Mix(poison=1))),
        deeds=deeds,
        apart_s=apart_s,
        timeout_s=600.0 + turns / 8,
    )


def two_makers(seed: int, *, turns: int, deeds: tuple[str, ...], apart_s: float = 0.8) -> Scenario:
    """The first models' maker is down half of the time, in four ways, and another maker's model stands in for them."""
    return Scenario(
        "two makers",
        Plan(
            seed=seed,
            model=("--down-at-times", *PASSING_FAULTS, "--latency-s", "0.02"),
            environ={**PATIENT_ATTEMPTS, "LOOM_LLM_TIMEOUT_S": "5"},  # of which a maker that hangs takes all
            fallbacks=("openai/gpt-6-luna",),
        ),
        plan(turns, sessions=16, seed=seed, mix=_varied(Mix())),
        deeds=deeds,
        apart_s=apart_s,
        is_patient=False,
        timeout_s=600.0 + turns / 8,
    )


def on_server(seed: int, *, turns: int, deeds: tuple[str, ...], apart_s: float = 1.5) -> Scenario:
    """The store on a PostgreSQL behind a pooler: both die, too, and all that writes there."""
    return Scenario(
        "on server",
        Plan(
            seed=seed,
            is_on_server=True,
            model=(*PASSING_FAULTS, "--latency-s", "0.02"),
            environ=PATIENT_ATTEMPTS,
        ),
        {
            **plan(turns, sessions=16, seed=seed, mix=_varied(Mix())),
            **plan_agents(turns // 5, sessions=4, seed=seed, mix=Mix(TALKS)),
        },
        runs=plan_runs(turns // 10, seed=seed),
        deeds=deeds,
        apart_s=apart_s,
        is_patient=False,
        timeout_s=600.0 + turns / 8,
    )


def forgetful(seed: int, *, turns: int, deeds: tuple[str, ...]) -> Scenario:
    """A broker without any persistence, killed and emptied."""
    return Scenario(
        "no persistence",
        Plan(seed=seed, keeps_broker_data=False, environ=PATIENT_ATTEMPTS),
        plan(turns, sessions=16, seed=seed, mix=_varied(Mix())),
        deeds=deeds,
        apart_s=1.5,
        is_patient=False,
    )


def queued_first(seed: int, *, turns: int = 1_100) -> Scenario:
    """All turns are accepted before the first worker starts; nothing is compressed, so sessions fill the window."""
    return Scenario(
        "queued first",
        Plan(seed=seed, model=("--latency-s", "0.01"), memory=FULL_MEMORY),
        plan(turns, sessions=16, seed=seed, mix=Mix({"plain": 1}, webhooks=0.05, keyless=0.0)),
        deeds=("kill", "flush"),
        depth=100,  # the most that a lane takes
        is_queued_first=True,
        is_patient=False,
        timeout_s=600.0,
    )


def race(seed: int) -> Scenario:
    """Four workers, and every wake-up is sent four times."""
    return Scenario(
        "race",
        Plan(seed=seed, turn_workers=4),
        plan(100, sessions=3, seed=seed, mix=Mix({"plain": 4, "tools=note,charge": 1}, webhooks=0.1, judged=0.34)),
        deeds=("race",) * 12 + ("duplicate",) * 4 + ("kill",),
        apart_s=0.2,
        depth=20,
        is_patient=False,
    )


def full_slots(seed: int) -> Scenario:
    """More turns wait for tools than there are slots, of turns or of tools."""
    return Scenario(
        "full slots",
        Plan(seed=seed, environ={"LOOM_WORKER_CONCURRENCY": "2"}),
        plan(36, sessions=18, seed=seed, mix=_varied(Mix({"tools=pause:1": 3, "tools=pause:0.5,charge": 1}))),
        deeds=("kill", "duplicate"),
        is_patient=False,
    )


def cancels(seed: int, *, turns: int = 120) -> Scenario:
    """Clients cancel turns in all three ways, or overrule them with the next, while workers die."""
    says = {"plain": 2, "slow=0.8": 3, "tools=pause:0.5": 2, "tools=note,charge": 2}
    half = turns // 2
    cancelled = plan(half, sessions=6, seed=seed, mix=_varied(Mix(says, cancels=0.4)))
    overruled = plan(turns - half, sessions=6, seed=seed, mix=_varied(Mix(says, overruling=0.3)), first=half)
    return Scenario(
        "cancels",
        Plan(seed=seed, environ=PATIENT_ATTEMPTS),
        {**cancelled, **overruled},
        deeds=("kill", "kill", "kill", "flush", "stop", "broker"),
        apart_s=1.0,
        is_patient=False,
    )


def mutants(seed: int) -> Mapping[str, Scenario]:
    """For each seeded bug the shortest run that must notice it."""
    plain = {"plain": 1}
    asking = Mix({"tools=refund": 1}, opposed=0.7)
    asked = {
        "no_fence": (plan(60, sessions=12, seed=seed, mix=Mix({"slow=1.5": 1})), ("zombie",) * 2, 7.0),
        "wrong_order": (plan(40, sessions=2, seed=seed, mix=Mix(plain)), ("kill",), 0.1),
        "lost_outbox": (plan(30, sessions=6, seed=seed, mix=Mix(plain, webhooks=0.6)), ("kill",), 0.1),
        "no_idempotency": (plan(30, sessions=6, seed=seed, mix=Mix(plain, keyless=0, twice=0.5)), ("kill",), 0.1),
        "repeated_tool": (
            plan(40, sessions=10, seed=seed, mix=Mix({"tools=charge,pause:0.5": 1})),
            ("duplicate",) * 10,
            0.3,
        ),
        "no_budget": (plan(40, sessions=2, seed=seed, mix=Mix({"words=400": 1}, webhooks=0)), ("kill",), 0.1),
        "orphaned_child": (
            plan(40, sessions=10, seed=seed, mix=Mix({"tools=charge:1.5": 1}, webhooks=0)),
            ("tools",) * 3,
            1.5,
        ),
        **{
            name: (plan(24, sessions=8, seed=seed, mix=asking), ("kill",), 0.1)
            for name in ("deaf_ear", "second_thought")
        },
        "cut_result": (plan(24, sessions=6, seed=seed, mix=Mix({"tools=report": 1})), ("kill",), 0.1),
        "forgotten_verdict": (plan(24, sessions=6, seed=seed, mix=Mix(plain, webhooks=0, judged=1.0)), ("kill",), 0.1),
        "generous_refund": (plan(24, sessions=6, seed=seed, mix=Mix(plain, webhooks=0, thrifty=1.0)), ("kill",), 0.1),
        "forgotten_run": (
            plan(36, sessions=12, seed=seed, mix=Mix({"slow=1.5": 1}, webhooks=0)),
            ("owner",) * 3,
            1.5,
        ),
        **dict.fromkeys(
            ("memory_hole", "forgotten_fact", "repeated_summary"),
            (plan(40, sessions=4, seed=seed, mix=Mix(plain, webhooks=0)), ("kill",), 0.1),
        ),
    }
    makers = replace(two_makers(seed, turns=24, deeds=("kill",)), timeout_s=40, rest_s=2)
    planted = {**_of_runs(seed), **_of_agents(seed), "other_price": with_mutant(makers, "other_price")}
    return planted | {
        name: with_mutant(
            Scenario(
                name,
                Plan(seed=seed, memory=FULL_MEMORY if name == "no_budget" else SHORT_MEMORY),
                turns,
                deeds,
                apart_s=apart_s,
                timeout_s=40,
                rest_s=2,
                is_patient=False,
            ),
            name,
        )
        for name, (turns, deeds, apart_s) in asked.items()
    }


def _of_runs(seed: int) -> dict[str, Scenario]:
    """The same for bugs in runs of workflows."""
    side_by_side = ("fork-concatenate", "fork-first", "poll-shared", "fork-best", "talk")
    asked = {
        "doubled_stage": RunMix(),
        "lost_due_mark": RunMix(cancelled=0, read=0),
        "fastest_first": RunMix(only=side_by_side, cancelled=0),
        "forgetful_retry": RunMix(only=("chain",), cancelled=0.5),
        "deaf_run": RunMix(only=("chain", "told-all", "again"), cancelled=1.0),
        "unread_check": RunMix(only=("chain",), cancelled=0),
        "silent_run": RunMix(only=("desk",), webhooks=1.0, cancelled=0),
    }
    turns = plan(4, sessions=2, seed=seed, mix=Mix({"plain": 1}, webhooks=0))
    return {
        name: with_mutant(
            Scenario(
                name,
                Plan(seed=seed),
                turns,
                ("kill",),
                runs=plan_runs(20, seed=seed, mix=mix),
                timeout_s=15 if name == "lost_due_mark" else 40,
                rest_s=2,
                is_patient=False,
            ),
            name,
        )
        for name, mix in asked.items()
    }


def _of_agents(seed: int) -> dict[str, Scenario]:
    """The same for bugs in what agents do together."""
    read = "tools=send_agent@ann tools=delegate@ann,delegate@ann >tools=receive_messages"
    asked = {
        "doubled_child": Mix({"tools=delegate@ann,delegate@ben": 1}, webhooks=0),
        "deaf_parent": Mix({"tools=ask_agent@ann": 1}, webhooks=0),
        "untaken_message": Mix({read: 1}, webhooks=0),
        "generous_asker": Mix({"tools=report tools=delegate@ann": 1}, webhooks=0),
        "forgotten_child": Mix({"tools=delegate@ann >slow=4": 1}, webhooks=0, cancels=1.0),
    }
    return {
        name: with_mutant(
            Scenario(
                name,
                Plan(seed=seed),
                plan_agents(16, sessions=8, seed=seed, mix=mix),
                ("kill",),
                timeout_s=12 if name == "deaf_parent" else 40,
                rest_s=4,
                is_patient=False,
            ),
            name,
        )
        for name, mix in asked.items()
    }


def smoke_mutant(seed: int, names: str) -> Scenario:
    """Several seeded bugs at once, whose traces do not hide each other."""
    turns = plan(50, sessions=3, seed=seed, mix=Mix({"words=400": 1}, webhooks=0.5))
    world = Plan(seed=seed, memory=FULL_MEMORY)
    return with_mutant(Scenario("", world, turns, ("kill",), timeout_s=60, rest_s=1, is_patient=False), names)


def of_form(form: str, *, seed: int, turns: int, has_server: bool) -> list[Scenario]:
    """The scenarios of a form: smoke, short or long.

    Args:
        turns: of the storm.
        has_server: there is a PostgreSQL for a store.
    """
    if form == "smoke":
        return [smoke(seed)]
    others = [race(seed), full_slots(seed), queued_first(seed), cancels(seed)]
    if form == "short":
        deeds: tuple[str, ...] = (*PROCESSES * 3, *BROKER, *TURNS, *HANDS, "stop", "duplicate", "lock", "full", "clock")
        stored: tuple[str, ...] = (*SERVER * 2, "kill", "kill", "tree", "blackout", "flush")
        lossy: tuple[str, ...] = ("broker", "broker", "flush", "kill", "kill", "tree")
        mixed: tuple[str, ...] = (*PROCESSES, *BROKER, *TURNS[:2], "kill", "kill", "web", "web", "tools", "blackout")
        return [
            sweep(seed),
            storm(seed, turns=turns, deeds=deeds),
            forgetful(seed, turns=150, deeds=lossy),
            two_makers(seed, turns=40, deeds=("kill",) * 4),
            *([on_server(seed, turns=60, deeds=stored)] if has_server else []),
            workflows(seed, runs=60, deeds=mixed),
            agents(seed, turns=60, deeds=mixed),
            *others,
        ]
    deeds = (
        *("kill",) * 300,
        *HANDS * 3,
        *("tree",) * 12,
        *("broker",) * 6,
        *("term",) * 10,
        *("flush", "freeze", "clock", "hooks") * 3,
        *("swallow", "stop", "lock", "full") * 2,
        *("duplicate", "race") * 10,
    )
    lossy = ("broker", "flush", "kill", "tree", "kill") * 3
    mixed = (
        *("kill",) * 40,
        *(*("web",) * 2, "tree", "tools", "blackout", "term", "broker", "flush", "duplicate", "freeze") * 4,
        *("swallow", "stop", "lock", "hooks", "race") * 2,
    )
    return [
        sweep(seed, times=3, turns=150),
        storm(seed, turns=turns, deeds=deeds, apart_s=0.2),
        forgetful(seed, turns=500, deeds=lossy),
        two_makers(seed, turns=1_000, deeds=mixed),
        *([on_server(seed, turns=1_000, deeds=(*mixed, *SERVER * 12), apart_s=0.8)] if has_server else []),
        workflows(seed, runs=500, deeds=mixed, apart_s=0.4),
        agents(seed, turns=500, deeds=mixed, apart_s=0.4),
        *others,
    ]
