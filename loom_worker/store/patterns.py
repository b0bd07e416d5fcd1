"""What came of turns that used a pattern: sums by workspace, pattern and text, which outlive the turns."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, bindparam, case, delete, select, union_all

from loom_worker.core.values.chat import Usage
from loom_worker.core.values.patterns import Effect, PatternUse
from loom_worker.store.database import Database
from loom_worker.store.dialect import upsert
from loom_worker.store.schema import pattern_uses, use_deltas
from loom_worker.store.turn_statements import COUNT_USES

FOLDED_AT_A_TIME = 500
"""Uses that are summed in one transaction."""

_SUMMED = ("uses", "succeeded", "failed", "cost_usd", "tokens")
_ONE = union_all(
    *(
        select(*(rows.c[name] for name in ("digest", *_SUMMED, "last_ms"))).where(
            rows.c.workspace == bindparam("our_workspace"), rows.c.pattern_id == bindparam("our_pattern")
        )
        for rows in (pattern_uses, use_deltas)
    )
)
"""The sums, and what is not folded into them yet."""
_SOME = select(use_deltas.c.n).limit(FOLDED_AT_A_TIME)
_SUMS = [use_deltas.c[each.name] for each in pattern_uses.c]
_TAKE = delete(use_deltas).where(use_deltas.c.n.in_(_SOME)).returning(*_SUMS)
_add = upsert(pattern_uses)
_later = case((_add.excluded.last_ms > pattern_uses.c.last_ms, _add.excluded.last_ms), else_=pattern_uses.c.last_ms)
_ADD = _add.on_conflict_do_update(
    index_elements=["workspace", "pattern_id", "digest"],
    set_={**{name: pattern_uses.c[name] + _add.excluded[name] for name in _SUMMED}, "last_ms": _later},
)


def enter_uses(
    tx: Connection, workspace: str, uses: Sequence[PatternUse], *, is_success: bool | None, spent: Usage, now_ms: int
) -> None:
    """Count a turn for each pattern that it used, once however often it did; in the transaction that ends it.

    Args:
        is_success: None: somebody stopped it, or its end says nothing of patterns; it counts as a use alone.
        spent: by the whole turn; each of its patterns is charged with all of it.
    """
    distinct = dict.fromkeys((use.pattern_id, use.digest) for use in uses)
    counted = {
        "workspace": workspace,
        "uses": 1,
        "succeeded": int(is_success is True),
        "failed": int(is_success is False),
        "cost_usd": float(spent.cost_usd or 0),
        "tokens": spent.tokens,
        "last_ms": now_ms,
    }
    if distinct:
        COUNT_USES.run_each(tx, [{**counted, "pattern_id": name, "digest": digest} for name, digest in distinct])


def fold_uses(tx: Connection) -> bool:
    """Add uses that were counted to their sums; True if there may be more."""
    found = tx.execute(_TAKE).mappings().all()
    effects: dict[tuple[str, str, str], list[Effect]] = {}
    for row in found:
        effects.setdefault((row["workspace"], row["pattern_id"], row["digest"]), []).append(_effect(row))
    names = ("workspace", "pattern_id", "digest")
    sums = [dict(zip(names, key, strict=True)) | asdict(_together(of_it)) for key, of_it in sorted(effects.items())]
    if sums:
        tx.execute(_ADD, sums)
    return len(found) >= FOLDED_AT_A_TIME


class PatternUses:
    """The table of what came of patterns, by workspace."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def effect(self, workspace: str, pattern_id: str, digest: str) -> tuple[Effect, Effect]:
        """What came of one text of a pattern, and of all its texts together."""
        with self._database.read() as tx:
            found = tx.execute(_ONE, {"our_workspace": workspace, "our_pattern": pattern_id}).mappings().all()
        one = [_effect(row) for row in found if row["digest"] == digest]
        return _together(one), _together([_effect(row) for row in found])


def _effect(row: Any) -> Effect:
    return Effect(**{name: row[name] for name in (*_SUMMED, "last_ms")})


def _together(effects: list[Effect]) -> Effect:
    return Effect(
        uses=sum(each.uses for each in effects),
        succeeded=sum(each.succeeded for each in effects),
        failed=sum(each.failed for each in effects),
        cost_usd=sum(each.cost_usd for each in effects),
        tokens=sum(each.tokens for each in effects),
        last_ms=max((each.last_ms for each in effects if each.last_ms is not None), default=None),
    )
