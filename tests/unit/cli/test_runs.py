"""`loom runs` against the real front end over the real service."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner

from loom_worker.cli.main import main
from loom_worker.core.errors import NotFound
from loom_worker.core.settings import Settings
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.runs import NewRun, Run
from tests.support.cli_server import Loom, ids
from tests.support.runs import pipeline, workflow
from tests.support.web_stage import WebStage, stages

GATED = pipeline("Draft", "Print")
GATED["stages"][0]["approval"] = {"prompt": "Publish {{output}}?"}


@pytest.fixture
def stage(settings: Settings, valkey: redis.Redis) -> Iterator[WebStage]:
    with stages(settings, valkey) as make:
        made = make()
        made.workflows |= {"two": workflow(pipeline("One", "Two"), "two"), "gated": workflow(GATED, "gated")}
        yield made


def start(stage: WebStage, name: str = "two") -> str:
    return stage.service.runs.start("default", name, NewRun())[0].id


def known(stage: WebStage, run_id: str) -> Run:
    return stage.service.runs.run("default", run_id)


def answer(stage: WebStage, run_id: str, *texts: str) -> str:
    """The stages that are asked answer one after another."""
    for text in texts:
        (asked,) = (each for each in known(stage, run_id).stages if each.is_open)
        stage.worker.finish(str(asked.turn_id), text)
        stage.run_journal.advance(run_id, now_ms=now_ms())
    return run_id


def fail(stage: WebStage, run_id: str) -> str:
    """The stage that is asked dies."""
    (asked,) = (each for each in known(stage, run_id).stages if each.is_open)
    stage.worker.die(str(asked.turn_id))
    stage.run_journal.advance(run_id, now_ms=now_ms())
    return run_id


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ([], [0, 1, 2]),
        (["--workflow", "two"], [0, 1]),
        (["--status", "completed"], [0]),
        (["--status", "in_progress", "--workflow", "gated"], [2]),
    ],
)
def test_the_list_is_what_the_options_let_pass(
    loom: Loom, stage: WebStage, options: list[str], shown: list[int]
) -> None:
    runs = answer(stage, start(stage), "a", "b"), start(stage), start(stage, "gated")
    assert ids(loom(*options)) == [runs[at] for at in shown]


def test_a_page_says_how_to_go_on(loom: Loom, stage: WebStage) -> None:
    runs = [start(stage) for _ in range(3)]
    first = loom("--limit", "2").stdout.splitlines()
    assert [line.split()[0] for line in first[1:3]] == runs[:0:-1]
    assert ids(loom(*first[3].removeprefix("more: ").split())) == runs[:1]


@pytest.mark.parametrize("words", [(), ("show",)])
def test_one_run_is_shown_as_a_tree_with_its_result_or_as_json(
    loom: Loom, stage: WebStage, words: tuple[str, ...]
) -> None:
    run_id = answer(stage, start(stage), "First", "Second\nand last")
    head, *lines = loom(*words, run_id).stdout.splitlines()
    assert head.startswith(f"{run_id} two: completed, ")
    assert [line.split()[:3] for line in lines[:2]] == [["✓", "stages.0", "default"], ["✓", "stages.1", "default"]]
    assert lines[2:] == ["", "Second", "and last"]
    assert json.loads(loom(*words, run_id, "--json").stdout)["merged_output"] == "Second\nand last"


def test_a_run_that_waits_for_a_person_shows_what_is_asked_and_how_to_answer(loom: Loom, stage: WebStage) -> None:
    run_id = answer(stage, start(stage, "gated"), "News")
    told = loom(run_id)
    assert told.exit_code == 0
    assert "? " in told.stdout
    assert "\n\nstages.0.approval waits for a decision on what default said until " in told.stdout
    assert f"\n  Publish News?\ndecide with `loom runs approve {run_id} stages.0.approval`" in told.stdout


@pytest.mark.cases(
    "arguments",
    [
        ["--status", "gone"],
        ["--json", "show", "run_1"],
        ["--workflow", "two", "cancel", "run_1"],
        ["shwo", "run_1"],
        ["show"],
        ["watch"],
        ["approve", "run_1"],
        ["revise", "run_1", "stages.0"],
        ["delete"],
    ],
)
def test_what_makes_no_sense_is_refused_with_2_before_anything_is_asked(
    loom: Loom, stage: WebStage, arguments: list[str]
) -> None:
    stage.database.is_down = True
    result = loom(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize(
    "words", [[], ["show"], ["watch"], ["cancel"], ["retry"], ["delete"], ["approve", "run_none", "stages.0"]]
)
def test_what_is_not_there_exits_1(loom: Loom, words: list[str]) -> None:
    result = loom(*words, *([] if "run_none" in words else ["run_none"]))
    assert result.exit_code == 1
    assert result.stderr == "loom: 404 Not found: There is no run 'run_none'.\n"


def test_a_run_is_watched_to_its_end(loom: Loom, stage: WebStage) -> None:
    run_id = answer(stage, start(stage), "a", "b")
    result = loom("watch", run_id)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "b\n", "")
    assert json.loads(loom("watch", run_id, "--json").stdout)["status"] == "completed"


def test_a_run_that_failed_is_watched_with_1_and_retried_from_there(loom: Loom, stage: WebStage) -> None:
    failed = fail(stage, answer(stage, start(stage), "a"))
    watched = loom("watch", failed)
    assert (watched.exit_code, watched.stdout) == (1, "")
    assert watched.stderr.startswith(f"loom: the run {failed} is failed (dead): ")
    told = loom("retry", failed)
    again = stage.service.runs.runs("default", workflow=None, status="in_progress", limit=9, after=None).items[0]
    assert (told.exit_code, told.stdout) == (0, f"{failed} → {again.id} is in_progress\n")
    assert "from the run before" in loom(again.id).stdout
    assert loom("watch", answer(stage, again.id, "b")).stdout == "b\n"


def test_a_run_that_did_not_fail_is_not_retried(loom: Loom, stage: WebStage) -> None:
    result = loom("retry", start(stage), "--json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "409 Not retryable" in result.stderr


def test_a_run_is_cancelled_with_its_turns(loom: Loom, stage: WebStage) -> None:
    run_id = start(stage)
    result = loom("cancel", run_id)
    assert (result.exit_code, result.stdout) == (0, f"{run_id} is cancelled (interrupt)\n")
    assert json.loads(loom("cancel", run_id, "--json").stdout)["status"] == "cancelled"


def test_a_run_whose_turn_still_runs_is_asked_to_end(loom: Loom, stage: WebStage) -> None:
    run_id = start(stage)
    stage.worker.start(str(known(stage, run_id).stages[0].turn_id))
    assert loom("cancel", run_id).stdout == f"{run_id} is in_progress, asked to end\n"


@pytest.mark.parametrize("name", ["stages.0", "stages.0.approval"])
def test_an_approved_stage_lets_the_run_go_on(loom: Loom, stage: WebStage, name: str) -> None:
    run_id = answer(stage, start(stage, "gated"), "News")
    told = loom("approve", run_id, name, "--reason", "Good")
    assert (told.exit_code, told.stdout) == (0, f"{name}: approved\n{run_id} is in_progress\n")
    assert known(stage, run_id).stages[1].comment == "Good"
    assert loom("watch", answer(stage, run_id, "Printed")).stdout == "Printed\n"


def test_a_rejected_stage_ends_the_run(loom: Loom, stage: WebStage) -> None:
    run_id = answer(stage, start(stage, "gated"), "News")
    told = loom("reject", run_id, "stages.0")
    assert (told.exit_code, told.stdout) == (0, f"stages.0: rejected\n{run_id} is failed (rejected)\n")


def test_a_stage_is_done_again_with_what_is_to_be_changed(loom: Loom, stage: WebStage) -> None:
    run_id = answer(stage, start(stage, "gated"), "News")
    told = loom("revise", run_id, "stages.0", "--reason", "Shorter", "--json")
    assert [each["id"] for each in json.loads(told.stdout)["stages"]][2:] == ["stages.0.revision.1"]
    shown = loom(run_id).stdout
    assert "sent back for revision: Shorter" in shown
    assert "·   revision.1" in shown


def test_a_stage_is_decided_once(loom: Loom, stage: WebStage) -> None:
    run_id = answer(stage, start(stage, "gated"), "News")
    loom("approve", run_id, "stages.0")
    again = loom("reject", run_id, "stages.0")
    assert (again.exit_code, again.stdout) == (1, "")
    assert "409 Already decided" in again.stderr
    assert "404 Not found" in loom("approve", run_id, "stages.7").stderr


def test_a_deleted_run_is_gone_with_its_sessions(loom: Loom, stage: WebStage) -> None:
    first, second = answer(stage, start(stage), "a", "b"), start(stage)
    sessions = [str(each.session_id) for run_id in (first, second) for each in known(stage, run_id).stages]
    assert loom("delete", first).stdout == f"deleted: {first}\n"
    assert json.loads(loom("delete", second, "--json").stdout) == {"id": second, "object": "run", "deleted": True}
    assert ids(loom()) == []
    assert len(sessions) == 3
    for session in sessions:
        with pytest.raises(NotFound):
            stage.service.sessions.get("default", session)


def test_a_loom_that_does_not_run_is_named(tmp_path: Path) -> None:
    env = {"LOOM_HOME": str(tmp_path), "LOOM_URL": "http://127.0.0.1:9"}
    for words in ([], ["delete", "run_1"], ["watch", "run_1"]):
        result = CliRunner().invoke(main, ["runs", *words], env=env)
        assert result.exit_code == 1
        assert result.stderr == "loom: Loom is not running at http://127.0.0.1:9; start it with `loom up`\n"
