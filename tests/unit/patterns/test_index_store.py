import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from loom_worker.core.values.patterns import Pattern
from loom_worker.patterns.index_store import KEPT, IndexStore
from loom_worker.patterns.match import Matcher, texts_of

pytestmark = pytest.mark.heavy

PATTERNS = (Pattern("x/a", "a", "orders by month"), Pattern("x/b", "b", "cats that purr"))
TEXTS = tuple(map(texts_of, PATTERNS))


def test_what_one_process_fitted_another_reads_without_scikit_learn(tmp_path: Path) -> None:
    assert IndexStore(tmp_path).found(TEXTS) is None
    expected = Matcher(PATTERNS, index=IndexStore(tmp_path)).match("monthly orders")
    code = (
        "import sys; from pathlib import Path; from loom_worker.patterns.index_store import IndexStore;"
        "from loom_worker.patterns.match import Matcher;"
        "from loom_worker.core.values.patterns import Pattern;"
        "made = [Pattern('x/a', 'a', 'orders by month'), Pattern('x/b', 'b', 'cats that purr')];"
        "found = Matcher(made, index=IndexStore(Path(sys.argv[1]))).match('monthly orders');"
        "print(found[0].score, {'sklearn', 'scipy'} & {*sys.modules})"
    )
    for folder in (tmp_path, tmp_path / "fresh"):  # read, and fitted by a process of its own
        done = subprocess.run(
            [sys.executable, "-c", code, folder], capture_output=True, text=True, check=True, timeout=60
        )
        assert done.stdout.split() == [str(expected[0].score), "set()"]


def test_the_index_is_that_of_scikit_learn_in_this_process(tmp_path: Path) -> None:
    for question in ("orders", "the cat", "purring by month"):
        assert Matcher(PATTERNS, index=IndexStore(tmp_path)).match(question) == Matcher(PATTERNS).match(question)


def test_those_who_ask_at_once_fit_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: IndexStore(tmp_path).fitted(TEXTS), range(3)))
    assert len({tuple(index.values.tolist()) for index in found}) == 1
    assert len([each for each in tmp_path.iterdir() if each.is_dir()]) == 1


def test_where_nothing_can_be_written_this_process_fits(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "file"
    file.write_text("no folder")
    assert Matcher(PATTERNS, index=IndexStore(file / "below")).match("orders")[0].pattern.id == "x/a"
    assert "no index could be kept" in caplog.text


@pytest.mark.parametrize("name", ["terms.json", "values.npy"])
def test_a_damaged_index_is_fitted_anew(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    expected = Matcher(PATTERNS, index=IndexStore(tmp_path)).match("orders")
    next(tmp_path.glob(f"*/{name}")).write_bytes(b"\x80")
    assert Matcher(PATTERNS, index=IndexStore(tmp_path)).match("orders") == expected
    assert "fitted again" in caplog.text
    caplog.clear()
    assert IndexStore(tmp_path).found(TEXTS) is not None
    assert caplog.text == ""


def test_old_indexes_go(tmp_path: Path) -> None:
    for number in range(KEPT + 2):
        (tmp_path / f"old{number}").mkdir()
    IndexStore(tmp_path).fitted(TEXTS)
    assert len([each for each in tmp_path.iterdir() if each.is_dir()]) == KEPT
    assert IndexStore(tmp_path).found(TEXTS) is not None
