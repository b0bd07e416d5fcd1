"""Stored versions of agents: each text that a file has had, what they are labelled as, and which a session keeps."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, and_, bindparam, delete, func, insert, or_, select, update

from loom_worker.core.errors import Flaw, Invalid, NotFound
from loom_worker.core.values.agent_versions import (
    BY_FILE,
    LABELS,
    LATEST,
    ActivationRequest,
    AgentVersion,
    Seen,
    VersionLabel,
    for_new_session,
    free_version,
)
from loom_worker.core.values.pages import Page, no_cursor
from loom_worker.core.values.tenants import LOCAL, Actor
from loom_worker.store.audit import note_act
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE, Lock
from loom_worker.store.schema import sessions
from loom_worker.store.tables import agent_labels, agent_versions
from loom_worker.store.tenants import newest_first, paged

HOME_WORKSPACE = "default"
"""In whose audit stands what happens to the files, which all workspaces share."""

_newest = select(agent_versions.c.agent, func.max(agent_versions.c.n).label("n")).group_by(agent_versions.c.agent)
_newest_n = _newest.subquery()
_SUMMARY = [column for column in agent_versions.c if column.name != "document"]
_NEWEST = select(*_SUMMARY).join(
    _newest_n, and_(_newest_n.c.agent == agent_versions.c.agent, _newest_n.c.n == agent_versions.c.n)
)
_OF_AGENT = agent_versions.c.agent == bindparam("our_agent")
_ONE = select(agent_versions).where(_OF_AGENT, agent_versions.c.version == bindparam("our_version"))
_NEWEST_NAME = select(agent_versions.c.version).where(_OF_AGENT).order_by(agent_versions.c.n.desc()).limit(1)
_LABELS = select(agent_labels).where(
    agent_labels.c.workspace == bindparam("our_workspace"), agent_labels.c.agent == bindparam("our_agent")
)
_KEPT = select(sessions.c.agent_version, sessions.c.workspace).where(sessions.c.lane == bindparam("our_lane"))
_KEEP = (
    update(sessions)
    .where(sessions.c.lane == bindparam("our_lane"), sessions.c.agent_version.is_(None))
    .values(agent_version=bindparam("kept"))
)


class AgentVersions:
    """The tables of agents' versions and their labels."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def newest(self) -> dict[str, AgentVersion]:
        """The newest version of every agent, by its name, without the documents."""
        with self._database.read() as tx:
            return {row["agent"]: _version(row) for row in tx.execute(_NEWEST).mappings()}

    def record(
        self, found: Iterable[Seen], known: Mapping[str, AgentVersion], *, now_ms: int
    ) -> tuple[AgentVersion, ...]:
        """Store agents that are not as their newest version is; what many processes notice is stored by one of them.

        Args:
            known: the newest versions as they were when the files were read. Where another process has stored one
                since, nothing is: it may have read the file later than this one.

        Returns:
            What was stored.
        """
        stored = []
        with self._database.write(durable=True, lock=Lock.named("agents")) as tx:
            newest = {row["agent"]: _version(row) for row in tx.execute(_NEWEST).mappings()}
            for each in found:
                before = newest.get(each.agent)
                if before != known.get(each.agent) or (before is not None and before.digest == each.digest):
                    continue
                taken = tx.execute(select(agent_versions.c.version).where(_OF_AGENT), {"our_agent": each.agent})
                new = AgentVersion(
                    agent=each.agent,
                    n=1 if before is None else before.n + 1,
                    version=free_version(each.declared, set(taken.scalars())),
                    digest=each.digest,
                    document=each.document,
                    created_ms=now_ms,
                )
                columns = {column.name: getattr(new, column.name) for column in agent_versions.c}
                tx.execute(insert(agent_versions), columns)
                if before is not None:
                    changes = _changes(("version", new.version), ("former", before.version))
                    about = {"agent": new.agent, "subject": new.version, "decisions": changes}
                    note_act(
                        tx, "agent.updated", Actor(BY_FILE), workspace=HOME_WORKSPACE, at_ms=new.created_ms, **about
                    )
                stored.append(new)
        return tuple(stored)

    def keep(self, agent: str, lane: str) -> str | None:
        """The version that a session keeps from now on; None: the agent has no version, or the session is deleted.

        The first that asks decides; a crash or an edit that comes after it changes nothing.
        """
        with self._database.write(lock=Lock.lane(lane)) as tx:
            row = tx.execute(_KEPT, {"our_lane": lane}).first()
            newest = tx.execute(_NEWEST_NAME, {"our_agent": agent}).scalar()
            if row is None or row.agent_version is not None or newest is None:
                return None if row is None else row.agent_version
            chosen = for_new_session(lane, newest, _labels(tx, row.workspace, agent))
            tx.execute(_KEEP, {"our_lane": lane, "kept": chosen})
            return chosen

    def page(self, workspace: str, agent: str, *, limit: int, after: str | None) -> Page[AgentVersion]:
        """The versions of an agent, the newest first, without their documents; labels are those of a workspace.

        Args:
            after: the version after which the page begins.

        Raises:
            NotFound: the agent has none.
            Invalid: it has none of the name ``after``.
        """
        with self._database.read() as tx:
            newest, last = _newest_of(tx, agent), None
            if after is not None:
                last = tx.execute(_ONE, {"our_agent": agent, "our_version": after}).mappings().first()
                if last is None:
                    raise no_cursor(after)
            labels = _labels(tx, workspace, agent)
            query = select(*_SUMMARY).where(agent_versions.c.agent == agent)
            query = newest_first(query, agent_versions.c.n, last and last["n"])
            cursor = attrgetter("version")
            return paged(tx, query, lambda row: _labelled(_version(row), labels, newest), limit=limit, cursor=cursor)

    def get(self, workspace: str, agent: str, version: str) -> AgentVersion:
        """A version of an agent with its document, by what it is called, what it is labelled as, or ``latest``.

        Raises:
            NotFound: there is none.
        """
        with self._database.read() as tx:
            newest, labels = _newest_of(tx, agent), _labels(tx, workspace, agent)
            return _labelled(_found(tx, agent, _resolved(version, agent, newest, labels)), labels, newest)

    def document(self, agent: str, version: str) -> str | None:
        """The document of a version; None if there is none of that name."""
        with self._database.read() as tx:
            row = tx.execute(_ONE, {"our_agent": agent, "our_version": version}).mappings().first()
        return None if row is None else str(row["document"])

    def activate(
        self, workspace: str, agent: str, asked: ActivationRequest, *, now_ms: int, by: Actor = LOCAL
    ) -> tuple[AgentVersion, int]:
        """Label a version, so that new sessions of the workspace get it; ``latest`` takes the label away.

        Returns:
            The version, and how many sessions that had begun moved to it.

        Raises:
            NotFound: the agent has no such version, or none with that label.
        """
        with self._database.write(durable=True, lock=WHOLE if asked.repins else Lock.named("agents")) as tx:
            newest, before = _newest_of(tx, agent), _labels(tx, workspace, agent)
            version = _found(tx, agent, _resolved(asked.version, agent, newest, before))
            ours = {"workspace": workspace, "agent": agent, "label": asked.label}
            tx.execute(delete(agent_labels).where(*(agent_labels.c[name] == value for name, value in ours.items())))
            if asked.version != LATEST:
                facts = {"changed_by": by.key_id, "updated_ms": now_ms}
                tx.execute(insert(agent_labels), {**ours, "version": version.version, "share": asked.share, **facts})
            moved = _repin(tx, workspace, agent, version.version) if asked.repins else 0
            label = (asked.label, "cleared" if asked.version == LATEST else "set")
            changes = _changes(label, ("sessions", "all" if asked.repins else "new"))
            about = {"agent": version.agent, "subject": version.version, "decisions": changes}
            note_act(tx, "agent.activated", by, workspace=workspace, at_ms=now_ms, **about)
            return _labelled(version, _labels(tx, workspace, agent), newest), moved

    def resolved(self, workspace: str, agent: str, version: str) -> str | None:
        """What a session is to keep that moves to a version; None: what is newest when its next turn begins.

        Raises:
            Invalid: the agent has no such version.
        """
        with self._database.read() as tx:
            newest, labels = tx.execute(_NEWEST_NAME, {"our_agent": agent}).scalar(), _labels(tx, workspace, agent)
            if version == LATEST:  # where labels decide, a new session might get something else
                return newest if labels else None
            try:
                return _found(tx, agent, _resolved(version, agent, newest or "", labels)).version
            except NotFound as error:
                raise Invalid(str(error), (Flaw("/agent", "no such version of its agent"),)) from error


def _newest_of(tx: Connection, agent: str) -> str:
    newest: str | None = tx.execute(_NEWEST_NAME, {"our_agent": agent}).scalar()
    if newest is None:
        raise NotFound(f"There are no versions of an agent {agent!r}.")
    return newest


def _resolved(version: str, agent: str, newest: str, labels: Mapping[str, VersionLabel]) -> str:
    """What a version is called that is named by its label, or as the latest."""
    if version == LATEST:
        return newest
    if version in LABELS:
        if version not in labels:
            raise NotFound(f"No version of the agent {agent!r} is labelled {version!r}.")
        return labels[version].version
    return version


def _found(tx: Connection, agent: str, version: str) -> AgentVersion:
    row = tx.execute(_ONE, {"our_agent": agent, "our_version": version}).mappings().first()
    if row is None:
        raise NotFound(f"There is no version {version!r} of the agent {agent!r}; GET /v1/agents/{agent}/versions.")
    return _version(row)


def _labels(tx: Connection, workspace: str, agent: str) -> dict[str, VersionLabel]:
    rows = tx.execute(_LABELS, {"our_workspace": workspace, "our_agent": agent})
    return {row.label: VersionLabel(row.label, row.version, row.share) for row in rows}


def _labelled(version: AgentVersion, labels: Mapping[str, VersionLabel], newest: str) -> AgentVersion:
    active = labels["production"].version if "production" in labels else newest
    its_own = tuple(name for name in LABELS if name in labels and labels[name].version == version.version)
    return replace(version, labels=its_own, is_active=version.version == active)


def _repin(tx: Connection, workspace: str, agent: str, version: str) -> int:
    """Move all sessions of an agent to a version; those that keep it already keep their system text, too."""
    is_other = or_(sessions.c.agent_version.is_(None), sessions.c.agent_version != version)
    ours = update(sessions).where(sessions.c.workspace == workspace, sessions.c.agent == agent, is_other)
    return tx.execute(ours.values(agent_version=version, rom=None, learned_part=None)).rowcount


def _version(row: Any) -> AgentVersion:
    names = ("agent", "n", "version", "digest", "created_ms", "changed_by")
    return AgentVersion(**{name: row[name] for name in names}, document=row.get("document", ""))


def _changes(*named: tuple[str, str]) -> Sequence[dict[str, Any]]:
    return [{"kind": "agent", "name": name, "outcome": outcome} for name, outcome in named]
