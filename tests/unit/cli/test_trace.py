"""`loom trace` against the real front end over the real service."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from loom_worker.cli.main import main
from loom_worker.core.values.spans import LaterSpans, TraceSpan
from loom_worker.core.values.turns import NewTurn, Turn
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.turn_records import add_spans
from tests.support.cli_server import Loom
from tests.support.fake_loom import TURN, FakeLoom
from tests.support.http_server import serving
from tests.support.web_stage import WebStage
from tests.unit.cli.test_terminal import Terminal


def asked(stage: WebStage) -> Turn:
    new = NewTurn("Why?", traceparent=f"00-{'a' * 32}-{'b' * 16}-01")
    return stage.service.submit("default", "s", new, agent=None)[0]


def test_a_trace_is_a_tree_below_its_id(loom: Loom, stage: WebStage) -> None:
    turn = asked(stage)
    stage.worker.finish(turn.id, "So.")
    result = loom(turn.id)
    assert result.exit_code == 0, result.output
    first, *lines = result.stdout.splitlines()
    assert first == f"trace {turn.trace_id}"
    assert [line.split("  +")[0].rstrip() for line in lines] == [
        *("agent.chat", "  lane.wait", "  turn.run", "    store.finish"),
    ]
    assert "5 tokens" in lines[0]


def test_a_turn_that_goes_on_shows_what_it_has_done_so_far(loom: Loom, stage: WebStage) -> None:
    turn = asked(stage)
    stage.worker.start(turn.id)
    lines = loom(turn.id).stdout.splitlines()
    assert [line.split()[0] for line in lines if "goes on" in line] == ["agent.chat", "turn.run"]


def test_as_json_it_is_what_the_api_lists(loom: Loom, stage: WebStage) -> None:
    turn = asked(stage)
    stage.worker.finish(turn.id, "So.")
    told = json.loads(loom(turn.id, "--json").stdout)
    spans = stage.service.traces.of_turn("default", turn.id)
    assert told == {"object": "list", "data": [span.as_json() for span in spans]}


def test_a_trace_of_several_pages_is_shown_whole(loom: Loom, stage: WebStage) -> None:
    turn = asked(stage)
    stage.worker.finish(turn.id, "So.")
    wide = {f"loom.note.{n}": "x" * 4000 for n in range(4)}
    more = tuple(TraceSpan("a" * 32, f"{n:016x}", None, "webhook.deliver", n, n + 1, wide) for n in range(150))
    with stage.database.write(lock=WHOLE) as tx:
        add_spans(tx, LaterSpans(turn.id, more), now_ms=1)
    assert stage.service.traces.of_turn("default", turn.id)[-1].end_us is not None
    result = loom(turn.id)
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 1 + 4 + 150


def test_a_turn_that_is_not_there_exits_1(loom: Loom) -> None:
    result = loom("turn_none")
    assert (result.exit_code, result.stderr) == (1, "loom: 404 Not found: There is no turn 'turn_none'.\n")


def test_what_a_provider_said_cannot_drive_the_terminal(tmp_path: Path) -> None:
    span = TraceSpan(
        "a" * 32, "b" * 16, None, "llm.completion", 1_000_000, 2_000_000, {}, (), "Error", "\x1b[2Jgone\naway\ud83d"
    )
    fake = FakeLoom(pages={f"/v1/turns/{TURN}/trace": {"data": [span.as_json()], "has_more": False, "next": None}})
    with serving(fake) as url:
        env = {"LOOM_HOME": str(tmp_path), "LOOM_URL": url, "LOOM_API_KEYS": None}
        result = CliRunner().invoke(main, ["trace", TURN], env=env)
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.stdout
    _, line = result.stdout.splitlines()
    assert line.endswith("Error  ([2Jgone away\ufffd)")


def test_a_turn_without_spans_says_so(tmp_path: Path) -> None:
    fake = FakeLoom(pages={f"/v1/turns/{TURN}/trace": {"data": [], "has_more": False, "next": None}})
    with serving(fake) as url:
        env = {"LOOM_HOME": str(tmp_path), "LOOM_URL": url, "LOOM_API_KEYS": None}
        assert CliRunner().invoke(main, ["trace", TURN], env=env).stdout == "no spans\n"


@pytest.mark.heavy
def test_on_a_terminal_a_trace_is_a_tree_in_its_width_that_shows_texts_as_they_are(tmp_path: Path) -> None:
    root = TraceSpan("a" * 32, "b" * 16, None, "agent.chat", 1_000_000, 2_000_000)
    said = "[bold]x[/] :smile: \x1b]0;t\x07" + "y" * 100
    child = TraceSpan("a" * 32, "c" * 16, "b" * 16, "llm.completion", 1_000_000, 2_000_000, {}, (), "Error", said)
    data = [root.as_json(), child.as_json()]
    fake = FakeLoom(pages={f"/v1/turns/{TURN}/trace": {"data": data, "has_more": False, "next": None}})
    with serving(fake) as url:
        terminal = Terminal(tmp_path, url, "trace", TURN, TERM="xterm", COLUMNS="80", NO_COLOR="1")
        assert terminal.end() == 0
    head, first, second, *more = terminal.said.splitlines()
    assert (head, first[:14], second[:22]) == (f"trace {'a' * 32}", "└── agent.chat", "    └── llm.completion")
    assert f"([bold]x[/]:smile:]0;t{'y' * 100})" in "".join(terminal.said.split())
    assert [line for line in (second, *more) if len(line) > 80 or not line.isprintable()] == []
