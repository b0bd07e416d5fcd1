"""Accounts on a real file: what is set aside, settled and found again, by one thread and by many."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, select

from loom_worker.core.errors import BudgetSpent
from loom_worker.core.settings import Settings
from loom_worker.core.values.budgets import (
    NANO,
    NOTHING,
    Account,
    Amount,
    CallCost,
    Limit,
    Payer,
    Reservation,
    Settlement,
    ToolCallCount,
    limits_of,
)
from loom_worker.core.values.chat import Usage
from loom_worker.core.values.json import Json
from loom_worker.core.values.runs import NewRun
from loom_worker.core.values.sessions import SessionPatch
from loom_worker.core.values.turns import Claim, Step
from loom_worker.store.budgets import COUNTED_AGAIN_MS, Budgets
from loom_worker.store.claims import Claims
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.journal import Entries, Journal
from loom_worker.store.ledger import Charge, Ledger
from loom_worker.store.schema import usage as ledger
from loom_worker.store.sessions import Sessions
from loom_worker.store.workspaces import Workspaces
from tests.support.at_once import at_once
from tests.support.runs import run_journal, workflow
from tests.unit.store.made import NOW_MS, PROGRESS, SPENT, WORKSPACE, call, counts, final, running, submitted

WORKERS = 16
COST = CallCost(100, 100, Decimal(1000), Decimal(1000))
"""200 tokens and 200,000 billionths of a USD at most."""


def limited(database: Database, budget: Json, session: str = "s1") -> Claim:
    """A running turn of a session with this budget."""
    claim = running(database, session)
    Sessions(database).patch(WORKSPACE, session, SessionPatch(budget=budget), now_ms=NOW_MS)
    return claim


def payer(claim: Claim, agent_budget: Json | None = None) -> Payer:
    return claim.payer(agent_budget)


def used(database: Database, account: Account) -> Json:
    [report] = Budgets(database).report([Limit(account, 10**15, 10**12, 10**6)], now_ms=NOW_MS)
    return dict(report["used"])


def test_without_a_budget_nothing_is_written(database: Database) -> None:
    claim = running(database)
    assert Budgets(database).reserve(payer(claim), COST, now_ms=NOW_MS) is None
    assert counts(database)["spending"] == 0


def test_what_is_set_aside_counts_until_it_is_settled(database: Database) -> None:
    claim = limited(database, {"tokens": 500})
    budgets, lane = Budgets(database), Account("session", claim.turn.lane)
    held = budgets.reserve(payer(claim), COST, now_ms=NOW_MS)
    assert held is not None
    assert (held.accounts, held.grant.max_tokens) == ((lane,), 100)
    assert used(database, lane)["tokens"] == 200
    settlement = Settlement(payer(claim), SPENT.amount(tool_calls=2), (held,))
    Journal(database).save(claim, Entries((Step(1, "matched", {}),)), PROGRESS, settlement=settlement)
    assert used(database, lane) == {"usd": 0.25, "tokens": 15, "tool_calls": 2}


def test_a_call_that_cost_nothing_gives_everything_back(database: Database) -> None:
    claim = limited(database, {"tokens": 500})
    held = Budgets(database).reserve(payer(claim), COST, now_ms=NOW_MS)
    assert held is not None
    Budgets(database).give_back(held, now_ms=NOW_MS)
    assert used(database, Account("session", claim.turn.lane)) == {"usd": 0.0, "tokens": 0, "tool_calls": 0}


def test_a_call_that_does_not_fit_sets_nothing_aside_anywhere(database: Database) -> None:
    claim = limited(database, {"tokens": 1000})
    Workspaces(database).patch(WORKSPACE, {"budget": {"tokens": 100}}, now_ms=NOW_MS)
    with pytest.raises(BudgetSpent, match="workspace 'acme'"):
        Budgets(database).reserve(payer(claim), COST, now_ms=NOW_MS)
    assert used(database, Account("session", claim.turn.lane))["tokens"] == 0


def test_all_levels_hold_together_and_the_first_that_is_spent_is_named(database: Database) -> None:
    claim = running(database, budget={"tokens": 10_000})
    agent = {"day": {"tokens": 250}}
    budgets = Budgets(database)
    first = budgets.reserve(payer(claim, agent), COST, now_ms=NOW_MS)
    assert first is not None
    assert [account.level for account in first.accounts] == ["turn", "agent"]
    with pytest.raises(BudgetSpent, match=r"agent 'default' for 2027-01-15.*It renews at 2027-01-16T00:00:00"):
        budgets.reserve(payer(claim, agent), COST, now_ms=NOW_MS)
    tomorrow_ms = NOW_MS + 86_400_000
    assert budgets.reserve(payer(claim, agent), COST, now_ms=tomorrow_ms) is not None


def test_tool_calls_have_limits_of_their_own(database: Database) -> None:
    claim = limited(database, {"tool_calls": 3})
    budgets = Budgets(database)
    assert budgets.reserve(payer(claim), COST, now_ms=NOW_MS) is None
    assert budgets.reserve(payer(claim), ToolCallCount(2), now_ms=NOW_MS) is not None
    with pytest.raises(BudgetSpent, match="2 of 3 tool calls used"):
        budgets.reserve(payer(claim), ToolCallCount(2), now_ms=NOW_MS)
    assert budgets.reserve(payer(claim), ToolCallCount(1), now_ms=NOW_MS) is not None


def test_an_account_begins_with_what_was_spent_before_it_had_a_limit(database: Database) -> None:
    Journal(database).finish(running(database, "s1"), final(tool_calls=2))
    Journal(database).finish(running(database, "s2"), final())
    other = running(database, "s1", workspace="other")
    Journal(database).finish(other, final())
    claim = running(database, "s1")
    progress = {**PROGRESS, "usage": SPENT.as_json()}
    Journal(database).save(claim, Entries((Step(1, "matched", {}),), (call(0),)), progress)
    summary = Charge(WORKSPACE, "s2", "default", "small", SPENT, kind="summary")
    Ledger(database).charge("", summary, now_ms=NOW_MS - 2 * 86_400_000)
    assert used(database, Account("session", claim.turn.lane)) == {"usd": 0.5, "tokens": 30, "tool_calls": 1}
    assert used(database, Account("workspace", WORKSPACE)) == {"usd": 1.0, "tokens": 60, "tool_calls": 3}
    assert used(database, Account("workspace", WORKSPACE, "2027-01-15")) == {"usd": 0.75, "tokens": 45, "tool_calls": 3}
    assert used(database, Account("agent", "default"))["usd"] == 1.25


def test_an_account_whose_limit_is_gone_is_kept_up_to_date_for_the_next_one(database: Database) -> None:
    claim = limited(database, {"tokens": 500})
    account = Account("session", claim.turn.lane)
    Budgets(database).reserve(payer(claim), COST, now_ms=NOW_MS)
    Sessions(database).patch(WORKSPACE, "s1", SessionPatch(clear=frozenset({"budget"})), now_ms=NOW_MS)
    settlement = Settlement(payer(claim), SPENT.amount())
    Journal(database).save(claim, Entries((Step(1, "matched", {}),)), PROGRESS, settlement=settlement)
    assert used(database, account)["tokens"] == 200 + 15


def test_the_account_of_a_turn_ends_with_it_and_that_of_a_session_with_its_deletion(database: Database) -> None:
    claim = running(database, budget={"tokens": 500})
    Sessions(database).patch(WORKSPACE, "s1", SessionPatch(budget={"tokens": 500}), now_ms=NOW_MS)
    held = Budgets(database).reserve(payer(claim), COST, now_ms=NOW_MS)
    assert held is not None
    assert counts(database)["spending"] == 2
    Journal(database).finish(claim, final(settlement=Settlement(payer(claim), SPENT.amount(), (held,))))
    assert counts(database)["spending"] == 1
    Sessions(database).delete(WORKSPACE, "s1")
    assert counts(database)["spending"] == 0


def test_for_a_turn_that_has_ended_its_budget_pays_nothing_more(database: Database) -> None:
    claim = running(database, budget={"tokens": 500})
    held = Budgets(database).reserve(payer(claim), COST, now_ms=NOW_MS)
    assert held is not None
    Journal(database).finish(claim, final(settlement=Settlement(payer(claim), SPENT.amount(), (held,))))
    with pytest.raises(BudgetSpent, match="has ended"):
        Budgets(database).reserve(payer(claim), COST, now_ms=NOW_MS)
    assert counts(database)["spending"] == 0


def test_accounts_of_past_days_are_removed_and_lasting_ones_stay(database: Database) -> None:
    claim = limited(database, {"tokens": 10_000, "day": {"tokens": 500}})
    Budgets(database).reserve(payer(claim), COST, now_ms=NOW_MS)
    Budgets(database).purge(before_ms=NOW_MS)
    assert counts(database)["spending"] == 2
    Budgets(database).purge(before_ms=NOW_MS + 1)
    assert counts(database)["spending"] == 1


def test_what_a_deleted_session_s_running_turn_has_cost_is_in_the_ledger(database: Database) -> None:
    claim = running(database)
    reply = {"model": "m1", "usage": SPENT.as_json()}
    Journal(database).save(claim, Entries((Step(1, "reply", reply), Step(2, "reply", reply))), PROGRESS)
    submitted(database)
    Sessions(database).delete(WORKSPACE, "s1")
    [row] = Ledger(database).totals(WORKSPACE, group_by="turn")
    assert (row["key"], row["llm_calls"], row["cost_usd"]) == (claim.turn.id, 2, 0.5)


@pytest.fixture
def databases(settings: Settings) -> Iterator[list[Database]]:
    """As many as there are workers; each has a writer of its own, as processes have."""
    opened = [Database(settings.database_url, sync="normal", busy_timeout_s=60) for _ in range(WORKERS)]
    yield opened
    for each in opened:
        each.close()


def test_sixteen_workers_that_hammer_one_budget_never_overspend(databases: list[Database]) -> None:
    claims = [limited(databases[0], {}, session=f"s{n}") for n in range(WORKERS)]
    Workspaces(databases[0]).patch(WORKSPACE, {"budget": {"day": {"tokens": 20_000, "usd": 0.01}}}, now_ms=NOW_MS)
    spent: list[Amount] = []

    def work(number: int) -> None:
        database, claim, lasting = databases[number], claims[number], 0
        budgets = Budgets(database)
        try:
            while True:
                held = budgets.reserve(payer(claim), COST, now_ms=NOW_MS)
                assert held is not None
                if lasting % 5 == 4:  # this worker died: nobody knows what the call cost, so it may have cost it all
                    spent.append(held.grant.amount)
                else:
                    real = Amount(held.grant.amount.nano_usd // (1 + number % 3), 100 + held.grant.max_tokens // 2)
                    spent.append(real)
                    step = (Step(lasting + 1, "matched", {}),)
                    settlement = Settlement(payer(claim), real, (held,))
                    Journal(database).save(claim, Entries(step), PROGRESS, settlement=settlement)
                lasting += 1
        except BudgetSpent:
            pass

    at_once(work, range(WORKERS))
    total = sum(spent, NOTHING)
    assert total.tokens <= 20_000
    assert total.cost_usd <= Decimal("0.01")
    assert total.tokens > 15_000 or total.cost_usd > Decimal("0.009")
    day = Account("workspace", WORKSPACE, "2027-01-15")
    assert used(databases[0], day) == {"usd": float(total.cost_usd), "tokens": total.tokens, "tool_calls": 0}


COSTS = st.integers(0, 10**7).map(lambda billionths: billionths * NANO)
USAGES = st.builds(Usage, *(st.integers(0, 10**6),) * 4, COSTS, st.just(1))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.sampled_from(["m1", "m2"]), USAGES), max_size=4),
            st.sampled_from(["ends", "dies", "is deleted"]),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_the_ledger_adds_up_with_the_journal_whoever_dies(
    migrated: Path, tmp_path_factory: pytest.TempPathFactory, played: list[tuple[list[tuple[str, Usage]], str]]
) -> None:
    file = tmp_path_factory.mktemp("ledger") / "loom.db"
    file.write_bytes(migrated.read_bytes())
    database = Database(f"sqlite:///{file}", sync="normal")
    booked: dict[str, Usage] = {}
    for number, (replies, fate) in enumerate(played):
        claim = running(database, f"s{number}")
        total = Usage()
        for n, (model, usage) in enumerate(replies):
            total = total + usage
            step = Step(n, "reply", {"model": model, "usage": usage.as_json()})
            Journal(database).save(claim, Entries((step,)), {**PROGRESS, "usage": total.as_json()})
        models: dict[str, Usage] = {}
        for model, usage in replies:
            models[model] = models.get(model, Usage()) + usage
        if fate == "dies":  # what its next owner finds in the journal is what it ends with
            continue
        for model, usage in models.items():
            booked[model] = booked.get(model, Usage()) + usage
        if fate == "ends":
            Journal(database).finish(claim, final(total, spent=models))
            assert Sessions(database).get(WORKSPACE, f"s{number}").usage == total
        else:
            Sessions(database).delete(WORKSPACE, f"s{number}")
    rows = {row["key"]: row for row in Ledger(database).totals(WORKSPACE, group_by="model")}
    database.close()
    assert set(rows) == set(booked)
    for model, usage in booked.items():
        assert {name: rows[model][name] for name in usage.as_json()} == usage.as_json()


def test_nothing_is_counted_twice_when_a_day_turns_during_a_call(database: Database) -> None:
    claim = limited(database, {"day": {"tokens": 500}})
    held = Budgets(database).reserve(payer(claim), COST, now_ms=NOW_MS)
    assert held is not None
    tomorrow_ms = NOW_MS + 86_400_000
    limits = limits_of("session", claim.turn.lane, {"day": {"tokens": 500}}, now_ms=tomorrow_ms)
    Budgets(database).report(limits, now_ms=tomorrow_ms)
    settlement = Settlement(payer(claim), SPENT.amount(), (held,))
    assert all(account.window in ("", "2027-01-15", "2027-01") for account in settlement.changes(tomorrow_ms))
    assert settlement.changes(tomorrow_ms)[held.accounts[0]] == SPENT.amount() - held.grant.amount


def test_a_settlement_without_a_reservation_is_counted_now(database: Database) -> None:
    claim = limited(database, {"day": {"tokens": 500}})
    settlement = replace(Settlement(payer(claim), SPENT.amount()))
    assert settlement.changes(NOW_MS)[Account("session", claim.turn.lane, "2027-01-15")] == SPENT.amount()


def test_what_was_set_aside_before_there_were_rows_is_settled(database: Database) -> None:
    claim = limited(database, {"tokens": 500})
    held = asdict(Budgets(database).reserve(payer(claim), COST, now_ms=NOW_MS))  # type: ignore[call-overload]
    with database.write(lock=WHOLE) as tx:
        tx.exec_driver_sql("DELETE FROM reservations")
    old = Reservation.from_json({key: held[key] for key in ("accounts", "grant", "at_ms")})
    settlement = Settlement(payer(claim), SPENT.amount(), (old,))
    Journal(database).save(claim, Entries((Step(1, "matched", {}),)), PROGRESS, settlement=settlement)
    assert used(database, old.accounts[0])["tokens"] == 15


def test_a_modest_reply_is_likely_until_enough_are_known_and_busy_neighbours_hide_none(database: Database) -> None:
    claim, budgets, likely = limited(database, {"tokens": 10**6}), Budgets(database), list[int]()
    Ledger(database).charge("", Charge(WORKSPACE, "s2", "default", "m", SPENT, kind="summary"), now_ms=NOW_MS)
    for agent, entries in (("default", 1), ("default", 20), ("other", 4_000)):
        with database.write(lock=WHOLE) as tx:
            row = {**tx.execute(select(ledger)).mappings().fetchmany(1)[0], "agent": agent}
            tx.execute(insert(ledger), [{name: row[name] for name in row if name != "n"}] * entries)
        held = budgets.reserve(payer(claim), CallCost(100, 8_192), now_ms=NOW_MS + len(likely) * COUNTED_AGAIN_MS)
        likely.append(held.grant.amount.tokens if held else 0)
    assert likely == [1_124, 100 + SPENT.output_tokens, 100 + SPENT.output_tokens]


def test_the_stages_of_a_run_share_its_budget(database: Database) -> None:
    budgets, fork = Budgets(database), {"type": "fork-join", "prompt": "Which?", "agent_ids": ["anna", "ben", "carl"]}
    journal = run_journal(database, Settings().limits)
    step, _ = journal.accept(WORKSPACE, workflow(fork), NewRun(budget={"tokens": 500}), now_ms=NOW_MS)
    claims = [Claims(database).claim(turn.lane, worker="w", now_ms=NOW_MS) for turn in step.begun]
    first, second, third = (claim for claim in claims if isinstance(claim, Claim))
    assert first.is_limited(None)
    held = budgets.reserve(payer(first), COST, now_ms=NOW_MS)
    assert held is not None
    assert held.accounts == (Account("run", step.run.id),)
    assert budgets.reserve(payer(second), COST, now_ms=NOW_MS) is not None
    with pytest.raises(BudgetSpent, match="budget of this run"):
        budgets.reserve(payer(third), COST, now_ms=NOW_MS)
    settlement = Settlement(payer(first), SPENT.amount(), (held,))
    Journal(database).save(first, Entries((Step(1, "matched", {}),)), PROGRESS, settlement=settlement)
    assert used(database, held.accounts[0])["tokens"] == 215
    assert budgets.reserve(payer(third), COST, now_ms=NOW_MS) is not None
