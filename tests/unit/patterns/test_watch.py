"""Marks of files and events of the file system, on real folders."""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loom_worker.patterns.watch import MOST_LINKED, FileWatcher, look
from tests.support.until import until

WAIT_S = 10.0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("sql/a.yaml", "sql/b.yaml", "text/c.yml"):
        path = tmp_path / "library" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("name: x\n")
    return tmp_path / "library"


@pytest.fixture
def watch() -> Iterator[FileWatcher]:
    watch = FileWatcher(debounce_ms=0)
    yield watch
    watch.close()
    assert not [thread for thread in threading.enumerate() if type(thread).__module__.startswith("watchdog.")]


@pytest.fixture
def changed(watch: FileWatcher) -> threading.Event:
    return watch.changed


def names(root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path in look(root)]


def replace(path: Path) -> None:
    facts = path.stat()
    path.with_name("other").write_bytes(path.read_bytes())
    os.utime(path.with_name("other"), ns=(facts.st_atime_ns, facts.st_mtime_ns))
    path.with_name("other").rename(path)


def grow(path: Path) -> None:
    facts = path.stat()
    path.write_text(path.read_text() + "title: y\n")
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def test_all_pattern_files_are_seen_in_order_and_stay_the_same_while_nobody_touches_them(root: Path) -> None:
    (root / "sql" / "notes.txt").write_text("")
    assert names(root) == ["sql/a.yaml", "sql/b.yaml", "text/c.yml"]
    assert look(root) == look(root)


@pytest.mark.parametrize(
    "change", [replace, grow, lambda path: os.utime(path, (5, 5))], ids=["replace", "grow", "touch"]
)
def test_a_file_that_changed_has_another_mark_and_no_other_file_has(root: Path, change: Callable[[Path], None]) -> None:
    before = look(root)
    change(root / "sql" / "a.yaml")
    after = look(root)
    assert [path.name for path in before if before[path] != after[path]] == ["a.yaml"]


def test_a_link_is_marked_as_what_it_leads_to(root: Path) -> None:
    target = root.with_name("target.yaml")
    target.write_text("name: y\n")
    (root / "sql" / "link.yaml").symlink_to(target)
    before = look(root)[root / "sql" / "link.yaml"]
    replace(target)
    assert look(root)[root / "sql" / "link.yaml"] != before
    target.unlink()
    assert "sql/link.yaml" not in names(root)


def test_a_folder_that_is_not_there_or_is_none_is_an_error_that_says_so(root: Path) -> None:
    with pytest.raises(FileNotFoundError):
        look(root / "missing")
    with pytest.raises(NotADirectoryError):
        look(root / "sql" / "a.yaml")


def test_what_may_not_be_looked_into_has_no_mark(root: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may look into everything")
    (root / "sql").chmod(0)
    try:
        assert look(root)[root / "sql"] is None
    finally:
        (root / "sql").chmod(0o755)


def new_folder(root: Path) -> None:
    (root / "new" / "deep").mkdir(parents=True)


CHANGES: dict[str, Callable[[Path], object]] = {
    "write": lambda root: (root / "sql" / "a.yaml").write_text("name: z\n"),
    "create": lambda root: (root / "sql" / "z.yaml").write_text(""),
    "delete": lambda root: (root / "sql" / "a.yaml").unlink(),
    "rename": lambda root: (root / "sql" / "a.yaml").rename(root / "sql" / "z.yaml"),
    "new folder": new_folder,
    "rm -r": lambda root: shutil.rmtree(root / "text"),
    "chmod": lambda root: (root / "sql" / "a.yaml").chmod(0o600),
    "link": lambda root: (root / "..data").symlink_to("sql"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_reported(root: Path, watch: FileWatcher, changed: threading.Event, name: str) -> None:
    assert watch.cover(root)
    assert not changed.is_set()
    CHANGES[name](root)
    assert changed.wait(WAIT_S)


def test_looking_and_reading_report_no_change(root: Path, watch: FileWatcher, changed: threading.Event) -> None:
    watch.cover(root)
    for path in look(root):
        path.read_text()
    assert not changed.wait(0.1)


def test_changes_in_a_folder_that_was_made_later_are_reported(
    root: Path, watch: FileWatcher, changed: threading.Event
) -> None:
    watch.cover(root)
    new_folder(root)
    assert changed.wait(WAIT_S)

    def is_reported() -> bool:
        changed.clear()
        (root / "new" / "deep" / "x.yaml").write_text("name: x\n")
        return changed.wait(0.2)

    until(is_reported, WAIT_S, "the new folder is watched")


def test_a_folder_is_covered_anew_only_when_it_must_be(root: Path, watch: FileWatcher) -> None:
    assert not watch.holds(root)
    assert watch.cover(root)
    assert watch.holds(root)
    assert not watch.cover(root)
    watch.close()
    assert not watch.holds(root)
    assert watch.cover(root)


def test_a_folder_that_took_anothers_name_is_not_held_until_it_is_covered(
    root: Path, watch: FileWatcher, changed: threading.Event
) -> None:
    watch.cover(root)
    root.rename(root.with_name("old"))
    assert not watch.holds(root)
    assert not watch.cover(root)
    shutil.copytree(root.with_name("old"), root)
    assert not watch.holds(root)
    assert watch.cover(root)
    assert watch.holds(root)
    changed.clear()
    (root / "sql" / "a.yaml").unlink()
    assert changed.wait(WAIT_S)


def test_a_folder_that_was_deleted_is_not_held_even_if_the_next_one_has_its_number(
    root: Path, watch: FileWatcher
) -> None:
    watch.cover(root)
    shutil.rmtree(root)
    root.mkdir()
    until(lambda: not watch.holds(root), WAIT_S, "its end is known")
    assert watch.cover(root)


def test_folders_elsewhere_are_watched_while_links_lead_there(
    root: Path, watch: FileWatcher, changed: threading.Event
) -> None:
    elsewhere = root.with_name("elsewhere")
    elsewhere.mkdir()
    (elsewhere / "x.yaml").write_text("name: x\n")
    single = root.with_name("single")
    single.mkdir()
    (single / "y.yaml").write_text("name: y\n")
    watch.cover(root)
    (root / "linked").symlink_to(elsewhere)
    (root / "sql" / "y.yaml").symlink_to(single / "y.yaml")
    assert watch.cover(root)
    for path in (elsewhere / "x.yaml", single / "y.yaml"):
        changed.clear()
        replace(path)
        assert changed.wait(WAIT_S)
    (root / "linked").unlink()
    assert watch.cover(root)
    assert not watch.cover(root)


def test_of_many_folders_elsewhere_only_some_are_watched(root: Path, watch: FileWatcher) -> None:
    for number in range(MOST_LINKED + 4):
        folder = root.with_name(f"elsewhere{number}")
        folder.mkdir()
        (folder / "x.yaml").write_text("name: x\n")
        (root / f"linked{number}").symlink_to(folder)
    assert watch.cover(root)
    emitters = [thread for thread in threading.enumerate() if type(thread).__name__ == "InotifyEmitter"]
    assert len(emitters) == MOST_LINKED + 1


def test_a_link_to_itself_or_into_a_closed_folder_costs_no_watch(
    root: Path, watch: FileWatcher, changed: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    closed = root.with_name("closed")
    (closed / "inside").mkdir(parents=True)
    (root / "sql" / "notes").symlink_to("notes")
    (root / "sql" / "more").symlink_to(closed / "inside")
    closed.chmod(0)
    try:
        assert look(root)[root / "sql" / "notes"] is None
        assert watch.cover(root)
        assert not watch.cover(root)
    finally:
        closed.chmod(0o755)
    changed.clear()
    (root / "sql" / "notes").unlink()
    assert changed.wait(WAIT_S)
    assert not caplog.records


def test_a_folder_that_may_only_be_listed_costs_no_watch(root: Path, watch: FileWatcher) -> None:
    (root / "sql").chmod(0o444)
    try:
        assert watch.cover(root)
    finally:
        (root / "sql").chmod(0o755)


@pytest.mark.parametrize(
    "error", [OSError(24, "inotify instance limit reached"), RuntimeError("can't start new thread")]
)
def test_a_system_that_cannot_watch_is_told_of_once_and_asked_again(
    root: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    from watchdog.observers import Observer

    refuses = True

    def observer() -> object:
        if refuses:
            raise error
        return Observer()

    watch = FileWatcher(debounce_ms=0, observer=observer)  # type: ignore[arg-type]
    for _ in range(3):
        assert not watch.cover(root)
        assert not watch.holds(root)
    assert len(caplog.records) == 1
    assert str(error) in caplog.text
    refuses = False
    assert watch.cover(root)
    watch.close()
    refuses = True
    assert not watch.cover(root)
    assert len(caplog.records) == 2
