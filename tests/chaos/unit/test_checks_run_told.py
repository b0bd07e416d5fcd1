"""I20: each test breaks what is told of a run."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.chaos.checker import check
from tests.chaos.checks_run_told import check_run_books
from tests.chaos.facts import Row, read_facts
from tests.chaos.unit.made import Run, assert_found
from tests.chaos.unit.workflowed import CHAIN, FORK, workflow_run


@pytest.mark.parametrize(
    ("statement", "flaw"),
    [
        ("DELETE FROM run_events WHERE n = 3", "has the events [1, 2, 4"),
        ("UPDATE run_events SET type = 'run.completed' WHERE n = 3", "has the ends ['run.completed', 'run.completed']"),
        ("UPDATE run_events SET type = 'run.failed' WHERE type = 'run.completed'", "has the ends ['run.failed']"),
        ("UPDATE run_events SET type = 'stage.started' WHERE n = 1", "has 0 events of its start"),
        ("UPDATE run_events SET type = 'stage.failed' WHERE type = 'stage.completed'", "tells ['stage.started', "),
        ("UPDATE run_stages SET key = 'agents.9' WHERE key = 'agents.0'", "tells of agents.0, which is none"),
    ],
)
def test_a_broken_log_is_found(run: Run, statement: str, flaw: str) -> None:
    workflow_run(run, FORK)
    run.sql(statement)
    assert_found(run.evidence(), "I20", flaw)


def test_an_event_that_says_something_else_is_found(run: Run) -> None:
    workflow_run(run, FORK)
    run.sql("UPDATE run_events SET data = replace(data, 'says:', 'sings:') WHERE type = 'stage.completed'")
    assert_found(run.evidence(), "I20", "what it does not say itself")


def test_an_approval_has_its_own_events(run: Run) -> None:
    workflow_run(run, CHAIN)
    run.sql("UPDATE run_events SET type = 'stage.completed' WHERE type = 'approval.decided'")
    assert_found(run.evidence(), "I20", "due are ['approval.required', 'approval.decided']")


def test_a_poll_that_shows_something_else_is_found(run: Run) -> None:
    workflow_run(run, FORK)
    run.runs.polled[0] = replace(run.runs.polled[0], body=b'{"status": "failed"}')
    assert_found(run.evidence(), "I20", "a client was shown status 'failed', the database has 'completed'")


def test_a_poll_of_an_unknown_run_is_found(run: Run) -> None:
    workflow_run(run, FORK)
    run.runs.polled[0] = replace(run.runs.polled[0], run_id="run_none")
    run.runs.read[0] = replace(run.runs.read[0], run_id="run_none")
    run.runs.started.clear()
    witness = replace(run.runs.witness(), polled=tuple(replace(each, is_last=False) for each in run.runs.polled))
    assert_found(run.evidence(runs=witness), "I20", "run_none was shown to a client and is not in the database")
    assert_found(run.evidence(runs=witness), "I20", "run_none was read by a client and is not in the database")


def test_a_reader_who_missed_something_is_found(run: Run) -> None:
    workflow_run(run, FORK)
    [read] = run.runs.read
    run.runs.read[0] = replace(read, events=(*read.events[:2], *read.events[3:]), flaws=("event 4 after event 2",))
    assert_found(run.evidence(), "I20", "a client has read event 4 after event 2")
    assert_found(run.evidence(), "I20", "a client has read [(1, 'run.started')")


def test_a_reader_who_was_told_of_another_end_is_found(run: Run) -> None:
    workflow_run(run, FORK)
    [read] = run.runs.read
    number, kind, shown = read.events[-1]
    run.runs.read[0] = replace(read, events=(*read.events[:-1], (number, kind, {**shown, "merged_output": "hearsay"})))
    assert_found(run.evidence(), "I20", "a client has read merged_output 'hearsay'")


def test_a_lost_webhook_is_found(run: Run) -> None:
    workflow_run(run, CHAIN)
    run.sql("DELETE FROM outbox WHERE run_id IS NOT NULL")
    assert_found(run.evidence(), "I20", "0 webhooks in the outbox instead of 1")


def test_a_webhook_that_nobody_wanted_is_found(run: Run) -> None:
    workflow_run(run, CHAIN)
    started = tuple(replace(each, job=replace(each.job, hook="")) for each in run.runs.started)
    assert_found(run.evidence(runs=replace(run.runs.witness(), started=started)), "I20", "1 webhooks in the outbox")


def test_a_webhook_that_never_arrived_is_found(run: Run) -> None:
    workflow_run(run, CHAIN)
    assert_found(run.evidence(hooks=tuple(run.hooks[:-1])), "I20", "is marked as delivered, the receiver answered []")


def test_a_webhook_that_says_something_else_is_found(run: Run) -> None:
    workflow_run(run, CHAIN)
    event = json.loads(run.hooks[-1].body)
    body = json.dumps({"type": "run.failed", "data": {**event["data"], "reason": "hearsay"}}).encode()
    evidence = run.evidence(hooks=(*run.hooks[:-1], replace(run.hooks[-1], body=body)))
    assert_found(evidence, "I20", "a receiver was told another body than the outbox has")
    assert_found(evidence, "I20", "a receiver was told run.failed, it is completed")
    assert_found(evidence, "I20", "a receiver was told reason 'hearsay'")


def test_a_webhook_that_was_cut_is_compared_where_it_is_whole(run: Run) -> None:
    workflow_run(run, CHAIN)
    event = json.loads(run.hooks[-1].body)
    data = {**event["data"], "truncated": True, "stages": []}
    body = json.dumps({**event, "data": data})
    run.sql("UPDATE outbox SET body = ? WHERE run_id IS NOT NULL", body)
    assert check(run.evidence(hooks=(*run.hooks[:-1], replace(run.hooks[-1], body=body.encode())))) == ()


@pytest.mark.parametrize(
    ("statement", "flaw"),
    [
        ("UPDATE run_stages SET usage = '{\"input_tokens\": 1}' WHERE key = 'stages.0'", "has used Counter("),
        ("DELETE FROM spans WHERE body LIKE '%workflow.run%'", "has 0 spans workflow.run in its trace"),
    ],
)
def test_books_that_are_not_right_are_found(run: Run, statement: str, flaw: str) -> None:
    workflow_run(run, CHAIN)
    run.sql(statement)
    assert_found(run.evidence(), "I20", flaw)


def test_an_audit_that_is_not_right_is_found(run: Run) -> None:
    workflow_run(run, CHAIN)
    assert audited(run, lambda rows: ()) == ["has 0 rows of its end in the audit instead of 1", *UNDECIDED]
    assert audited(run, lambda rows: (*rows, rows[-1])) == ["has 2 rows of its end in the audit instead of 1"]
    assert audited(run, lambda rows: rows[1:]) == ["has 1 decisions in the audit, and 2 were made"]
    wrong = audited(run, lambda rows: (*rows[:-1], {**rows[-1], "status": "failed"}))
    assert wrong == ["ended failed (None), says the audit"]


UNDECIDED = ["has 0 decisions in the audit, and 2 were made"]


def audited(run: Run, change: Callable[[tuple[Row, ...]], tuple[Row, ...]]) -> list[str]:
    """What is found if the audit, whose rows cannot be changed, had other ones."""
    facts = read_facts(run.settings.home)
    runs = tuple(replace(each, audit=change(each.audit)) for each in facts.runs)
    found = check_run_books(run.evidence(), replace(facts, runs=runs))
    return [each.text.partition(": ")[2] for each in found]
