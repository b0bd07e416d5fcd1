import pytest

from web.connection_limits import ConnectionLimiter


@pytest.mark.cases(("given", "slots"), [(0, 1), (1, 1), (2, 2), (192, 192)])
def test_as_many_may_wait_as_there_are_slots(given: int, slots: int) -> None:
    limiter = ConnectionLimiter(slots=given)
    assert [limiter.enter() for _ in range(slots + 1)] == [True] * slots + [False]


def taken(limiter: ConnectionLimiter, *holders: str) -> int:
    """How many slots these holders get."""
    return next(count for count in range(1000) if not limiter.enter(*holders))


def test_one_holder_leaves_a_quarter_of_the_slots_to_others() -> None:
    limiter = ConnectionLimiter(slots=192)
    assert taken(limiter, "workspace a", "address 1") == 144
    assert taken(limiter, "workspace a", "address 2") == 0
    assert taken(limiter, "workspace b", "address 1") == 0
    assert taken(limiter, "workspace b", "address 2") == 36


def test_a_slot_given_back_counts_for_its_holders_no_more() -> None:
    limiter = ConnectionLimiter(slots=3)
    assert [limiter.enter("workspace a") for _ in range(3)] == [True, True, False]
    assert limiter.enter("workspace b")
    for holder in ("workspace b", "workspace a", "workspace a"):
        limiter.leave(holder)
    assert taken(limiter, "workspace a") == 2


def test_an_address_gets_fewer_slots_than_it_may_have_connections() -> None:
    limiter = ConnectionLimiter(slots=100, address_slots=10)
    assert taken(limiter, "workspace a", "address 1") == 10
    assert taken(limiter, "workspace a", "address 2") == 10
    assert taken(limiter, "workspace b") == 60
