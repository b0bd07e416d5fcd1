import pytest

from web.connection_limits import ConnectionLimiter


@pytest.mark.cases(("threads", "slots"), [(1, 1), (2, 1), (4, 3), (8, 6), (256, 192)])
def test_three_quarters_of_the_threads_may_wait(threads: int, slots: int) -> None:
    limiter = ConnectionLimiter(threads=threads)
    assert [limiter.enter() for _ in range(slots + 1)] == [True] * slots + [False]


def test_a_slot_is_given_back_even_if_the_waiter_fails() -> None:
    limiter = ConnectionLimiter(threads=1)

    def failing() -> None:
        with limiter.slot() as has_slot:
            assert has_slot
            raise RuntimeError

    with pytest.raises(RuntimeError):
        failing()
    with limiter.slot() as has_slot:
        assert has_slot


def test_who_found_no_slot_gives_none_back() -> None:
    limiter = ConnectionLimiter(threads=1)
    assert limiter.enter()
    with limiter.slot() as has_slot:
        assert not has_slot
    assert not limiter.enter()


def taken(limiter: ConnectionLimiter, *holders: str) -> int:
    """How many slots these holders get."""
    return next(count for count in range(1000) if not limiter.enter(*holders))


def test_one_holder_leaves_a_quarter_of_the_slots_to_others() -> None:
    limiter = ConnectionLimiter(threads=256)
    assert taken(limiter, "workspace a", "address 1") == 144
    assert taken(limiter, "workspace a", "address 2") == 0
    assert taken(limiter, "workspace b", "address 1") == 0
    assert taken(limiter, "workspace b", "address 2") == 36


def test_a_slot_given_back_counts_for_its_holders_no_more() -> None:
    limiter = ConnectionLimiter(threads=4)
    with (
        limiter.slot("workspace a") as first,
        limiter.slot("workspace a") as second,
        limiter.slot("workspace a") as third,
    ):
        assert (first, second, third) == (True, True, False)
        assert limiter.enter("workspace b")
        limiter.leave("workspace b")
    assert taken(limiter, "workspace a") == 2
