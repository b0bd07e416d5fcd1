"""Versions of agents as clients see them: listed, compared, activated for a workspace, chosen for a session."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from itertools import pairwise
from typing import Any

from loom_worker.agents.known import AgentSource
from loom_worker.core.errors import BadFile, Conflict, Flaw, Forbidden, Invalid
from loom_worker.core.values.agent_versions import LATEST, RESERVED, ActivationRequest, AgentVersion, diff
from loom_worker.core.values.agents import UNSHOWN
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json
from loom_worker.core.values.pages import Page
from loom_worker.core.values.tenants import LOCAL, Actor, Tenant, user_of, workspace_of
from loom_worker.core.variables import without_password
from loom_worker.guard.findings import redacted
from loom_worker.store.agent_versions import AgentVersions
from loom_worker.store.database import Database


def _understood(value: Any, name: str = "") -> Any:
    """An agent, or a value in one, as JSON: all that was understood of its file but UNSHOWN, secrets masked."""
    if is_dataclass(value):
        return {
            each.name: _understood(getattr(value, each.name), each.name)
            for each in fields(value)
            if each.name not in UNSHOWN
        }
    if isinstance(value, Mapping):
        return {key: _understood(each, "given" if name in ("env", "headers") else "") for key, each in value.items()}
    if isinstance(value, list | tuple):
        return ["***" if _is_told_by(before, each) else _understood(each) for before, each in pairwise(("", *value))]
    if name == "given":
        return value if value.startswith("secret:") else "***"
    return without_password(redacted(value, ("secret",))) if isinstance(value, str) else value


def _is_told_by(flag: Any, value: Any) -> bool:
    """True of an argument that is a secret by the one before it: ``--token``, ``abc``."""
    both = f"{flag} {value}"
    return str(flag).startswith("-") and redacted(both, ("secret",)) != both


class AgentCatalog:
    """The stored versions of agents. Files, and so versions, are everybody's; labels are those of a workspace."""

    understood = staticmethod(_understood)

    def __init__(self, database: Database, agents: AgentSource, *, pins: bool) -> None:
        """Nothing is read yet.

        Args:
            pins: False: sessions keep no version (LOOM_AGENT_PIN), so none can be activated or chosen.
        """
        self._versions = AgentVersions(database)
        self._agents = agents
        self._pins = pins

    def page(self, tenant: Tenant, agent: str, *, limit: int, after: str | None) -> Page[AgentVersion]:
        """The versions of an agent, the newest first, without their documents.

        Args:
            after: the last version seen.

        Raises:
            NotFound: no agent of that name was ever stored.
            Invalid: it has no version ``after``.
        """
        self._agents.current(agent)  # stores an edit that nobody has noticed yet
        return self._versions.page(workspace_of(tenant), agent, limit=limit, after=after)

    def get(self, tenant: Tenant, agent: str, version: str) -> AgentVersion:
        """A version with its document, by what it is called, by a label, or as ``latest``; or raise NotFound."""
        self._agents.current(agent)
        return self._versions.get(workspace_of(tenant), agent, version)

    def diff(self, tenant: Tenant, agent: str, version: str, *, before: str | None) -> Json:
        """What a version changed, as the AgentDiff of the HTTP API, or raise NotFound.

        Args:
            before: the version to compare it with; None: the one before it.
        """
        new = self.get(tenant, agent, version)
        if before is None:
            page = self._versions.page(workspace_of(tenant), agent, limit=1, after=new.version)
            before = page.items[0].version if page.items else new.version
        old = self.get(tenant, agent, before)
        names = {"agent": agent, "from": old.version, "to": new.version}
        return {"object": "agent.diff", **names, "diff": diff(old, new)}

    def activate(self, tenant: Tenant, agent: str, asked: ActivationRequest, *, by: Actor = LOCAL) -> Json:
        """Let new sessions of the workspace have a version, and if asked all others, too.

        Returns:
            The AgentVersion with ``moved_sessions``: how many sessions that had begun moved to it.

        Raises:
            NotFound: the agent has no such version.
            Forbidden: the key acts for one user.
            Invalid: this Loom refuses the version; nothing was changed.
            Conflict: sessions keep no versions here.
        """
        if user_of(tenant) is not None:
            raise Forbidden("This key acts for a user, and versions of agents are activated for the whole workspace.")
        self._require_pins()
        self._check(agent, self.get(tenant, agent, asked.version).version, "/version")
        active, moved = self._versions.activate(workspace_of(tenant), agent, asked, now_ms=now_ms(), by=by)
        return {**active.as_json(), "moved_sessions": moved}

    def chosen(self, tenant: Tenant, agent: str, version: str, *, may_choose_any: bool) -> str | None:
        """What a session is to keep that moves to a version; None: what is newest when its next turn begins.

        Args:
            version: what it is called, a label, or ``latest``.
            may_choose_any: False: only what new sessions may get. A former version may allow what its successor
                forbids, so that choosing it is left to administrators.

        Raises:
            Invalid: the agent has no such version, or this Loom refuses it.
            Forbidden: it is not among those that the key may choose.
            Conflict: sessions keep no versions here.
        """
        self._agents.current(agent)
        if version != LATEST:
            self._require_pins()
        kept = self._versions.resolved(workspace_of(tenant), agent, version)
        if kept is None:
            return None
        if version not in RESERVED and not may_choose_any:
            found = self._versions.get(workspace_of(tenant), agent, kept)
            if not found.labels and not found.is_active:
                names = f"{agent}@latest, {agent}@production and {agent}@canary"
                raise Forbidden(f"A key without the scope admin chooses among {names}; {kept!r} is none of them.")
        self._check(agent, kept, "/agent")
        return kept

    def _require_pins(self) -> None:
        if not self._pins:
            raise Conflict("LOOM_AGENT_PIN is none: sessions follow the agent's file and keep no version of it.")

    def _check(self, agent: str, version: str, pointer: str) -> None:
        try:
            self._agents.kept(agent, version)
        except BadFile as error:
            text = f"The version {version!r} of the agent {agent!r} cannot work: {error}."
            raise Invalid(text, (Flaw(pointer, "cannot work"),)) from error
