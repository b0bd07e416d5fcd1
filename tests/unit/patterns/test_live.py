"""The live library on real files: what goes live when it is looked for, what stays, and what is told of it."""

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from loom_worker.core.values.patterns import PatternUpdateEvent
from loom_worker.patterns.index import Index, Texts
from loom_worker.patterns.library import MAX_PROBLEM_CHARS
from loom_worker.patterns.live import STAYS, LiveLibrary, look
from loom_worker.patterns.match import InProcess
from tests.support.at_once import at_once
from tests.support.live_made import (
    BROKEN,
    WAIT_S,
    RecordingLibrary,
    Told,
    exchange,
    put,
    text,
    three_files,
    watchers,
)
from tests.support.pattern_files import MINIMAL, write
from tests.support.until import AT_ONCE_S


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return three_files(tmp_path)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def still(root: Path, told: Told) -> RecordingLibrary:
    """Checks its files only when it is asked to."""
    return RecordingLibrary(root, listener=told)


def replace(path: Path) -> None:
    facts = path.stat()
    path.with_name("other").write_bytes(path.read_bytes())
    os.utime(path.with_name("other"), ns=(facts.st_atime_ns, facts.st_mtime_ns))
    path.with_name("other").rename(path)


def grow(path: Path) -> None:
    facts = path.stat()
    path.write_text(path.read_text() + "title: y\n")
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


@pytest.mark.parametrize(
    "change",
    [replace, grow, lambda path: os.utime(path, (5, 5)), lambda path: path.chmod(0o600)],
    ids=["replace", "grow", "touch", "chmod"],
)
def test_a_file_that_changed_has_another_mark_and_no_other_file_has(root: Path, change: Callable[[Path], None]) -> None:
    (root / "sql" / "notes.txt").write_text("")
    before = look(root)
    assert [path.relative_to(root).as_posix() for path in before] == ["sql/a.yaml", "sql/b.yaml", "text/c.yaml"]
    assert look(root) == before
    change(root / "sql" / "a.yaml")
    after = look(root)
    assert [path.name for path in before if before[path] != after[path]] == ["a.yaml"]


def test_a_link_is_marked_as_what_it_leads_to(root: Path) -> None:
    target = put(root.with_name("target.yaml"), text("y"))
    (root / "sql" / "link.yaml").symlink_to(target)
    before = look(root)[root / "sql" / "link.yaml"]
    replace(target)
    assert look(root)[root / "sql" / "link.yaml"] != before
    target.unlink()
    assert root / "sql" / "link.yaml" not in look(root)


def test_nothing_is_read_or_started_before_the_first_question(still: RecordingLibrary, told: Told) -> None:
    assert (still.since(), told.nothing()) == ([], True)
    state = still.state()
    assert sorted(still.since()) == ["sql/a.yaml", "sql/b.yaml", "text/c.yaml"]
    assert still.ids() == ("sql/a", "sql/b", "text/c")
    assert state.problems == ()
    assert abs(state.loaded_ms - time.time() * 1000) < 60_000
    event = told.next()
    assert (event.added, event.changed, event.removed) == (("sql/a", "sql/b", "text/c"), (), ())
    assert (event.errors, event.patterns) == ((), 3)
    assert 0 < event.duration_ms < 60_000


def test_shipped_patterns_are_added_and_ones_own_take_the_place_of_their_namesakes(
    root: Path, tmp_path: Path, told: Told
) -> None:
    shipped = write(tmp_path / "shipped", sql__a=MINIMAL.replace("top_n", "a"), sql__z=MINIMAL.replace("top_n", "z"))
    library = LiveLibrary(root, listener=told, shipped=shipped)
    own = LiveLibrary(root, listener=told)
    assert library.ids() == (*own.ids(), "sql/z")
    assert library.by_id("sql/a") == own.by_id("sql/a")
    assert library.state().problems == ()
    (root / "sql" / "a.yaml").unlink()
    library.reload()
    assert library.by_id("sql/a") is not None
    assert library.by_id("sql/a") != own.by_id("sql/a")


def test_many_first_questions_at_once_make_one_load(root: Path, told: Told) -> None:
    library = RecordingLibrary(root, listener=told, debounce_ms=20)
    states = at_once(lambda _: library.state(), range(8))
    assert {id(state) for state in states} == {id(states[0])}
    assert len(library.read) == 3
    assert len(watchers()) == 1
    told.next()
    library.stop()
    assert told.nothing()


def test_an_event_says_exactly_what_is_different(still: LiveLibrary, root: Path, told: Told) -> None:
    still.state()
    told.next()
    exchange(root / "sql" / "b.yaml", text("b", "Another title"))
    put(root / "sql" / "d.yaml", text("d"))
    put(root / "new" / "e.yaml", text("e"))
    shutil.rmtree(root / "text")
    still.reload()
    event = told.next()
    assert (event.added, event.changed, event.removed) == (("new/e", "sql/d"), ("sql/b",), ("text/c",))
    assert (event.errors, event.patterns) == ((), 4)
    found = still.by_id("sql/b")
    assert found is not None
    assert found.title == "Another title"
    assert [pattern.id for pattern in still.patterns()] == ["new/e", "sql/a", "sql/b", "sql/d"]


def test_only_changed_files_are_read(still: RecordingLibrary, root: Path) -> None:
    still.state()
    still.since()
    still.reload()
    assert still.since() == []
    exchange(root / "sql" / "b.yaml", text("b", "Another title"))
    still.reload()
    assert still.since() == ["sql/b.yaml"]
    put(root / "sql" / "b.yaml", text("b", "And another"))
    put(root / "sql" / "d.yaml", text("d"))
    still.reload()
    assert still.since() == ["sql/b.yaml", "sql/d.yaml"]


def test_a_file_that_was_written_just_now_is_read_once_more(still: RecordingLibrary, root: Path) -> None:
    still.state()
    still.since()
    (root / "sql" / "b.yaml").write_text(text("b", "Another title"))
    still.reload()
    still.reload()
    assert still.since() == ["sql/b.yaml"] * 2


def test_a_look_that_finds_nothing_new_changes_and_tells_nothing(still: LiveLibrary, root: Path, told: Told) -> None:
    before = still.state()
    told.next()
    still.reload()
    os.utime(root / "sql" / "a.yaml", (77, 77))
    still.reload()
    assert still.state() is before
    assert told.nothing()


def test_a_pattern_that_only_moved_is_no_news_but_its_line_is_known(still: LiveLibrary, root: Path, told: Told) -> None:
    still.state()
    told.next()
    exchange(root / "sql" / "a.yaml", "# a comment\n---\n" + text("a"))
    still.reload()
    found = still.by_id("sql/a")
    assert found is not None
    assert found.line > 1
    assert told.nothing()


def test_a_broken_file_keeps_what_it_said_while_others_go_live(still: LiveLibrary, root: Path, told: Told) -> None:
    still.state()
    told.next()
    put(root / "sql" / "a.yaml", BROKEN)
    put(root / "sql" / "b.yaml", text("b", "Another title"))
    still.reload()
    event = told.next()
    assert (event.added, event.changed, event.removed, event.patterns) == ((), ("sql/b",), (), 3)
    assert len(event.errors) == 1
    assert event.errors[0].startswith(f"{root / 'sql' / 'a.yaml'}:1: ")
    assert event.errors[0].endswith(STAYS)
    assert still.state().problems == event.errors
    kept = still.by_id("sql/a")
    assert kept is not None
    assert kept.title == "A title"
    still.reload()
    assert told.nothing()

    put(root / "sql" / "a.yaml", text("a", "Mended"))
    still.reload()
    event = told.next()
    assert (event.changed, event.errors, still.state().problems) == (("sql/a",), (), ())


def test_a_broken_file_that_is_mended_as_it_was_takes_its_complaint_back(
    still: LiveLibrary, root: Path, told: Told
) -> None:
    still.state()
    told.next()
    for content, complaints in ((BROKEN, 1), (text("a"), 0)):
        put(root / "sql" / "a.yaml", content)
        still.reload()
        event = told.next()
        assert (event.added, event.changed, event.removed, len(event.errors)) == ((), (), (), complaints)


def test_a_broken_file_that_is_deleted_takes_its_patterns_along(still: LiveLibrary, root: Path, told: Told) -> None:
    still.state()
    told.next()
    put(root / "sql" / "a.yaml", BROKEN)
    still.reload()
    told.next()
    (root / "sql" / "a.yaml").unlink()
    still.reload()
    event = told.next()
    assert (event.removed, event.errors) == (("sql/a",), ())
    assert still.ids() == ("sql/b", "text/c")


def test_a_file_of_which_one_pattern_breaks_stays_as_it_was(still: LiveLibrary, root: Path, told: Told) -> None:
    put(root / "sql" / "a.yaml", text("a1") + "---\n" + text("a2"))
    still.state()
    told.next()
    put(root / "sql" / "a.yaml", text("a1", "Another title") + "---\ntitle: without a name\n")
    still.reload()
    event = told.next()
    assert (event.added, event.changed, event.removed, len(event.errors)) == ((), (), (), 1)
    assert still.ids() == ("sql/a1", "sql/a2", "sql/b", "text/c")


def test_what_can_be_read_is_loaded_first_though_other_files_are_broken(
    still: LiveLibrary, root: Path, told: Told
) -> None:
    put(root / "sql" / "b.yaml", BROKEN)
    put(root / "text" / "c.yaml", text("c1") + "---\ntitle: without a name\n")
    assert still.ids() == ("sql/a", "text/c1")
    event = told.next()
    assert (event.added, len(event.errors)) == (("sql/a", "text/c1"), 2)
    assert not any(STAYS in error for error in event.errors)
    put(root / "sql" / "b.yaml", text("b"))
    still.reload()
    assert told.changes() == (("sql/b",), (), ())


@pytest.mark.parametrize(("path", "read_again"), [("sql/b.yaml", ["sql/b.yaml"]), ("sql", [])])
def test_what_may_not_be_read_any_more_stays(
    still: RecordingLibrary, root: Path, told: Told, path: str, read_again: list[str]
) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    still.state()
    told.next()
    mode = (root / path).stat().st_mode
    (root / path).chmod(0)
    put(root / "text" / "c.yaml", text("c", "Another title"))
    still.reload()
    event = told.next()
    assert (event.added, event.changed, event.removed, event.patterns) == ((), ("text/c",), (), 3)
    assert len(event.errors) == 1
    assert event.errors[0].endswith(f":1: Permission denied; {STAYS}")
    still.since()
    (root / path).chmod(mode)
    still.reload()
    assert told.next().errors == ()
    assert still.since() == read_again


def test_complaints_stay_short_whatever_becomes_of_the_matter(still: LiveLibrary, root: Path, told: Told) -> None:
    still.state()
    told.next()
    put(root / "sql" / "a.yaml", f"name: {'a' * 100_000} b\ncategory: c\n")
    still.reload()
    (error,) = told.next().errors
    assert error.endswith(f"…; {STAYS}")
    assert len(error) <= MAX_PROBLEM_CHARS


def test_a_file_that_became_a_folder_takes_its_patterns_along(still: LiveLibrary, root: Path, told: Told) -> None:
    still.state()
    told.next()
    (root / "sql" / "a.yaml").unlink()
    put(root / "sql" / "a.yaml" / "x.yaml", text("x"))
    still.reload()
    assert told.changes() == (("sql/a.yaml/x",), (), ("sql/a",))


def test_a_library_whose_folder_vanishes_stays_until_it_is_back(still: LiveLibrary, root: Path, told: Told) -> None:
    before = still.current()
    told.next()
    root.rename(root.with_name("elsewhere"))
    still.reload()
    event = told.next()
    assert (event.added, event.changed, event.removed, event.patterns) == ((), (), (), 3)
    assert event.errors == (f"{root}:1: No such file or directory; {STAYS}",)
    assert still.current() is before
    still.reload()
    assert told.nothing()
    root.write_text("not a folder")
    still.reload()
    assert told.next().errors == (f"{root}:1: Not a directory; {STAYS}",)
    root.unlink()
    root.with_name("elsewhere").rename(root)
    still.reload()
    assert told.next().errors == ()
    assert still.current() is before


def test_complaints_about_files_outlast_the_folder_they_were_in(still: LiveLibrary, root: Path, told: Told) -> None:
    put(root / "sql" / "a.yaml", BROKEN)
    before = still.state().problems
    root.rename(root.with_name("elsewhere"))
    still.reload()
    assert still.state().problems == (f"{root}:1: No such file or directory; {STAYS}", *before)


def test_a_folder_that_is_missing_at_first_is_an_empty_library_with_a_complaint(
    still: LiveLibrary, root: Path, told: Told
) -> None:
    root.rename(root.with_name("elsewhere"))
    assert still.current().match("monthly revenue") == ()
    assert still.state().problems == (f"{root}:1: No such file or directory",)
    assert told.next().errors == still.state().problems
    still.reload()
    assert told.nothing()
    root.with_name("elsewhere").rename(root)
    still.reload()
    assert told.changes() == (("sql/a", "sql/b", "text/c"), (), ())
    assert still.state().problems == ()


def test_an_index_that_cannot_be_built_leaves_the_old_one_in_use(
    root: Path, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    faults: list[Exception] = []

    class Fails(InProcess):
        def found(self, patterns: Sequence[Texts]) -> Index:
            if faults:
                raise faults[0]
            return super().found(patterns)

    library = LiveLibrary(root, listener=told, index=Fails())
    before = library.current()
    told.next()
    faults.append(ZeroDivisionError("no words"))
    put(root / "sql" / "a.yaml", text("a", "Another title"))
    for _ in range(3):
        library.reload()
    event = told.next()
    assert (event.changed, len(event.errors)) == ((), 1)
    assert "ZeroDivisionError('no words')" in event.errors[0]
    assert library.current() is before
    assert told.nothing()
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    faults.clear()
    library.reload()
    event = told.next()
    assert (event.changed, event.errors) == (("sql/a",), ())


@pytest.mark.parametrize("begins_empty", [False, True])
def test_no_question_waits_for_a_fit(root: Path, tmp_path: Path, told: Told, *, begins_empty: bool) -> None:
    """A process may be asked for the first time behind an edit, and a library may begin with nothing to go on with."""
    goes_on = threading.Event()

    class Slow(InProcess):
        def found(self, patterns: Sequence[Texts]) -> None:  # type: ignore[override]  # there never is one
            return None

        def fitted(self, patterns: Sequence[Texts]) -> Index:
            assert goes_on.wait(WAIT_S)
            return super().fitted(patterns)

    away = root.rename(tmp_path / "away") if begins_empty else root
    library = LiveLibrary(root, listener=told, index=Slow())
    if begins_empty:
        root.mkdir()
        assert library.ids() == ()
        root.rmdir()
        away.rename(root)
        library.reload()
    assert [match.pattern.id for match in library.current().match("monthly revenue by a", 1)] == ["sql/a"]
    goes_on.set()
    library.current().wait_fitted()
    fitted = LiveLibrary(root).current()
    assert library.current().match("monthly revenue by a") == fitted.match("monthly revenue by a")


def test_a_process_that_nobody_asks_yet_makes_no_index_that_serves_until_the_fit(
    root: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unfitted(InProcess):
        def found(self, patterns: Sequence[Texts]) -> None:  # type: ignore[override]  # there never is one
            return None

    monkeypatch.setattr(Index, "renewed", lambda *_: pytest.fail("nobody asks for it"))
    library = LiveLibrary(root, listener=told, index=Unfitted())
    library.warm()
    assert [match.pattern.id for match in library.current().match("monthly revenue by a", 1)] == ["sql/a"]


def test_who_asks_while_an_index_is_built_has_the_old_one_at_once(root: Path, told: Told) -> None:
    builds, goes_on = threading.Event(), threading.Event()

    class Slow(InProcess):
        def found(self, patterns: Sequence[Texts]) -> Index:
            if is_loaded:
                builds.set()
                assert goes_on.wait(WAIT_S)
            return super().found(patterns)

    is_loaded = False
    library = LiveLibrary(root, listener=told, index=Slow())
    before = library.state()
    is_loaded = True
    put(root / "sql" / "a.yaml", text("a", "Another title"))
    thread = threading.Thread(target=library.reload)
    thread.start()
    assert builds.wait(WAIT_S)
    assert library.state() is before
    assert [match.pattern.title for match in library.current().match("revenue by a", 1)] == ["A title"]
    goes_on.set()
    thread.join()
    assert [match.pattern.title for match in library.current().match("revenue by a", 1)] == ["Another title"]
    assert [match.pattern.title for match in before.matcher.match("revenue by a", 1)] == ["A title"]


def test_an_update_is_told_with_no_lock_held_and_what_it_raises_ends_nothing(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[PatternUpdateEvent] = []

    class Fails:
        def publish(self, event: PatternUpdateEvent) -> None:
            told.append(event)
            other = threading.Thread(target=library.reload)
            other.start()
            other.join(WAIT_S)
            assert not other.is_alive()
            raise IndexError("nobody listens")

    library = LiveLibrary(root, listener=Fails())
    library.state()
    put(root / "sql" / "a.yaml", text("a", "Another title"))
    library.reload()
    assert [event.changed for event in told] == [(), ("sql/a",)]
    assert [record.message for record in caplog.records] == [
        "an update of the pattern library could not be published"
    ] * 2


def test_stopping_is_quick_and_may_be_repeated_or_come_first(root: Path, told: Told) -> None:
    never = LiveLibrary(root, listener=told, debounce_ms=60_000)
    never.stop()
    assert never.ids() == ("sql/a", "sql/b", "text/c")
    told.next()
    assert not watchers()

    library = LiveLibrary(root, listener=told, debounce_ms=60_000)
    library.state()
    assert watchers()
    exchange(root / "sql" / "a.yaml", text("a", "Another title"))
    began_s = time.monotonic()
    library.stop()
    library.stop()
    assert time.monotonic() - began_s < AT_ONCE_S
    assert not watchers()
    assert library.ids() == ("sql/a", "sql/b", "text/c")
