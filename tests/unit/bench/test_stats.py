import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.stats import percentile, short


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200), st.integers(0, 100))
def test_a_percentile_is_one_of_the_values_and_that_share_is_not_above_it(values: list[float], share: int) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) * 100 >= share * len(values)


def test_there_is_no_percentile_of_nothing() -> None:
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 50)


@pytest.mark.cases(
    ("value", "text"), [(0.1234, "0.12"), (9.876, "9.88"), (16.25, "16.2"), (560.12, "560.1"), (9954.6, "9,955")]
)
def test_a_number_has_the_digits_that_say_something(value: float, text: str) -> None:
    assert short(value) == text
