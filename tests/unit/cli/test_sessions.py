"""`loom sessions` against the real front end over the real service."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.cli.main import main
from loom_worker.cli.sessions import ASCII, BLOCKS, WIDEST, Strokes, bar, drawn, strokes_of
from loom_worker.core.settings import Settings
from loom_worker.core.values.turns import NewTurn
from tests.support.callers import a_tool
from tests.support.cli_server import asked_by_commands
from tests.support.web_stage import WebStage, stages

Loom = Callable[..., Result]


@pytest.fixture
def stage(settings: Settings, valkey: redis.Redis) -> Iterator[WebStage]:
    with stages(settings, valkey) as make:
        made = make(tools=(a_tool("clock", "Tells the time. " * 514, {"type": "object"}),))
        turn, _ = made.service.submit("default", "s1", NewTurn("Why?"), agent=None)
        made.worker.finish(turn.id, "Because.")
        yield made


@pytest.fixture
def loom(stage: WebStage, tmp_path: Path) -> Iterator[Loom]:
    """`loom sessions …` on a terminal of this character set, asking a server on loopback."""
    with asked_by_commands(stage, tmp_path) as env:

        def run(*arguments: str, charset: str = "utf-8") -> Result:
            return CliRunner(charset=charset).invoke(main, ["sessions", *arguments], env=env)

        yield run


@pytest.mark.parametrize("words", [("show", "s1"), ("s1",)])
def test_a_session_is_shown_with_a_bar_for_each_layer(loom: Loom, words: tuple[str, ...]) -> None:
    result = loom(*words)
    above, _, below = result.stdout.partition("\n\n")
    assert "agent             default" in above.splitlines()
    title, *bars, last = below.splitlines()
    assert (result.exit_code, title) == (0, "context of played, memory version 0")
    assert [line.split()[0] for line in bars] == ["tools", "rom", "kernel", "l2", "l1", "recalled", "patterns"]
    assert bars[0].startswith("tools    ████▍·")
    assert bars[4].endswith(" 16   0.2%     2 msg")
    assert last == "2,155 of 10,000 tokens used (21.6%)"
    assert max(map(len, below.splitlines())) <= WIDEST


def test_a_terminal_without_blocks_gets_plain_bars(loom: Loom) -> None:
    result = loom("s1", charset="ascii")
    assert (result.exit_code, result.stdout.isascii()) == (0, True)
    assert "tools    ####......" in result.stdout


def test_json_is_the_session_with_its_context(loom: Loom, stage: WebStage) -> None:
    shown = json.loads(loom("show", "s1", "--json").stdout)
    assert shown.pop("context") == stage.service.contexts.context("default", "s1")
    assert shown == stage.service.sessions.get("default", "s1").as_json()


def test_snapshots_are_listed_with_the_beginning_of_their_text(loom: Loom, stage: WebStage) -> None:
    older, newer = stage.keep_snapshots("s1", *(f"{n}: " + "word\n" * 100 for n in (1, 2)))
    first = loom("snapshots", "s1", "--limit", "1")
    head, row, more = first.stdout.splitlines()
    assert head.split() == ["ID", "CREATED_AT", "TOKEN_COUNT", "CONTENT"]
    assert row.startswith(f"{newer}  1970-01-01T00:00:00.000Z  90           2: word word")
    rest = loom("snapshots", "s1", *more.removeprefix("more: ").split(), "--json")
    assert [item["id"] for item in json.loads(rest.stdout)["data"]] == [older]


@pytest.mark.parametrize("words", [("show",), (), ("snapshots",)])
def test_a_session_that_is_not_there_exits_1(loom: Loom, words: tuple[str, ...]) -> None:
    result = loom(*words, "none")
    assert (result.exit_code, result.stderr) == (1, "loom: 404 Not found: There is no session 'none'.\n")


def test_the_options_of_the_list_are_refused_before_a_command(loom: Loom) -> None:
    assert loom("--limit", "3", "snapshots", "s1").exit_code == 2


def test_blocks_are_single_characters() -> None:
    assert len(set(BLOCKS.parts)) == len(BLOCKS.parts) == 8


SHARES = st.floats(0, 2)


def context(share: float, tokens: int = 10, messages: int = 3) -> dict[str, Any]:
    layers = {"tools": {"tokens": tokens, "share": share}, "recalled": {"tokens": tokens, "share": share}}
    layers["recalled"]["messages"] = messages
    return {"layers": layers, "input_budget_tokens": 1000, "used_tokens": 2 * tokens}


@pytest.mark.parametrize("strokes", [BLOCKS, ASCII])
@given(less=SHARES, more=SHARES)
def test_a_larger_share_never_has_a_shorter_bar(strokes: Strokes, less: float, more: float) -> None:
    filled = [len(bar(share, strokes).rstrip(strokes.empty)) for share in sorted((less, more))]
    assert filled == sorted(filled)


@pytest.mark.parametrize("strokes", [BLOCKS, ASCII])
@given(share=SHARES)
def test_a_bar_has_one_width_and_is_empty_only_for_nothing(strokes: Strokes, share: float) -> None:
    drawing = bar(share, strokes)
    assert len(drawing) == len(bar(1.0, strokes))
    assert (drawing == strokes.empty * len(drawing)) is (share == 0)
    assert (strokes.empty not in drawing) or share < 1


def test_eighths_of_a_cell_can_be_told_apart() -> None:
    assert len({bar(share / 176, BLOCKS) for share in range(177)}) == 177


@given(share=SHARES, tokens=st.integers(0, 10_000_000), messages=st.integers(0, 9999))
def test_no_line_is_wider_than_allowed(share: float, tokens: int, messages: int) -> None:
    lines = list(drawn(context(share, tokens, messages), BLOCKS))
    assert max(map(len, lines)) <= WIDEST
    assert [line.split()[0] for line in lines[:2]] == ["tools", "recalled"]


def test_what_is_known_beyond_the_context_has_a_line() -> None:
    tiers = {"summaries": 1_234, "summarized_messages": 61_700, "open_facts": 2_000}
    line = list(drawn({**context(0.1, 250), "tiers": tiers}, ASCII))[-2]
    assert line == "1,234 summaries by date (61,700 messages), 2,000 open facts"
    assert len(line) <= WIDEST


def test_the_last_line_sums_up() -> None:
    assert list(drawn(context(0.1, 250), ASCII))[-1] == "500 of 1,000 tokens used (50.0%)"


@pytest.mark.cases(
    ("encoding", "strokes"),
    [("utf-8", BLOCKS), ("cp437", ASCII), ("ascii", ASCII), ("latin-1", ASCII), (None, ASCII), ("no such", ASCII)],
)
def test_blocks_are_drawn_only_where_they_can_be_shown(encoding: str | None, strokes: Strokes) -> None:
    assert strokes_of(encoding) is strokes
