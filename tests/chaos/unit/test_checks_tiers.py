"""I23: each test breaks a good run with a long session in one way, or does what is allowed."""

import pytest

from tests.chaos.checker import check
from tests.chaos.checks_tiers import BATCH
from tests.chaos.unit.compressed import compress_session, long_run, seen
from tests.chaos.unit.made import Run, assert_found


@pytest.fixture
def long(run: Run) -> Run:
    """The good run, with a session that has several summaries by date."""
    return long_run(run, turns=28)


def test_a_long_session_with_summaries_by_date_is_not_blamed(long: Run) -> None:
    assert long.row("SELECT count(*) >= 3 FROM dated_summaries")[0]
    assert long.row("SELECT count(*) >= 9 FROM facts")[0]
    assert check(seen(long)) == ()


def test_summaries_by_date_that_were_made_without_the_model_have_no_facts_to_be_missed(run: Run) -> None:
    for number in range(5, 25):
        run.turn(f"T{number:05} plain")
        compress_session(run, "s1", is_busy=True)
    assert long_enough(run)
    assert run.row("SELECT count(*) FROM facts")[0] == 0
    assert check(seen(run)) == ()


def test_a_summary_by_date_that_is_lost_is_found(long: Run) -> None:
    long.sql("DELETE FROM dated_summaries WHERE id = (SELECT max(id) FROM dated_summaries)")
    assert_found(seen(long), "I23", "is in 0 summaries by date")


def test_a_summary_by_date_that_is_there_twice_is_found(long: Run) -> None:
    joined = ", ".join(long.columns("dated_summaries")[1:])
    long.sql(f"INSERT INTO dated_summaries (id, {joined}) SELECT 'again', {joined} FROM dated_summaries LIMIT 1")
    assert_found(seen(long), "I23", "is in 2 summaries by date")


def test_a_summary_by_date_that_tears_a_turn_is_found(long: Run) -> None:
    long.sql("UPDATE dated_summaries SET to_n = to_n - 1 WHERE id = (SELECT max(id) FROM dated_summaries)")
    assert_found(seen(long), "I23", "is torn by a summary by date")


def test_a_batch_that_nobody_summarized_is_found(long: Run) -> None:
    last = "SELECT to_n FROM dated_summaries ORDER BY to_n DESC LIMIT 1 OFFSET 1"
    long.sql(f"UPDATE memory SET dated_n = ({last}) WHERE dated_n > 0")
    long.sql("DELETE FROM dated_summaries WHERE to_n = (SELECT max(to_n) FROM dated_summaries)")
    assert long.row("SELECT count(*) FROM messages WHERE n > (SELECT max(dated_n) FROM memory)")[0] >= BATCH
    assert_found(seen(long), "I23", "that have left L1 are in no summary by date")


def test_a_fact_that_is_lost_is_found(long: Run) -> None:
    long.sql("DELETE FROM facts WHERE id = (SELECT min(id) FROM facts)")
    assert_found(seen(long), "I23", "is a fact 0 times")


def test_a_fact_that_is_there_twice_is_found(long: Run) -> None:
    joined = ", ".join(long.columns("facts")[1:])
    long.sql(f"INSERT INTO facts (id, {joined}) SELECT 'again', {joined} FROM facts LIMIT 1")
    assert_found(seen(long), "I23", "is a fact 2 times")


def test_what_was_said_and_has_no_vector_is_found(long: Run) -> None:
    assert_found(seen(long, embeds=True), "I23", "has no vector")


def long_enough(run: Run) -> bool:
    """True if there are summaries by date to look at."""
    return bool(run.row("SELECT count(*) >= 2 FROM dated_summaries")[0])
