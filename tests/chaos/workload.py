"""What the clients will ask: a seeded plan of turns, session by session."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tests.chaos.panels import JUDGED

ASKS_PERSON = "refund"
"""The tool whose calls wait for a person."""
VERDICTS: Mapping[str, float] = {"pass": 5, "fail,pass": 4, "fail,fail,pass": 1, "fail": 1, "mute": 1}
"""What judges say, where an answer has some, with its weight."""
SESSION_TOKENS = (20_000, 40_000, 80_000)
"""Budgets of sessions: a turn takes between one and six thousand, and a lost call sets aside about three."""
TURN_TOKENS = (1_200, 4_500, 9_000, 20_000)
"""Budgets of turns: the first one is too small for any request."""


@dataclass(frozen=True)
class Job:
    """A turn to be submitted."""

    mark: str
    says: str
    """The model server's directives."""
    hook: str = ""
    """How the receiver answers its webhook (receiver.py); empty: it has none."""
    has_key: bool = True
    is_sent_twice: bool = False
    """The client submits it once more after the 202, as one does that lost the answer."""
    may_fail: bool = False
    max_attempts: int | None = None
    verdict: Literal["approve", "reject"] = "approve"
    """What a person says to each call of it that waits for one."""
    is_opposed: bool = False
    """Another person says the opposite afterwards."""
    cancel_action: Literal["", "interrupt", "rollback", "finish"] = ""
    """The cancel that is asked for after the 202."""
    cancel_after_s: float = 0.0
    """How long after it."""
    double_texting: Literal["", "interrupt", "rollback"] = ""
    """What its submission does to the turn that runs in the session."""
    agent: str = ""
    """Of its session; empty: the usual one."""
    session_tokens: int | None = None
    """The budget of its session."""
    turn_tokens: int | None = None
    """Its own budget."""
    is_read: bool = False
    """Its client reads its events."""

    @property
    def asks_person(self) -> bool:
        """True if one of its calls needs approval."""
        return ASKS_PERSON in self.says

    @property
    def input(self) -> str:
        """The text of the turn."""
        return f"{self.mark} {self.says}"


@dataclass(frozen=True)
class Mix:
    """Directives with their weights, and shares of the rest."""

    says: Mapping[str, float] = field(
        default_factory=lambda: {
            "plain": 50,
            "words=120": 10,
            "tools=note": 8,
            "tools=charge": 6,
            "tools=note,charge": 8,
            "tools=note,note,charge": 3,
            "tools=note tools=charge": 3,
            "slow=0.6": 8,
            "tools=pause:0.3": 3,
            "tools=pause:0.3,charge": 1,
            "tools=note:0.5,charge:0.5": 2,
            "tools=refund": 3,
            "tools=refund,note": 2,
            "tools=report,note": 2,
        }
    )
    webhooks: float = 0.25
    hooks: Mapping[str, float] = field(default_factory=lambda: {"ok": 80, "slow": 8, "flaky": 10, "gone": 2})
    keyless: float = 0.08
    twice: float = 0.05
    rejected: float = 0.35
    """Share of the turns whose calls a person rejects."""
    opposed: float = 0.3
    poison: int = 0
    """Turns that kill whatever runs them."""
    cancels: float = 0.0
    """Share that is cancelled, a third each way."""
    overruling: float = 0.0
    """Share that overrules the turn that runs, half each way."""
    judged: float = 0.0
    """Share of the sessions whose agent has judges."""
    thrifty: float = 0.0
    """Share of the sessions that have a budget, some of them a small one."""
    budgeted: float = 0.0
    """Share of the turns that have one."""
    read: float = 0.2
    """Share whose events are read while they come."""


Sessions = dict[str, list[Job]]


def plan(turns: int, *, sessions: int, seed: int, mix: Mix | None = None, first: int = 0) -> Sessions:
    """Turns dealt to sessions in the order in which their clients will submit them.

    Args:
        first: the number in the first mark.
    """
    mix, chance = mix or Mix(), random.Random(f"workload {seed} {first}")
    poisoned = set(chance.sample(range(turns), min(mix.poison, turns)))
    dealt: Sessions = {f"s{first}-{n:03d}": [] for n in range(sessions)}
    names = list(dealt)
    judged = set(chance.sample(names, round(mix.judged * sessions)))
    thrifty = {name: chance.choice(SESSION_TOKENS) for name in chance.sample(names, round(mix.thrifty * sessions))}
    for n in range(turns):
        mark = f"T{first + n:05d}"
        job = _poison(mark) if n in poisoned else _job(mark, mix, chance)
        name = chance.choice(names)
        job = _judged(job, chance) if name in judged else job
        tokens = thrifty.get(name)
        dealt[name].append(replace(job, session_tokens=tokens, may_fail=job.may_fail or tokens is not None))
    return dealt


def count(sessions: Sessions) -> int:
    """All turns of a plan."""
    return sum(map(len, sessions.values()))


def _job(mark: str, mix: Mix, chance: random.Random) -> Job:
    says = _one_of(mix.says, chance)
    has_key = chance.random() >= mix.keyless
    cancel_action: Any = chance.choice(("interrupt", "rollback", "finish")) if chance.random() < mix.cancels else ""
    overrules: Any = chance.choice(("interrupt", "rollback")) if chance.random() < mix.overruling else ""
    verdict: Any = "reject" if chance.random() < mix.rejected else "approve"
    turn_tokens = chance.choice(TURN_TOKENS) if chance.random() < mix.budgeted else None
    return Job(
        mark,
        says,
        verdict=verdict,
        is_opposed=chance.random() < mix.opposed,
        hook=_one_of(mix.hooks, chance) if chance.random() < mix.webhooks else "",
        # Whose answer is lost without a key is known to nobody: no person would decide on its calls, for a day.
        has_key=has_key or ASKS_PERSON in says,
        is_sent_twice=has_key and chance.random() < mix.twice,
        may_fail="fault=" in says or "hang" in says or turn_tokens is not None,
        cancel_action=cancel_action,
        double_texting=overrules,
        turn_tokens=turn_tokens,
        is_read=chance.random() < mix.read and ASKS_PERSON not in says,
    )


def _judged(job: Job, chance: random.Random) -> Job:
    return replace(job, agent=JUDGED, says=f"{job.says} judged={_one_of(VERDICTS, chance)}")


def _one_of(weights: Mapping[str, float], chance: random.Random) -> str:
    return chance.choices(list(weights), list(weights.values()))[0]


def _poison(mark: str) -> Job:
    return Job(mark, "tools=die", hook="ok", may_fail=True, max_attempts=3)
