"""`loom ask` on a real terminal: streamed, and left with Ctrl-C."""

import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.http_server import Exchange, serving
from tests.support.until import until

TURN = b'{"id": "turn_1", "status": "completed", "output_text": "Hello"}'


def _hears_interrupts() -> None:
    """A shell starts what it puts in the background with SIGINT ignored, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A command on a pseudo-terminal, and what it wrote there."""

    def __init__(self, home: Path, url: str, *arguments: str, **environ: str) -> None:
        self._main, side = pty.openpty()
        env = {**os.environ, "LOOM_HOME": str(home), "LOOM_URL": url, **environ}
        command = [sys.executable, "-m", "loom_worker.cli.main", *arguments]
        self.process = subprocess.Popen(
            command, stdin=side, stdout=side, stderr=side, env=env, start_new_session=True, preexec_fn=_hears_interrupts
        )
        os.close(side)
        self._said = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        try:
            while piece := os.read(self._main, 4096):
                self._said += piece
        except OSError:  # how Linux says that the last writer has gone
            return

    @property
    def said(self) -> str:
        return self._said.decode().replace("\r\n", "\n")

    def end(self) -> int:
        status = self.process.wait(timeout=60)
        self._reader.join()
        os.close(self._main)
        return status


class Slow:
    """Streams "Hel", and "lo" only once it is let go on."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def __call__(self, exchange: Exchange) -> None:
        exchange.body()
        if exchange.command == "POST":
            exchange.answer(202, b'{"id": "turn_1"}')
        elif not exchange.path.endswith("/events"):
            exchange.answer(200, TURN)
        else:
            exchange.begin_chunked()
            exchange.chunk(b'id: 1\nevent: output_text.delta\ndata: {"text": "Hel"}\n\n')
            self.go_on.wait(60)
            exchange.chunk(b'id: 2\nevent: output_text.delta\ndata: {"text": "lo"}\n\n')
            exchange.chunk(b"id: 3\nevent: turn.completed\ndata: {}\n\n")
            exchange.chunk(b"")


@pytest.fixture
def slow() -> Slow:
    return Slow()


def test_an_answer_is_shown_while_it_is_written(tmp_path: Path, slow: Slow) -> None:
    with serving(slow) as url:
        terminal = Terminal(tmp_path, url, "ask", "?")
        until(lambda: terminal.said == "Hel", 10, "the first words show before the rest exists")
        slow.go_on.set()
        assert terminal.end() == 0
    assert terminal.said == "Hello\n"


@pytest.mark.heavy
def test_an_interrupt_leaves_the_turn_running_and_says_how_to_see_it(tmp_path: Path, slow: Slow) -> None:
    with serving(slow) as url:
        terminal = Terminal(tmp_path, url, "ask", "?")
        until(lambda: terminal.said == "Hel", 10, "the answer begins")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 1
        slow.go_on.set()
    assert "the turn goes on; see it with `loom turns turn_1`" in terminal.said
    assert "Traceback" not in terminal.said
