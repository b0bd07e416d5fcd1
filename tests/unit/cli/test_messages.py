"""`loom messages` against the real front end over the real service."""

import json

import pytest

from loom_worker.core.values.turns import NewTurn, Turn
from tests.support.agent_messages import dead, sent
from tests.support.cli_server import Loom, ids
from tests.support.web_stage import WebStage


@pytest.fixture
def sender(stage: WebStage) -> Turn:
    return stage.service.submit("default", "s", NewTurn("Why?"), agent=None)[0]


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ([], [0, 1, 2]),
        (["--agent", "helper"], [0, 1]),
        (["--status", "dead"], [0]),
        (["--agent", "writer", "--status", "dead"], []),
    ],
)
def test_the_list_is_what_the_options_let_pass(
    loom: Loom, stage: WebStage, sender: Turn, options: list[str], shown: list[int]
) -> None:
    made = [dead(stage.database, sender), sent(stage.database, sender), sent(stage.database, sender, to="writer")]
    assert ids(loom("list", *options)) == [made[at] for at in shown]


def test_a_page_says_how_to_go_on(loom: Loom, stage: WebStage, sender: Turn) -> None:
    made = [sent(stage.database, sender) for _ in range(3)]
    first = loom("list", "--limit", "2").stdout.splitlines()
    assert [line.split()[0] for line in first[1:3]] == made[:0:-1]
    assert ids(loom("list", *first[3].removeprefix("more: ").split())) == made[:1]


def test_the_list_as_json_is_the_answer_of_the_api(loom: Loom, stage: WebStage, sender: Turn) -> None:
    message_id = sent(stage.database, sender, "Look.")
    [message] = json.loads(loom("list", "--json").stdout)["data"]
    assert (message["id"], message["message"]) == (message_id, "Look.")


@pytest.mark.parametrize("words", [(), ("show",)])
def test_one_message_is_shown_with_its_whole_text_and_nothing_a_terminal_would_obey(
    loom: Loom, stage: WebStage, sender: Turn, words: tuple[str, ...]
) -> None:
    text = f"First\n{'x' * 5000}\x1b[2J"
    message_id = sent(stage.database, sender, text)
    told = loom(*words, message_id)
    assert told.exit_code == 0, told.output
    head, _, shown = told.stdout.partition("\n\n")
    fields = dict(line.split(maxsplit=1) for line in head.splitlines())
    assert (fields["id"], fields["from"], fields["to"], fields["status"]) == (message_id, "default", "helper", "queued")
    assert shown.startswith(f"First\n{'x' * 5000}")
    assert "\x1b" not in told.stdout
    assert json.loads(loom(*words, message_id, "--json").stdout)["message"] == text


def test_a_dead_message_is_replayed_once(loom: Loom, stage: WebStage, sender: Turn) -> None:
    message_id = dead(stage.database, sender)
    done = loom("replay", message_id)
    assert (done.exit_code, done.stdout) == (0, f"{message_id} is queued\n")
    again = loom("replay", message_id)
    assert (again.exit_code, again.stdout) == (1, "")
    assert f"Message {message_id} is not dead, it is queued." in again.stderr


def test_a_replay_as_json_is_the_message(loom: Loom, stage: WebStage, sender: Turn) -> None:
    message_id = dead(stage.database, sender)
    assert json.loads(loom("replay", message_id, "--json").stdout)["status"] == "queued"


@pytest.mark.parametrize("command", ["show", "replay"])
def test_a_message_that_is_not_there_is_an_error(loom: Loom, stage: WebStage, command: str) -> None:
    told = loom(command, "amsg_../turns")
    assert (told.exit_code, told.stdout) == (1, "")
    assert told.stderr.startswith("loom: ")


def test_a_status_that_no_message_has_is_a_wrong_option(loom: Loom) -> None:
    assert loom("list", "--status", "lost").exit_code == 2
