"""Conditions on turns; those of unfinished ones are answered by indexes, without a walk (0059-counted-queues.md)."""

from sqlalchemy import ColumnElement, and_, literal_column, select

from loom_worker.core.values.turns import UNFINISHED
from loom_worker.store.schema import OWNS, outbox, sessions, turns


def waiting_or_begun() -> ColumnElement[bool]:
    """True of an unfinished turn, like ``unfinished()``, but found by its workspace instead of its lane."""
    return and_(turns.c.completed_ms.is_(None), turns.c.status.in_(UNFINISHED))


def begun() -> ColumnElement[bool]:
    """True of a turn that has begun and not ended, however many wait behind it: found in ``turns_open_by_status``."""
    return and_(turns.c.completed_ms.is_(None), turns.c.status.in_(("in_progress", "requires_action")))


def queued() -> ColumnElement[bool]:
    """True of a turn that has not begun; by workspace and time, as ``turns_open_by_status`` is ordered."""
    return and_(turns.c.completed_ms.is_(None), turns.c.status == "queued")


def dead() -> ColumnElement[bool]:
    """True of a turn that killed its workers too often, in the literals of ``turns_dead``."""
    return and_(turns.c.status == literal_column("'failed'"), turns.c.reason == literal_column("'dead'"))


def kept_delivery() -> ColumnElement[bool]:
    """True of a delivery unless its session is deleted."""
    owned = select(turns.c.id).join(sessions, and_(*OWNS)).where(turns.c.id == outbox.c.turn_id)
    return owned.exists()
