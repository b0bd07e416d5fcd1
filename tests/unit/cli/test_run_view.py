"""A run that is followed: as a tree that is rewritten in place, and on a real terminal."""

import re
import signal
from io import StringIO
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from loom_worker.cli.runs import LiveTree, verdict
from loom_worker.cli.stage_tree import StageTree
from loom_worker.core.values.json import Json
from tests.support.fake_runs import START_MS, FakeRuns, log_of, run, stage
from tests.support.http_server import serving
from tests.support.until import until
from tests.unit.cli.test_terminal import Terminal

DONE = stage("stages.0", "completed"), stage("stages.1", "completed")
END = run(*DONE, status="completed", merged_output="So it is.")
LOG = log_of(*DONE, end=END)


def screen(written: str) -> list[str]:
    """The lines of a terminal after this was written to it."""
    lines, at = [""], 0
    for piece in re.split(r"(\x1b\[[?\d]*[A-Za-z]|\n|\r)", written):
        if piece == "\n":
            at += 1
            lines += [""] * (at + 1 - len(lines))
        elif piece.endswith("A") and piece.startswith("\x1b"):
            at -= int(piece[2:-1])
        elif piece == "\x1b[2K":
            lines[at] = ""
        elif not piece.startswith(("\x1b", "\r")):
            lines[at] += piece
    return lines


class Drawn:
    """What a live tree writes on a terminal of this height."""

    def __init__(self, height: int = 24, width: int = 80) -> None:
        self._file = StringIO()
        self._console = Console(file=self._file, force_terminal=True, color_system=None, width=width, height=height)

    def live(self, tree: StageTree) -> LiveTree:
        return LiveTree(tree, self._console, clock=lambda: START_MS / 1000 + 7)

    @property
    def written(self) -> str:
        return self._file.getvalue()

    @property
    def lines(self) -> list[str]:
        return screen(self.written)


def test_a_tree_is_rewritten_where_it_stands() -> None:
    drawn, tree = Drawn(), StageTree.of(run())
    heights = []
    with drawn.live(tree) as live:
        for event in LOG:
            tree = tree.told(event)
            live.show(tree, event)
            heights.append(len(drawn.lines))
    assert heights == [1, 2, 2, 3, 3, 3]
    assert drawn.lines == [
        "run_1 flow: completed, 5.0 s, 2,468 tokens, $1.0000",
        "├── ✓ stages.0  default  2.0 s  1,234 tokens  $0.5000",
        "└── ✓ stages.1  default  2.0 s  1,234 tokens  $0.5000",
        "",
    ]


def test_a_note_stays_above_the_tree() -> None:
    drawn = Drawn()
    with drawn.live(StageTree.of(run(stage("stages.0")))) as live:
        live.note("Somebody\nmust decide")
        live.show(StageTree.of(END), LOG[-1])
    assert [line.split(",")[0] for line in drawn.lines[:3]] == ["Somebody", "must decide", "run_1 flow: completed"]
    assert len(drawn.lines) == 6


def test_a_tree_that_is_higher_than_the_terminal_is_whole_in_the_end() -> None:
    drawn, tree = Drawn(height=6), StageTree.of(run(*(stage(f"votes.{number}") for number in range(20))))
    with drawn.live(tree):
        assert len(drawn.lines) == 5
        assert drawn.lines[1] == "├── … 17 lines not shown"
    assert len(drawn.lines) == 22


def test_a_tree_is_left_as_it_is_when_the_view_of_it_fails() -> None:
    drawn = Drawn()
    with pytest.raises(KeyboardInterrupt), drawn.live(StageTree.of(run(stage("a")))):
        raise KeyboardInterrupt
    assert len(drawn.lines) == 3


@pytest.mark.cases("width", (1, 2, 9, 40))
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    drawn = Drawn(width=width)
    wide = stage("stages.0", "failed", agent_id="商店助手", reason="商" * 40), stage("b" * 90)
    with drawn.live(StageTree.of(run(*wide))):
        pass
    assert [line for line in drawn.lines if cell_len(line) > width] == []


def test_clocks_go_on_while_nothing_happens() -> None:
    drawn = Drawn()
    with drawn.live(StageTree.of(run(stage("a")))):
        until(lambda: drawn.written.count("7.0 s") >= 4, 10, "the tree is rewritten")


@pytest.mark.cases(
    "fields, told",
    [
        ({"status": "completed"}, ""),
        ({"status": "failed", "reason": "dead", "error": {"message": "No\x1b\nmore."}}, "failed (dead): No more."),
        ({"status": "incomplete", "reason": "limits"}, "incomplete (limits)"),
        ({"status": "cancelled"}, "cancelled"),
    ],
)
def test_a_run_that_did_not_complete_says_why(fields: Json, told: str) -> None:
    assert verdict(run(**fields)) == (f"the run run_1 is {told}" if told else "")


@pytest.fixture
def slow() -> FakeRuns:
    """Ends the first stage only once it is let go on."""
    return FakeRuns(LOG, waits_before=3)


def test_on_a_terminal_stages_show_while_they_go_on(tmp_path: Path, slow: FakeRuns) -> None:
    with serving(slow) as url:
        terminal = Terminal(tmp_path, url, "workflow", "run", "flow")
        until(lambda: "· stages.0" in terminal.said, 10, "the stage shows before it has ended")
        slow.go_on.set()
        assert terminal.end() == 0
    *tree, _, result, _ = screen(terminal.said)
    assert [line[:14] for line in tree] == ["run_1 flow: co", "├── ✓ stages.0", "└── ✓ stages.1"]
    assert result == "So it is."


@pytest.mark.heavy
def test_an_interrupt_leaves_the_run_going_and_says_how_to_see_and_end_it(tmp_path: Path, slow: FakeRuns) -> None:
    with serving(slow) as url:
        terminal = Terminal(tmp_path, url, "workflow", "run", "flow")
        until(lambda: "· stages.0" in terminal.said, 10, "the stage shows")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 1
        slow.go_on.set()
    assert "the run goes on; see it with `loom runs watch run_1`, end it with `loom runs cancel run_1`" in terminal.said
    assert "Traceback" not in terminal.said


@pytest.mark.heavy
def test_no_color_is_obeyed_by_notes_too(tmp_path: Path, slow: FakeRuns) -> None:
    slow.go_on.set()
    with serving(slow) as url:
        terminal = Terminal(tmp_path, url, "workflow", "run", "flow", "--json", NO_COLOR="1")
        assert terminal.end() == 0
    assert "stages.1" in terminal.said
    assert "\x1b" not in terminal.said


@pytest.mark.heavy
def test_the_result_alone_goes_to_a_pipe_and_the_events_to_the_terminal(tmp_path: Path, slow: FakeRuns) -> None:
    slow.go_on.set()
    with serving(slow) as url:
        terminal = Terminal(tmp_path, url, "workflow", "run", "flow", "--json")
        assert terminal.end() == 0
    told, result = terminal.said.split("{", 1)
    assert [re.sub(r"\x1b\[\d*m", "", line).split()[1] for line in told.splitlines()] == [
        *("flow:", "stages.0", "stages.0", "stages.1", "stages.1", "flow:"),
    ]
    assert '"merged_output": "So it is."' in result
