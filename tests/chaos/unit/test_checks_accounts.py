"""I9 and I15 of costs: each test breaks the accounts of a run with judges and budgets that kept every promise."""

from dataclasses import replace

import pytest

from loom_worker.core.values.turns import Ending
from loom_worker.store.verdicts import Verdicts
from tests.chaos.checker import check
from tests.chaos.records import Evidence, Injection
from tests.chaos.spent import Limit, is_in, limits, of_entry, of_usage, tokens, total
from tests.chaos.unit.judged import PASSED, SESSION, again, answer_of, begun, judged_run, looked, sent
from tests.chaos.unit.made import NOW_MS, Run, assert_found, changed

COLUMNS = (
    "workspace, session_id, turn_id, agent, model, input_tokens, output_tokens, cache_read_tokens, "
    "cache_write_tokens, llm_calls, cost_nano, at_ms, kind, tool_calls"
)


@pytest.fixture
def made(run: Run) -> Run:
    return judged_run(run)


@pytest.mark.parametrize("kind", ["turn", "judge"])
def test_usage_that_was_charged_twice_is_found(made: Run, kind: str) -> None:
    made.sql(f"INSERT INTO usage ({COLUMNS}) SELECT {COLUMNS} FROM usage WHERE kind = ? LIMIT 1", kind)
    assert_found(made.evidence(), "I9", "the ledger has" if kind == "turn" else "was charged 8 verdicts")


@pytest.mark.parametrize("kind", ["turn", "judge"])
def test_usage_that_was_not_charged_is_found(made: Run, kind: str) -> None:
    made.sql("DELETE FROM usage WHERE turn_id = ? AND kind = ?", made.id_of(PASSED), kind)
    assert_found(made.evidence(), "I9", f"for kind {kind}, the ledger has []")


@pytest.mark.parametrize("kind", ["turn", "judge"])
def test_a_billionth_that_is_charged_too_much_is_found(made: Run, kind: str) -> None:
    made.sql("UPDATE usage SET cost_nano = cost_nano + 1 WHERE turn_id = ? AND kind = ?", made.id_of(PASSED), kind)
    assert_found(made.evidence(), "I9", f"for kind {kind}, the ledger has")


@pytest.mark.parametrize("table", ["turns", "verdicts"])
def test_a_turn_that_used_something_else_than_its_replies_and_verdicts_is_found(made: Run, table: str) -> None:
    column = "id" if table == "turns" else "position = 1 AND turn_id"
    change = "json_set(usage, '$.cost_usd', 0.75)"
    made.sql(f"UPDATE {table} SET usage = {change} WHERE {column} = ?", made.id_of(PASSED))
    assert_found(made.evidence(), "I9", "its replies and verdicts cost")


@pytest.mark.parametrize("name", ["output_tokens", "cost_usd"])
def test_a_session_that_was_charged_otherwise_than_its_turns_is_found(made: Run, name: str) -> None:
    made.sql(f"UPDATE sessions SET usage = json_set(usage, '$.{name}', 1) WHERE id = 's1'")
    assert_found(made.evidence(), "I9", "session s1 was charged")


def test_a_reply_that_costs_something_else_than_the_model_said_is_found(made: Run) -> None:
    calls = changed(made.calls, {"mark": PASSED, "nth": 1}, tokens=5)
    assert_found(made.evidence(model_calls=calls), "I9", "tokens, the model server says 5")
    cut = changed(made.submitted, {"mark": PASSED}, cancel_actions=("finish",))
    assert check(made.evidence(model_calls=calls, submitted=cut)) == ()


def test_a_verdict_that_comes_after_its_turns_end_is_charged_all_the_same(made: Run) -> None:
    _late_verdict(made)
    evidence = _cancelled(made)
    assert check(evidence) == ()
    made.sql("UPDATE usage SET llm_calls = 9 WHERE turn_id = ? AND kind = 'judge'", made.id_of("T00013"))
    assert_found(evidence, "I9", "was charged 9 verdicts, the model server has given 1")


def test_a_late_verdict_that_the_session_was_not_charged_is_found(made: Run) -> None:
    _late_verdict(made)
    made.sql("DELETE FROM usage WHERE turn_id = ? AND kind = 'judge'", made.id_of("T00013"))
    assert_found(_cancelled(made), "I9", f"session {SESSION} was charged")


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (f"UPDATE turns SET budget = '{{\"tokens\": 500}}' WHERE input LIKE '{PASSED}%'", "budget of turn"),
        (f"UPDATE sessions SET budget = '{{\"tokens\": 4000}}' WHERE id = '{SESSION}'", "budget of session"),
    ],
)
def test_a_budget_that_is_exceeded_is_found_in_the_books_and_at_the_model(made: Run, change: str, name: str) -> None:
    made.sql(change)
    assert_found(made.evidence(), "I15", f"{name} ")
    assert_found(made.evidence(), "I15", "tokens are booked")
    assert_found(made.evidence(), "I15", "the model server has delivered")


def test_a_budget_of_an_agent_that_is_exceeded_is_found(made: Run) -> None:
    evidence = made.evidence(agent_budgets={"judged": {"day": {"usd": 1}, "tokens": 10_000_000}})
    assert_found(evidence, "I15", "of 1000000000 billionths of a USD are booked")


def test_what_was_delivered_and_lost_counts(made: Run) -> None:
    calls = changed(made.calls, {"mark": PASSED, "nth": 1}, tokens=200_000)
    assert_found(made.evidence(model_calls=calls), "I15", "budget of session")


@pytest.mark.parametrize("level", ["session", "agent"])
def test_an_account_with_less_than_was_booked_is_found(made: Run, level: str) -> None:
    made.sql("UPDATE spending SET tokens = tokens - 1 WHERE level = ? AND window = ''", level)
    assert_found(made.evidence(), "I15", "count as spent")


def test_an_account_that_is_gone_is_found(made: Run) -> None:
    made.sql("DELETE FROM spending WHERE level = 'session'")
    assert_found(made.evidence(), "I15", "{'nano_usd': 0, 'tokens': 0} count as spent")


def test_what_stays_set_aside_for_nothing_is_found(made: Run) -> None:
    made.sql("UPDATE spending SET tokens = tokens + 3000 WHERE level = 'session'")
    assert_found(made.evidence(), "I15", "and no call was lost")


def test_what_stays_set_aside_for_a_call_that_may_be_lost_is_allowed(made: Run) -> None:
    made.sql("UPDATE spending SET tokens = tokens + 3000 WHERE level = 'session'")
    killed = Injection("kill", "turns-1", made.calls[-1].ended_s, made.calls[-1].ended_s)
    assert check(made.evidence(injections=(killed,))) == ()
    cut = changed(made.submitted, {"mark": PASSED}, cancel_actions=("finish",))
    assert check(made.evidence(submitted=cut)) == ()
    broken = replace(made.calls[-1], number=99, is_complete=False, status=200, began_s=0.5, ended_s=0.6)
    assert check(made.evidence(model_calls=(*made.calls, broken))) == ()


def test_a_turn_that_ends_for_want_of_a_budget_that_nobody_set_is_found(made: Run) -> None:
    run = made
    run.turn("T00014 plain", ending=Ending("incomplete", "budget"))
    assert_found(run.evidence(), "I15", "ended for want of a budget, and none limits it")


def test_a_turn_that_ends_for_want_of_its_budget_is_allowed(made: Run) -> None:
    made.ended(begun(made, "T00014 plain"), Ending("incomplete", "budget"))
    may_fail = changed(made.submitted, {"mark": "T00014"}, may_fail=True)
    assert check(made.evidence(submitted=may_fail)) == ()


def test_amounts_add_up_exactly() -> None:
    usage = {"input_tokens": 3, "output_tokens": 4, "cost_usd": 0.1, "llm_calls": 1}
    spent = total([of_usage(usage)] * 3)
    assert (tokens(spent), spent["nano_usd"], spent["llm_calls"]) == (21, 300_000_000, 3)
    row = {**dict.fromkeys(("cache_read_tokens", "cache_write_tokens"), 0), **usage, "cost_nano": 100_000_000}
    assert of_entry(row) == of_usage(usage)


def test_a_budget_limits_each_of_its_windows() -> None:
    budget = {"tokens": 5, "day": {"usd": 0.5}, "month": {"tool_calls": 3}}
    found = [*limits("agent", "a", budget, ("", "2026-11-24", "2026-11"))]
    assert found == [Limit("agent", "a", "", 5), Limit("agent", "a", "2026-11-24", None, 500_000_000)]
    assert [*limits("turn", "t", None)] == []


def test_a_window_is_in_utc() -> None:
    assert is_in("2027-01-15", NOW_MS)
    assert is_in("2027-01", NOW_MS)
    assert is_in("", NOW_MS)
    assert not is_in("2027-01-14", NOW_MS)


def _late_verdict(made: Run) -> None:
    """A judge looks at an answer whose turn is cancelled meanwhile."""
    work = sent(made, made.asked(begun(made, "T00013 plain")))
    owner = answer_of(made, work)
    found = looked(made, work, owner, work.verdicts[0])
    work = again(made, work)
    made.ended(work, Ending("cancelled", "interrupt", output_text=work.said))
    assert Verdicts(made.database).close(owner.caller, *found) is None


def _cancelled(made: Run) -> Evidence:
    submitted = changed(made.submitted, {"mark": "T00013"}, cancel_actions=("interrupt",))
    return made.evidence(submitted=submitted)
