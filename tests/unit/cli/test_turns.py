"""`loom turns` against the real front end over the real service."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from loom_worker.cli.main import main
from loom_worker.cli.show import WIDEST_ARGUMENTS
from loom_worker.core.values.calls import Call
from loom_worker.core.values.sessions import SessionPatch
from loom_worker.core.values.turns import NewTurn, Turn
from tests.support.cli_server import Loom, ids
from tests.support.fake_loom import FakeLoom
from tests.support.http_server import serving
from tests.support.web_stage import WebStage


def ask(stage: WebStage, session: str = "s", text: str = "Why?") -> str:
    return stage.service.submit("default", session, NewTurn(text), agent=None)[0].id


def dead(stage: WebStage, session: str = "s", text: str = "Why?", reason: str = "dead") -> str:
    return stage.worker.die(ask(stage, session, text), reason).id


def listed(stage: WebStage) -> list[Turn]:
    """All turns, the oldest first."""
    page = stage.service.turns("default", session_id=None, status=None, reason=None, limit=500, after=None)
    return [*reversed(page.items)]


@pytest.fixture
def four(stage: WebStage) -> tuple[str, str, str, str]:
    """A dead turn, a queued one behind it, and two failed ones of another session."""
    return dead(stage, "s"), ask(stage, "s"), dead(stage, "t"), dead(stage, "t", reason="provider")


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ([], [0, 1, 2, 3]),
        (["--session", "t"], [2, 3]),
        (["--status", "queued"], [1]),
        (["--status", "failed"], [0, 2, 3]),
        (["--reason", "provider"], [3]),
        (["--dead"], [0, 2]),
        (["--dead", "--session", "t"], [2]),
    ],
)
def test_the_list_is_what_the_options_let_pass(
    loom: Loom, four: tuple[str, ...], options: list[str], shown: list[int]
) -> None:
    assert ids(loom(*options)) == [four[at] for at in shown]


def test_a_page_says_how_to_go_on(loom: Loom, four: tuple[str, ...]) -> None:
    first = loom("--limit", "3").stdout.splitlines()
    assert [line.split()[0] for line in first[1:4]] == [four[3], four[2], four[1]]
    assert ids(loom(*first[4].removeprefix("more: ").split())) == [four[0]]


@pytest.mark.parametrize("words", [(), ("show",)])
def test_one_turn_is_shown_field_by_field_or_as_json(loom: Loom, stage: WebStage, words: tuple[str, ...]) -> None:
    turn_id = dead(stage)
    assert "reason            dead" in loom(*words, turn_id).stdout.splitlines()
    assert json.loads(loom(*words, turn_id, "--json").stdout)["id"] == turn_id


@pytest.mark.cases(
    "arguments",
    [
        ["--dead", "--status", "queued"],
        ["--dead", "--reason", "provider"],
        ["--status", "gone"],
        ["--json", "show", "turn_1"],
        ["--dead", "retry"],
        ["shwo", "turn_1"],
        ["show"],
        ["cancel"],
        ["cancel", "turn_1", "--action", "stop"],
        ["retry"],
        ["retry", "turn_1", "--dead"],
        ["retry", "turn_1", "--session", "s"],
        ["approve"],
        ["approve", "turn_1", "--arguments", "{}"],
        ["approve", "turn_1", "toolu_1", "--arguments", "{"],
        ["approve", "turn_1", "toolu_1", "--arguments", "[1]"],
        ["approve", "turn_1", "toolu_1", "--reject", "--arguments", "{}"],
        ["approve", "turn_1", "--reason", "No."],
    ],
)
def test_what_makes_no_sense_is_refused_with_2_before_anything_is_asked(
    loom: Loom, stage: WebStage, arguments: list[str]
) -> None:
    stage.database.is_down = True
    result = loom(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize("words", [["show"], ["cancel"], ["retry"], ["approve"], []])
def test_what_is_not_there_exits_1(loom: Loom, words: list[str]) -> None:
    result = loom(*words, "turn_none")
    assert result.exit_code == 1
    assert result.stderr == "loom: 404 Not found: There is no turn 'turn_none'.\n"


def test_a_queued_turn_is_cancelled_and_a_running_one_is_asked_to_end(loom: Loom, stage: WebStage) -> None:
    running, queued = ask(stage), ask(stage)
    stage.worker.start(running)
    assert loom("cancel", queued).stdout == f"{queued} is cancelled (interrupt)\n"
    told = loom("cancel", running, "--action", "finish")
    assert (told.exit_code, told.stdout) == (0, f"{running} is in_progress, asked to end (finish)\n")
    assert stage.worker.heed(running).status == "completed"
    assert loom("cancel", running).stdout == f"{running} is completed\n"


def test_cancel_prints_the_turn_as_json(loom: Loom, stage: WebStage) -> None:
    turn_id = ask(stage)
    assert json.loads(loom("cancel", turn_id, "--action", "rollback", "--json").stdout)["reason"] == "rollback"


def test_a_failed_turn_is_retried_each_time_it_is_named(loom: Loom, stage: WebStage) -> None:
    failed = dead(stage, reason="provider")
    first = loom("retry", failed)
    second = json.loads(loom("retry", failed, "--json").stdout)
    _, one, two = listed(stage)
    assert (first.exit_code, first.stdout) == (0, f"{failed} → {one.id} is queued\n")
    assert (second["id"], second["retry_of"]) == (two.id, failed)


def test_a_turn_that_did_not_fail_is_not_retried(loom: Loom, stage: WebStage) -> None:
    result = loom("retry", ask(stage))
    assert result.exit_code == 1
    assert "409 Not retryable" in result.stderr
    assert len(listed(stage)) == 1


def test_all_dead_turns_are_retried_in_the_order_they_were_asked(loom: Loom, stage: WebStage) -> None:
    dead(stage, reason="provider")
    gone = [dead(stage, f"s{number % 3}", f"question {number}") for number in range(20)]
    result = loom("retry", "--dead")
    again = listed(stage)[21:]
    assert [turn.retry_of for turn in again] == gone
    wanted = [f"{turn.retry_of} → {turn.id} is queued" for turn in again]
    assert (result.exit_code, result.stdout.splitlines()) == (0, wanted)


def test_dead_turns_are_retried_once_however_often_it_is_said(loom: Loom, stage: WebStage) -> None:
    failed = dead(stage)
    loom("retry", "--dead")
    stage.worker.finish(listed(stage)[1].id)
    newer = dead(stage)
    result = loom("retry", "--dead")
    _, again, _, newest = listed(stage)
    assert result.stdout.splitlines() == [
        f"{failed} → {again.id} is completed (retried before)",
        f"{newer} → {newest.id} is queued",
    ]


def test_dead_turns_of_one_session_leave_the_others_alone(loom: Loom, stage: WebStage) -> None:
    dead(stage, "s")
    failed = dead(stage, "t")
    report = json.loads(loom("retry", "--dead", "--session", "t", "--json").stdout)
    assert [(done["turn"], done["replayed"], done["error"]) for done in report["data"]] == [(failed, False, None)]
    assert [turn.retry_of for turn in listed(stage)[2:]] == [failed]
    assert report["data"][0]["retry"]["retry_of"] == failed


def test_a_refused_retry_is_told_and_does_not_keep_the_others_from_theirs(loom: Loom, stage: WebStage) -> None:
    refused, taken = dead(stage, "s"), dead(stage, "t")
    stage.service.patch_session("default", "s", SessionPatch(status="archived"))
    result = loom("retry", "--dead")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"loom: {refused}: 409 Session archived")
    assert result.stdout.startswith(f"{taken} → ")
    report = json.loads(loom("retry", "--dead", "--json").stdout)
    assert [bool(done["error"]) for done in report["data"]] == [True, False]


def test_nothing_dead_is_nothing_to_do(loom: Loom, stage: WebStage) -> None:
    dead(stage, reason="provider")
    result = loom("retry", "--dead")
    assert (result.exit_code, result.stdout) == (0, "no dead turns\n")
    assert json.loads(loom("retry", "--dead", "--json").stdout) == {"object": "list", "data": []}


PAY = Call("toolu_1", "pay", {"amount": 70}, 0, 1, approval="waiting")
LOOK = Call("toolu_2", "look", {}, 1, 1)
REFUND = Call("toolu_3", "refund", {}, 2, 1, approval="waiting")
DONE = Call("toolu_4", "refund", {}, 3, 1, status="completed", approval="approved")


@pytest.fixture
def asking(stage: WebStage) -> str:
    """A turn that waits for a person, for two of its calls."""
    turn_id = ask(stage)
    stage.worker.ask_person(turn_id, PAY, LOOK, REFUND, DONE)
    return turn_id


def said(stage: WebStage, turn_id: str) -> list[str | None]:
    """What was said to each call."""
    return [call.approval for call in stage.service.turn("default", turn_id).calls]


def test_turns_that_wait_for_a_person_can_be_listed(loom: Loom, stage: WebStage, asking: str) -> None:
    ask(stage, "t")
    assert ids(loom("--status", "requires_action")) == [asking]


def test_all_calls_that_wait_are_approved_and_no_others(loom: Loom, stage: WebStage, asking: str) -> None:
    told = loom("approve", asking)
    lines = ["toolu_1: approved", "toolu_3: approved", f"{asking} is requires_action"]
    assert (told.exit_code, told.stdout.splitlines()) == (0, lines)
    assert said(stage, asking) == ["approved", None, "approved", "approved"]


def test_one_call_is_approved_with_other_arguments(loom: Loom, stage: WebStage, asking: str) -> None:
    told = loom("approve", asking, "toolu_1", "--arguments", '{"amount": 7}', "--json")
    assert json.loads(told.stdout)["tool_calls"][0]["arguments"] == {"amount": 7}
    assert said(stage, asking) == ["edited", None, "waiting", "approved"]


def test_a_rejected_call_has_its_reason(loom: Loom, stage: WebStage, asking: str) -> None:
    told = loom("approve", asking, "toolu_1", "--reject", "--reason", "Ask first.")
    assert told.stdout.splitlines()[0] == "toolu_1: rejected"
    assert stage.service.turn("default", asking).calls[0].content == "Denied by a person: Ask first."
    assert said(stage, asking) == ["rejected", None, "waiting", "approved"]


@pytest.mark.parametrize(
    ("call", "problem"),
    [("toolu_2", "409 Not waiting"), ("toolu_4", "409 Already decided"), ("toolu_9", "404 Not found")],
)
def test_a_call_that_does_not_wait_is_told_and_exits_1(loom: Loom, asking: str, call: str, problem: str) -> None:
    told = loom("approve", asking, call)
    assert (told.exit_code, told.stdout) == (1, "")
    assert problem in told.stderr


def test_arguments_that_the_tool_does_not_take_decide_nothing(loom: Loom, stage: WebStage, asking: str) -> None:
    told = loom("approve", asking, "toolu_1", "--arguments", '{"price": 7}')
    assert (told.exit_code, told.stdout) == (1, "")
    assert "422" in told.stderr
    assert said(stage, asking)[0] == "waiting"


def test_where_nothing_waits_the_turn_is_only_shown(loom: Loom, stage: WebStage) -> None:
    turn_id = ask(stage)
    told = loom("approve", turn_id)
    assert (told.exit_code, told.stdout) == (0, f"{turn_id} is queued\n")


def test_each_call_of_a_turn_is_shown_for_a_person_who_shall_decide(tmp_path: Path) -> None:
    calls = [
        {"id": "toolu_1", "name": "refund", "status": "pending", "approval": "waiting", "error_id": None, "ref": None}
        | {"arguments": {"order_id": 7, "note": "b\u202ead", "long": "x" * 900}, "content": "not to be shown"},
        {"id": "toolu_2", "name": "execute_sql", "status": "failed", "approval": None, "error_id": "err_1"}
        | {"arguments": {"sql": "SELECT\n1"}, "ref": "ref_1"},
    ]
    with serving(FakeLoom(turn={"status": "requires_action", "tool_calls": calls, "answer": None})) as url:
        env = {"LOOM_HOME": str(tmp_path), "LOOM_URL": url}
        lines = CliRunner().invoke(main, ["turns", "turn_1"], env=env).stdout.splitlines()
    at = lines.index("tool_calls        2")
    assert lines[at + 1] == "  toolu_1: refund, pending, approval waiting"
    assert lines[at + 2].startswith('    arguments {"order_id": 7, "note": "b\\u202ead", "long": "xxx')
    assert len(lines[at + 2]) == len("    arguments ") + WIDEST_ARGUMENTS
    assert lines[at + 3 :] == [
        "  toolu_2: execute_sql, failed",
        '    arguments {"sql": "SELECT\\n1"}',
        "    error_id err_1",
        "    ref ref_1",
        "answer            -",
    ]
