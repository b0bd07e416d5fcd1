import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.values.ids import lasted_ms, new_id, now_ms, sortable_id

MS = st.integers(0, 2**48 - 1)
CHANCE = st.integers(0, 2**80 - 1)


@given(MS, CHANCE, MS, CHANCE)
def test_ids_sort_as_their_times_and_then_by_chance(ms_a: int, chance_a: int, ms_b: int, chance_b: int) -> None:
    a, b = sortable_id("x_", now_ms=ms_a, chance=chance_a), sortable_id("x_", now_ms=ms_b, chance=chance_b)
    assert (a < b) == ((ms_a, chance_a) < (ms_b, chance_b))
    assert re.fullmatch("x_[0-9a-hjkmnp-tv-z]{26}", a)


def test_new_ids_differ_and_begin_with_their_prefix() -> None:
    made = {new_id("turn_") for _ in range(1000)}
    assert len(made) == 1000
    assert all(one.startswith("turn_") and len(one) == 31 for one in made)


def test_an_id_of_now_lies_between_those_of_the_moments_around_it() -> None:
    before = sortable_id("t_", now_ms=now_ms(), chance=0)
    one = new_id("t_")
    assert before <= one <= sortable_id("t_", now_ms=now_ms(), chance=2**80 - 1)


def test_ids_of_one_millisecond_sort_as_they_were_made() -> None:
    made = [new_id("turn_") for _ in range(1000)]
    assert made == sorted(set(made))


@pytest.mark.parametrize(
    ("began_ms", "ended_ms", "lasted"), [(10, 14, 4), (14, 14, 0), (14, 10, 0), (None, 10, None), (10, None, None)]
)
def test_nothing_lasts_less_than_no_time(began_ms: int | None, ended_ms: int | None, lasted: int | None) -> None:
    assert lasted_ms(began_ms, ended_ms) == lasted
