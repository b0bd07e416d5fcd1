"""What all processes have counted since this database was made: sums that outlive processes, and Redis.

A process adds what it has counted about once a second (``runtime/metrics_flusher.py``); what a killed one had not added
by then is lost. Some figures are exact even so: ends of turns, and deaths of their workers, are counted in the
transaction that takes a turn over, or chains the audit's row of its end, and tokens and costs are read from the ledger,
up to the entry that the row FOLDED names.

A row's series is written as Prometheus writes it, with one difference: a histogram's rows hold what fell into each
bucket alone, so that a value changes two rows and not twenty. Their sum has the name and the suffix ``_sum``.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from sqlalchemy import BigInteger, Connection, Float, Text, bindparam, case, func, select

from loom_worker.core import metrics
from loom_worker.core.metric_recorder import (
    MOST_VALUES,
    NO_VALUE,
    OTHER,
    Cell,
    Cells,
    Family,
    Histogram,
    Key,
    series,
)
from loom_worker.core.values.audit import RUN_ENDED, TURN_ENDED
from loom_worker.core.values.budgets import NANO
from loom_worker.store.database import Database
from loom_worker.store.dialect import upsert
from loom_worker.store.engines.engine import FOLDING
from loom_worker.store.prepared import PreparedStatement
from loom_worker.store.schema import usage
from loom_worker.store.tables import audit_inbox, metric_values

FOLDED = "ledger"
"""The row that says up to which entry of the ledger is counted in the others. It is no metric."""
FOLDED_AT_A_TIME = 10_000
"""Entries of the ledger in one transaction: an older database may have millions, and others want to write."""
LE, SUM = "le", "_sum"
ENDS = {TURN_ENDED: metrics.TURNS, RUN_ENDED: metrics.RUNS}
"""What is counted when the audit's row of an end is chained, by the row's action."""

_ALL = select(metric_values.c.series, metric_values.c.value)
_OF_FAMILY = select(metric_values.c.series).where(
    metric_values.c.series >= bindparam("first", type_=Text), metric_values.c.series < bindparam("behind", type_=Text)
)
_FOLDED = select(metric_values.c.value).where(metric_values.c.series == FOLDED)
_NEWEST = select(func.max(usage.c.n))
_ENDED = (
    select(audit_inbox.c.action, audit_inbox.c.status, audit_inbox.c.reason, func.count())
    .where(audit_inbox.c.action.in_(ENDS))
    .group_by(audit_inbox.c.action, audit_inbox.c.status, audit_inbox.c.reason)
)
_counted = upsert(metric_values).values(
    series=bindparam("of", type_=Text),  # SQLAlchemy keeps the names of columns for itself
    value=bindparam("by", type_=Float),
)
_COUNT = PreparedStatement(
    _counted.on_conflict_do_update(
        index_elements=["series"], set_={"value": metric_values.c.value + _counted.excluded.value}
    )
)
_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_SPENT = (
    select(
        usage.c.model,
        usage.c.kind,
        *(func.sum(usage.c[name]).label(name) for name in _TOKENS),
        func.sum(usage.c.llm_calls).label("calls"),
        func.sum(case((usage.c.cost_nano.is_(None), usage.c.llm_calls), else_=0)).label("unpriced"),
        func.sum(func.coalesce(usage.c.cost_nano, 0)).label("nano"),
    )
    .where(usage.c.n > bindparam("after", type_=BigInteger), usage.c.n <= bindparam("until", type_=BigInteger))
    .group_by(usage.c.model, usage.c.kind)
)
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


class MetricValues:
    """The table of what was counted. Safe to use from many threads."""

    def __init__(self, database: Database, *, folded_at_a_time: int = FOLDED_AT_A_TIME) -> None:
        self._database = database
        self._folded_at_a_time = folded_at_a_time
        self._known: dict[tuple[str, str], frozenset[str]] = {}

    def add(self, cells: Cells) -> bool:
        """Add what a process has counted, and the next entries of the ledger, in one transaction.

        Returns:
            True if there are more entries of the ledger.
        """
        with self._database.write(is_timed=False, lock=FOLDING) as tx:
            return self.put(tx, cells)

    def put(self, tx: Connection, cells: Cells) -> bool:
        """As ``add``, in a transaction that has the lock of those who fold."""
        after, newest = _unfolded(tx)
        until = min(newest, after + self._folded_at_a_time)
        bounded = self._bounded(tx, [*cells.items(), *_spent(tx, after, until)])
        rows = [{"of": text, "by": by} for each in bounded.items() for text, by in _rows(*each) if by]
        if until > after:
            rows.append({"of": FOLDED, "by": until - after})
        if rows:
            _COUNT.run_each(tx, rows)
        return until < newest

    def all(self) -> Cells:
        """Everything, entries of the ledger and ends included that nobody has added yet."""
        with self._database.read() as tx:
            found = _read(tx)
            for action, status, reason, times in tx.execute(_ENDED):
                _merge(found, end_key(action, status, reason), [times])
            for key, cell in self._bounded(tx, _spent(tx, *_unfolded(tx))).items():
                _merge(found, key, cell)
        return found

    def _bounded(self, tx: Connection, cells: list[tuple[Key, Cell]]) -> Cells:
        """The same, with OTHER for values of labels beyond the MOST_VALUES that the table has, or is about to have."""
        new: dict[tuple[str, str], set[str]] = defaultdict(set)
        bounded: Cells = {}
        for (family, values), cell in cells:
            kept = tuple(
                value if label.values else self._admitted(tx, family, label.name, value or NO_VALUE, new)
                for label, value in zip(family.labels, values, strict=True)
            )
            _merge(bounded, (family, kept), cell)
        return bounded

    def _admitted(
        self, tx: Connection, family: Family, label: str, value: str, new: dict[tuple[str, str], set[str]]
    ) -> str:
        key = family.name, label
        known = self._known.get(key, frozenset())
        if value == OTHER:
            return value
        if value not in known and len(known) < MOST_VALUES:  # others may have added it, or filled the table
            known = self._known[key] = _values(tx, family, label)
        if value in known or value in new[key]:
            return value
        if len(known) + len(new[key]) >= MOST_VALUES:
            return OTHER
        new[key].add(value)
        return value


def count(tx: Connection, key: Key, times: int = 1) -> None:
    """As Counter.count, but in the transaction that does what is counted: exact, whatever becomes of this process."""
    _COUNT.run_each(tx, [{"of": text, "by": by} for text, by in _rows(key, [float(times)])])


def end_key(action: str, status: str | None, reason: str | None) -> Key:
    """The counter, and its labels, of an end that the audit tells of."""
    return ENDS[action], (status or "", reason or "none")


def _unfolded(tx: Connection) -> tuple[int, int]:
    """The last entry of the ledger that is counted, and the newest one."""
    after = int(tx.execute(_FOLDED).scalar() or 0)
    return after, max(after, int(tx.execute(_NEWEST).scalar() or 0))


def _spent(tx: Connection, after: int, until: int) -> list[tuple[Key, Cell]]:
    """What these entries of the ledger come to."""
    found: list[tuple[Key, Cell]] = []
    rows = tx.execute(_SPENT, {"after": after, "until": until}).mappings() if until > after else ()
    for row in rows:
        model, purpose = row["model"], row["kind"]
        for name in filter(row.get, _TOKENS):
            found.append(((metrics.LLM_TOKENS, (model, name.removesuffix("_tokens"), purpose)), [row[name]]))
        for family, total in (
            (metrics.LLM_CALLS, row["calls"]),
            (metrics.LLM_UNPRICED_CALLS, row["unpriced"]),
            (metrics.LLM_COST, float(row["nano"] * NANO)),
        ):
            if total:
                found.append(((family, (model, purpose)), [total]))
    return found


def _merge(cells: Cells, key: Key, cell: Cell) -> None:
    mine = cells.setdefault(key, [0.0] * key[0].size)
    for place, figure in enumerate(cell):
        mine[place] += figure


def _rows(key: Key, cell: Cell) -> Iterator[tuple[str, float]]:
    """The series of a cell, with their figures."""
    family, values = key
    labels = {label.name: value for label, value in zip(family.labels, values, strict=True)}
    if not isinstance(family, Histogram):
        yield series(family.name, labels), cell[0]
        return
    yield series(family.name + SUM, labels), cell[0]
    for bound, figure in zip((*family.bounds, float("inf")), cell[1:], strict=True):
        yield series(family.name, {**labels, LE: f"{bound:g}"}), figure


def _read(tx: Connection) -> Cells:
    """All rows of families that there are now; those of an older or a newer Loom are left out."""
    cells: Cells = {}
    for text, value in tx.execute(_ALL):
        name, labels = _parsed(text)
        family = metrics.FAMILIES.get(name) or metrics.FAMILIES.get(name.removesuffix(SUM))
        if family is None or {*labels} - {LE} != {label.name for label in family.labels}:
            continue
        cell = cells.setdefault((family, tuple(labels[label.name] for label in family.labels)), [0.0] * family.size)
        cell[_place(family, labels)] += value
    return cells


def _place(family: Family, labels: dict[str, str]) -> int:
    """Where in its cell a row's figure stands; one of a bucket that there is no more counts in the next larger one."""
    if not isinstance(family, Histogram) or LE not in labels:
        return 0
    return 1 + bisect_left(family.bounds, float(labels[LE]))


def _values(tx: Connection, family: Family, label: str) -> frozenset[str]:
    """The values of a label that the table has."""
    texts = tx.execute(_OF_FAMILY, {"first": f"{family.name}{{", "behind": f"{family.name}|"}).scalars()
    return frozenset(_parsed(text)[1].get(label, OTHER) for text in texts) - {OTHER}


def _parsed(text: str) -> tuple[str, dict[str, str]]:
    name, _, shown = text.partition("{")
    return name, {label: _ESCAPED.sub(_plain, value) for label, value in _LABEL.findall(shown)}


def _plain(escaped: "re.Match[str]") -> Any:
    return "\n" if escaped[1] == "n" else escaped[1]
