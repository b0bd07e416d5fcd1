import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.values.notifications import Delivery
from loom_worker.webhook.send import DELAYS_S, JITTER, MAX_RETRY_AFTER_S, Attempt, after, next_attempt_ms

NOW_MS = 1_795_000_000_000
MIDDLE = 0.5
"""The chance that lengthens and shortens nothing."""
SECONDS = st.none() | st.floats(0, 1e12)


def a_delivery(*, attempts: int = 0) -> Delivery:
    return Delivery(
        id="dlv_1",
        workspace="main",
        turn_id="turn_1",
        url="https://example.com/hook",
        secret=None,
        body="{}",
        status="pending",
        attempts=attempts,
        created_ms=NOW_MS - 1000,
        next_ms=NOW_MS,
        last_status=500,
        last_error="HTTP 500",
    )


def test_the_published_pauses_are_kept() -> None:
    pauses_s = []
    for attempts in range(10):
        next_ms = next_attempt_ms(attempts, NOW_MS, retry_after_s=None, chance=MIDDLE)
        assert next_ms is not None
        pauses_s.append((next_ms - NOW_MS) / 1000)
    assert pauses_s == [0, 5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400]


@pytest.mark.parametrize("retry_after_s", [None, 1.0])
def test_there_is_no_eleventh_attempt(retry_after_s: float | None) -> None:
    assert next_attempt_ms(10, NOW_MS, retry_after_s=retry_after_s, chance=MIDDLE) is None


@given(attempts=st.integers(0, 9), retry_after_s=SECONDS, chance=st.floats(0, 1))
def test_a_pause_stays_within_its_jitter_or_follows_the_receivers_wish(
    attempts: int, retry_after_s: float | None, chance: float
) -> None:
    next_ms = next_attempt_ms(attempts, NOW_MS, retry_after_s=retry_after_s, chance=chance)
    assert next_ms is not None
    pause_s = (next_ms - NOW_MS) / 1000
    wished_s = min(retry_after_s or 0.0, MAX_RETRY_AFTER_S)
    assert pause_s >= max(DELAYS_S[attempts] * (1 - JITTER), wished_s) - 0.001
    assert pause_s <= max(DELAYS_S[attempts] * (1 + JITTER), wished_s) + 0.001


def test_chance_spreads_those_that_failed_together() -> None:
    earliest = next_attempt_ms(2, NOW_MS, retry_after_s=None, chance=0.0)
    latest = next_attempt_ms(2, NOW_MS, retry_after_s=None, chance=1.0)
    assert (earliest, latest) == (NOW_MS + 270_000, NOW_MS + 330_000)


def test_retry_after_is_honoured_up_to_a_day() -> None:
    assert next_attempt_ms(1, NOW_MS, retry_after_s=600.0, chance=MIDDLE) == NOW_MS + 600_000
    assert next_attempt_ms(1, NOW_MS, retry_after_s=1e9, chance=MIDDLE) == NOW_MS + 86_400_000


def test_retry_after_never_hurries_the_schedule() -> None:
    assert next_attempt_ms(3, NOW_MS, retry_after_s=1.0, chance=MIDDLE) == NOW_MS + 1_800_000


@pytest.mark.cases("status", [200, 202, 204, 299])
def test_a_2xx_ends_the_delivery(status: int) -> None:
    told = after(Attempt(status), a_delivery(attempts=3), now_ms=NOW_MS, chance=MIDDLE)
    assert (told.status, told.attempts, told.next_ms, told.delivered_ms) == ("delivered", 4, None, NOW_MS)
    assert (told.last_status, told.last_error) == (status, None)


@pytest.mark.cases("status", [None, 100, 199, 301, 307, 400, 404, 429, 500, 503])
def test_anything_else_is_tried_again(status: int | None) -> None:
    tried = after(Attempt(status, error="no"), a_delivery(attempts=1), now_ms=NOW_MS, chance=MIDDLE)
    assert (tried.status, tried.attempts, tried.next_ms) == ("pending", 2, NOW_MS + 300_000)
    assert (tried.last_status, tried.last_error, tried.delivered_ms) == (status, "no", None)


def test_a_receiver_that_is_gone_is_left_alone() -> None:
    gone = after(Attempt(410, error="HTTP 410"), a_delivery(), now_ms=NOW_MS, chance=MIDDLE)
    assert (gone.status, gone.attempts, gone.next_ms, gone.last_status) == ("disabled", 1, None, 410)


def test_the_tenth_failure_makes_a_delivery_dead() -> None:
    delivery = a_delivery()
    statuses = []
    for _ in range(10):
        delivery = after(Attempt(None, error="refused"), delivery, now_ms=NOW_MS, chance=MIDDLE)
        statuses.append(delivery.status)
    assert statuses == ["pending"] * 9 + ["dead"]
    assert (delivery.attempts, delivery.next_ms, delivery.last_error) == (10, None, "refused")


def test_an_attempt_changes_neither_id_nor_body_nor_url() -> None:
    before = a_delivery()
    tried = after(Attempt(500, error="HTTP 500"), before, now_ms=NOW_MS, chance=MIDDLE)
    assert (tried.id, tried.body, tried.url) == (before.id, before.body, before.url)
