"""Budgets: what a call is likely to cost is set aside before it is made, and settled once its cost is known.

An account has one figure for what is spent and what is set aside. Each call under way has a row, too: whoever removes
it settles the call, be it the process that made it, the next owner of its turn, or the sweep.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from itertools import chain
from typing import Any

from sqlalchemy import Connection, Select, Text, bindparam, delete, func, insert, or_, select, tuple_, update

from loom_worker.core.errors import BudgetHeld, BudgetSpent, Conflicted
from loom_worker.core.values.budgets import (
    NOTHING,
    Account,
    Amount,
    CallCost,
    Grant,
    Level,
    Limit,
    Payer,
    Reservation,
    Settlement,
    ToolCallCount,
    begin_ms,
)
from loom_worker.core.values.chat import Usage
from loom_worker.core.values.children import Ancestor, AncestorBudget
from loom_worker.core.values.ids import new_id
from loom_worker.core.values.json import Json
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE, Lock
from loom_worker.store.prepared import PreparedStatement
from loom_worker.store.schema import calls, sessions, turns, unfinished, usage
from loom_worker.store.tables import reservations, spending, workflow_runs
from loom_worker.store.turn_statements import OUR_RULES

_OF_ACCOUNT = (
    spending.c.level == bindparam("our_level"),
    spending.c.key == bindparam("our_key"),
    spending.c.window == bindparam("our_window"),
)
_SPENT = (spending.c.nano_usd, spending.c.tokens, spending.c.tool_calls)
_BUDGETS = select(
    select(turns.c.budget).where(turns.c.id == bindparam("our_turn")).scalar_subquery().label("turn"),
    select(~unfinished()).where(turns.c.id == bindparam("our_turn")).scalar_subquery().label("has_ended"),
    select(turns.c.run_id).where(turns.c.id == bindparam("our_turn")).scalar_subquery().label("run_id"),
    select(workflow_runs.c.budget)
    .where(workflow_runs.c.id == turns.c.run_id, turns.c.id == bindparam("our_turn"))
    .scalar_subquery()
    .label("run"),
    select(sessions.c.budget).where(sessions.c.lane == bindparam("our_lane")).scalar_subquery().label("session"),
    OUR_RULES,
)
_ABOVE = (
    select(turns.c.id, turns.c.lane, turns.c.budget, sessions.c.budget)
    .join(sessions, sessions.c.lane == turns.c.lane)
    .where(turns.c.id.in_(bindparam("ids", expanding=True)), unfinished())
)
_FIND = select(*_SPENT).where(*_OF_ACCOUNT)
_MORE: dict[Any, Any] = {column: column + bindparam(f"more_{column.name}") for column in _SPENT} | {
    "changed_ms": bindparam("now_ms")
}
_NAMES = ("level", "key", "window")
_KEY = tuple(spending.c[name] for name in _NAMES)
_TOKENS = usage.c.input_tokens + usage.c.output_tokens + usage.c.cache_read_tokens + usage.c.cache_write_tokens
_BOOKED = select(func.sum(usage.c.cost_nano), func.sum(_TOKENS), func.sum(usage.c.tool_calls)).where(
    usage.c.at_ms >= bindparam("since_ms")
)
_IS_MADE = calls.c.sends > 0
_CALLS = select(func.count()).where(calls.c.turn_id == turns.c.id, _IS_MADE).scalar_subquery()
_RUNNING = select(turns.c.usage, _CALLS).where(unfinished())
_USED_BY_SESSION = select(sessions.c.usage).where(sessions.c.lane == bindparam("our_key"))
_CALLS_OF_ENDED = (
    select(func.count())
    .select_from(calls.join(turns))
    .where(turns.c.lane == bindparam("our_key"), ~unfinished(), _IS_MADE)
)
_TAKE = delete(reservations).where(reservations.c.id == bindparam("our_id")).returning(reservations.c.held)
_GOES_ON = select(turns.c.id).where(turns.c.id == bindparam("our_turn"), unfinished())
_OUTPUTS = select(usage.c.agent, usage.c.output_tokens).where(usage.c.workspace == bindparam("our_workspace"))
_LATEST = _OUTPUTS.where(usage.c.output_tokens > 0).order_by(usage.c.at_ms.desc()).limit(4_000)
LEAST_KNOWN, COUNTED_AGAIN_MS = 20, 10_000
"""How many an agent must have before its usual reply is known; how often they are read."""
LONGEST_CALL_MS = 3_600_000
"""Older calls have ended, even if the process that made them lives."""
_Granting = Callable[[Connection, CallCost | ToolCallCount, Sequence[Limit]], Grant]
_FORGET = delete(spending).where(spending.c.level == bindparam("our_level"), spending.c.key == bindparam("our_key"))


class Budgets:
    """The accounts of budgets."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._usual: dict[tuple[str, str], int] = {}
        self._counted_ms: dict[str, int] = {}

    def reserve(self, payer: Payer, need: CallCost | ToolCallCount, *, now_ms: int) -> Reservation | None:
        """Set aside what a call is likely to cost, on each account that has a limit.

        Returns:
            What was set aside; None if nothing is limited.

        Raises:
            BudgetSpent, BudgetHeld: there is too little left; nothing was set aside.
        """
        with self._database.read() as tx:
            if not any(map(need.concerns, _limits(tx, payer, now_ms=now_ms))):
                return None
        sent = NOTHING
        if isinstance(need, CallCost):
            sent, need = need.amount(0), replace(need, usual_tokens=self._usual_tokens(payer, now_ms=now_ms))
        names = (new_id("hold_"), self._database.process, payer.turn_id if payer.is_owner else "")

        def set_aside(tx: Connection, granted: _Granting) -> Reservation:
            limits = tuple(filter(need.concerns, _limits(tx, payer, now_ms=now_ms)))
            accounts = tuple(limit.account for limit in limits)
            held = Reservation(accounts, granted(tx, need, limits), now_ms, sent, *names)
            _set_aside(tx, held, held.grant.amount, now_ms=now_ms)
            return held

        # Durable: what is forgotten in a power failure would be spent twice.
        try:
            with self._database.write(durable=True, lock=Lock.lane(payer.lane)) as tx:
                return set_aside(tx, _granted_at_once)
        except Conflicted:
            with self._database.write(durable=True, lock=WHOLE) as tx:
                return set_aside(tx, partial(_granted, now_ms=now_ms))

    def extend(self, held: Reservation, payer: Payer, more: Amount, *, now_ms: int) -> None:
        """Set more aside for a call whose reply is longer than was likely; BudgetSpent: so much is not left."""
        with self._database.write(durable=True, lock=Lock.lane(payer.lane)) as tx:
            known = _taken(tx, held)
            limits = _limits(tx, payer, now_ms=held.at_ms)
            used = _locked(tx, held.accounts)
            for limit in limits:
                if (before := used.get(limit.account)) is not None and not limit.holds(before + more):
                    raise BudgetSpent(limit.too_small(before), limit.renews_ms)
            if known is not None:
                grown = replace(known, grant=replace(known.grant, amount=known.grant.amount + more))
                _set_aside(tx, grown, more, now_ms=now_ms)

    def give_back(self, held: Reservation, used: Amount = NOTHING, *, now_ms: int) -> None:
        """Release what was set aside for a call that came to nothing, but for what it used."""
        with self._database.write(lock=Lock.named("reservation", held.id)) as tx:
            if (known := _taken(tx, held)) is not None:
                _add(tx, dict.fromkeys(known.accounts, used - known.grant.amount), now_ms=now_ms)

    def unsettled(self) -> list[Reservation]:
        """What is set aside for calls under way, and for those whose processes died."""
        with self._database.read() as tx:
            return [Reservation.from_json(row) for row in tx.execute(select(reservations.c.held)).scalars()]

    def settle_lost(self, alive: Collection[str], *, before_ms: int) -> None:
        """Have older calls count as sent if their turn has ended or, if they are of none, their process is dead."""
        old = [each for each in self.unsettled() if each.at_ms < before_ms]
        with self._database.read() as tx:
            open_turns = {each.turn_id for each in old if tx.execute(_GOES_ON, {"our_turn": each.turn_id}).first()}
        for each in old:
            is_late = each.at_ms < before_ms - LONGEST_CALL_MS
            if each.turn_id not in open_turns if each.turn_id else is_late or each.process not in alive:
                self.give_back(each, each.sent, now_ms=before_ms)

    def left(self, payer: Payer, *, now_ms: int) -> list[tuple[Limit, Amount]]:
        """What limits the models of a turn that is about to be stored, each with what is spent."""
        with self._database.read() as tx:
            limits = [limit for limit in _limits(tx, payer, now_ms=now_ms) if CallCost(0, 0).concerns(limit)]
            known = [(limit, used) for limit in limits if (used := _found(tx, limit.account)) is not None]
            if len(known) == len(limits):
                return _spent(tx, known)
        with self._database.write(lock=WHOLE) as tx:
            return _spent(tx, [(limit, _used(tx, limit.account, now_ms=now_ms)) for limit in limits])

    def _usual_tokens(self, payer: Payer, *, now_ms: int) -> int | None:
        """Output tokens that 99 % of an agent's latest ledger entries stay within; an entry may hold several calls."""
        if abs(now_ms - self._counted_ms.get(payer.workspace, 0)) >= COUNTED_AGAIN_MS:
            found = defaultdict[tuple[str, str], list[int]](list)
            with self._database.read() as tx:
                for agent, tokens in tx.execute(_LATEST, {"our_workspace": payer.workspace}):
                    found[payer.workspace, agent].append(tokens)
            enough = {key: sorted(each) for key, each in found.items() if len(each) >= LEAST_KNOWN}
            # Others may be so busy that an agent is not among the latest: what was known of it holds on.
            self._usual |= {key: each[-1 - len(each) // 100] for key, each in enough.items()}
            self._counted_ms[payer.workspace] = now_ms
        return self._usual.get((payer.workspace, payer.agent))

    def report(self, limits: Sequence[Limit], *, now_ms: int) -> tuple[Json, ...]:
        """What is used of each limit, calls that are under way included."""
        with self._database.read() as tx:
            known = [limit.as_json(used) for limit in limits if (used := _found(tx, limit.account)) is not None]
        if len(known) == len(limits):
            return tuple(known)
        with self._database.write(lock=WHOLE) as tx:
            return tuple(limit.as_json(_used(tx, limit.account, now_ms=now_ms)) for limit in limits)

    def purge(self, *, before_ms: int) -> None:
        """Remove accounts of days, months, turns and runs that were not changed since."""
        is_over = or_(spending.c.window != "", spending.c.level.in_(("turn", "run")))
        with self._database.write(lock=WHOLE) as tx:
            tx.execute(delete(spending).where(is_over, spending.c.changed_ms < before_ms))


def settle(tx: Connection, settlement: Settlement, *, now_ms: int) -> None:
    """Put what was spent in the place of what was set aside for it, or of what the sweep has made of that."""
    # One without an id was set aside before there were rows: nobody else settles it.
    held = tuple(_taken(tx, e) or (replace(e, grant=Grant(e.sent)) if e.id else e) for e in settlement.held)
    _add(tx, replace(settlement, held=held).changes(now_ms), now_ms=now_ms)


def _taken(tx: Connection, held: Reservation) -> Reservation | None:
    """The reservation as it is by now, for the one who settles it; None: somebody has."""
    row = tx.execute(_TAKE, {"our_id": held.id}).scalar()
    return None if row is None else Reservation.from_json(row)


def _set_aside(tx: Connection, held: Reservation, more: Amount, *, now_ms: int) -> None:
    _add(tx, dict.fromkeys(held.accounts, more), now_ms=now_ms)
    tx.execute(insert(reservations), {"id": held.id, "held": asdict(held)})


def _spent(tx: Connection, left: Sequence[tuple[Limit, Amount]]) -> list[tuple[Limit, Amount]]:
    """Limits with what is used of them, but for what is only set aside."""
    rows = tx.execute(select(reservations.c.held)).scalars() if left else ()
    aside = [(account, held.grant.amount) for held in map(Reservation.from_json, rows) for account in held.accounts]
    return [(limit, used - sum((more for of, more in aside if of == limit.account), NOTHING)) for limit, used in left]


def _granted_at_once(tx: Connection, need: CallCost | ToolCallCount, limits: Sequence[Limit]) -> Grant:
    """What is needed, on accounts that are open and then locked.

    Raises:
        Conflicted: one is to be opened, or they leave less: both is decided by more than their rows.
    """
    used = _locked(tx, [limit.account for limit in limits])
    try:
        grant = need.within([(limit, used[limit.account]) for limit in limits])
    except (BudgetSpent, KeyError) as error:
        raise Conflicted("A budget is to be looked at alone.") from error
    if grant.narrowed:
        raise Conflicted("A budget is to be looked at alone.")
    return grant


def _granted(tx: Connection, need: CallCost | ToolCallCount, limits: Sequence[Limit], *, now_ms: int) -> Grant:
    """What limits leave of it; BudgetHeld: less than is likely to be needed, though what is spent leaves that."""
    left = [(limit, _used(tx, limit.account, now_ms=now_ms)) for limit in limits]
    try:
        grant = need.within(left)
    except BudgetSpent as error:
        need.within(_spent(tx, left))
        raise BudgetHeld(*error.args) from error
    if grant.narrowed and need.within(_spent(tx, left)).amount != grant.amount:
        raise BudgetHeld(grant.narrowed, None)
    return grant


def check_left(tx: Connection, limits: Sequence[Limit], *, now_ms: int, is_alone: bool) -> None:
    """Raise BudgetSpent if what is spent uses a limit up.

    Args:
        is_alone: nobody else writes meanwhile: what was booked before an account is opened must not change then.

    Raises:
        Conflicted: an account is to be opened, or none is left, and others may write.
    """
    if not is_alone and any(_found(tx, limit.account) is None for limit in limits):
        raise Conflicted("An account is to be opened.")
    for limit, used in _spent(tx, [(limit, _used(tx, limit.account, now_ms=now_ms)) for limit in limits]):
        if limit.is_spent(used):
            if not is_alone:  # a call may have been settled after its account was read, and before its reservation
                raise Conflicted("A budget is to be looked at alone.")
            raise BudgetSpent(limit.used_up(used), limit.renews_ms)


def forget(tx: Connection, level: Level, key: str) -> None:
    """Remove the accounts of a turn or run that has ended, or of a session that is deleted."""
    tx.execute(_FORGET, {"our_level": level, "our_key": key})


def read_ancestor_budgets(tx: Connection, ancestors: Sequence[Ancestor]) -> tuple[AncestorBudget, ...]:
    """What turns that wait for another one may spend, with it; those that have ended are left out."""
    found = tx.execute(_ABOVE, {"ids": [ancestor.turn_id for ancestor in ancestors]})
    return tuple(AncestorBudget(*row) for row in found)


def _limits(tx: Connection, payer: Payer, *, now_ms: int) -> tuple[Limit, ...]:
    ours = {"our_turn": payer.turn_id, "our_lane": payer.lane, "our_workspace": payer.workspace}
    row = tx.execute(_BUDGETS, ours).one()
    if row.turn and row.has_ended:  # its account is closed, and would begin anew: a judge may come that late
        raise BudgetSpent("The turn that it was for has ended.", None)
    workspace = (row.rules or {}).get("budget")
    run = (row.run_id or "", row.run)
    above = read_ancestor_budgets(tx, payer.above) if payer.above else ()
    if len(above) < len(payer.above):
        raise BudgetSpent("The turn that waited for this one has ended.", None)
    budgets = {"turn": row.turn, "session": row.session, "workspace": workspace}
    return payer.limits(**budgets, run=run, above=above, now_ms=now_ms)


def _used(tx: Connection, account: Account, *, now_ms: int) -> Amount:
    """What is used of an account, which is opened with what was booked before it had a limit."""
    if (found := _found(tx, account)) is not None:
        return found
    earlier = _earlier(tx, account)
    values = {"level": account.level, "key": account.key, "window": account.window, "changed_ms": now_ms}
    amounts = {"nano_usd": earlier.nano_usd, "tokens": earlier.tokens, "tool_calls": earlier.tool_calls}
    tx.execute(insert(spending), values | amounts)
    return earlier


def _found(tx: Connection, account: Account) -> Amount | None:
    """What is used of an account; None: it is not opened yet."""
    row = tx.execute(_FIND, {"our_level": account.level, "our_key": account.key, "our_window": account.window}).first()
    return None if row is None else Amount(*row)


def _earlier(tx: Connection, account: Account) -> Amount:
    """What the ledger has of an account, and what its unfinished turns have used, which is not in the ledger yet."""
    key = {"our_key": account.key}
    if account.level in ("turn", "run"):  # they have their budget from their first moment
        return NOTHING
    if account.level == "session":
        used = Usage.from_json(tx.execute(_USED_BY_SESSION, key).scalar() or {})
        of_running = _RUNNING.where(turns.c.lane == account.key)
        ended = used.amount(tool_calls=tx.execute(_CALLS_OF_ENDED, key).scalar() or 0)
    else:
        of_running = _RUNNING.where(turns.c[account.level] == account.key)
        booked = _BOOKED.where(usage.c[account.level] == account.key)
        row = tx.execute(booked, {"since_ms": begin_ms(account.window)}).one()
        ended = Amount(*(figure or 0 for figure in row))
    running = (Usage.from_json(used).amount(tool_calls=count) for used, count in tx.execute(of_running))
    return sum(running, ended)


def _locked(tx: Connection, accounts: Sequence[Account]) -> dict[Account, Amount]:
    """What is used of those accounts that are open; nobody else changes them until the transaction ends."""
    found = _locking(len(accounts)).all(tx, _places((each.level, each.key, each.window) for each in accounts))
    return {
        Account(row["level"], row["key"], row["window"]): Amount(row["nano_usd"], row["tokens"], row["tool_calls"])
        for row in found
    }


def _add(tx: Connection, changes: Mapping[Account, Amount], *, now_ms: int) -> None:
    by_amount: dict[Amount, list[tuple[str, str, str]]] = {}
    for account, amount in changes.items():
        by_amount.setdefault(amount, []).append((account.level, account.key, account.window))
    by_amount.pop(NOTHING, None)
    if len(by_amount) > 1:  # each statement locks in order, but not all of them together
        every = list(chain.from_iterable(by_amount.values()))
        _locking(len(every)).put(tx, _places(every))
    for amount, accounts in by_amount.items():
        more = {f"more_{name}": getattr(amount, name) for name in Amount.__slots__}
        _adding(len(accounts)).put(tx, {"now_ms": now_ms, **more, **_places(accounts)})


def _places(accounts: Iterable[tuple[str, str, str]]) -> dict[str, str]:
    return {f"{name}_{n}": part for n, each in enumerate(accounts) for name, part in zip(_NAMES, each, strict=True)}


def _in_order(count: int, *columns: Any) -> Select[Any]:
    """Columns of so many accounts, locked one after the other: whoever locks some of them does it in this order."""
    places = [tuple_(*(bindparam(f"{name}_{n}", type_=Text) for name in _NAMES)) for n in range(count)]
    return select(*columns).where(tuple_(*_KEY).in_(places)).order_by(*_KEY).with_for_update()


@cache
def _locking(count: int) -> PreparedStatement:
    return PreparedStatement(_in_order(count, *_KEY, *_SPENT))


@cache
def _adding(count: int) -> PreparedStatement:
    """Add the same to so many accounts, of which most are kept for nobody: one statement finds those that there are."""
    return PreparedStatement(update(spending).where(tuple_(*_KEY).in_(_in_order(count, *_KEY))).values(_MORE))
