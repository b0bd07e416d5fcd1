import pytest

from web.doors import Doors


@pytest.mark.parametrize(("threads", "slots"), [(1, 1), (2, 1), (4, 3), (8, 6), (256, 192)])
def test_three_quarters_of_the_threads_may_wait(threads: int, slots: int) -> None:
    doors = Doors(threads=threads)
    assert [doors.enter() for _ in range(slots + 1)] == [True] * slots + [False]


def test_a_slot_is_given_back_even_if_the_waiter_fails() -> None:
    doors = Doors(threads=1)

    def failing() -> None:
        with doors.slot() as has_slot:
            assert has_slot
            raise RuntimeError

    with pytest.raises(RuntimeError):
        failing()
    with doors.slot() as has_slot:
        assert has_slot


def test_who_found_no_slot_gives_none_back() -> None:
    doors = Doors(threads=1)
    assert doors.enter()
    with doors.slot() as has_slot:
        assert not has_slot
    assert not doors.enter()
