"""How turns and replies are known."""

import pytest

from tests.chaos.marks import mark_of, replies_in, reply_name, unspoken

RUN = "run_01m8acfax67przdzsc4wfwefxs"


def test_a_turn_has_the_first_mark_in_its_input() -> None:
    assert mark_of("so: T00042 like T00043") == "T00042"
    assert mark_of("nothing") == ""


def test_a_stage_has_a_mark_of_what_was_asked_of_whom() -> None:
    known = mark_of(f"{RUN} words=3\nT00042.1 says", "ada")
    assert known == mark_of(f"{RUN} words=3\nT00042.1 says", "ada")
    others = {mark_of(f"{RUN} words=3\nT00042.1 says", "bob"), mark_of(f"{RUN} words=4\nT00042.1 says", "ada")}
    assert known not in others
    assert known != "T00042"


def test_who_is_asked_says_nothing_of_a_turn_that_is_no_stage() -> None:
    assert mark_of("T00042 words=3", "ada") == "T00042"


@pytest.mark.parametrize("name", ["T00042.1", "T123456789012345.98"])
def test_a_name_in_signs_is_a_name(name: str) -> None:
    [(mark, nth)] = replies_in(f"blue {unspoken(name)}")
    assert reply_name(mark, nth) == name
    assert not any(sign.isalnum() for sign in unspoken(name))


def test_names_are_found_in_their_order() -> None:
    assert replies_in(f"T00001.1 blue {unspoken('T00002.3')} T00003.2") == [("T00001", 1), ("T00002", 3), ("T00003", 2)]
