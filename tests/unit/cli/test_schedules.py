"""`loom schedules` against the real front end over the real service."""

from loom_worker.core.cron import plan_of
from loom_worker.core.values.schedules import Schedule
from tests.support.cli_server import Loom
from tests.support.runs import pipeline, workflow
from tests.support.web_stage import WebStage

NAME = "workflow:two"


def test_schedules_are_listed_disabled_reset_and_started(stage: WebStage, loom: Loom) -> None:
    assert "no schedules" in loom().output
    schedule = Schedule("workflow", "two", plan_of("0 9 * * *", "Europe/Berlin"))
    stage.workflows["two"] = workflow(pipeline("One", "Two"), "two", schedule=schedule)
    listed = loom().output
    assert NAME in listed
    assert " 09:00 +0" in listed
    assert "Europe/Berlin" in listed
    assert "never started" in listed
    assert "disabled by an operator" in loom("disable", NAME).output
    assert "disabled by an operator" in loom().output
    assert " 09:00 +0" in loom("reset", NAME).output
    assert " 09:00 +0" in loom("enable", NAME).output
    run_id = loom("run", NAME).output.strip()
    assert run_id.startswith("run_")
    assert f"{run_id} in_progress" in " ".join(loom().output.split())


def test_a_name_that_is_none_is_an_error_with_the_one_that_was_meant(stage: WebStage, loom: Loom) -> None:
    schedule = Schedule("workflow", "two", plan_of("@daily", "UTC"))
    stage.workflows["two"] = workflow(pipeline("One", "Two"), "two", schedule=schedule)
    failed = loom("run", "workflow:too")
    assert failed.exit_code != 0
    assert "Did you mean 'workflow:two'" in failed.output
