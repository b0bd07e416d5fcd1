from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from loom_worker.cli.main import main
from loom_worker.cli.talk import HELP
from tests.support.fake_loom import FakeLoom
from tests.support.http_server import serving

AGENTS = {
    "object": "list",
    "data": [{"name": "default", "description": "All."}, {"name": "sales", "description": "S."}],
}


def fake_loom(turn: dict[str, object] | None = None) -> FakeLoom:
    events = [("output_text.delta", {"text": "Forty-two"}), ("turn.completed", {})]
    if turn is not None:
        events = [("turn.failed", {})]
    pages = {"/v1/agents": AGENTS, "/v1/agents/sales": AGENTS["data"][1]}
    return FakeLoom(events=events, turn=turn or {"status": "completed", "output_text": "Forty-two"}, pages=pages)


def chat(tmp_path: Path, fake: FakeLoom, *arguments: str, typed: str) -> Result:
    with serving(fake) as url:
        env = {"LOOM_HOME": str(tmp_path), "LOOM_URL": url, "LOOM_API_KEYS": None}
        return CliRunner().invoke(main, ["chat", *arguments], input=typed, env=env)


def posted(fake: FakeLoom) -> list[tuple[str, str, str | None]]:
    """Session, question and agent of each turn."""
    return [
        (path.split("/")[3], body["input"], body.get("agent"))
        for method, path, _, body in fake.asked
        if method == "POST"
    ]


def test_a_chat_goes_on_turn_after_turn_until_quit(tmp_path: Path) -> None:
    fake = fake_loom()
    result = chat(tmp_path, fake, "--session", "s1", typed="one\n\n two \n/quit\nthree\n")
    assert result.exit_code == 0
    assert posted(fake) == [("s1", "one", None), ("s1", "two", None)]
    assert result.stdout.count("Forty-two\n") == 2


def test_a_chat_survives_a_turn_that_fails_and_ends_with_the_input(tmp_path: Path) -> None:
    result = chat(tmp_path, fake_loom({"status": "failed", "reason": "provider"}), typed="one\ntwo\n")
    assert result.exit_code == 0
    assert result.stderr.count("is failed (provider)") == 2


def test_a_chat_with_nobody_exits_1_before_the_first_question(tmp_path: Path) -> None:
    env = {"LOOM_HOME": str(tmp_path), "LOOM_URL": "http://127.0.0.1:9"}
    result = CliRunner().invoke(main, ["chat"], input="one\n", env=env)
    assert result.exit_code == 1
    assert "you>" not in result.stdout


def test_help_lists_every_command_and_asks_nothing(tmp_path: Path) -> None:
    fake = fake_loom()
    result = chat(tmp_path, fake, typed="/help\n")
    assert HELP in result.stdout
    assert "/help lists what you can type" in result.stdout
    assert posted(fake) == []


@pytest.mark.cases("command", [word for line in HELP.splitlines() for word in line.split("  ")[0].split(", ")])
def test_every_command_that_the_help_lists_is_known(tmp_path: Path, command: str) -> None:
    result = chat(tmp_path, fake_loom(), typed=command.replace("NAME", "sales") + "\n")
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("/hlep", "there is no command /hlep; /help lists them"),
        ("/agent", "/agent needs a name; /agents lists them"),
        ("/new sales", "/new takes nothing behind it"),
        ("/agent nobody", "404 not-found"),
    ],
)
def test_what_is_no_command_is_said_and_not_asked(tmp_path: Path, line: str, told: str) -> None:
    fake = fake_loom()
    result = chat(tmp_path, fake, "--session", "s1", typed=f"{line}\nand now?\n")
    assert told in result.stderr
    assert posted(fake) == [("s1", "and now?", None)]


def test_a_question_may_begin_with_a_slash_if_two_are_typed(tmp_path: Path) -> None:
    fake = fake_loom()
    chat(tmp_path, fake, typed="//etc/hosts: what is it?\n")
    assert [question for _, question, _ in posted(fake)] == ["/etc/hosts: what is it?"]


def test_a_new_session_and_another_agent_are_a_line_away(tmp_path: Path) -> None:
    fake = fake_loom()
    result = chat(tmp_path, fake, "--session", "s1", typed="one\n/new\ntwo\n/agent sales\nthree\n/session\n")
    (first, *_), (second, *_), (third, _, agent) = posted(fake)
    assert len({first, second, third}) == 3
    assert (first, agent) == ("s1", "sales")
    assert f"session {third}, agent sales" in result.stdout


def test_a_chat_begins_with_the_agent_that_is_named(tmp_path: Path) -> None:
    fake = fake_loom()
    assert "of the agent sales" in chat(tmp_path, fake, "--agent", "sales", typed="one\n").stdout
    assert [agent for _, _, agent in posted(fake)] == ["sales"]


def test_a_chat_with_an_agent_that_there_is_not_does_not_begin(tmp_path: Path) -> None:
    result = chat(tmp_path, fake_loom(), "--agent", "nobody", typed="one\n")
    assert (result.exit_code, "404" in result.stderr, "you>" in result.stdout) == (1, True, False)
