"""The short proof of every test run: each crash point kills a process, and no promise is broken."""

import pytest

from tests.chaos import report, scenarios
from tests.chaos.play import play

pytestmark = [pytest.mark.chaos, pytest.mark.heavy, pytest.mark.takes(90)]
SEED = 20


def test_no_promise_breaks_while_processes_die_at_every_crash_point() -> None:
    outcome = play(scenarios.smoke(SEED))
    text = "\n".join(report.lines(outcome))
    assert not outcome.violations, f"seed {SEED}, files in {outcome.folder}\n{text}"
    outcome.discard()


def test_bugs_that_were_planted_are_noticed() -> None:
    mutant = "wrong_order,lost_outbox,no_budget"
    outcome = play(scenarios.smoke_mutant(SEED, mutant))
    assert report.is_noticed(mutant, outcome), f"files in {outcome.folder}\n" + "\n".join(report.lines(outcome))
    outcome.discard()
