"""Moves all rows from one database to another, whichever engines they have; it can be cut off and goes on.

The old database refuses every change from the beginning on, by triggers, and Loom uses neither of the two before the
end: ``MoveMark`` stands in the place of their versions. What was copied is seen from the rows themselves: they come in
order of their keys, so all up to the last one of a range are there.
"""

import hashlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace

from sqlalchemy import Table

from loom_worker.core.errors import BadSettings, LoomError
from loom_worker.core.values.ids import new_id
from loom_worker.store import schema
from loom_worker.store.database import engine_of
from loom_worker.store.engines.move_ends import ALL, KeyRange, MoveEnd, opened
from loom_worker.store.prepare import MoveMark

TABLES = tuple(schema.metadata.sorted_tables)
"""Rows come after those that they belong to."""
_as_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=bytes.hex).encode


@dataclass(frozen=True, slots=True)
class ComparedTable:
    """A table that is equal in both databases."""

    table: str
    rows: int
    sha256: str
    """Digest of its rows in order of their keys, each as JSON without spaces and a line feed."""
    mended: int
    """Values that the new database cannot hold as they were: U+FFFD stands for NUL, null for NaN in JSON."""


class Differs(LoomError):
    """The databases are not equal; the old one is as it was."""


def move(old_url: str, new_url: str, *, say: Callable[[str], None]) -> tuple[ComparedTable, ...]:
    """Copy all rows, compare both databases, and hand over; called again after it was cut off it goes on.

    Args:
        say: is told what was done, a line at a time.

    Raises:
        BadSettings: nothing was done, for the text's reason.
        Differs: both databases stay as they are.
        LoomError: one of them cannot be used; the move can go on.
    """
    mark, is_new = _agreed(old_url, new_url)
    with opened(old_url) as old:
        if is_new:
            with old.transaction():
                old.freeze(TABLES)
                old.mark(str(mark))
        say(f"{_where(old_url)} takes no writes from now on")
        there = replace(mark, state="filling", other=_where(old_url))
        _begin(new_url, there)
        with opened(new_url) as new, opened(old_url) as counted, ThreadPoolExecutor(1) as beside:
            for table in TABLES:
                first, *others = old.parts(table, new.writers)
                apart = [beside.submit(_copy_apart, old_url, new_url, table, part) for part in others]
                copied = _copy(old, new, table, first) + sum(each.result() for each in apart)
                _tell(say, table, copied)
            sums = beside.submit(lambda: [_sum(counted, new, table) for table in TABLES])
            new.bring_back()
            say("indexes, constraints and triggers made")
            checked = _compared(sums.result(), [_sum(new, new, table) for table in TABLES])
            with old.transaction():
                old.mark(str(replace(mark, state="moved")))
            with new.transaction():
                new.finish(TABLES)
                new.run("DROP TABLE IF EXISTS loom_later")
                new.mark(mark.version)
    return checked


def undo(url: str) -> str:
    """Let the database be used again that is being moved; return which one it was being moved to.

    Raises:
        BadSettings: it is not, or it has moved already: others may have written to the new one.
    """
    mark = MoveMark.of(_version(url))
    if mark is None or mark.state != "moving":
        raise BadSettings(f"LOOM_DATABASE_URL: {_where(url)} {mark.refusal if mark else 'is not being moved'}")
    with opened(url) as end, end.transaction():
        end.thaw(TABLES)
        end.mark(mark.version)
    return mark.other


def _agreed(old_url: str, new_url: str) -> tuple[MoveMark, bool]:
    """The mark of the old database, and whether it is still to be written."""
    old, new = _version(old_url), _version(new_url)
    mark, there = MoveMark.of(old), MoveMark.of(new)
    mine, other = f"LOOM_DATABASE_URL: {_where(old_url)}", f"--to {_where(new_url)}"
    if mine.endswith(other.removeprefix("--to")):
        raise BadSettings(f"{other} is the database that LOOM_DATABASE_URL names")
    if old is None:
        raise BadSettings(f"{mine} is not made yet: there is nothing to move")
    if mark and (mark.other != _where(new_url) or mark.state == "filling"):
        raise BadSettings(f"{mine} {mark.refusal}")
    if (mark.version if mark else old) != schema.VERSION:
        raise BadSettings(
            f"{mine} has schema {old}, this Loom {schema.VERSION}; run `loom prepare` with this Loom first"
        )
    if there and mark and there.state == "filling" and there.move == mark.move:
        return mark, False
    if mark and mark.state == "moved":
        raise BadSettings(f"{mine} {mark.refusal}")
    if new not in (None, schema.VERSION):
        raise BadSettings(f"{other} {there.refusal if there else f'has schema {new}, this Loom {schema.VERSION}'}")
    if new is not None:
        with opened(new_url) as end:
            if (name := end.first_filled(TABLES)) is not None:
                raise BadSettings(f"{other} has rows already (table {name}); name an empty database")
    return mark or MoveMark("moving", schema.VERSION, new_id("mov_"), _where(new_url)), mark is None


def _begin(url: str, mark: MoveMark) -> None:
    """Make the new database, and mark it as one that is being filled."""
    with closing(engine_of(url)) as engine:
        if MoveMark.of(engine.version()) is not None:
            return
        engine.require_writable()
        engine.migrate()
    with opened(url) as end, end.transaction():
        end.put_aside()
        end.mark(str(mark))


def _tell(say: Callable[[str], None], table: Table, copied: int) -> None:
    if copied:
        say(f"{table.name}: {copied:,} rows copied")


def _copy(old: MoveEnd, new: MoveEnd, table: Table, part: KeyRange) -> int:
    left = replace(part, after=new.last_key(table, part))
    return new.add(table, (group for group, _ in new.fitted(table, old.rows(table, left))))


def _copy_apart(old_url: str, new_url: str, table: Table, part: KeyRange) -> int:
    with opened(old_url) as old, opened(new_url) as new:
        return _copy(old, new, table, part)


def _sum(end: MoveEnd, new: MoveEnd, table: Table) -> ComparedTable:
    """The rows of a table, as the new database can hold them."""
    digest, rows, mended = hashlib.sha256(), 0, 0
    for group, changed in new.fitted(table, end.rows(table, ALL)):
        digest.update("".join(f"{_as_text(row)}\n" for row in group).encode("utf-8", "surrogatepass"))
        rows, mended = rows + len(group), mended + changed
    return ComparedTable(table.name, rows, digest.hexdigest(), mended)


def _compared(old: list[ComparedTable], new: list[ComparedTable]) -> tuple[ComparedTable, ...]:
    wrong = [f"{a.table}: {a.rows:,} rows, {b.rows:,} copied" for a, b in zip(old, new, strict=True) if _differ(a, b)]
    if wrong:
        raise Differs(
            f"the databases differ, and the old one stays the one that counts ({'; '.join(wrong)}): give up with "
            "`loom move --undo`, empty the new one, and try again"
        )
    return tuple(old)


def _differ(one: ComparedTable, other: ComparedTable) -> bool:
    return replace(one, mended=0) != replace(other, mended=0)


def _version(url: str) -> str | None:
    with closing(engine_of(url)) as engine:
        return engine.version()


def _where(url: str) -> str:
    with closing(engine_of(url)) as engine:
        return engine.where
