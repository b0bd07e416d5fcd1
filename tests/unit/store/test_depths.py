"""The counts of unfinished turns are those of the rows, whatever happens to turns and in which order."""

import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine, func, select, union_all

from loom_worker.core.errors import Conflict
from loom_worker.core.settings import LimitSettings, from_env
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.turns import Claim, Ending, Retry
from loom_worker.store.cancel import cancel
from loom_worker.store.claims import Claims
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.engines.sqlite import migrate_file
from loom_worker.store.folding import Folding
from loom_worker.store.journal import Journal
from loom_worker.store.prepare import prepare
from loom_worker.store.retention import DAY_MS, Retention
from loom_worker.store.schema import sessions, turns, unfinished
from loom_worker.store.sessions import Sessions
from loom_worker.store.submit import retry
from loom_worker.store.tables import depth_deltas, workspace_depths
from loom_worker.store.turns import Turns
from tests.unit.store.made import NOW_MS, WORKSPACE, final, submitted

SESSIONS = [("acme", "s1"), ("acme", "s2"), ("acme", "s3"), ("other", "s1")]


def kept(database: Database) -> tuple[dict[str, int], dict[str, tuple[int, int]]]:
    """By lane and by workspace, as the counters say, with what is not folded yet; without those that are 0."""
    found = [select(each.c.workspace, each.c.turns, each.c.lanes) for each in (workspace_depths, depth_deltas)]
    depths = union_all(*found).subquery().c
    query = select(depths.workspace, func.sum(depths.turns), func.sum(depths.lanes)).group_by(depths.workspace)
    with database.read() as tx:
        lanes = tx.execute(select(sessions.c.lane, sessions.c.queue_depth).where(sessions.c.queue_depth != 0)).all()
        sums = tx.execute(query).all()
    return {row[0]: row[1] for row in lanes}, {row[0]: (row[1], row[2]) for row in sums if row[1] or row[2]}


def counted(database: Database) -> tuple[dict[str, int], dict[str, tuple[int, int]]]:
    """The same, as the rows say."""
    in_lane = select(turns.c.lane, func.count()).where(unfinished()).group_by(turns.c.lane)
    count = select(turns.c.workspace, func.count(), func.count(func.distinct(turns.c.lane))).where(unfinished())
    with database.read() as tx:
        lanes, found = tx.execute(in_lane).all(), tx.execute(count.group_by(turns.c.workspace)).all()
    return {row[0]: row[1] for row in lanes}, {row[0]: (row[1], row[2]) for row in found}


class Acts:
    """What may happen to the turns of a few sessions."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def submit(self, workspace: str, session: str) -> None:
        submitted(self.database, session, workspace=workspace)

    def claim(self, workspace: str, session: str) -> None:
        self._claim(workspace, session)

    def end(self, workspace: str, session: str) -> None:
        self._end(workspace, session, Ending("completed", output_text="done"))

    def die(self, workspace: str, session: str) -> None:
        self._end(workspace, session, Ending("failed", reason="dead"))

    def park(self, workspace: str, session: str) -> None:
        claim = self._claim(workspace, session)
        if claim is not None:
            Claims(self.database).park(claim, until_ms=NOW_MS, run_ms=1)

    def cancel(self, workspace: str, session: str) -> None:
        turn = self._last(workspace, session)
        if turn is not None:
            cancel(self.database, (workspace, turn.id), "interrupt", now_ms=NOW_MS, deliver=lambda _: None)

    def retry(self, workspace: str, session: str) -> None:
        turn = self._last(workspace, session)
        if turn is not None and turn.status == "failed":
            retry(self.database, LimitSettings(), (workspace, turn.id), Retry(), now_ms=NOW_MS)

    def delete(self, workspace: str, session: str) -> None:
        if self._row(workspace, session) is not None:
            Sessions(self.database).delete(workspace, session)

    def purge(self, workspace: str, session: str) -> None:
        Sessions(self.database).purge(limit=10)

    def expire(self, workspace: str, session: str) -> None:
        days = from_env({"LOOM_CONVERSATION_DAYS": "1"}).retention
        Retention(self.database, days).once(NOW_MS + 9 * DAY_MS)

    def drop(self, workspace: str, session: str) -> None:
        """As an operator would, with SQL: the session's turns go with its row."""
        with self.database.write(lock=WHOLE) as tx:
            tx.execute(sessions.delete().where(sessions.c.workspace == workspace, sessions.c.id == session))

    def fold(self, workspace: str, session: str) -> None:
        assert not Folding(self.database).fold()

    def _end(self, workspace: str, session: str, ending: Ending) -> None:
        claim = self._claim(workspace, session)
        if claim is not None:
            Journal(self.database).finish(claim, final(ending=ending, known_cancel=claim.turn.cancel))

    def _claim(self, workspace: str, session: str) -> Claim | None:
        row = self._row(workspace, session)
        claim = row and Claims(self.database).claim(row["lane"], worker="w1", now_ms=NOW_MS)
        return claim if isinstance(claim, Claim) else None

    def _last(self, workspace: str, session: str) -> Any:
        if self._row(workspace, session) is None:
            return None
        return next(
            iter(Turns(self.database).page(workspace, {"session_id": session}, limit=1, after=None).items), None
        )

    def _row(self, workspace: str, session: str) -> Any:
        query = select(sessions).where(sessions.c.workspace == workspace, sessions.c.id == session)
        with self.database.read() as tx:
            return tx.execute(query).mappings().first()


NAMES = sorted(name for name in vars(Acts) if not name.startswith("_"))


@pytest.mark.heavy
@given(
    happenings=st.lists(
        st.tuples(st.sampled_from(["submit", "submit", "end", *NAMES]), st.sampled_from(SESSIONS)),
        min_size=15,
        max_size=60,
    )
)
def test_the_counters_are_what_is_counted_after_any_sequence(
    migrated: Path, happenings: list[tuple[str, tuple[str, str]]]
) -> None:
    with tempfile.TemporaryDirectory() as home:
        shutil.copy(migrated, Path(home) / "loom.db")
        database = Database(from_env({"LOOM_HOME": home}).database_url, sync="normal")
        try:
            acts = Acts(database)
            for name, (workspace, session) in happenings:
                act: Callable[[str, str], None] = getattr(acts, name)
                act(workspace, session)
                assert kept(database) == counted(database), name
        finally:
            database.close()


def test_a_turn_that_is_refused_or_rolled_back_counts_nothing(database: Database) -> None:
    submitted(database)
    before = kept(database)
    with pytest.raises(Conflict):
        submitted(database, double_texting="reject")
    with suppress(InterruptedError), database.write(lock=WHOLE) as tx:
        tx.execute(turns.update().values(status="cancelled", completed_ms=NOW_MS))
        raise InterruptedError
    assert kept(database) == before == counted(database)


def test_an_older_file_gets_the_counts_of_its_turns(tmp_path: Path) -> None:
    of_home = from_env({"LOOM_HOME": str(tmp_path)})
    migrate_file(of_home.database_url, "0016")
    engine = create_engine(of_home.database_url, module=sqlite3)
    with engine.begin() as tx:
        for lane in ("l1", "l2", "l3"):
            tx.exec_driver_sql(
                "INSERT INTO sessions (lane, workspace, id, agent, status, metadata, kernel, usage, next_seq, "
                "created_ms, updated_ms) "
                f"VALUES ('{lane}', 'w', '{lane}', 'a', 'active', '{{}}', '{{}}', '{{}}', 9, 1, 1)"
            )
        for n, (lane, status) in enumerate(
            [("l1", "queued"), ("l1", "in_progress"), ("l2", "queued"), ("l3", "failed")]
        ):
            completed = now_ms() if status == "failed" else "NULL"
            tx.exec_driver_sql(
                "INSERT INTO turns (id, lane, session_id, workspace, agent, seq, status, max_attempts, input, usage, "
                f"patterns, metadata, created_ms, completed_ms) VALUES ('t{n}', '{lane}', '{lane}', 'w', 'a', {n}, "
                f"'{status}', 3, 'Hi', '{{}}', '[]', '{{}}', 1, {completed})"
            )
    engine.dispose()
    prepare(of_home)
    database = Database(of_home.database_url)
    assert kept(database) == counted(database) == ({"l1": 2, "l2": 1}, {"w": (3, 2)})
    database.close()


def test_a_full_lane_and_a_busy_session_are_known_by_the_counter(database: Database) -> None:
    for _ in range(3):
        submitted(database)
    session = Sessions(database).get(WORKSPACE, "s1")
    assert (session.queue_depth, session.is_busy) == (3, False)
    Acts(database).claim(WORKSPACE, "s1")
    assert Sessions(database).get(WORKSPACE, "s1").is_busy
