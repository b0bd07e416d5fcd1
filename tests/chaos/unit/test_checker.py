from tests.chaos.checker import check
from tests.chaos.unit.made import Run


def test_a_run_that_kept_every_promise_has_no_violation(run: Run) -> None:
    assert check(run.evidence()) == ()
