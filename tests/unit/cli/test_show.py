import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from loom_worker.cli.main import main
from loom_worker.cli.show import WIDEST, as_text, fields, table, waits_text
from tests.support.fake_loom import FakeLoom
from tests.support.http_server import serving
from tests.unit.cli.test_terminal import Terminal

SESSION = {"id": "s1", "agent": "default", "status": "active", "busy": False, "queue_depth": 0, "title": None}
LIST = {"object": "list", "data": [SESSION], "has_more": True, "next": "cur_2"}


def run(tmp_path: Path, pages: dict[str, object], *arguments: str) -> tuple[Result, FakeLoom]:
    fake = FakeLoom(pages=pages)
    with serving(fake) as url:
        env = {"LOOM_HOME": str(tmp_path), "LOOM_URL": url}
        return CliRunner().invoke(main, arguments, env=env), fake


def test_a_list_is_a_table_that_says_how_to_go_on(tmp_path: Path) -> None:
    result, fake = run(tmp_path, {"/v1/sessions": LIST}, "sessions", "--limit", "1", "--after", "cur_1")
    assert fake.asked[0][1] == "/v1/sessions?limit=1&after=cur_1"
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["ID", "AGENT", "STATUS", "BUSY", "QUEUE_DEPTH", "TITLE", "UPDATED_AT"]
    assert lines[1].split() == ["s1", "default", "active", "false", "0", "-", "-"]
    assert lines[2] == "more: --after cur_2"


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (["sessions"], "/v1/sessions?limit=50"),
        (["sessions", "a b"], "/v1/sessions/a%20b"),
        (["sessions", "show", "search"], "/v1/sessions/search"),
        (["sessions", "search", "a b", "where's it?"], "/v1/sessions/a%20b/search?q=where%27s+it%3F&limit=10"),
        (
            ["sessions", "search", "s1", "x", "--one-per", "passage"],
            "/v1/sessions/s1/search?q=x&limit=10&one_per=passage",
        ),
        (["sessions", "search", "s1", "x", "--limit", "50"], "/v1/sessions/s1/search?q=x&limit=50"),
        (["sessions", "snapshots", "a b"], "/v1/sessions/a%20b/snapshots?limit=50"),
        (["sessions", "snapshots", "s1", "--limit", "2", "--after", "x"], "/v1/sessions/s1/snapshots?limit=2&after=x"),
        (["agents"], "/v1/agents"),
        (["agents", "default"], "/v1/agents/default"),
        (["agents", "show", "default"], "/v1/agents/default"),
        (["agents", "show", "show"], "/v1/agents/show"),
        (["tools"], "/v1/tools"),
        (["tools", "--agent", "a&b"], "/v1/tools?agent=a%26b"),
        (["models"], "/v1/models?limit=50"),
        (["usage", "--by", "day"], "/v1/usage?group_by=day&limit=50"),
    ],
)
def test_each_command_asks_for_what_it_shows(tmp_path: Path, arguments: list[str], asked: str) -> None:
    _, fake = run(tmp_path, {}, *arguments)
    assert fake.asked[0][:2] == ("GET", asked)


def test_options_of_the_list_are_refused_before_another_command(tmp_path: Path) -> None:
    result, fake = run(tmp_path, {}, "sessions", "--limit", "5", "search", "s1", "x")
    assert (result.exit_code, fake.asked) == (2, [])
    assert "put --limit behind `search`" in result.stderr


def test_one_thing_is_shown_field_by_field(tmp_path: Path) -> None:
    result, _ = run(tmp_path, {"/v1/agents/default": {"name": "default", "model": None}}, "agents", "default")
    assert result.stdout.splitlines() == ["name              default", "model             -"]


def test_json_is_the_answer_itself(tmp_path: Path) -> None:
    result, _ = run(tmp_path, {"/v1/sessions": LIST}, "sessions", "--json")
    assert json.loads(result.stdout) == LIST


def test_what_is_not_there_exits_1(tmp_path: Path) -> None:
    result, _ = run(tmp_path, {}, "agents", "nobody")
    assert (result.exit_code, result.stderr) == (1, "loom: 404 not-found: no such thing\n")


def test_in_a_pipe_a_row_is_one_line_without_escapes_and_whole() -> None:
    rows = [{"input": "a\nb\x1b[2J" + "x" * 100, "n": 1}, {"input": "c", "n": 2}]
    assert table(rows, ["input", "n"]).splitlines() == [
        "INPUT".ljust(WIDEST) + "  N",
        "a b[2J" + "x" * 100 + "  1",
        "c".ljust(WIDEST) + "  2",
    ]


EVIL = "[red]a[/] :smile: \x1b]0;t\x07\u202eb " + "y" * 200
ROWS = {"/v1/sessions": {**LIST, "has_more": False, "data": [SESSION | {"id": "s" * 40, "title": EVIL}] * 2}}


def on_terminal(tmp_path: Path, *arguments: str, pages: dict[str, object] = ROWS, **environ: str) -> str:
    with serving(FakeLoom(pages=pages)) as url:
        shown = Terminal(tmp_path, url, *arguments, TERM="xterm", **environ)
        assert shown.end() == 0, shown.said
    return shown.said


@pytest.mark.heavy
@pytest.mark.cases(
    "columns, no_color",
    [(40, ""), (80, ""), (140, ""), (140, "1")],
)
def test_on_a_terminal_a_table_fits_or_has_a_line_for_each_row_and_shows_texts_as_they_are(
    tmp_path: Path, columns: int, no_color: str
) -> None:
    said = on_terminal(tmp_path, "sessions", COLUMNS=str(columns), NO_COLOR=no_color)
    is_drawn = columns == 140
    assert ("\x1b[1m" in said, "\x1b[" in said) == (is_drawn and not no_color, is_drawn and not no_color)
    plain = re.sub(r"\x1b\[\d*m", "", said)
    assert (max(map(len, plain.splitlines())) <= columns) == is_drawn
    assert all(line.isprintable() for line in plain.splitlines())
    assert [plain.count(text) for text in ("s" * 40, "[red]a[/] :smile:")] == [2, 2]


UNSEEN = "a\x1b[2J\x9b\u202eb\u200b\n\u2028c\ud800"


def test_what_nobody_sees_is_not_in_a_table_or_a_field() -> None:
    assert table([{"title": UNSEEN}], ["title"]).splitlines() == ["TITLE", "a[2Jb c\ufffd"]
    assert fields({"ti\u202e\ntle": UNSEEN, "tags": ["\u202ex"]}).splitlines() == [
        "ti tle            a[2Jb c\ufffd",
        'tags              ["x"]',
    ]


def test_what_nobody_sees_is_escaped_in_json_and_all_else_is_not() -> None:
    assert json.loads(as_text({"title": UNSEEN})) == {"title": UNSEEN}
    assert [line for line in as_text({"title": UNSEEN}).splitlines() if not line.isprintable()] == []
    assert as_text({"title": "größer 表"}) == '{\n  "title": "größer 表"\n}'


def test_a_name_that_is_no_utf8_is_asked_for_and_no_traceback(tmp_path: Path) -> None:
    result, fake = run(tmp_path, {}, "agents", "a\udcff")
    assert (result.exit_code, fake.asked[0][1]) == (1, "/v1/agents/a%EF%BF%BD")


@pytest.mark.parametrize("command", [["sessions"], ["turns", "show"], ["turns", "cancel"]])
def test_an_id_that_is_no_text_is_asked_for_all_the_same(tmp_path: Path, command: list[str]) -> None:
    result, fake = run(tmp_path, {}, *command, "\udcff")
    assert not isinstance(result.exception, UnicodeError)
    assert "%EF%BF%BD" in fake.asked[0][1]


WRONG = [
    "foo",
    "127.0.0.1:8000",
    "http://",
    "ftp://host",
    "http://host:99999",
    "http://[x",
    "http://host/?q",
    "ht\ntp://x",
]


@pytest.mark.cases("url", WRONG)
@pytest.mark.cases("command", ["tools", "status", "chat"])
def test_what_is_no_address_is_said_in_a_line_and_exits_2(tmp_path: Path, command: str, url: str) -> None:
    result = CliRunner().invoke(main, [command, "--url", url], env={"LOOM_HOME": str(tmp_path)})
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("loom: --url (LOOM_URL): '")
    assert result.stderr.endswith("is no address such as http://127.0.0.1:8000\n")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b""),
        (404, b"<html>"),
        (404, b'{"detail": "Not Found"}'),
        (302, b""),
        (200, b"<html>"),
        (200, b"[]"),
        (502, b"x"),
    ],
)
def test_what_is_not_loom_is_said_to_be_none(tmp_path: Path, status: int, body: bytes) -> None:
    with serving(lambda exchange: exchange.answer(status, body, content_type="text/html")) as url:
        result = CliRunner().invoke(main, ["tools"], env={"LOOM_HOME": str(tmp_path), "LOOM_URL": url})
    told = f"loom: {url} answered {status}, and not as Loom does; is this its address?\n"
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", told)


@pytest.mark.cases("command", [["sessions"], ["sessions", "search", "{}", "x"], ["turns", "cancel"], ["agents"]])
@pytest.mark.cases("name", [".", ".."])
def test_a_step_of_a_path_is_asked_for_nowhere(tmp_path: Path, command: list[str], name: str) -> None:
    arguments = [part.format(name) for part in command] if "{}" in command else [*command, name]
    result, fake = run(tmp_path, {}, *arguments)
    assert (result.exit_code, result.stderr) == (1, f"loom: there is nothing called {name!r}\n")
    assert fake.asked == []


def test_what_a_turn_waits_for_is_told_in_words() -> None:
    waiting = {"for": "lane", "since": "2027-01-15T08:00:00.000Z", "attempt": None, "next_try_at": None}
    began_s = 1_800_000_000.0
    assert waits_text({**waiting, "last_error": None}, began_s + 61) == "lane for 61 s"
    busy = {"for": "rate_limit", "attempt": 3, "next_try_at": "2027-01-15T08:01:08.000Z", "last_error": "busy (429)"}
    told = waits_text({**waiting, **busy}, began_s + 61)
    assert told == "rate_limit for 61 s, attempt 3, next try in 7 s: busy (429)"


def test_a_table_and_one_thing_say_what_is_waited_for() -> None:
    member = {"for": "person", "since": "2027-01-15T08:00:00Z", "attempt": None, "next_try_at": None}
    turn = {"id": "turn_1", "waiting": {**member, "last_error": None}}
    assert "person for " in table([turn, {"id": "turn_2", "waiting": None}], ("id", "waiting"))
    assert "person for " in fields(turn)
