from typing import Any

import pytest

from loom_worker.tools.shared_memory import MOST_CHANGES, POLL_S
from tests.unit.tools.shared.conftest import Agents, agent

ME = agent()


def keys(answer: Any) -> list[str]:
    return [change["key"] for change in answer["changes"]]


def test_a_first_watch_gives_what_there_is_at_once(agents: Agents) -> None:
    for key in ("b", "a", "gone"):
        agents.call(ME, "write", key=key, value=key.upper())
    agents.call(ME, "delete", key="gone")
    answer = agents.call(ME, "watch", wait_s=20)
    assert [(change["key"], change["value"]) for change in answer["changes"]] == [("b", "B"), ("a", "A")]
    assert (answer["since_version"], answer["has_more"], agents.time.pauses) == (4, False, [])


def test_a_first_watch_of_nothing_gives_nothing_at_once(agents: Agents) -> None:
    assert agents.call(ME, "watch") == {"changes": [], "since_version": 0, "has_more": False}
    assert agents.time.pauses == []


def test_a_watch_ends_with_the_first_change_after_it_began(agents: Agents) -> None:
    agents.call(ME, "write", key="a", value=1)

    def meanwhile(pauses: int) -> None:
        if pauses == 3:
            agents.call(agent(session="s2"), "write", key="b", value=2)
            agents.call(ME, "delete", key="a")

    agents.time.meanwhile = meanwhile
    answer = agents.call(ME, "watch", since_version=1, wait_s=20)
    assert [(change["key"], change.get("value"), change.get("deleted")) for change in answer["changes"]] == [
        ("b", 2, None),
        ("a", None, True),
    ]
    assert answer["since_version"] == 3
    assert agents.time.pauses == [POLL_S] * 3


def test_a_watch_ends_in_time_though_nothing_changes(agents: Agents) -> None:
    agents.call(ME, "write", key="a", value=1)
    answer = agents.call(ME, "watch", since_version=1, wait_s=1.5)
    assert answer == {"changes": [], "since_version": 1, "has_more": False}
    assert sum(agents.time.pauses) == pytest.approx(1.5)
    assert max(agents.time.pauses) <= POLL_S


def test_no_watch_waits_for_more_than_20_s(agents: Agents) -> None:
    agents.call(ME, "write", key="a", value=1)
    agents.call(ME, "watch", since_version=1, wait_s=1000)
    assert sum(agents.time.pauses) == pytest.approx(20)


def test_a_watch_ends_when_the_process_is_to_stop(agents: Agents) -> None:
    agents.call(ME, "write", key="a", value=1)
    agents.time.stops_after = 2
    assert agents.call(ME, "watch", since_version=1, wait_s=20)["changes"] == []
    assert agents.time.pauses == [POLL_S] * 2


def test_changes_of_other_keys_do_not_end_a_watch_and_are_not_looked_through_again(agents: Agents) -> None:
    agents.call(ME, "write", key="a", value=1)
    agents.time.meanwhile = lambda _: agents.call(ME, "write", key="b_x", value=1)
    answer = agents.call(ME, "watch", prefix="a", since_version=1, wait_s=1)
    assert (answer["changes"], answer["since_version"]) == ([], 1 + len(agents.time.pauses))


def test_no_watch_hears_of_another_agent(agents: Agents) -> None:
    agents.call(ME, "write", key="a", value=1)
    agents.time.meanwhile = lambda _: agents.call(agent("player2"), "write", key="a", value="secret")
    assert agents.call(ME, "watch", since_version=1, wait_s=1)["changes"] == []


def test_what_is_too_much_for_one_answer_comes_with_the_next(agents: Agents) -> None:
    names = [f"k{n:03}" for n in range(MOST_CHANGES + 3)]
    for name in names:
        agents.call(ME, "write", key=name, value=1)
    first = agents.call(ME, "watch")
    assert (keys(first), first["has_more"]) == (names[:MOST_CHANGES], True)
    rest = agents.call(ME, "watch", since_version=first["since_version"])
    assert (keys(rest), rest["has_more"]) == (names[MOST_CHANGES:], False)


def test_a_version_that_the_namespace_has_not_reached_begins_anew(agents: Agents) -> None:
    agents.call(ME, "write", key="a", value=1)
    answer = agents.call(ME, "watch", since_version=99, wait_s=20)
    assert (keys(answer), answer["since_version"], "note" in answer) == (["a"], 1, True)
    assert agents.time.pauses == []
