"""What the clients will have workflows do: a seeded plan of runs, of every type and with every way to end."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tests.chaos.workflow_files import AGENTS, VOTERS

RunVerdict = Literal["approve", "reject", "revise"]
COLORS = ("red", "blue", "green")
RUN_TOKENS = (2_000, 200_000)
"""Budgets: the first one is too small for most runs, the second large enough for all."""
BLANK = "(blank)"
"""Of a variable that says nothing to the model."""


@dataclass(frozen=True)
class RunJob:
    """A run to be started, and what is done with it."""

    name: str
    """``R00012``; part of its keys."""
    workflow: str
    variables: Mapping[str, str]
    ends: str = "completed"
    """How it ends if nobody cancels it: ``completed``, or the reason for which it does not."""
    decisions: tuple[RunVerdict, ...] = ()
    """What a person says to its approvals, one after another, beyond retries; then ``approve``."""
    is_opposed: bool = False
    """Another person says the opposite afterwards."""
    cancel_after_s: float | None = None
    retries: int = 1
    """How often its client has it done again if it is not completed, beside once after its cancel."""
    hook: str = ""
    """How the receiver answers its webhook (receiver.py); empty: it has none."""
    is_sent_twice: bool = False
    is_read: bool = False
    tokens: int | None = None
    """Its budget."""


@dataclass(frozen=True)
class RunMix:
    """Shares of the runs."""

    cancelled: float = 0.1
    webhooks: float = 0.3
    hooks: Mapping[str, float] | None = None
    """How receivers answer; None: well, mostly."""
    twice: float = 0.1
    read: float = 0.3
    budgeted: float = 0.1
    only: tuple[str, ...] = ()
    """Names of workflows; empty: all."""


def plan_runs(runs: int, *, seed: int, mix: RunMix | None = None, first: int = 0) -> tuple[RunJob, ...]:
    """So many runs, of each workflow about as many.

    Args:
        first: the number in the first name.
    """
    mix, chance = mix or RunMix(), random.Random(f"runs {seed} {first}")
    names = mix.only or (*_JOBS, *_OFTEN)
    dealt = [names[n % len(names)] for n in range(runs)]
    chance.shuffle(dealt)
    return tuple(_varied(_job(f"R{first + n:05d}", name, chance), mix, chance) for n, name in enumerate(dealt))


def _job(name: str, workflow: str, chance: random.Random) -> RunJob:
    made = _JOBS[workflow](chance)
    return replace(made, name=name, workflow=workflow)


def _varied(job: RunJob, mix: RunMix, chance: random.Random) -> RunJob:
    hooks = mix.hooks or {"ok": 80, "slow": 10, "flaky": 10}
    tokens = chance.choice(RUN_TOKENS) if chance.random() < mix.budgeted else None
    return replace(
        job,
        cancel_after_s=chance.uniform(0, 1.5) if chance.random() < mix.cancelled else None,
        hook=chance.choices(list(hooks), list(hooks.values()))[0] if chance.random() < mix.webhooks else "",
        is_sent_twice=chance.random() < mix.twice,
        is_read=chance.random() < mix.read,
        tokens=tokens,
        is_opposed=chance.random() < 0.3,
    )


def _made(ends: str = "completed", decisions: tuple[RunVerdict, ...] = (), **variables: str) -> RunJob:
    return RunJob("", "", {name: value or BLANK for name, value in variables.items()}, ends, decisions)


def _pace(chance: random.Random) -> str:
    """What a stage does beside its answer: nothing, mostly; calls of tools; or it takes its time."""
    found = chance.choices(
        ("", "tools=charge", "tools=note,charge", "tools=note tools=charge", "slow=0.6", "words=60"),
        (10, 3, 1, 1, 2, 2),
    )
    return f"words={chance.randint(1, 9)} {found[0]}".strip()


def _paces(chance: random.Random, agents: Sequence[str] = AGENTS) -> str:
    """The same for agents that are asked together: none ends when the others do."""
    told = " ".join(f"{agent}:{word}" for agent in agents for word in _pace(chance).split())
    slow = chance.choice(agents[:2])
    return f"{told} {slow}:wait={chance.choice((0.2, 0.5))}"


def _chain(chance: random.Random) -> RunJob:
    is_bad, is_hopeless = chance.random() < 0.4, chance.random() < 0.1
    is_unfit = chance.random() < 0.3
    persons: tuple[RunVerdict, ...] = chance.choice(
        (("approve",), ("approve",), ("revise", "approve"), ("reject", "approve"), ("revise", "revise", "approve"))
    )
    return _made(
        "invalid-output" if is_hopeless else "completed",
        persons,
        begin="Begin.",
        draft=f'{_pace(chance)} ends={{"n":{chr(34) + "one" + chr(34) if is_bad or is_hopeless else "1"}}}',
        mend=f"words=3 ends={{{'' if is_hopeless else chr(34) + 'n' + chr(34) + ':2'}}}",
        check=f"{_pace(chance)} ends={'rough' if is_unfit else 'ready'}",
        look="words=2 yesif=ready",
        redo="words=4 ends=ready",
        sign="words=5",
        last=_pace(chance),
    )


def _told_all(chance: random.Random) -> RunJob:
    return _made(begin="Begin.", one=_pace(chance), two=_pace(chance), three=_pace(chance))


def _fork(chance: random.Random) -> RunJob:
    return _made(ask=f"{_paces(chance)} {JUDGE_SAYS.format(chance.randint(1, 3))}")


def _fork_best(chance: random.Random) -> RunJob:
    if chance.random() < 0.1:
        return _made("invalid-output", ask=_paces(chance))
    return _fork(chance)


def _fork_voting(chance: random.Random) -> RunJob:
    said = [chance.choice(COLORS[:2]) for _ in VOTERS]
    words = " ".join(f"{agent}:bare={word}" for agent, word in zip(VOTERS, said, strict=True))
    return _made(ask=f"{words} {chance.choice(VOTERS[:2])}:wait=0.4")


def _side(chance: random.Random) -> RunJob:
    best = f" {JUDGE_SAYS.format(chance.randint(1, 3))}"
    return _made(ada=f"{_pace(chance)} ada:wait=0.3{best}", bob=_pace(chance), cay=_pace(chance))


def _choice(chance: random.Random) -> RunJob:
    first, second = chance.choice((("pipe", ""), ("fork", ""), ("neither", "pipe"), ("neither", "neither")))
    return _made(
        choose=f"words=12 ends={first}",
        anew=f"words=12 ends={second or first}",
        begin="Begin.",
        one=_pace(chance),
        two=_pace(chance),
        ask=_paces(chance),
    )


def _strict(chance: random.Random) -> RunJob:
    branch = chance.choice(("pipe", "fork", "neither"))
    return _made(
        "no-branch" if branch == "neither" else "completed",
        choose=f"words=12 ends={branch}",
        begin="Begin.",
        one=_pace(chance),
        two=_pace(chance),
        ask=_paces(chance),
    )


def _again(chance: random.Random) -> RunJob:
    times = chance.choice((0, 1, 1, 2, 3))
    wish = f" again={chance.choice(('draft', 'work', 'review'))}*{times}" if times else ""
    ends = "iterations" if times == 3 else "completed"
    return _made(ends, begin="Begin.", draft=_pace(chance), work=_pace(chance), review=f"words=3{wish}")


def _poll(chance: random.Random, *, has_judge: bool) -> RunJob:
    votes = [chance.choice(COLORS[:2]) for _ in VOTERS]
    confidences = [chance.choice(("0.6", "0.9", "75%")) for _ in VOTERS]
    is_split = chance.random() < 0.3
    lines = [
        f"VOTE:_{vote}|CONFIDENCE:_{sure}"
        for vote, sure in zip(COLORS if is_split else votes, confidences, strict=True)
    ]
    silent = chance.choice((None, None, None, 0, 2))
    told = [f"{agent}:ends={line}" for n, (agent, line) in enumerate(zip(VOTERS, lines, strict=True)) if n != silent]
    later = "" if silent is None else f"{VOTERS[silent]}:ends={lines[silent]}"
    ends = "no-consensus" if is_split and not has_judge else "completed"
    return _made(ends, ask=f"{_paces(chance)} {' '.join(told)}", anew=f"words=2 {later}")


def _desk(chance: random.Random) -> RunJob:
    return _made(ask=_pace(chance))


_OFTEN = ("chain", "chain", "again", "choice", "poll-majority")
"""Those that can go many ways."""
JUDGE_SAYS = "dan:words=4 dan:first={}"

_JOBS: Mapping[str, Callable[[random.Random], RunJob]] = {
    "chain": _chain,
    "told-all": _told_all,
    **{f"fork-{merge}": _fork for merge in ("concatenate", "first", "summary", "consensus")},
    "fork-voting": _fork_voting,
    "fork-best": _fork_best,
    "side-concatenate": _side,
    "side-best": _side,
    "choice": _choice,
    "strict": _strict,
    "again": _again,
    "talk": _fork,
    "poll-majority": lambda chance: _poll(chance, has_judge=False),
    "poll-shared": lambda chance: _poll(chance, has_judge=False),
    "poll-weighted": lambda chance: _poll(chance, has_judge=True),
    "poll-judged": lambda chance: _poll(chance, has_judge=True),
    "desk": _desk,
}
