"""The live library follows its files by itself, however they change, and nobody ever sees half of a change."""

import itertools
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loom_worker.patterns.live import STAYS, LiveLibrary
from tests.support.live_made import (
    BROKEN,
    WAIT_S,
    Told,
    exchange,
    put,
    text,
    three_files,
    watchers,
)
from tests.support.until import until

pytestmark = pytest.mark.takes(6)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return three_files(tmp_path)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def live(root: Path, told: Told) -> Iterator[LiveLibrary]:
    """Follows its files, and is loaded."""
    library = LiveLibrary(root, listener=told, debounce_ms=20, look_s=0.02)
    library.state()
    told.next()
    assert len(watchers()) == 1
    yield library
    library.stop()
    assert not watchers()


def write(root: Path) -> None:
    (root / "sql" / "a.yaml").write_text(text("a", "Another title"))


def rename(root: Path) -> None:
    exchange(root / "sql" / "a.yaml", text("a", "Another title"))


def save_as_editors_do(root: Path) -> None:
    path = root / "sql" / "a.yaml"
    path.rename(path.with_name("a.yaml~"))
    path.write_text(text("a", "Another title"))
    path.with_name("a.yaml~").unlink()


def add_a_library(root: Path) -> None:
    put(root / "new" / "deep" / "x.yaml", text("x"))


def move_a_library_in(root: Path) -> None:
    put(root.with_name("new") / "x.yaml", text("x"))
    root.with_name("new").rename(root / "new")


def remove_a_library(root: Path) -> None:
    shutil.rmtree(root / "sql")


def move_a_library_out(root: Path) -> None:
    (root / "sql").rename(root.with_name("sql"))


def replace_the_root(root: Path) -> None:
    put(root.with_name("next") / "sql" / "a.yaml", text("a", "Another title"))
    root.rename(root.with_name("old"))
    root.with_name("next").rename(root)


def make_the_root_a_link(root: Path) -> None:
    put(root.with_name("next") / "sql" / "x.yaml", text("x"))
    root.rename(root.with_name("old"))
    root.symlink_to("next")


def delete_and_make_the_root(root: Path) -> None:
    shutil.rmtree(root)
    put(root / "sql" / "x.yaml", text("x"))


OTHERS = {"sql/b": "A title", "text/c": "A title"}
CHANGES: list[tuple[Callable[[Path], None], dict[str, str]]] = [
    (write, {"sql/a": "Another title", **OTHERS}),
    (rename, {"sql/a": "Another title", **OTHERS}),
    (save_as_editors_do, {"sql/a": "Another title", **OTHERS}),
    (add_a_library, {"sql/a": "A title", "new/deep/x": "A title", **OTHERS}),
    (move_a_library_in, {"sql/a": "A title", "new/x": "A title", **OTHERS}),
    (remove_a_library, {"text/c": "A title"}),
    (move_a_library_out, {"text/c": "A title"}),
    (replace_the_root, {"sql/a": "Another title"}),
    (make_the_root_a_link, {"sql/x": "A title"}),
    (delete_and_make_the_root, {"sql/x": "A title"}),
]


def titles(library: LiveLibrary) -> dict[str, str]:
    return {pattern.id: pattern.title for pattern in library.patterns()}


@pytest.mark.heavy
@pytest.mark.parametrize(("change", "expected"), CHANGES, ids=[change.__name__ for change, _ in CHANGES])
def test_however_the_files_change_it_goes_live_and_later_changes_do(
    live: LiveLibrary, root: Path, change: Callable[[Path], None], expected: dict[str, str]
) -> None:
    change(root)
    until(lambda: titles(live) == expected, WAIT_S, "the change is live")
    put(root / "after" / "z.yaml", text("z"))
    until(lambda: titles(live) == {"after/z": "A title", **expected}, WAIT_S, "what comes after it is live")
    assert live.state().problems == ()


def test_a_volume_of_kubernetes_is_followed_through_its_swap(root: Path, told: Told) -> None:
    mount = root.with_name("mount")
    for version in ("1", "2"):
        put(mount / f"..v{version}" / "sql" / "a.yaml", text("a", f"Version {version}"))
    (mount / "..data").symlink_to("..v1")
    (mount / "sql").symlink_to("..data/sql")
    library = LiveLibrary(mount, listener=told, debounce_ms=20, look_s=0.02)
    assert [pattern.title for pattern in library.patterns()] == ["Version 1"]
    told.next()
    (mount / "..tmp").symlink_to("..v2")
    (mount / "..tmp").rename(mount / "..data")
    assert told.next().changed == ("sql/a",)
    assert [pattern.title for pattern in library.patterns()] == ["Version 2"]
    library.stop()


def test_a_folder_elsewhere_that_a_link_leads_to_is_followed(root: Path, live: LiveLibrary, told: Told) -> None:
    shared = put(root.with_name("shared") / "x.yaml", text("x"))
    (root / "linked").symlink_to(shared.parent)
    assert told.next().added == ("linked/x",)
    until(lambda: not live.reload() and told.nothing(), WAIT_S, "it is quiet")
    for title in ("Another title", "And another"):
        exchange(shared, text("x", title))
        assert told.next().changed == ("linked/x",)


def test_a_link_to_itself_is_told_until_it_is_removed_and_others_are_followed(
    root: Path, live: LiveLibrary, told: Told
) -> None:
    (root / "sql" / "notes").symlink_to("notes")
    assert told.next().errors == (f"{root}/sql/notes:1: Too many levels of symbolic links",)
    put(root / "sql" / "x.yaml", text("x"))
    assert told.next().added == ("sql/x",)
    (root / "sql" / "notes").unlink()
    assert told.next().errors == ()
    assert live.ids() == ("sql/a", "sql/b", "sql/x", "text/c")


def test_a_library_that_begins_with_a_link_to_itself_is_followed(root: Path, told: Told) -> None:
    (root / "sql" / "notes").symlink_to("notes")
    library = LiveLibrary(root, listener=told, debounce_ms=20, look_s=0.02)
    assert library.ids() == ("sql/a", "sql/b", "text/c")
    assert len(told.next().errors) == 1
    (root / "sql" / "notes").unlink()
    assert told.next().errors == ()
    library.stop()


def test_a_folder_that_became_a_link_to_itself_stays_until_the_link_is_gone(root: Path, told: Told) -> None:
    still = LiveLibrary(root, listener=told)
    still.state()
    told.next()
    shutil.rmtree(root / "sql")
    (root / "sql").symlink_to("sql")
    still.reload()
    event = told.next()
    assert (event.removed, event.errors) == ((), (f"{root}/sql:1: Too many levels of symbolic links; {STAYS}",))
    still.reload()
    assert told.nothing()
    (root / "sql").unlink()
    still.reload()
    event = told.next()
    assert (event.removed, event.errors) == (("sql/a", "sql/b"), ())


@pytest.mark.heavy
def test_a_burst_of_changes_is_read_in_few_goes(live: LiveLibrary, root: Path, told: Told) -> None:
    for number in range(200):
        put(root / "many" / f"p{number}.yaml", text(f"p{number}"))
    events = 0
    while len(live.ids()) < 203:
        told.next()
        events += 1
    assert events <= 10


@pytest.mark.heavy
def test_changes_that_do_not_end_go_live_all_the_same(root: Path, told: Told) -> None:
    library = LiveLibrary(root, listener=told, debounce_ms=100)
    library.state()
    told.next()
    ends, count = threading.Event(), itertools.count()

    def go_on() -> None:
        while not ends.wait(0.002):
            (root / "sql" / ".new").write_text(text("a", f"Title {next(count)}"))
            (root / "sql" / ".new").rename(root / "sql" / "a.yaml")

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        assert told.next().changed == ("sql/a",)
    finally:
        ends.set()
        thread.join()
    library.stop()
    assert library.state().problems == ()


@pytest.mark.heavy
def test_no_question_ever_meets_a_mixed_or_an_empty_library(root: Path) -> None:
    """Every version of the one file has four patterns that all say which version they are of."""
    path = root / "all" / "all.yaml"

    def version(number: int) -> str:
        return "---\n".join(text(name, f"Version {number}") for name in ("north", "south", "east", "west"))

    shutil.rmtree(root / "sql")
    shutil.rmtree(root / "text")
    put(path, version(0))
    library = LiveLibrary(root)
    asked, seen, wrong = itertools.count(1), set[str](), list[object]()
    ends = time.monotonic() + 30

    def ask() -> None:
        while next(asked) <= 500 or len(seen) < 10:
            try:
                titles = [match.pattern.title for match in library.current().match("monthly revenue by region", 4)]
            except Exception as error:  # told at the end, whatever it is
                wrong.append(error)
                return
            seen.update(titles)
            if len(titles) != 4 or len(set(titles)) != 1:
                wrong.append(titles)
            if time.monotonic() > ends:
                return

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for number in itertools.count(1):
        exchange(path, version(number) if number % 5 else BROKEN)
        library.reload()
        threads[number % 8].join(0.001)
        if not any(thread.is_alive() for thread in threads):
            break
    assert wrong == []
    assert next(asked) > 500
    assert len(seen) >= 10
