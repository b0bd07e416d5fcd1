"""What turns only add to, folded into sums and chains: no transaction of a turn waits for the row of another.

A turn that is accepted, or ends, inserts by how much depths change, how its patterns did, and its row of the audit.
Each process looks every few seconds whether there are such rows, and folds a batch of them in one transaction: they are
in the sums then and gone, or as they were. Readers of the sums add what is not folded yet.
"""

from collections import Counter
from collections.abc import Callable

from sqlalchemy import Connection, delete, or_, select, tuple_

from loom_worker.store.audit import chain
from loom_worker.store.database import Database
from loom_worker.store.dialect import upsert
from loom_worker.store.engines.engine import FOLDING
from loom_worker.store.patterns import fold_uses
from loom_worker.store.prepared import PreparedStatement
from loom_worker.store.schema import use_deltas
from loom_worker.store.tables import audit_inbox, depth_deltas, workspace_depths

FOLDED_AT_A_TIME = 500
"""Changes of depths that are summed in one transaction."""

_IS_WAITING = PreparedStatement(
    select(or_(*(select(each.c.n).exists() for each in (audit_inbox, depth_deltas, use_deltas))).label("is_waiting"))
)
_key = tuple_(depth_deltas.c.workspace, depth_deltas.c.n)
_SOME = select(depth_deltas.c.workspace, depth_deltas.c.n).limit(FOLDED_AT_A_TIME)
_TAKE = (
    delete(depth_deltas)
    .where(_key.in_(_SOME))
    .returning(depth_deltas.c.workspace, depth_deltas.c.turns, depth_deltas.c.lanes)
)
_add = upsert(workspace_depths)
_ADD = _add.on_conflict_do_update(
    index_elements=["workspace"],
    set_={name: workspace_depths.c[name] + _add.excluded[name] for name in ("turns", "lanes")},
)


class Folding:
    """Folds; of those that do so at the same time each takes rows of its own. Safe to use from many threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def fold(self, also: Callable[[Connection], object] | None = None) -> bool:
        """Fold what there is, a batch of it; where there is nothing, nothing is written.

        Args:
            also: what else is to be done in this transaction, which is made in any case then.

        Returns:
            True if there may be more.
        """
        if also is None:
            with self._database.read() as tx:
                if not _IS_WAITING.one(tx, {})["is_waiting"]:
                    return False
        with self._database.write(lock=FOLDING, is_timed=False) as tx:
            if also is not None:
                also(tx)
            return any([chain(tx), _fold_depths(tx), fold_uses(tx)])


def _fold_depths(tx: Connection) -> bool:
    found = tx.execute(_TAKE).all()
    turns: Counter[str] = Counter()
    lanes: Counter[str] = Counter()
    for row in found:
        turns[row.workspace] += row.turns
        lanes[row.workspace] += row.lanes
    changed = sorted(name for name in turns if turns[name] or lanes[name])
    if changed:
        tx.execute(_ADD, [{"workspace": name, "turns": turns[name], "lanes": lanes[name]} for name in changed])
    return len(found) >= FOLDED_AT_A_TIME
