"""What a limit of tokens leaves, as a pure function of what was used and when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.service.allowances import Quota, tokens_left

NOW_MS = 1_000_000
Entries = list[tuple[int, int]]


@pytest.mark.cases(
    "booked, running, left",
    [
        ([], 0, Quota("tokens", 100, 100, 0)),
        ([(NOW_MS - 20_000, 60)], 0, Quota("tokens", 100, 40, 40.0)),
        ([(NOW_MS - 50_000, 60), (NOW_MS - 20_000, 60)], 0, Quota("tokens", 100, 0, 10.0, 10.0)),
        ([(NOW_MS - 50_000, 10), (NOW_MS - 20_000, 100)], 0, Quota("tokens", 100, 0, 10.0, 40.0)),
        ([(NOW_MS - 20_000, 100)], 0, Quota("tokens", 100, 0, 40.0, 40.0)),
        ([], 30, Quota("tokens", 100, 70, 60)),
        ([(NOW_MS - 50_000, 50)], 60, Quota("tokens", 100, 0, 10.0, 10.0)),
        ([(NOW_MS - 50_000, 50)], 100, Quota("tokens", 100, 0, 10.0, 60)),
    ],
)
def test_what_is_left_and_when_there_is_more(booked: Entries, running: int, left: Quota) -> None:
    assert tokens_left(100, booked, running, now_ms=NOW_MS) == left


ENTRIES = st.lists(st.tuples(st.integers(NOW_MS - 59_999, NOW_MS), st.integers(0, 500)), max_size=20).map(sorted)


@given(limit=st.integers(1, 1000), booked=ENTRIES, running=st.integers(0, 500))
def test_who_waits_as_told_may_go_on_and_not_before(limit: int, booked: Entries, running: int) -> None:
    quota = tokens_left(limit, booked, running, now_ms=NOW_MS)
    assert (quota.wait_s > 0) == (running + sum(tokens for _, tokens in booked) >= limit)
    assert 0 <= quota.wait_s <= 60
    if quota.wait_s == 0 or running >= limit:
        return

    def waited(until_ms: float) -> Quota:
        later = [(at_ms, tokens) for at_ms, tokens in booked if at_ms > until_ms - 60_000]
        return tokens_left(limit, later, running, now_ms=round(until_ms))

    until_ms = NOW_MS + round(quota.wait_s * 1000)
    assert waited(until_ms).wait_s == 0
    assert waited(until_ms - 1).wait_s > 0
