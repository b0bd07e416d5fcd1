"""Workspaces and their rules; one for which nothing was ever set has no row."""

from sqlalchemy import Connection, bindparam, select, update

from loom_worker.core.values.json import Json
from loom_worker.core.values.tenants import LOCAL, Actor
from loom_worker.core.values.workspaces import Rules, Workspace
from loom_worker.store.audit import note_act
from loom_worker.store.cancel import weaker_than
from loom_worker.store.database import Database
from loom_worker.store.dialect import upsert
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.schema import turns
from loom_worker.store.tables import workspaces
from loom_worker.store.turns import begun, waiting_or_begun

MOST_WOKEN = 1_000
"""Sessions that are woken at once when a workspace is enabled again; the sweep finds the others within seconds."""

_FIND = select(workspaces).where(workspaces.c.name == bindparam("our_name"))
_STOP = (
    update(turns)
    .where(
        turns.c.workspace == bindparam("our_name"),
        begun(),
        weaker_than("interrupt"),
    )
    .values(cancel="interrupt")
    .returning(turns.c.lane)
)
_WAITING = (
    select(turns.c.lane)
    .where(turns.c.workspace == bindparam("our_name"), waiting_or_begun())
    .distinct()
    .limit(MOST_WOKEN)
)


class Workspaces:
    """The table of workspaces."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, name: str) -> Workspace:
        """A workspace; one that nobody has set anything for has no rules."""
        with self._database.read() as tx:
            row = tx.execute(_FIND, {"our_name": name}).mappings().first()
        return Workspace(name) if row is None else Workspace(name, Rules.of(row["rules"]), row["updated_ms"])

    def patch(self, name: str, changes: Json, *, now_ms: int, by: Actor = LOCAL) -> tuple[Workspace, tuple[str, ...]]:
        """Change some rules.

        Args:
            changes: members of the rules; null clears one.

        Returns:
            The workspace, and the lanes that must hear of it: those whose turns are interrupted, for the workspace is
            disabled now, or those with turns that may run again.
        """
        with self._database.write(durable=True, lock=WHOLE) as tx:
            row = tx.execute(_FIND, {"our_name": name}).mappings().first()
            stored = {} if row is None else row["rules"]
            before = Rules.of(stored)
            stored = {key: value for key, value in {**stored, **changes}.items() if value is not None}
            rules = Rules.of(stored)
            new = upsert(workspaces).values(
                name=name, rules=stored, is_disabled=rules.is_disabled, created_ms=now_ms, updated_ms=now_ms
            )
            kept = {column: new.excluded[column] for column in ("rules", "is_disabled", "updated_ms")}
            tx.execute(new.on_conflict_do_update(index_elements=["name"], set_=kept))
            _note(tx, Workspace(name, rules, now_ms), changes, by, was_disabled=before.is_disabled)
            lanes: tuple[str, ...] = ()
            if rules.is_disabled:
                lanes = tuple(tx.execute(_STOP, {"our_name": name}).scalars())
            elif before.is_disabled:
                lanes = tuple(tx.execute(_WAITING, {"our_name": name}).scalars())
        return Workspace(name, rules, now_ms), lanes


def _note(tx: Connection, workspace: Workspace, changes: Json, by: Actor, *, was_disabled: bool) -> None:
    is_disabled = workspace.rules.is_disabled
    switched = "workspace.disabled" if is_disabled else "workspace.enabled"
    action = "workspace.changed" if is_disabled == was_disabled else switched
    decisions = [
        {"kind": "rule", "name": name, "outcome": "cleared" if value is None else "set"}
        for name, value in sorted(changes.items())
    ]
    note_act(tx, action, by, workspace=workspace.name, at_ms=workspace.updated_ms or 0, decisions=decisions)
