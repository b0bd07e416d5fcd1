"""What a process counts, before it is stored."""

import threading

import pytest

from loom_worker.core import metrics
from loom_worker.core.metric_recorder import (
    MOST_CHARS,
    MOST_VALUES,
    NO_VALUE,
    OTHER,
    RECORDER,
    Counter,
    Histogram,
    Label,
    Recorder,
    series,
)
from tests.support.counting import Counted, cells_of

THINGS = Counter("loom_things_total", "Things.", (Label("kind", ("good", "bad")), Label("owner")))
WAITS = Histogram("loom_waits_seconds", "Waits.", bounds=(0.1, 1.0))


def test_counts_add_up_by_their_labels_until_they_are_taken() -> None:
    recorder = Recorder()
    for values, by in ((("good", "a"), 1.0), (("good", "a"), 2.5), (("bad", "a"), 1.0)):
        recorder.add(THINGS, values, 0, by)
    assert recorder.take() == {(THINGS, ("good", "a")): [3.5], (THINGS, ("bad", "a")): [1.0]}
    assert recorder.take() == {}


def test_a_value_falls_into_the_first_bucket_that_holds_it(counted: Counted) -> None:
    for seconds in (0.0, 0.1, 0.11, 1.0, 1.01, -5.0):
        WAITS.observe(seconds)
    assert cells_of(WAITS) == {(): [pytest.approx(2.22), 3, 2, 1]}
    assert counted(WAITS) == {(): 6}


def test_what_was_given_back_is_added_to_what_was_counted_meanwhile() -> None:
    recorder = Recorder()
    recorder.add(THINGS, ("good", "a"), 0, 1.0)
    taken = recorder.take()
    recorder.add(THINGS, ("good", "a"), 0, 2.0)
    recorder.give_back(taken)
    assert recorder.take() == {(THINGS, ("good", "a")): [3.0]}


def test_nothing_is_counted_by_a_count_of_zero(counted: Counted) -> None:
    THINGS.count("good", "a", by=0)
    assert counted(THINGS) == {}


def test_values_beyond_the_bound_are_one_other_also_where_nobody_ever_takes_them(counted: Counted) -> None:
    for number in range(3 * MOST_VALUES):
        THINGS.count("good", f"owner {number}")
        THINGS.count("bad", f"owner {number}")
    found = counted(THINGS)
    assert len(found) == 2 * (MOST_VALUES + 1)
    assert found["good", OTHER] == found["bad", OTHER] == 2 * MOST_VALUES
    assert found["good", "owner 7"] == 1


def test_a_value_that_its_label_does_not_know_is_other(counted: Counted) -> None:
    THINGS.count("ugly", "a")
    assert counted(THINGS) == {(OTHER, "a"): 1}


def test_a_label_s_value_is_never_empty_and_never_long(counted: Counted) -> None:
    THINGS.count("good", "")
    THINGS.count("good", "x" * 9_999)
    assert counted(THINGS) == {("good", NO_VALUE): 1, ("good", "x" * MOST_CHARS): 1}


def test_a_count_with_too_few_or_too_many_labels_is_a_bug() -> None:
    for values in ((), ("good",), ("good", "a", "b")):
        with pytest.raises(ValueError, match="loom_things_total has the labels"):
            THINGS.count(*values)


def test_many_threads_lose_no_count_while_another_takes_them() -> None:
    recorder, total = Recorder(), 0.0
    counting = [threading.Thread(target=_count, args=(recorder,)) for _ in range(4)]
    for thread in counting:
        thread.start()
    while any(thread.is_alive() for thread in counting):
        total += sum(cell[0] for cell in recorder.take().values())
    total += sum(cell[0] for cell in recorder.take().values())
    assert total == 4 * 5_000


def _count(recorder: Recorder) -> None:
    for number in range(5_000):
        recorder.add(THINGS, ("good", str(number % 3)), 0, 1.0)


def test_a_series_is_written_as_prometheus_writes_it() -> None:
    assert series("loom_x_total", {}) == "loom_x_total"
    assert series("loom_x_total", {"a": 'q"b\\c\nd', "b": "é|=,"}) == r'loom_x_total{a="q\"b\\c\nd",b="é|=,"}'


def test_what_is_known_beforehand_is_shown_as_zero() -> None:
    assert list(THINGS.zeros()) == []
    assert list(WAITS.zeros()) == [()]
    assert ("failed", "dead") in metrics.TURNS.zeros()
    assert list(metrics.COMMITS.zeros()) == [("full",), ("normal",)]


def test_every_family_is_listed_under_its_name() -> None:
    declared = [each for each in vars(metrics).values() if isinstance(each, Counter | Histogram)]
    assert {family.name: family for family in declared} == metrics.FAMILIES
    assert len(declared) == len(metrics.FAMILIES)


def test_there_is_one_recorder(counted: Counted) -> None:
    metrics.LEASES_LOST.count()
    assert counted(metrics.LEASES_LOST) == {(): 1}
    assert list(RECORDER.take()) == [(metrics.LEASES_LOST, ())]
