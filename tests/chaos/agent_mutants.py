"""Seeded bugs of agents that work together; see mutants.py."""

import itertools
from collections.abc import Callable, Collection, Sequence
from typing import Any

from sqlalchemy import Connection, select, update

from loom_worker.core.errors import Interrupted
from loom_worker.core.values.agent_messages import AgentMessage
from loom_worker.core.values.calls import Call
from loom_worker.core.values.children import NewChild
from loom_worker.core.values.turns import Claim, Turn
from loom_worker.store import children, journal
from loom_worker.store.agent_messages import AgentMessages
from loom_worker.store.children import Children
from loom_worker.store.claims import Claims
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.tables import agent_messages, blobs
from loom_worker.turn import ending


def _doubled_child() -> None:
    """A turn is accepted in a transaction of its own, and every third time its call does not learn of it."""
    begin, counter = Children.begin, itertools.count(1)

    def hasty(self: Children, claim: Claim, new: Sequence[NewChild], *, now_ms: int) -> Any:
        if next(counter) % 3:
            return begin(self, claim, new, now_ms=now_ms)
        with self._database.write(durable=True, lock=WHOLE) as tx:
            for child in new:
                self._accept(tx, claim, child, now_ms=now_ms)
        raise Interrupted("The worker went away between two transactions.")

    Children.begin = hasty  # type: ignore[method-assign]


def _deaf_parent() -> None:
    """Nobody is told that a turn has ended for which another one waits, and nobody looks."""

    def none_awaited(_self: Claims, *, now_ms: int, limit: int) -> tuple[str, ...]:
        return ()

    def silent(_turn: Turn, _worker: Any) -> None:
        return

    ends: Any = ending
    ends.tell_parent = silent
    Claims.awaited_lanes = none_awaited  # type: ignore[method-assign,assignment]


def _untaken_message() -> None:
    """A message that a turn takes stays in the queue."""
    take = AgentMessages.take

    def careless(self: AgentMessages, claim: Claim, call: Call, **how: Any) -> tuple[AgentMessage, ...]:
        taken = take(self, claim, call, **how)
        with self._database.write(lock=WHOLE) as tx:
            ids = [message.id for message in taken]
            tx.execute(update(agent_messages).where(agent_messages.c.id.in_(ids)).values(status="queued", attempts=0))
        return taken

    AgentMessages.take = careless  # type: ignore[method-assign]


def _forgotten_child() -> None:
    """A turn that ends before its calls leaves those at work that it has asked."""

    def none(_tx: Connection, _workspace: str, _turn_id: str, **_how: Any) -> list[Turn]:
        return []

    ends: Any = journal
    ends.cancel_children = none


def _generous_asker() -> None:
    """Who is asked may read all large results of the one who asks, named or not."""

    def everything(tx: Connection, _refs: Collection[str], lane: str) -> frozenset[str]:
        return frozenset(tx.execute(select(blobs.c.id).where(blobs.c.lane == lane)).scalars())

    asks: Any = children
    asks.readable = everything


AGENT_MUTANTS: dict[str, tuple[Sequence[str], Callable[[], None]]] = {
    "doubled_child": (("I21",), _doubled_child),
    "deaf_parent": (("I21",), _deaf_parent),
    "untaken_message": (("I22",), _untaken_message),
    "generous_asker": (("I22",), _generous_asker),
    "forgotten_child": (("I21",), _forgotten_child),
}
"""As MUTANTS."""
