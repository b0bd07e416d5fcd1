import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loom_worker.supervisor import home

URL = "http://127.0.0.1:8123"
SERVING = """
import signal, sys
from pathlib import Path
from loom_worker.supervisor import home
with home.announced(Path(sys.argv[1]), sys.argv[2]):
    print("serves", flush=True)
    signal.pause()
"""


@contextmanager
def web(directory: Path, url: str = URL) -> Iterator[None]:
    command = [sys.executable, "-c", SERVING, str(directory), url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "serves\n"
        try:
            yield
        finally:
            process.kill()


def test_a_web_without_a_supervisor_is_found_until_it_dies(tmp_path: Path) -> None:
    assert home.url_of(tmp_path) is None
    with web(tmp_path):
        assert home.url_of(tmp_path) == URL
    assert (tmp_path / home.WEB_URL).read_text() == URL
    assert home.url_of(tmp_path) is None


def test_the_web_of_one_home_is_not_found_from_another(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.mkdir()
    other.mkdir()
    with web(other):
        assert home.url_of(mine) is None


def test_a_second_web_on_a_home_does_not_take_the_place_of_the_first(tmp_path: Path) -> None:
    with web(tmp_path), web(tmp_path, "http://127.0.0.1:9999"):
        assert home.url_of(tmp_path) == URL


def test_what_loom_up_says_comes_first_and_its_web_says_nothing(tmp_path: Path) -> None:
    home.prepare(tmp_path)
    with home.locked(tmp_path), web(tmp_path, "http://127.0.0.1:9999"):
        assert home.url_of(tmp_path) is None
        home.write_state(tmp_path, home.State(1, URL, "", "2026-11-21T09:30:00Z"))
        assert home.url_of(tmp_path) == URL


def test_a_home_that_cannot_be_written_is_served_all_the_same(tmp_path: Path) -> None:
    with home.announced(tmp_path / "missing", URL):
        assert home.url_of(tmp_path / "missing") is None
