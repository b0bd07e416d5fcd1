import pytest

from web.doors import Doors


@pytest.mark.cases(("threads", "slots"), [(1, 1), (2, 1), (4, 3), (8, 6), (256, 192)])
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


def taken(doors: Doors, *holders: str) -> int:
    """How many slots these holders get."""
    return next(count for count in range(1000) if not doors.enter(*holders))


def test_one_holder_leaves_a_quarter_of_the_slots_to_others() -> None:
    doors = Doors(threads=256)
    assert taken(doors, "workspace a", "address 1") == 144
    assert taken(doors, "workspace a", "address 2") == 0
    assert taken(doors, "workspace b", "address 1") == 0
    assert taken(doors, "workspace b", "address 2") == 36


def test_a_slot_given_back_counts_for_its_holders_no_more() -> None:
    doors = Doors(threads=4)
    with doors.slot("workspace a") as first, doors.slot("workspace a") as second, doors.slot("workspace a") as third:
        assert (first, second, third) == (True, True, False)
        assert doors.enter("workspace b")
        doors.leave("workspace b")
    assert taken(doors, "workspace a") == 2
