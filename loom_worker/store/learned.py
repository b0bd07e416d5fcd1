"""Learned layers: versions are added, one is activated, a session is given one at its first claim, and what came of it.

Everything belongs to an agent of a workspace; what another workspace has is not found.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import Connection, func, insert, select, update

from loom_worker.core.errors import Conflict, NotFound
from loom_worker.core.values.chat import Usage
from loom_worker.core.values.learned import (
    AS_ACTIVATED,
    NONE,
    Activation,
    LearnedLayer,
    LearnedPolicy,
    LearnedVersion,
    NewVersion,
    Scores,
    TurnOutcome,
)
from loom_worker.core.values.tenants import LOCAL, Actor
from loom_worker.store.audit import note_act
from loom_worker.store.database import Database
from loom_worker.store.dialect import upsert
from loom_worker.store.engines.engine import Lock
from loom_worker.store.schema import sessions, turns
from loom_worker.store.tables import learned_activations as activations
from loom_worker.store.tables import learned_layers as layers

MOST_VERSIONS = 1_000
"""Versions of one agent."""
MOST_TURNS = 500
"""The latest ended turns of a version that its scores are made of."""

_FIELDS = tuple(name for name in LearnedVersion.__slots__ if name != "user")
_KNOWN = [column for column in layers.c if column is not layers.c.layer]


class LearnedPolicies(Protocol):
    """What agents' files say of their learned layers (``agents/known.py``: KnownAgents)."""

    def learned(self, name: str) -> LearnedPolicy:
        return AS_ACTIVATED


class AllAsActivated(LearnedPolicies):
    """Agents whose files say nothing of it."""


ALL_AS_ACTIVATED = AllAsActivated()


@dataclass(frozen=True, slots=True)
class AgentOf:
    """Whose learned layers are asked for."""

    workspace: str
    name: str


class LearnedLayers:
    """The tables of learned layers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, agent: AgentOf, new: NewVersion, *, now_ms: int, by: Actor = LOCAL) -> tuple[LearnedVersion, bool]:
        """Store a layer as the agent's next version.

        Returns:
            The version, and True if the agent has had the same layer before: that one is returned then.

        Raises:
            Conflict: the agent has all the versions that it may have.
        """
        digest = new.layer.digest
        with self._database.write(durable=True, lock=Lock.named("learned", agent.workspace, agent.name)) as tx:
            same = tx.execute(select(*_KNOWN).where(*_ours(agent), layers.c.digest == digest)).mappings().first()
            if same is not None:
                return _version(same), True
            last = _newest(tx, agent)
            if last >= MOST_VERSIONS:
                raise Conflict(
                    f"The agent {agent.name!r} has {last} versions of its learned layer, the most there can be."
                )
            row = {
                "workspace": agent.workspace,
                "agent": agent.name,
                "version": last + 1,
                **{name: getattr(new, name) for name in ("form", "made_with", "source", "note")},
                "digest": digest,
                "sizes": new.layer.sizes,
                "layer": new.layer.as_json(),
                "key_id": by.key_id,
                "for_user": by.user,
                "created_ms": now_ms,
            }
            tx.execute(insert(layers), row)
            _note(tx, agent, "learned.imported", last + 1, now_ms=now_ms, by=by)
        return _version(row), False

    def get(self, agent: AgentOf, version: int) -> tuple[LearnedVersion, LearnedLayer]:
        """A version with its layer.

        Raises:
            NotFound: the workspace's agent has no such version.
        """
        with self._database.read() as tx:
            row = _find(tx, agent, version)
        if row is None:
            raise _no_version(agent, version)
        return _version(row), LearnedLayer.from_json(row["layer"])

    def page(self, agent: AgentOf, *, limit: int, before: int | None = None) -> tuple[LearnedVersion, ...]:
        """The versions of an agent, the newest first, those before the last one seen (``before``) if it is given."""
        query = select(*_KNOWN).where(*_ours(agent))
        if before is not None:
            query = query.where(layers.c.version < before)
        with self._database.read() as tx:
            found = tx.execute(query.order_by(layers.c.version.desc()).limit(limit)).mappings().all()
        return tuple(map(_version, found))

    def newest(self, agent: AgentOf) -> int:
        """The last version that was imported; 0: there is none."""
        with self._database.read() as tx:
            return _newest(tx, agent)

    def activation(self, agent: AgentOf) -> Activation:
        """What is active now."""
        with self._database.read() as tx:
            return _activation(tx, agent)

    def activate(
        self, agent: AgentOf, version: int, *, share: float | None, now_ms: int, by: Actor = LOCAL
    ) -> Activation:
        """Give a version to the sessions that begin from now on, or to a share of them.

        Args:
            version: 0: no learned layer.
            share: 0 to 1; None: all of them, and a trial that was under way is over.

        Raises:
            NotFound: the workspace's agent has no such version.
        """
        with self._database.write(durable=True, lock=Lock.named("learned", agent.workspace, agent.name)) as tx:
            if version != NONE and _find(tx, agent, version) is None:
                raise _no_version(agent, version)
            changed = _activation(tx, agent).activated(version, share)
            _set(tx, agent, changed, now_ms=now_ms)
            _note(tx, agent, "learned.activated", version, now_ms=now_ms, by=by)
        return changed

    def roll_back(self, agent: AgentOf, *, now_ms: int, by: Actor = LOCAL) -> Activation:
        """Take the last activation back: a trial, else the version, so that the one before is active again.

        Raises:
            Conflict: nothing was activated before.
        """
        with self._database.write(durable=True, lock=Lock.named("learned", agent.workspace, agent.name)) as tx:
            changed = _activation(tx, agent).rolled_back()
            if changed is None:
                raise Conflict(f"Nothing was activated for the agent {agent.name!r} that could be taken back.")
            _set(tx, agent, changed, now_ms=now_ms)
            _note(tx, agent, "learned.rolled_back", changed.version, now_ms=now_ms, by=by)
        return changed

    def erase(self, agent: AgentOf, version: int, *, now_ms: int, by: Actor = LOCAL) -> None:
        """Remove what a version holds; its number and its scores stay.

        Sessions that have begun keep their system text until they are deleted.

        Raises:
            NotFound: the workspace's agent has no such version.
            Conflict: it is active, or tried.
        """
        nothing = LearnedLayer()
        values = {"layer": nothing.as_json(), "sizes": nothing.sizes, "digest": ""}
        with self._database.write(durable=True, lock=Lock.named("learned", agent.workspace, agent.name)) as tx:
            if _find(tx, agent, version) is None:
                raise _no_version(agent, version)
            activation = _activation(tx, agent)
            if version in (activation.version, activation.trial_version):
                raise Conflict(f"Version {version} of the agent {agent.name!r} is active; activate another one first.")
            tx.execute(update(layers).where(*_ours(agent), layers.c.version == version).values(**values))
            if version in activation.history:
                _set(tx, agent, activation.without(version), now_ms=now_ms)
            _note(tx, agent, "learned.erased", version, now_ms=now_ms, by=by)

    def scores(self, agent: AgentOf, versions: Iterable[int]) -> dict[int, Scores]:
        """What came of the latest turns of each version, as far as they are still stored."""
        with self._database.read() as tx:
            return {version: Scores.of(_outcomes(tx, agent, version)) for version in versions}

    def for_session(
        self, agent: AgentOf, lane: str, policy: LearnedPolicy, version: int | None
    ) -> tuple[int, LearnedLayer | None]:
        """The version that a session has, or would be given now, and its layer; 0 and None: none.

        Args:
            version: as the session's row says; None: it has had no turn.
        """
        with self._database.read() as tx:
            wanted = given(tx, agent, lane, policy) if version is None else version
            row = _find(tx, agent, wanted) if wanted else None
        return (NONE, None) if row is None else (wanted, LearnedLayer.from_json(row["layer"]))


def given(tx: Connection, agent: AgentOf, lane: str, policy: LearnedPolicy) -> int:
    """The version that a session is given if it begins now; 0: none, also where the file names one there is not."""
    fixed = policy.fixed(_newest(tx, agent))
    if fixed is None:
        return _activation(tx, agent).version_for(lane)
    return fixed if fixed == NONE or _find(tx, agent, fixed) is not None else NONE


def pin(tx: Connection, row: Any, policies: LearnedPolicies) -> int:
    """The version of a session whose turn is being claimed; the first claim settles it, in the same transaction.

    A first turn that is run again, by whomever, has the same version, whatever was activated meanwhile.

    Args:
        row: of the turn, with the session's columns.
    """
    known: int | None = row["session_learned_version"]
    if known is not None or row["session_rom"] is not None:  # the text of an older session has none in it
        return known or NONE
    version = given(tx, AgentOf(row["workspace"], row["agent"]), row["lane"], policies.learned(row["agent"]))
    tx.execute(update(sessions).where(sessions.c.lane == row["lane"]).values(learned_version=version))
    return version


def _ours(agent: AgentOf) -> tuple[Any, ...]:
    return (layers.c.workspace == agent.workspace, layers.c.agent == agent.name)


def _newest(tx: Connection, agent: AgentOf) -> int:
    found: int | None = tx.execute(select(func.max(layers.c.version)).where(*_ours(agent))).scalar()
    return found or NONE


def _no_version(agent: AgentOf, version: int) -> NotFound:
    return NotFound(f"The agent {agent.name!r} has no version {version} of a learned layer.")


def _find(tx: Connection, agent: AgentOf, version: int) -> Any | None:
    return tx.execute(select(layers).where(*_ours(agent), layers.c.version == version)).mappings().first()


def _version(row: Any) -> LearnedVersion:
    known = {name: row[name] for name in _FIELDS}
    return LearnedVersion(**known, user=row["for_user"])


def _activation(tx: Connection, agent: AgentOf) -> Activation:
    ours = (activations.c.workspace == agent.workspace, activations.c.agent == agent.name)
    row = tx.execute(select(activations).where(*ours)).mappings().first()
    if row is None:
        return Activation()
    return Activation(row["version"], row["trial_version"], row["share"], tuple(row["history"]))


def _set(tx: Connection, agent: AgentOf, changed: Activation, *, now_ms: int) -> None:
    values = {
        "version": changed.version,
        "trial_version": changed.trial_version,
        "share": changed.share,
        "history": list(changed.history),
        "changed_ms": now_ms,
    }
    new = upsert(activations).values(workspace=agent.workspace, agent=agent.name, **values)
    tx.execute(new.on_conflict_do_update(index_elements=["workspace", "agent"], set_=values))


def _note(tx: Connection, agent: AgentOf, action: str, version: int, *, now_ms: int, by: Actor) -> None:
    subject = f"{agent.name} {version}"
    note_act(tx, action, by, workspace=agent.workspace, at_ms=now_ms, agent=agent.name, subject=subject)


def _outcomes(tx: Connection, agent: AgentOf, version: int) -> list[TurnOutcome]:
    wanted = (
        turns.c.workspace == agent.workspace,
        turns.c.agent == agent.name,
        turns.c.learned_version == version,
        turns.c.completed_ms.is_not(None),
    )
    query = select(turns.c.status, turns.c.usage, turns.c.judge).where(*wanted)
    found = tx.execute(query.order_by(turns.c.id.desc()).limit(MOST_TURNS)).all()
    return [TurnOutcome(row.status, Usage.from_json(row.usage), (row.judge or {}).get("score")) for row in found]
