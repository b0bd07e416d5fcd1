"""Learned layers: what an administrator imports, activates and takes back, and what came of each version."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from loom_worker.agents.known import AgentSource
from loom_worker.agents.learned.reading import version_of
from loom_worker.core.errors import Flaw, Invalid, NotFound
from loom_worker.core.fields import InvalidField, Place
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json, pointer_step
from loom_worker.core.values.learned import AS_ACTIVATED, NONE, Activation, ImportRequest, LearnedVersion
from loom_worker.core.values.tenants import LOCAL, Actor, Tenant, user_of, workspace_of
from loom_worker.store.learned import AgentOf, LearnedLayers

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Learned:
    """The learned layers of agents; a tenant that is one user of a workspace has none, for they may quote others."""

    layers: LearnedLayers
    agents: AgentSource

    def add(self, tenant: Tenant, name: str, asked: ImportRequest, *, by: Actor = LOCAL) -> tuple[Json, bool]:
        """Store a layer as the agent's next version; nothing is activated.

        Returns:
            The version, with the keys of the file that were not imported, and True if it was there before.

        Raises:
            NotFound: there is no such agent.
            Invalid: the content cannot be used; the flaw names the place in it.
            Conflict: the agent has all the versions that it may have.
        """
        agent = self._agent(tenant, name)
        try:
            new, warnings = version_of(asked.content, form=asked.form, source=asked.source, note=asked.note)
        except InvalidField as error:
            text = f"{asked.source}: {error}" if asked.source else str(error)
            raise Invalid(text, (Flaw(_pointer(error.place), error.reason),), "learned-refused") from error
        found, is_known = self.layers.add(agent, new, now_ms=now_ms(), by=by)
        log.info("learned.imported", extra={"agent": name, "version": found.version})
        return {**self._described(agent, [found])[0], "warnings": list(warnings)}, is_known

    def listed(self, tenant: Tenant, name: str, *, limit: int, before: int | None) -> tuple[list[Json], bool]:
        """The versions of an agent, the newest first, the last being 0: what came of turns without any.

        Args:
            before: the last version seen; None: from the newest on.

        Returns:
            So many of them, and True if there are more.

        Raises:
            NotFound: there is no such agent.
        """
        agent = self._agent(tenant, name)
        found: list[LearnedVersion | None] = [*self.layers.page(agent, limit=limit + 1, before=before)]
        if len(found) <= limit and before != NONE:
            found.append(None)
        return self._described(agent, found[:limit]), len(found) > limit

    def get(self, tenant: Tenant, name: str, version: int) -> Json:
        """A version with its layer; NotFound: there is no such agent, or it has no such version."""
        agent = self._agent(tenant, name)
        found, layer = self.layers.get(agent, version)
        return {**self._described(agent, [found])[0], "layer": {**layer.as_json(), "version": version}}

    def activate(
        self, tenant: Tenant, name: str, version: int, *, share: float | None = None, by: Actor = LOCAL
    ) -> Json:
        """Give a version to the sessions that begin from now on, or to a share of them; 0: no learned layer.

        Raises:
            NotFound: there is no such agent, or it has no such version.
        """
        agent = self._agent(tenant, name)
        changed = self.layers.activate(agent, version, share=share, now_ms=now_ms(), by=by)
        log.info("learned.activated", extra={"agent": name, "version": version})
        return _activation(agent, changed)

    def roll_back(self, tenant: Tenant, name: str, *, by: Actor = LOCAL) -> Json:
        """Take the last activation back; NotFound: there is no such agent; Conflict: there is none to take back."""
        agent = self._agent(tenant, name)
        changed = self.layers.roll_back(agent, now_ms=now_ms(), by=by)
        log.info("learned.rolled_back", extra={"agent": name, "version": changed.version})
        return _activation(agent, changed)

    def erase(self, tenant: Tenant, name: str, version: int, *, by: Actor = LOCAL) -> None:
        """Remove what a version holds; its number and its scores stay.

        Raises:
            NotFound: there is no such agent, or it has no such version.
            Conflict: the version is active.
        """
        self.layers.erase(self._agent(tenant, name), version, now_ms=now_ms(), by=by)
        log.info("learned.erased", extra={"agent": name, "version": version})

    def _agent(self, tenant: Tenant, name: str) -> AgentOf:
        agents = self.agents.current(name)
        if user_of(tenant) is not None or not (name in agents.agents or agents.fault(name)):
            raise NotFound(f"There is no agent {name!r}.")
        return AgentOf(workspace_of(tenant), name)

    def _described(self, agent: AgentOf, found: Sequence[LearnedVersion | None]) -> list[Json]:
        """Versions with their share of new sessions and what came of them; None stands for version 0."""
        known = self.agents.current(agent.name).agents.get(agent.name)
        policy = AS_ACTIVATED if known is None else known.learned
        activation, newest = self.layers.activation(agent), self.layers.newest(agent)
        fixed = policy.fixed(newest)
        if fixed is not None and fixed > newest:
            fixed = NONE  # the file names one that there is not
        versions = [NONE if each is None else each.version for each in found]
        scores = self.layers.scores(agent, versions)
        return [
            {
                **(_without(agent) if each is None else each.as_json()),
                "active": version in (activation.version, activation.trial_version),
                "share": activation.share_of(version) if fixed is None else float(version == fixed),
                "scores": scores[version].as_json(),
            }
            for version, each in zip(versions, found, strict=True)
        ]


def _activation(agent: AgentOf, changed: Activation) -> Json:
    return {
        "object": "learned_activation",
        "agent": agent.name,
        "version": changed.version,
        "trial_version": changed.trial_version,
        "share": changed.share,
    }


def _without(agent: AgentOf) -> Json:
    nothing = dict.fromkeys(("form", "made_with", "digest", "source", "note", "created_at", "created_by"))
    sizes = dict.fromkeys(("signatures", "demonstrations", "gradients"), 0)
    return {"object": "learned_version", "agent": agent.name, "version": NONE, **nothing, **sizes}


def _pointer(place: Place) -> str:
    return "".join(f"/{pointer_step(part)}" for part in ("content", *place))
