import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.values.patterns import Effect, Pattern
from loom_worker.patterns.effectiveness import LEAST, LEAST_JUDGED, MOST, boost, boosts, typical_rate, why

TURNS = st.integers(0, 3_000)
RATES = st.floats(0, 1)


def effect(succeeded: int, failed: int, cancelled: int = 0) -> Effect:
    return Effect(uses=succeeded + failed + cancelled, succeeded=succeeded, failed=failed)


@pytest.mark.cases(
    ("worked", "of", "typical", "factor"),
    [
        (18, 20, 0.71, 1.0633),
        (0, 20, 0.71, 0.9),
        (20, 20, 0.71, 1.0967),
        (9, 9, 0.5, 1.0),
        (10, 10, 0.5, 1.1),
        (0, 10, 0.5, 0.9),
        (5, 10, 0.4, 1.025),
        (900, 1_000, 0.9, 1.0),
        (1_000, 1_000, 0.9, 1.0495),
    ],
)
def test_a_rate_better_than_typical_by_20_points_is_worth_ten_percent_once_it_is_believed(
    worked: int, of: int, typical: float, factor: float
) -> None:
    assert boost(effect(worked, of - worked), typical) == pytest.approx(factor, abs=0.0001)


@given(TURNS, TURNS, RATES)
def test_a_factor_is_bounded(succeeded: int, failed: int, typical: float) -> None:
    assert LEAST <= boost(effect(succeeded, failed), typical) <= MOST


@given(st.integers(LEAST_JUDGED, 500), st.integers(1, 500), RATES)
def test_more_successes_never_lower_a_factor(turns: int, worked: int, typical: float) -> None:
    worked = min(worked, turns)
    fewer = boost(effect(worked - 1, turns - worked + 1), typical)
    assert boost(effect(worked, turns - worked), typical) >= fewer
    assert boost(effect(worked + 1, turns - worked), typical) >= boost(effect(worked, turns - worked), typical)


@given(TURNS, TURNS, RATES)
def test_failures_weigh_against_a_pattern_as_successes_weigh_for_it(a: int, b: int, typical: float) -> None:
    assert boost(effect(a, b), typical) - 1 == pytest.approx(1 - boost(effect(b, a), 1 - typical), abs=1e-9)


@given(st.integers(0, LEAST_JUDGED - 1), st.integers(0, LEAST_JUDGED - 1), RATES)
def test_few_judged_turns_change_nothing_however_many_were_cancelled(a: int, b: int, typical: float) -> None:
    few = effect(min(a, LEAST_JUDGED - 1 - min(b, LEAST_JUDGED - 1)), min(b, LEAST_JUDGED - 1), cancelled=1_000)
    assert boost(few, typical) == 1.0


def test_no_use_changes_nothing() -> None:
    assert boost(Effect(), 0.9) == 1.0


def test_the_typical_rate_is_that_of_all_judged_turns() -> None:
    assert typical_rate({("a", "1"): effect(3, 1, 50), ("a", "2"): effect(0, 4)}) == 3 / 8
    assert typical_rate({}) == typical_rate({("a", "1"): effect(0, 0, 9)}) == 0.5


def test_only_the_text_as_it_reads_now_is_judged_and_only_what_differs_is_told() -> None:
    patterns = [Pattern(name, name, name, digest="now") for name in ("good", "bad", "edited", "few", "new")]
    effects = {
        ("good", "now"): effect(20, 0),
        ("good", "old"): effect(0, 20),
        ("bad", "now"): effect(0, 20),
        ("edited", "old"): effect(20, 0),
        ("few", "now"): effect(5, 0),
        ("gone", "now"): effect(0, 5),
    }
    factors = boosts(iter(patterns), effects)
    assert list(factors) == ["good", "bad"]
    assert factors["good"] == 1.1
    assert factors["bad"] == 0.9


def test_a_pattern_alone_is_its_own_measure() -> None:
    assert boosts([Pattern("a", "a", "a", digest="1")], {("a", "1"): effect(15, 5)}) == {}


@pytest.mark.cases(
    ("known", "factor", "typical", "line"),
    [
        (effect(18, 2), 1.0633, 0.71, "worked in 18 of 20 turns, 90 %; all patterns 71 %: ×1.06"),
        (effect(1_000, 500), 0.95, None, "worked in 1,000 of 1,500 turns, 67 %: ×0.95"),
        (effect(9, 0), 1.0, 0.5, "worked in 9 of 9 turns, 100 %; fewer than 10 say nothing yet: ×1.00"),
        (effect(10, 0), 1.1, 0.0, "worked in 10 of 10 turns, 100 %; all patterns 0 %: ×1.10"),
        (effect(0, 0, 3), 1.0, 0.5, "no turn that used it was judged: ×1.00"),
    ],
)
def test_one_line_says_where_a_factor_comes_from(
    known: Effect, factor: float, typical: float | None, line: str
) -> None:
    assert why(known, factor, typical) == line
