from dataclasses import replace

import pytest
from sqlalchemy import func, select, update

from loom_worker.core.settings_tree import RetentionSettings
from loom_worker.core.values.audit import AuditFilter
from loom_worker.core.values.ids import sortable_id
from loom_worker.core.values.turns import Step
from loom_worker.events.rebuild import rebuild
from loom_worker.store.audit import AuditRows
from loom_worker.store.database import Database
from loom_worker.store.dialect import is_postgresql
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.journal import Entries, Journal
from loom_worker.store.messages import Messages
from loom_worker.store.retention import DAY_MS, PAUSE_MS, SPAN_BYTES, Retention
from loom_worker.store.schema import outbox, sessions, turns
from loom_worker.store.search import Search
from loom_worker.store.tables import memory, spans
from loom_worker.store.turns import Turns
from tests.unit.store.made import NOW_MS, WORKSPACE, counts, delivery, final, purged, running, said, submitted

DAYS = 3
LATER_MS = NOW_MS + DAYS * DAY_MS
"""What ended at NOW_MS + 100 is kept until just behind it."""
OVER_MS = LATER_MS + 60_000


@pytest.fixture
def retention(database: Database) -> Retention:
    return Retention(database, RetentionSettings(journal_days=DAYS, conversation_days=DAYS))


@pytest.fixture
def journals(database: Database) -> Retention:
    """Keeps conversations for ever, as by default."""
    return Retention(database, RetentionSettings(journal_days=DAYS))


def ended(database: Database, session: str = "s1", **fields: object) -> str:
    """A turn with a journal that ended at NOW_MS + 100; its id."""
    claim = running(database, session)
    steps = [Step(0, "reply", {"text": "done"}), Step(1, "events", {"first": 2, "log": [{"reply": 0, "cuts": [4]}]})]
    Journal(database).finish(claim, final(entries=Entries(steps), **fields))
    return claim.turn.id


def test_the_journal_of_an_ended_turn_goes_after_its_days_and_the_turn_stays(
    database: Database, journals: Retention
) -> None:
    ended(database)
    journals.once(LATER_MS)
    assert counts(database)["steps"] == 2
    journals.once(OVER_MS + PAUSE_MS)
    assert (counts(database)["steps"], counts(database)["turns"]) == (0, 1)


def test_a_late_reader_gets_a_log_without_the_journal(database: Database, journals: Retention) -> None:
    turn_id = ended(database)
    journals.once(OVER_MS)
    reading = Turns(database)
    log = rebuild(*reading.with_journal(WORKSPACE, turn_id))
    assert [event.type for event in log] == ["turn.queued", "output_text.delta", "turn.completed"]
    assert log[1].data == {"text": "done"}


def test_a_turn_that_has_not_ended_keeps_its_journal_whatever_its_age(database: Database, retention: Retention) -> None:
    claim = running(database)
    Journal(database).save(claim, Entries([Step(0, "reply", {"text": "so far"})]), {"run_ms": 1})
    retention.once(OVER_MS + 1000 * DAY_MS)
    assert (counts(database)["steps"], counts(database)["turns"], counts(database)["sessions"]) == (1, 1, 1)


def test_a_turn_that_ended_late_keeps_its_journal_from_its_end_on(database: Database, journals: Retention) -> None:
    turn_id = ended(database)
    with database.write(lock=WHOLE) as tx:
        tx.execute(update(turns).where(turns.c.id == turn_id).values(completed_ms=OVER_MS))
    journals.once(OVER_MS)
    assert counts(database)["steps"] == 2


def test_hundreds_of_journals_go_in_one_sweep_and_the_next_walk_finds_those_of_later(
    database: Database, journals: Retention
) -> None:
    for number in range(120):
        ended(database, f"s{number}")
    journals.once(OVER_MS)
    assert counts(database)["steps"] == 0
    ended(database, "later")
    journals.once(OVER_MS + 1000)
    assert counts(database)["steps"] == 2
    journals.once(OVER_MS + PAUSE_MS)
    assert counts(database)["steps"] == 0


def test_deliveries_go_when_they_are_done_and_those_that_are_pending_stay(
    database: Database, journals: Retention
) -> None:
    for number, status in enumerate(["delivered", "dead", "pending"]):
        claim = running(database, f"s{number}")
        made = replace(delivery(0, claim, status=status), id=sortable_id("whd_", now_ms=NOW_MS, chance=number))
        Journal(database).finish(claim, final(delivery=made))
    journals.once(LATER_MS)
    assert counts(database)["outbox"] == 3
    journals.once(OVER_MS + PAUSE_MS)
    with database.read() as tx:
        assert tx.execute(outbox.select()).mappings().one()["status"] == "pending"


def spans_of(database: Database, turn_id: str, *added_ms: int, body: str = "") -> None:
    """Spans of a turn that were stored at these moments."""
    with database.write(lock=WHOLE) as tx:
        for at_ms in added_ms:
            tx.execute(spans.insert(), {"turn_id": turn_id, "added_ms": at_ms, "body": {"name": body}})


def test_spans_go_after_their_days(database: Database, journals: Retention) -> None:
    turn_id = ended(database)
    spans_of(database, turn_id, *range(NOW_MS, NOW_MS + 60), OVER_MS)
    journals.once(LATER_MS)
    assert counts(database)["spans"] == 61
    journals.once(OVER_MS + PAUSE_MS)
    assert counts(database)["spans"] == 1


@pytest.mark.parametrize("days", [0, DAYS], ids=["for ever", "some days"])
def test_the_oldest_spans_go_where_all_take_too_many_bytes(database: Database, days: int) -> None:
    turn_id, megabyte = ended(database), "x" * 1024 * 1024
    spans_of(database, turn_id, *range(NOW_MS, NOW_MS + 60))
    spans_of(database, turn_id, *range(NOW_MS + 60, NOW_MS + 60 + SPAN_BYTES // len(megabyte)), body=megabyte)
    retention = Retention(database, RetentionSettings(journal_days=days))
    retention.once(NOW_MS + 1000)
    with database.read() as tx:
        left = tx.execute(select(func.min(spans.c.added_ms), func.max(spans.c.added_ms), func.count())).one()
    assert tuple(left) == (NOW_MS + 100, NOW_MS + 123, 24)
    retention.once(NOW_MS + 1000 + PAUSE_MS)
    assert counts(database)["spans"] == 24


def test_rows_of_the_audit_go_after_their_days(database: Database) -> None:
    ended(database)
    rows = AuditRows(database)
    kept, pruned = (Retention(database, RetentionSettings(audit_days=days)) for days in (0, DAYS))
    kept.once(LATER_MS + DAY_MS)
    pruned.once(LATER_MS - DAY_MS)
    assert rows.page(WORKSPACE, AuditFilter(), limit=9, after=None).items
    Retention(database, RetentionSettings(audit_days=DAYS)).once(LATER_MS + DAY_MS)
    assert rows.page(WORKSPACE, AuditFilter(), limit=9, after=None).items == ()
    assert rows.verify() == ()


def test_by_default_conversations_are_kept_for_ever(database: Database) -> None:
    said(database, turns=2)
    before = counts(database)
    Retention(database, RetentionSettings()).once(NOW_MS + 10_000 * DAY_MS)
    assert counts(database) == before


def test_a_session_is_deleted_its_days_after_its_last_turn(database: Database, retention: Retention) -> None:
    said(database, turns=2)
    retention.once(LATER_MS)
    assert counts(database)["sessions"] == 1
    retention.once(OVER_MS + PAUSE_MS)
    purged(database)
    kept = counts(database)
    assert {name: kept[name] for name in ("sessions", "turns", "messages", "memory")} == dict.fromkeys(
        ("sessions", "turns", "messages", "memory"), 0
    )
    assert kept["usage"] == 2


def test_a_session_with_a_turn_or_a_webhook_that_waits_is_not_deleted(database: Database, retention: Retention) -> None:
    submitted(database, "waits")
    claim = running(database, "tells")
    Journal(database).finish(claim, final(delivery=delivery(0, claim)))
    retention.once(OVER_MS)
    assert purged(database) == 0
    assert counts(database)["sessions"] == 2


@pytest.fixture
def long(database: Database) -> str:
    """The lane of a session whose first three turns of five have left L1, and that goes on after all its days."""
    lane = said(database, "long", turns=5)
    with database.write(lock=WHOLE) as tx:
        tx.execute(memory.insert(), {"lane": lane, "first_n": 7, "l2_text": "what was before"})
        tx.execute(update(sessions).where(sessions.c.lane == lane).values(updated_ms=OVER_MS))
    return lane


def texts(database: Database) -> list[str]:
    return [each.chat.text for each in Messages(database).page(WORKSPACE, "long", limit=50, after=None).items]


def test_a_session_that_goes_on_loses_what_has_left_the_context_and_nothing_else(
    database: Database, retention: Retention, long: str
) -> None:
    retention.once(OVER_MS)
    assert texts(database) == [f"long {seq} {role}" for seq in (4, 5) for role in ("user", "assistant")]
    left = Turns(database).page(WORKSPACE, {"session_id": "long"}, limit=9, after=None).items
    assert sorted(turn.seq for turn in left) == [4, 5]


def test_search_forgets_what_was_removed_and_finds_the_rest(
    database: Database, retention: Retention, long: str
) -> None:
    retention.once(OVER_MS)
    found = Search(database).session(WORKSPACE, "long", "assistant", limit=9)
    assert {hit.snippet.split()[1] for hit in found} == {"4", "5"}
    with database.read() as tx:
        if not is_postgresql(tx):
            tx.exec_driver_sql("INSERT INTO messages_fts5 (messages_fts5) VALUES ('integrity-check')")


def test_an_old_turn_stays_while_its_webhook_waits_and_so_does_all_after_it(
    database: Database, retention: Retention, long: str
) -> None:
    pending = delivery(0, running(database, "other"))
    with database.write(lock=WHOLE) as tx:
        second = tx.execute(turns.select().where(turns.c.lane == long, turns.c.seq == 2)).mappings().one()["id"]
        columns = {name: getattr(pending, name) for name in pending.__slots__} | {"turn_id": second}
        tx.execute(outbox.insert(), columns)
    retention.once(OVER_MS)
    assert texts(database)[0] == "long 2 user"


def test_a_turn_longer_than_a_batch_goes_whole(database: Database, retention: Retention) -> None:
    lane = said(database, "long", turns=1, size=250)
    said(database, "long", turns=1)
    with database.write(lock=WHOLE) as tx:
        tx.execute(memory.insert(), {"lane": lane, "first_n": 251})
        tx.execute(update(sessions).where(sessions.c.lane == lane).values(updated_ms=OVER_MS))
    retention.once(OVER_MS)
    assert texts(database) == ["long 2 user", "long 2 assistant"]
