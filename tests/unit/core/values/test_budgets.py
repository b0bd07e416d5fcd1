"""Amounts, limits and periods; and that what is granted always fits."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.errors import BudgetSpent
from loom_worker.core.values.budgets import (
    LEAST_REPLY_TOKENS,
    NANO,
    NOTHING,
    Account,
    Amount,
    CallCost,
    Grant,
    Limit,
    Payer,
    Reservation,
    Settlement,
    ToolCallCount,
    begin_ms,
    has_usd,
    limits_of,
    nano,
    renews_ms,
    usd,
    window_of,
)
from loom_worker.core.values.json import Json

NOW_MS = int(datetime(2026, 11, 24, 3, 4, 5, tzinfo=UTC).timestamp()) * 1000
ACCOUNT = Account("session", "lane")
AMOUNTS = st.builds(Amount, st.integers(0, 10**12), st.integers(0, 10**7), st.integers(0, 100))
LIMITS = st.builds(
    Limit,
    st.just(ACCOUNT),
    st.none() | st.integers(0, 10**12),
    st.none() | st.integers(0, 10**7),
    st.none() | st.integers(0, 100),
)
RATES = st.integers(0, 10**6).map(lambda thousandths: Decimal(thousandths) / 1000)
COSTS = st.builds(CallCost, st.integers(0, 10**6), st.integers(1, 10**5), RATES, RATES)


@given(COSTS, st.lists(st.tuples(LIMITS, AMOUNTS), max_size=4))
def test_what_is_granted_fits_every_limit(cost: CallCost, left: list[tuple[Limit, Amount]]) -> None:
    try:
        grant = cost.within(left)
    except BudgetSpent:
        return
    assert cost.least_tokens <= grant.max_tokens <= cost.max_tokens
    for limit, used in left:
        after = used + Amount(grant.amount.nano_usd, grant.amount.tokens)
        assert limit.tokens is None or after.tokens <= limit.tokens
        assert limit.nano_usd is None or after.nano_usd <= limit.nano_usd


@given(COSTS, LIMITS, AMOUNTS)
def test_a_call_is_refused_only_if_it_would_not_fit(cost: CallCost, limit: Limit, used: Amount) -> None:
    try:
        cost.within([(limit, used)])
    except BudgetSpent:
        after = used + cost.amount(cost.least_tokens)
        is_over_money = limit.nano_usd is not None and after.nano_usd > limit.nano_usd
        assert is_over_money or (limit.tokens is not None and after.tokens > limit.tokens)


@given(st.integers(1, 50), st.lists(st.tuples(LIMITS, AMOUNTS), max_size=4))
def test_tool_calls_are_granted_all_or_none(count: int, left: list[tuple[Limit, Amount]]) -> None:
    fits = all(limit.tool_calls is None or used.tool_calls + count <= limit.tool_calls for limit, used in left)
    if fits:
        assert ToolCallCount(count).within(left) == Grant(Amount(tool_calls=count))
    else:
        with pytest.raises(BudgetSpent):
            ToolCallCount(count).within(left)


def test_a_reply_gets_what_is_left_and_the_tightest_limit_is_named() -> None:
    cost = CallCost(100, 1000)
    wide, tight = Limit(ACCOUNT, tokens=1050), Limit(Account("turn", "turn_1"), tokens=300)
    grant = cost.within([(wide, NOTHING), (tight, NOTHING)])
    assert (grant.max_tokens, grant.amount.tokens) == (200, 300)
    assert "this turn" in grant.narrowed
    assert cost.within([(Limit(ACCOUNT, tokens=1100), NOTHING)]) == Grant(Amount(0, 1100), 1000)
    with pytest.raises(BudgetSpent, match="may need more than is left of the budget of this session: 0 of 150 tokens"):
        cost.within([(Limit(ACCOUNT, tokens=100 + LEAST_REPLY_TOKENS - 14), NOTHING)])


def test_a_short_reply_needs_no_more_than_it_asks_for() -> None:
    assert CallCost(10, 5).within([(Limit(ACCOUNT, tokens=15), NOTHING)]).max_tokens == 5


def test_money_cannot_be_spent_on_a_model_without_a_price() -> None:
    with pytest.raises(BudgetSpent, match="does not know the model's price"):
        CallCost(1, 1, None, None).within([(Limit(ACCOUNT, nano_usd=10**9), NOTHING)])
    assert CallCost(1, 1, None, None).within([(Limit(ACCOUNT, tokens=10), NOTHING)]).max_tokens == 1


def test_what_is_used_up_is_told_with_figures_and_when_it_renews() -> None:
    [limit] = limits_of("workspace", "acme", {"day": {"usd": 5, "tokens": 2_000_000}}, now_ms=NOW_MS)
    used = Amount(nano(Decimal("4.91")), 2_000_000)
    assert limit.used_up(used) == (
        "The budget of the workspace 'acme' for 2026-11-24 is used up: 4.91 of 5 USD used, 2,000,000 of 2,000,000 "
        "tokens used. It renews at 2026-11-25T00:00:00.000Z."
    )
    assert limit.as_json(used) == {
        "level": "workspace",
        "window": "2026-11-24",
        "limit": {"usd": 5.0, "tokens": 2_000_000},
        "used": {"usd": 4.91, "tokens": 2_000_000},
        "renews_at": "2026-11-25T00:00:00.000Z",
    }


@pytest.mark.cases(
    ("budget", "expected"),
    [
        (None, []),
        ({}, []),
        ({"day": {}}, []),
        ({"max_cost_usd": 1}, []),
        ({"usd": 0}, [("", 0, None, None)]),
        ({"usd": 0.1, "tokens": 5}, [("", 100_000_000, 5, None)]),
        ({"tool_calls": 3, "day": {"tokens": 7}}, [("", None, None, 3), ("2026-11-24", None, 7, None)]),
        ({"month": {"usd": 1e-10}}, [("2026-11", 0, None, None)]),
    ],
)
def test_a_budget_is_read_as_limits(budget: Json | None, expected: list[tuple[object, ...]]) -> None:
    limits = limits_of("session", "lane", budget, now_ms=NOW_MS)
    assert [(each.account.window, each.nano_usd, each.tokens, each.tool_calls) for each in limits] == expected


def test_only_budgets_in_money_need_a_price() -> None:
    assert has_usd(None, {"tokens": 1}, {"month": {"usd": 1}})
    assert not has_usd(None, {"tokens": 1}, {"day": {"tool_calls": 1}})


@pytest.mark.cases(
    ("period", "day", "window", "renews"),
    [
        ("", (2026, 11, 24), "", None),
        ("day", (2026, 11, 24), "2026-11-24", (2026, 11, 25)),
        ("day", (2026, 12, 31), "2026-12-31", (2027, 1, 1)),
        ("month", (2026, 12, 31), "2026-12", (2027, 1, 1)),
        ("month", (2028, 2, 29), "2028-02", (2028, 3, 1)),
        ("month", (2026, 1, 31), "2026-01", (2026, 2, 1)),
    ],
)
def test_periods_begin_at_midnight_in_utc(period, day, window, renews) -> None:  # type: ignore[no-untyped-def]
    moment_ms = int(datetime(*day, 23, 59, 59, tzinfo=UTC).timestamp()) * 1000
    assert window_of(period, moment_ms) == window
    assert begin_ms(window) <= moment_ms
    found_ms = renews_ms(period, moment_ms)
    assert found_ms == (None if renews is None else int(datetime(*renews, tzinfo=UTC).timestamp()) * 1000)


@given(st.integers(0, 10**15))
def test_an_amount_of_money_is_exact_in_decimals(billionths: int) -> None:
    amount = billionths * NANO
    assert nano(amount) == billionths
    assert usd(str(amount)) == amount
    assert usd(float(amount)) == amount


@given(AMOUNTS, AMOUNTS, AMOUNTS)
def test_settling_leaves_what_was_really_spent(before: Amount, held: Amount, spent: Amount) -> None:
    payer = Payer("acme", "lane", "default", turn_id="turn_1")
    limited, other = Account("session", "lane"), Account("workspace", "acme", "2026-11")
    reservation = Reservation((limited,), Grant(held), NOW_MS)
    changes = Settlement(payer, spent, (reservation,)).changes(NOW_MS)
    assert before + held + changes[limited] == before + spent
    assert before + changes[other] == before + spent
    assert set(changes) == set(payer.accounts(NOW_MS))
