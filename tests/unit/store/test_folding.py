"""What turns add is seen at once and folded later: nothing is lost, doubled or reordered by whoever folds."""

import signal
import subprocess
import sys
from typing import Any

import pytest
from sqlalchemy import func, select

from loom_worker.core import metrics
from loom_worker.core.errors import QueueFull
from loom_worker.core.settings import LimitSettings, Settings
from loom_worker.core.values.audit import AuditEntry, AuditFilter
from loom_worker.core.values.patterns import PatternUse
from loom_worker.core.values.sessions import NewSession
from loom_worker.core.values.tenants import WorkspaceUser
from loom_worker.core.values.turns import NewTurn
from loom_worker.store.audit import CHAINED, AuditRows, append
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.folding import FOLDED_AT_A_TIME, Folding
from loom_worker.store.journal import Journal
from loom_worker.store.metric_values import MetricValues
from loom_worker.store.patterns import PatternUses
from loom_worker.store.schema import pattern_uses, use_deltas
from loom_worker.store.submit import submit
from loom_worker.store.tables import audit, audit_inbox, depth_deltas, metric_values, workspace_depths
from loom_worker.store.turns import Turns
from loom_worker.store.users import Users
from tests.support.at_once import at_once
from tests.support.refused import REFUSED
from tests.support.sql_heard import heard
from tests.unit.store.made import NOW_MS, WORKSPACE, final, running, submitted

USE = PatternUse("sql/top_n", "d1", "matched")
GUARDED = ({"kind": "guard", "name": "output.card", "outcome": "redact"},)
WAITING = (audit_inbox, depth_deltas, use_deltas)
SUMS = (audit, metric_values, pattern_uses, workspace_depths)
DIES = """
import os, signal, sys
from contextlib import contextmanager
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.folding import Folding

class Dying(Database):
    @contextmanager
    def write(self, **options):
        with super().write(**options) as tx:
            yield tx
            os.kill(os.getpid(), signal.SIGKILL)

Folding(Dying(sys.argv[1])).fold()
"""


def ended(database: Database, session: str = "s1", *, workspace: str = WORKSPACE) -> None:
    end = final(uses=(USE,), has_succeeded=True, decisions=GUARDED)
    Journal(database).finish(running(database, session, workspace=workspace), end)


def noted(database: Database, first: int, last: int) -> None:
    """Rows of the audit, each in its transaction; their subjects are their numbers."""
    for number in range(first, last):
        with database.write(lock=WHOLE) as tx:
            append(tx, AuditEntry(workspace=WORKSPACE, at_ms=NOW_MS, action="key.created", subject=str(number)))


def folded(database: Database) -> None:
    while Folding(database).fold():
        pass


def rows(database: Database, *tables: Any) -> dict[str, int]:
    with database.read() as tx:
        return {each.name: tx.execute(select(func.count()).select_from(each)).scalar_one() for each in tables}


def seen(database: Database) -> list[Any]:
    """All that readers are told of turns that were accepted and have ended."""
    counted = MetricValues(database).all()
    return [
        [Turns(database).stats(who, now_ms=NOW_MS) for who in (None, WORKSPACE, "other")],
        {labels: cell for (family, labels), cell in counted.items() if family is metrics.TURNS},
        AuditRows(database).guard_counts(),
        PatternUses(database).effect(WORKSPACE, USE.pattern_id, USE.digest),
        Users(database).stopped_turns(WorkspaceUser(WORKSPACE, "maria")),
    ]


def test_readers_are_told_the_same_before_between_and_after(database: Database) -> None:
    for workspace in (WORKSPACE, "other"):
        ended(database, workspace=workspace)
        submitted(database, workspace=workspace)
    first = seen(database)
    stats = first[0]
    assert [(each["queued"], each["lanes"]) for each in stats] == [(2, 2), (1, 1), (1, 1)]
    assert first[1:4] == [{("completed", "none"): [2.0]}, {"output.card.redact": 2}, first[3]]
    assert [effect.uses for effect in first[3]] == [1, 1]
    folded(database)
    assert seen(database) == first
    assert rows(database, *WAITING) == {"audit_inbox": 0, "depth_deltas": 0, "use_deltas": 0}
    ended(database, "s2")
    partly = seen(database)
    assert (partly[1], partly[2]) == ({("completed", "none"): [3.0]}, {"output.card.redact": 3})
    folded(database)
    assert seen(database) == partly


@pytest.mark.parametrize("is_folded", [True, False])
def test_the_workspace_s_limit_counts_what_is_not_folded(database: Database, is_folded: bool) -> None:
    for number in range(3):
        submitted(database, f"s{number}")
        if is_folded:
            folded(database)
    limits = LimitSettings(workspace_depth=3)
    with pytest.raises(QueueFull):
        submit(database, limits, (WORKSPACE, NewSession(id="s9")), NewTurn("Hi"), now_ms=NOW_MS)
    Journal(database).finish(running(database, "s0"), final())
    assert Turns(database).stats(WORKSPACE, now_ms=NOW_MS)["queued"] == 3


def test_a_long_backlog_is_folded_in_batches_in_the_order_of_the_commits(database: Database) -> None:
    noted(database, 0, 2 * CHAINED + 1)
    folding = Folding(database)
    assert [folding.fold() for _ in range(4)] == [True, True, False, False]
    page = AuditRows(database).page(WORKSPACE, AuditFilter(), limit=999, after=None).items
    assert [row.entry.subject for row in page] == [str(number) for number in reversed(range(2 * CHAINED + 1))]
    assert AuditRows(database).verify() == ()


def test_no_more_depths_than_a_batch_are_summed_at_once(database: Database) -> None:
    with database.write(lock=WHOLE) as tx:
        more = [{"workspace": "w", "n": n, "turns": 1, "lanes": 0} for n in range(FOLDED_AT_A_TIME + 1)]
        tx.execute(depth_deltas.insert(), more)
    assert Folding(database).fold()
    assert Turns(database).stats("w", now_ms=NOW_MS)["queued"] == FOLDED_AT_A_TIME + 1
    assert rows(database, depth_deltas) == {"depth_deltas": 1}


def test_what_a_process_was_folding_when_it_was_killed_is_folded_by_the_next(
    database: Database, settings: Settings
) -> None:
    ended(database)
    submitted(database)
    before, waiting = seen(database), rows(database, *WAITING)
    done = subprocess.run([sys.executable, "-c", DIES, settings.database_url], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert rows(database, *SUMS) == dict.fromkeys((each.name for each in SUMS), 0)
    assert (seen(database), rows(database, *WAITING)) == (before, waiting)
    folded(database)
    assert seen(database) == before
    assert AuditRows(database).verify() == ()


def test_those_who_fold_at_once_while_turns_end_count_each_of_them_once(database: Database, settings: Settings) -> None:
    others = [Database(settings.database_url, sync="normal") for _ in range(4)]

    def work(each: tuple[int, Database]) -> None:
        number, mine = each
        for _ in range(10):
            if number < 2:
                ended(mine, f"s{number}")
            folded(mine)

    at_once(work, list(enumerate(others)))
    folded(database)
    _, ends, guarded, (effect, _), _ = seen(database)
    assert (ends, guarded) == ({("completed", "none"): [20.0]}, {"output.card.redact": 20})
    assert (effect.uses, effect.succeeded, effect.cost_usd) == (20, 20, 5.0)
    assert Turns(database).stats(None, now_ms=NOW_MS)["queued"] == 0
    assert rows(database, audit) == {"audit": 20}
    assert AuditRows(database).verify() == ()
    for each in others:
        each.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_inbox SET subject = 'x'",
        "DELETE FROM audit_inbox",
        "INSERT OR REPLACE INTO audit_inbox SELECT * FROM audit_inbox",
        "REPLACE INTO audit_inbox (n, workspace, at_ms, action) VALUES (1, 'acme', 0, 'key.created')",
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_rows_of_the_inbox_cannot_be_changed_or_removed(database: Database, statement: str, is_first: bool) -> None:
    if not is_first:  # the numbers begin anew where the inbox was emptied
        noted(database, 0, 3)
        folded(database)
    noted(database, 3, 5)
    is_known = "REPLACE" not in statement or database.engine.name == "SQLite"
    with (
        pytest.raises(REFUSED, match="rows of the audit" if is_known else "syntax"),
        database.write(lock=WHOLE) as tx,
    ):
        tx.exec_driver_sql(statement)
    page = AuditRows(database).page(WORKSPACE, AuditFilter(), limit=2, after=None).items
    assert [row.entry.subject for row in page] == ["4", "3"]


def test_where_there_is_nothing_to_fold_nobody_writes(database: Database) -> None:
    ended(database)
    folded(database)
    with heard(database) as said:
        assert Folding(database).fold() is False
        AuditRows(database).page(WORKSPACE, AuditFilter(), limit=9, after=None)
    assert [one for one in said if one.startswith(("BEGIN IMM", "SELECT loom_begin", "DELETE", "INSERT"))] == []
    assert any("EXISTS" in one for one in said)


def test_the_chain_is_read_although_nobody_can_write(database: Database, settings: Settings) -> None:
    noted(database, 0, 1)
    folded(database)
    noted(database, 1, 2)
    reader = Database(settings.database_url, busy_timeout_s=0.05)
    with database.write(lock=WHOLE):
        page = AuditRows(reader).page(WORKSPACE, AuditFilter(), limit=9, after=None).items
    assert [row.entry.subject for row in page] == ["0"]
    assert len(AuditRows(reader).page(WORKSPACE, AuditFilter(), limit=9, after=None).items) == 2
    reader.close()
