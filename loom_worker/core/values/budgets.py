"""What is spent, and what may be spent: amounts, and limits on them by level and by period of time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, Decimal
from typing import Literal

from loom_worker.core.errors import BudgetSpent
from loom_worker.core.values.children import Ancestor, AncestorBudget
from loom_worker.core.values.json import Json, rfc3339

Level = Literal["turn", "run", "session", "agent", "workspace"]
Period = Literal["", "day", "month"]
"""The time over which a limit counts, in UTC; empty: for good."""
PERIODS: tuple[Period, ...] = ("", "day", "month")

NANO = Decimal("0.000000001")
"""The smallest amount that is booked, in USD: a token at 0.001 USD per million."""
FREE = Decimal(0)
LEAST_REPLY_TOKENS = 64
"""A budget that leaves less for a reply is taken for spent: the answer would be cut in its first sentence."""
LIKELY_REPLY_TOKENS = 1_024
"""Set aside for a reply while too few are known; more is once more text comes."""


def usd(number: float | str | Decimal) -> Decimal:
    """A number of USD as it is written in decimals, so that 0.1 is one tenth; rounded to NANO, half to even."""
    return Decimal(str(number)).quantize(NANO)


def nano(amount: Decimal) -> int:
    """An amount of USD in billionths, rounded up."""
    return int((amount / NANO).to_integral_value(ROUND_CEILING))


@dataclass(frozen=True, slots=True)
class Amount:
    """What one call takes, or what was spent."""

    nano_usd: int = 0
    tokens: int = 0
    """In and out, cached or not."""
    tool_calls: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.nano_usd + other.nano_usd, self.tokens + other.tokens, self.tool_calls + other.tool_calls)

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(self.nano_usd - other.nano_usd, self.tokens - other.tokens, self.tool_calls - other.tool_calls)

    @property
    def cost_usd(self) -> Decimal:
        return self.nano_usd * NANO

    def as_json(self) -> Json:
        """``used`` of a budget."""
        return {"usd": float(self.cost_usd), "tokens": self.tokens, "tool_calls": self.tool_calls}


NOTHING = Amount()


@dataclass(frozen=True, slots=True, order=True)
class Account:
    """What is counted together: all that was spent by a turn, say, or by a workspace on one day."""

    level: Level
    key: str
    """The turn's or the run's id, the session's lane, the agent's or the workspace's name."""
    window: str = ""
    """``2026-11-24`` or ``2026-11`` in UTC; empty: for good."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that may be spent on one account; None: as much as one likes."""

    account: Account
    nano_usd: int | None = None
    tokens: int | None = None
    tool_calls: int | None = None
    renews_ms: int | None = None
    """When the next window begins; None: never."""

    def holds(self, used: Amount) -> bool:
        """True while no more than the limit is used."""
        return all(most is None or spent <= most for most, spent in self._pairs(used))

    def is_spent(self, used: Amount) -> bool:
        """True once there is no room for anything more, in whichever of its parts."""
        return any(most is not None and spent >= most for most, spent in self._pairs(used))

    def as_json(self, used: Amount) -> Json:
        members = {"usd": self.nano_usd, "tokens": self.tokens, "tool_calls": self.tool_calls}
        most: Json = {name: figure for name, figure in members.items() if figure is not None}
        if self.nano_usd is not None:
            most["usd"] = float(self.nano_usd * NANO)
        return {
            "level": self.account.level,
            "window": self.account.window or None,
            "limit": most,
            "used": {name: figure for name, figure in used.as_json().items() if name in most},
            "renews_at": rfc3339(self.renews_ms),
        }

    def used_up(self, used: Amount) -> str:
        """What to tell whoever comes once nothing is left."""
        return f"The budget of {self._owner} is used up: {self._state(used)}"

    def too_small(self, used: Amount) -> str:
        """What to tell whoever needs more than is left."""
        return f"The next call may need more than is left of the budget of {self._owner}: {self._state(used)}"

    def unpriced(self) -> str:
        """What to tell whoever wants to spend what cannot be counted in USD."""
        return f"The budget of {self._owner} is in USD, which nothing can be counted on:"

    @property
    def _owner(self) -> str:
        owner = _OWNERS[self.account.level].format(self.account.key)
        return f"{owner} for {self.account.window}" if self.account.window else owner

    def _state(self, used: Amount) -> str:
        renews = "" if self.renews_ms is None else f" It renews at {rfc3339(self.renews_ms)}."
        return f"{', '.join(_used(self, used))}.{renews}"

    def _pairs(self, used: Amount) -> tuple[tuple[int | None, int], ...]:
        return ((self.nano_usd, used.nano_usd), (self.tokens, used.tokens), (self.tool_calls, used.tool_calls))


_OWNERS: dict[Level, str] = {
    "turn": "this turn",
    "run": "this run",
    "session": "this session",
    "agent": "the agent {!r}",
    "workspace": "the workspace {!r}",
}


def _used(limit: Limit, used: Amount) -> Iterator[str]:
    if limit.nano_usd is not None:
        yield f"{_plain(used.cost_usd)} of {_plain(limit.nano_usd * NANO)} USD used"
    if limit.tokens is not None:
        yield f"{used.tokens:,} of {limit.tokens:,} tokens used"
    if limit.tool_calls is not None:
        yield f"{used.tool_calls:,} of {limit.tool_calls:,} tool calls used"


def _plain(amount: Decimal) -> str:
    """Without an exponent, and without zeros that say nothing."""
    return f"{amount.normalize():f}"


@dataclass(frozen=True, slots=True)
class CallCost:
    """The most that one call of a model can cost."""

    input_tokens: int
    """Never fewer than the provider will count."""
    max_tokens: int
    """Tokens of the reply, as it would be asked for without a budget."""
    input_nano: Decimal | None = FREE
    """Billionths of a USD for an input token at the highest rate that may apply; None: the price is not known."""
    output_nano: Decimal | None = FREE
    usual_tokens: int | None = None
    """Output tokens that 99 % of such replies stay within; None: too few are known."""

    @property
    def least_tokens(self) -> int:
        """A reply that may have fewer tokens is not worth its input."""
        return min(self.max_tokens, LEAST_REPLY_TOKENS)

    def concerns(self, limit: Limit) -> bool:
        """False if the limit is on something else."""
        return limit.nano_usd is not None or limit.tokens is not None

    def amount(self, max_tokens: int) -> Amount:
        """The most it can cost with a reply of at most so many tokens."""
        paid = (self.input_nano or FREE) * self.input_tokens + (self.output_nano or FREE) * max_tokens
        return Amount(int(paid.to_integral_value(ROUND_CEILING)), self.input_tokens + max_tokens)

    def within(self, left: Sequence[tuple[Limit, Amount]]) -> "Grant":
        """What limits leave of it, each with what is used; BudgetSpent: too little, or USD without a known price."""
        granted, narrowed = self.max_tokens, ""
        for limit, used in left:
            if limit.nano_usd is not None and self.input_nano is None:
                raise BudgetSpent(f"{limit.unpriced()} Loom does not know the model's price.", None)
            room = self._reply_tokens(limit, used)
            if room < self.least_tokens:
                text = limit.used_up(used) if limit.is_spent(used) else limit.too_small(used)
                raise BudgetSpent(text, limit.renews_ms)
            if room < granted:
                granted, narrowed = room, limit.too_small(used)
        return Grant(self.amount(min(granted, self.usual_tokens or LIKELY_REPLY_TOKENS)), granted, narrowed)

    def _reply_tokens(self, limit: Limit, used: Amount) -> int:
        """The longest reply that a limit leaves room for; below 0 if not even the input fits."""
        most = self.max_tokens
        if limit.tokens is not None:
            most = min(most, limit.tokens - used.tokens - self.input_tokens)
        if limit.nano_usd is not None:
            left = limit.nano_usd - used.nano_usd - self.amount(0).nano_usd
            if left < 0:
                most = min(most, left)
            elif self.output_nano:
                most = min(most, int(left // self.output_nano))
        return most


@dataclass(frozen=True, slots=True)
class ToolCallCount:
    """So many tool calls."""

    count: int

    def concerns(self, limit: Limit) -> bool:
        return limit.tool_calls is not None

    def within(self, left: Sequence[tuple[Limit, Amount]]) -> "Grant":
        for limit, used in left:
            if limit.tool_calls is not None and used.tool_calls + self.count > limit.tool_calls:
                text = limit.used_up(used) if used.tool_calls >= limit.tool_calls else limit.too_small(used)
                raise BudgetSpent(text, limit.renews_ms)
        return Grant(Amount(tool_calls=self.count))


@dataclass(frozen=True, slots=True)
class Grant:
    """What budgets allow of what is needed."""

    amount: Amount
    """Set aside: with as much of a reply as is likely."""
    max_tokens: int = 0
    """Tokens of a reply: what was asked for, or as much as the budgets leave."""
    narrowed: str = ""
    """Which budget made the reply shorter than was asked for; empty: none."""


@dataclass(frozen=True, slots=True)
class Payer:
    """On whose budgets a call is made."""

    workspace: str
    lane: str
    agent: str
    agent_budget: Json | None = None
    """As the agent's file sets it."""
    turn_id: str = ""
    """Empty for what no turn asked for: a summary."""
    above: tuple[Ancestor, ...] = ()
    """The turns that wait for this one: it is paid from their budgets, too."""
    run_id: str = ""
    """Id of the workflow's run that the turn is a stage of, or empty."""
    is_owner: bool = False
    """True for the turn's owner; what it sets aside and does not settle, the turn's next owner does."""

    @property
    def source(self) -> str:
        """What all of this is done for: a workflow's run, or the lane of the session that asked first."""
        return self.run_id or (self.above[0].lane if self.above else self.lane)

    def limits(
        self,
        *,
        turn: Json | None,
        session: Json | None,
        workspace: Json | None,
        now_ms: int,
        run: tuple[str, Json | None] = ("", None),
        above: Sequence[AncestorBudget] = (),
    ) -> tuple[Limit, ...]:
        """All limits that hold for it, by the budgets of turn, run (after its id), session, workspace, turns above."""
        budgets: tuple[tuple[Level, str, Json | None], ...] = (
            ("turn", self.turn_id, turn),
            ("run", *run),
            ("session", self.lane, session),
            ("agent", self.agent, self.agent_budget),
            ("workspace", self.workspace, workspace),
            *(("turn", each.turn_id, each.turn) for each in above),
            *(("session", each.lane, each.session) for each in above),
        )
        return tuple(limit for each in budgets for limit in limits_of(*each, now_ms=now_ms))

    def accounts(self, now_ms: int) -> tuple[Account, ...]:
        """All accounts that what it spends now may be counted on."""
        windows = [window_of(period, now_ms) for period in PERIODS]
        owners: tuple[tuple[Level, str], ...] = (
            ("turn", self.turn_id),
            ("session", self.lane),
            ("agent", self.agent),
            ("workspace", self.workspace),
            *(("turn", each.turn_id) for each in self.above),
            *(("session", each.lane) for each in self.above),
        )
        return tuple(Account(level, key, window) for level, key in owners for window in windows)


@dataclass(frozen=True, slots=True)
class Reservation:
    """What was set aside for a call."""

    accounts: tuple[Account, ...]
    grant: Grant
    at_ms: int
    sent: Amount = NOTHING
    """What it counts for if nobody learns how it ended."""
    id: str = ""
    process: str = ""
    turn_id: str = ""
    """Empty unless the turn's owner makes the call."""

    @classmethod
    def from_json(cls, data: Json) -> "Reservation":
        """Read what ``asdict`` made of it; before there were rows it had but accounts, grant and time."""
        accounts, amount = (Account(**each) for each in data["accounts"]), Amount(**data["grant"]["amount"])
        sent = Amount(**data.get("sent", {}))
        return cls(**{**data, "accounts": tuple(accounts), "grant": Grant(amount), "sent": sent})


@dataclass(frozen=True, slots=True)
class Settlement:
    """What was really spent, in place of what was set aside for it."""

    payer: Payer
    spent: Amount
    held: tuple[Reservation, ...] = ()

    def changes(self, now_ms: int) -> dict[Account, Amount]:
        """By how much each account changes; most of them are kept for nobody, and then nothing happens."""
        at_ms = self.held[0].at_ms if self.held else now_ms
        changes = dict.fromkeys(self.payer.accounts(at_ms), self.spent)
        for held in self.held:
            for account in held.accounts:
                changes[account] = changes.get(account, self.spent) - held.grant.amount
        return changes


def limits_of(level: Level, key: str, budget: Json | None, *, now_ms: int) -> tuple[Limit, ...]:
    """The limits that a ``budget`` sets: its own members, for good, and those under ``day`` and ``month``.

    Args:
        budget: ``{usd?, tokens?, tool_calls?, day?: {…}, month?: {…}}``; other members are ignored.
    """
    found = []
    for period in PERIODS:
        most = (budget or {}).get(period) if period else budget
        if not most or not any(most.get(name) is not None for name in ("usd", "tokens", "tool_calls")):
            continue
        found.append(
            Limit(
                account=Account(level, key, window_of(period, now_ms)),
                # What is allowed is rounded down, what is needed up.
                nano_usd=None if most.get("usd") is None else int(Decimal(str(most["usd"])) / NANO),
                tokens=most.get("tokens"),
                tool_calls=most.get("tool_calls"),
                renews_ms=renews_ms(period, now_ms),
            )
        )
    return tuple(found)


def has_usd(*budgets: Json | None) -> bool:
    """True if any of these budgets limits what may be paid."""
    limits = (limit for budget in budgets for limit in limits_of("turn", "", budget, now_ms=0))
    return any(limit.nano_usd is not None for limit in limits)


def window_of(period: Period, now_ms: int) -> str:
    """The name of the window that a moment falls in."""
    if not period:
        return ""
    return datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%d" if period == "day" else "%Y-%m")


def begin_ms(window: str) -> int:
    """When a window began; 0 for the one that is for good."""
    if not window:
        return 0
    day = datetime.strptime(window, "%Y-%m-%d" if window.count("-") == 2 else "%Y-%m").replace(tzinfo=UTC)
    return int(day.timestamp()) * 1000


def renews_ms(period: Period, now_ms: int) -> int | None:
    """When the window after this moment's begins; None for the one that is for good."""
    if not period:
        return None
    midnight = datetime.fromtimestamp(begin_ms(window_of(period, now_ms)) / 1000, UTC)
    following = midnight + timedelta(days=1) if period == "day" else (midnight + timedelta(days=31)).replace(day=1)
    return int(following.timestamp()) * 1000
