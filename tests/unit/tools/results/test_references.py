import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from loom_worker.core.errors import NotFound, ToolFailed
from loom_worker.core.metrics import LARGE_RESULT_EVENTS
from loom_worker.core.values.tools import Caller
from loom_worker.core.values.turns import Claim
from loom_worker.store.database import Database
from loom_worker.store.journal import Journal
from loom_worker.store.sessions import Sessions
from loom_worker.tools.references import References
from tests.support.counting import Counted
from tests.support.disks import filled, small_disk
from tests.unit.store.made import claimed, final, running, submitted
from tests.unit.tools.results.made import Make, a_day_later, caller_of, csv_text, files, keep, table, tidied


@given(st.text(st.characters(codec="utf-8"), max_size=500))
@examples(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_comes_back_as_it_was(references: References, caller: Caller, text: str) -> None:
    kept = keep(references, text * 5, caller)
    reference, data = references.read(kept.reference.id, caller)
    assert data.decode() == text * 5
    assert reference == kept.reference.__class__(**{**_fields(kept.reference), "location": "memory"})


def _fields(reference: Any) -> dict[str, Any]:
    return {name: getattr(reference, name) for name in reference.__slots__}


def test_a_lone_surrogate_is_kept_as_a_question_mark(references: References, caller: Caller) -> None:
    kept = keep(references, "a\ud800b", caller)
    assert references.read(kept.reference.id, caller)[1] == b"a?b"


@pytest.mark.parametrize(
    ("text", "given_type", "known_type"),
    [
        (table(5), "application/json", "application/json"),
        (table(5), "text/plain", "application/json"),
        (csv_text(5), "text/plain", "text/csv"),
        ("words", "text/plain", "text/plain"),
        ("<p>", "text/html", "text/html"),
        ("words", "text/html\r\nX-Evil: 1", "text/plain"),
    ],
)
def test_a_reference_knows_what_it_is_of(
    references: References, caller: Caller, text: str, given_type: str, known_type: str
) -> None:
    reference = keep(references, text, caller, given_type).reference
    assert (reference.content_type, reference.tool, reference.turn_id) == (known_type, "execute_sql", caller.turn_id)
    assert reference.size_bytes == len(text)


def test_a_foreign_session_is_told_to_call_the_tool_again(
    references: References, caller: Caller, database: Database
) -> None:
    ref = keep(references, table(50), caller).reference.id
    other = caller_of(running(database, "s2"))
    for unknown in (ref, "ref_1", "../../etc/passwd", f"ref_{'0' * 32}", ref + "\n", "x" * 9_000):
        with pytest.raises(ToolFailed) as raised:
            references.read(unknown, other)
        assert raised.value.code == "ERROR_NOT_FOUND"
        assert len(str(raised.value)) <= 110
        assert "call the tool again" in str(raised.value)
    with pytest.raises(NotFound):
        references.open("another workspace", ref)


def test_its_workspace_opens_it(references: References, caller: Caller) -> None:
    ref = keep(references, table(50), caller).reference.id
    reference, data = references.open(caller.workspace, ref)
    assert (reference.id, data.decode()) == (ref, table(50))


@pytest.mark.parametrize(
    ("spoil", "slug"), [(Path.unlink, "blob-lost"), (lambda f: f.write_bytes(b"x"), "blob-damaged")]
)
def test_lost_and_damaged_files_are_told_apart_and_never_read(
    references: References, caller: Caller, redis: Any, tmp_path: Path, spoil: Any, slug: str
) -> None:
    ref = keep(references, table(50), caller).reference.id
    redis.flushall()
    spoil(files(tmp_path)[0])
    with pytest.raises(NotFound) as raised:
        references.open(caller.workspace, ref)
    assert raised.value.slug == slug
    with pytest.raises(ToolFailed, match="call the tool again"):
        references.read(ref, caller)


def test_a_full_store_makes_room_by_those_used_least_lately(
    make: Make, caller: Caller, claim: Claim, database: Database, tmp_path: Path
) -> None:
    references = make(disk_bytes=2_500)
    first, second = (keep(references, f"{n}" * 1_000, caller).reference for n in (1, 2))
    Journal(database).finish(claim, final())
    size = first.stored_bytes
    references = make(disk_bytes=2 * size)
    third = keep(references, "3" * 1_000, caller).reference
    assert references.stores.rows.known([first.id, second.id, third.id]) == {second.id, third.id}
    assert len(files(tmp_path)) == 2


def test_a_store_full_of_what_is_needed_keeps_nothing_and_leaves_nothing(
    make: Make, caller: Caller, tmp_path: Path, counted: Counted
) -> None:
    references = make(disk_bytes=600)
    kept = keep(references, "a" * 600, caller).reference
    for text in ("b" * 600, "c" * 601):
        assert references.keep(text, "text/plain", caller, tool="look", count=len) is None
    assert references.read(kept.id, caller)[1] == b"a" * 600
    assert len(files(tmp_path)) == 1
    assert counted(LARGE_RESULT_EVENTS)["store_full",] == 2


@pytest.mark.integration
def test_a_full_disk_keeps_nothing_and_is_counted(make: Make, caller: Caller, tmp_path: Path, counted: Counted) -> None:
    with small_disk(tmp_path / "small", size_bytes=4_000_000) as folder:
        references = make(folder=folder / "blobs")
        with filled(folder):
            assert references.keep("\U0001f600é" * 99_000, "text/plain", caller, tool="look", count=len) is None
        assert keep(references, "a" * 2_000, caller)
        assert counted(LARGE_RESULT_EVENTS)["disk_full",] == 2


def test_a_folder_that_cannot_be_written_keeps_nothing(
    make: Make, caller: Caller, tmp_path: Path, counted: Counted
) -> None:
    (tmp_path / "file").write_text("")
    references = make(folder=tmp_path / "file")
    assert references.keep("a" * 2_000, "text/plain", caller, tool="look", count=len) is None
    assert counted(LARGE_RESULT_EVENTS)["unwritable",] == 1


@pytest.mark.heavy
def test_nothing_is_removed_while_its_session_has_an_unfinished_turn(
    references: References, caller: Caller, claim: Claim, database: Database
) -> None:
    ref = keep(references, table(50), caller).reference.id
    assert submitted(database).lane == caller.lane
    Journal(database).finish(claim, final())
    assert tidied(references, a_day_later()) == 0
    assert references.read(ref, caller)
    Journal(database).finish(claimed(database, caller.lane), final())
    assert tidied(references, a_day_later()) == 1


def test_what_expired_leaves_neither_row_nor_file(
    references: References, caller: Caller, claim: Claim, database: Database, tmp_path: Path
) -> None:
    ref = keep(references, table(50), caller).reference.id
    Journal(database).finish(claim, final())
    assert references.tidy(int(time.time() * 1000)) == 0
    assert references.tidy(a_day_later()) == 1
    assert files(tmp_path) == []
    assert references.figures() == {"memory_blobs": 0, "memory_bytes": 0, "disk_bytes": 0}
    with pytest.raises(ToolFailed, match="expired"):
        references.read(ref, caller)


def test_a_deleted_session_leaves_neither_row_nor_file(
    references: References, caller: Caller, database: Database, tmp_path: Path
) -> None:
    ref = keep(references, table(50), caller).reference.id
    Sessions(database).delete(caller.workspace, caller.session_id)
    with pytest.raises(NotFound):
        references.open(caller.workspace, ref)
    assert references.tidy(int(time.time() * 1000)) == 1
    assert files(tmp_path) == []


def test_two_workers_see_each_others_results(make: Make, caller: Caller) -> None:
    ref = keep(make(), table(50), caller).reference.id
    other = make(memory_bytes=0)
    reference, data = other.read(ref, caller)
    assert (data.decode(), reference.location) == (table(50), "disk")
