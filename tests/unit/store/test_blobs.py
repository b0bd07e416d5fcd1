from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import insert

from loom_worker.core.values.turns import Claim
from loom_worker.store.blobs import TOUCH_MS, BlobRows
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.journal import Journal
from loom_worker.store.sessions import Sessions
from loom_worker.store.tables import blob_grants
from tests.unit.blobs.made import new_ref
from tests.unit.blobs.made import reference as made_reference
from tests.unit.store.made import NOW_MS, WORKSPACE, final, purged, running

HOUR_MS = 3_600_000
LARGE = 1_000_000


@pytest.fixture
def rows(database: Database) -> BlobRows:
    return BlobRows(database)


def granted(database: Database, ref: str, lane: str) -> None:
    """Let a session read another's reference."""
    with database.write(lock=WHOLE) as tx:
        tx.execute(insert(blob_grants), {"ref": ref, "lane": lane})


def lane_of(database: Database, session: str = "s1", **fields: Any) -> str:
    """The lane of a session whose only turn has ended."""
    claim = running(database, session, **fields)
    ended(database, claim)
    return claim.turn.lane


def ended(database: Database, claim: Claim) -> None:
    Journal(database).finish(claim, final())


def inserted(rows: BlobRows, lane: str, *, used_ms: int = NOW_MS, size: int = 100, workspace: str = WORKSPACE) -> str:
    ref = new_ref()
    reference = made_reference(ref, b"x" * size, workspace=workspace, stored_at_ms=used_ms, metadata={"rows": 3})
    assert rows.insert(reference, lane=lane, most_bytes=LARGE)
    return ref


def expired(rows: BlobRows, now_ms: int = NOW_MS + HOUR_MS) -> tuple[str, ...]:
    return rows.take_expired(unused_since_ms=now_ms - HOUR_MS, limit=100)


def test_a_reference_comes_back_as_it_was(database: Database, rows: BlobRows) -> None:
    lane = lane_of(database)
    reference = replace(made_reference(new_ref(), b"data", compressed=True), metadata={"columns": ["é"], "rows": 2})
    assert rows.insert(reference, lane=lane, most_bytes=LARGE)
    assert rows.of_lane(reference.id, lane) == reference
    assert rows.of_tenant(reference.id, WORKSPACE) == reference


def test_no_other_session_and_no_other_workspace_finds_it(database: Database, rows: BlobRows) -> None:
    lane, other = lane_of(database), lane_of(database, "s2")
    foreign = lane_of(database, "s1", workspace="other")
    ref = inserted(rows, lane)
    assert [rows.of_lane(ref, each) is not None for each in (lane, other, foreign, "")] == [True, False, False, False]
    assert rows.of_tenant(ref, "other") is None


def test_a_session_that_was_granted_a_reference_reads_it(database: Database, rows: BlobRows) -> None:
    lane, second = (lane_of(database, name) for name in ("s1", "s2"))
    ref = inserted(rows, lane)
    assert rows.of_lane(ref, second) is None
    granted(database, ref, second)
    assert rows.of_lane(ref, second) is not None


def test_the_bound_is_kept_to_the_byte(database: Database, rows: BlobRows) -> None:
    lane = lane_of(database)
    inserted(rows, lane, size=600)
    fits, too_large = made_reference(new_ref(), b"x" * 400), made_reference(new_ref(), b"x" * 401)
    assert not rows.insert(too_large, lane=lane, most_bytes=1_000)
    assert rows.insert(fits, lane=lane, most_bytes=1_000)
    assert rows.total_bytes() == 1_000


def test_a_reference_expires_when_it_was_not_used_for_its_time(database: Database, rows: BlobRows) -> None:
    lane = lane_of(database)
    old, used = inserted(rows, lane), inserted(rows, lane)
    rows.touch(used, now_ms=NOW_MS + TOUCH_MS)
    assert expired(rows, NOW_MS + HOUR_MS - 1) == ()
    assert expired(rows) == (old,)
    assert rows.of_lane(old, lane) is None
    assert rows.of_lane(used, lane) is not None


def test_a_use_is_written_once_a_minute(database: Database, rows: BlobRows) -> None:
    ref = inserted(rows, lane_of(database))
    rows.touch(ref, now_ms=NOW_MS + TOUCH_MS - 1)
    assert expired(rows) == (ref,)
    rows.touch(ref, now_ms=NOW_MS)  # gone by now, which is nobody's fault


def test_nothing_expires_while_a_turn_of_its_session_is_unfinished(database: Database, rows: BlobRows) -> None:
    claim = running(database)
    ref = inserted(rows, claim.turn.lane)
    assert expired(rows) == ()
    assert rows.make_room(LARGE, most_bytes=LARGE) == ()
    ended(database, claim)
    assert expired(rows) == (ref,)


def test_nothing_expires_while_a_turn_of_a_granted_session_is_unfinished(database: Database, rows: BlobRows) -> None:
    ref = inserted(rows, lane_of(database))
    receiver = running(database, "s2")
    granted(database, ref, receiver.turn.lane)
    assert expired(rows) == ()
    ended(database, receiver)
    assert expired(rows) == (ref,)


def test_the_oldest_expire_first_and_no_more_than_asked(database: Database, rows: BlobRows) -> None:
    lane = lane_of(database)
    refs = [inserted(rows, lane, used_ms=NOW_MS - age) for age in (10, 30, 20)]
    assert rows.take_expired(unused_since_ms=NOW_MS, limit=2) == (refs[1], refs[2])
    assert rows.take_expired(unused_since_ms=NOW_MS, limit=2) == (refs[0],)


def test_room_is_made_of_those_used_least_lately_and_of_no_more_than_needed(database: Database, rows: BlobRows) -> None:
    lane = lane_of(database)
    refs = [inserted(rows, lane, used_ms=NOW_MS - age) for age in (10, 30, 20)]
    assert rows.make_room(100, most_bytes=400) == ()
    assert rows.make_room(150, most_bytes=300) == (refs[1], refs[2])
    assert rows.total_bytes() == 100


def test_what_a_deleted_session_leaves_is_not_found_and_then_removed(database: Database, rows: BlobRows) -> None:
    lane, other = lane_of(database), lane_of(database, "s2")
    mine, others = inserted(rows, lane), inserted(rows, other)
    granted(database, mine, other)
    Sessions(database).delete(WORKSPACE, "s1")
    assert rows.of_tenant(mine, WORKSPACE) is None
    assert rows.of_lane(mine, other) is None
    assert rows.take_abandoned(after="", limit=10) == ((mine,), "")
    second = inserted(rows, lane)
    purged(database)
    assert rows.take_abandoned(after="", limit=10) == ((second,), "")
    assert rows.known([mine, second, others]) == {others}


def test_looking_for_abandoned_ones_goes_on_where_it_stopped(database: Database, rows: BlobRows) -> None:
    lanes = sorted(lane_of(database, f"s{number}") for number in range(3))
    for lane in lanes:
        inserted(rows, lane)
    assert rows.take_abandoned(after="", limit=2) == ((), lanes[1])
    assert rows.take_abandoned(after=lanes[1], limit=2) == ((), "")


def test_many_references_are_known_at_once(database: Database, rows: BlobRows) -> None:
    ref = inserted(rows, lane_of(database))
    assert rows.known([*(new_ref() for _ in range(1_200)), ref]) == {ref}
    assert rows.known([]) == frozenset()
