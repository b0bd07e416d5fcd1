"""Agents whose every version is stored, so that sessions can keep the one with which they began."""

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from loom_worker.agents import load
from loom_worker.agents.load import DEFAULT, Agents, LiveAgents
from loom_worker.core import metrics
from loom_worker.core.errors import BadFile, Unavailable
from loom_worker.core.fields import InvalidField
from loom_worker.core.values.agent_versions import AgentVersion, Seen, seen
from loom_worker.core.values.agents import Agent, Content
from loom_worker.core.values.ids import now_ms as moment_ms
from loom_worker.store.agent_versions import AgentVersions

log = logging.getLogger(__name__)

MOST_KEPT = 256
"""Agents of stored versions that a process keeps built."""
MOST_TRIES = 3
"""At storing what a process reads while others store what they read; the next look tries again."""


@dataclass(frozen=True, slots=True)
class _Recorded:
    """The agents of the files, and the same with the names of their stored versions."""

    found: Agents | None
    """None: not all of them are stored, so the next look tries again."""
    named: Agents


class RecordedAgents:
    """Agents as their files are, and as they were. Any thread may use it.

    What a process reads it stores, unless it is stored already. A process that would store something else than the
    newest version reads the files once more after it knows that version: so what is stored last was read last,
    whichever process was slower.
    """

    def __init__(
        self,
        live: LiveAgents,
        versions: AgentVersions,
        *,
        pins: bool = True,
        now_ms: Callable[[], int] = moment_ms,
    ) -> None:
        """Args: pins: False: sessions keep no version, and follow the files."""
        self._live = live
        self._versions = versions
        self._pins = pins
        self._now_ms = now_ms
        self._recording = threading.Lock()
        self._recorded: _Recorded | None = None
        self._is_deaf = False
        self._building = threading.Lock()
        self._built: OrderedDict[tuple[str, str, str], Agent] = OrderedDict()

    def share(self, content: Content) -> None:
        self._live.share(content)

    def current(self, wanted: str = DEFAULT) -> Agents:
        """Each agent has the version as which it is stored."""
        found, recorded = self._live.current(wanted), self._recorded
        if recorded is not None and recorded.found is found:
            return recorded.named
        with self._recording:
            if self._recorded is not None and self._recorded.found is found:
                return self._recorded.named
            try:
                self._recorded = self._record(wanted)
                self._is_deaf = False
                return self._recorded.named
            except Unavailable as error:  # what is asked next needs the database, too, or goes on without
                if not self._is_deaf:
                    log.warning("the versions of agents cannot be stored: %s", error)
                self._is_deaf = True
                return found

    def kept(self, name: str, version: str | None) -> Agent | None:
        """The database is read once for each version.

        Raises:
            BadFile: this Loom refuses the version, or there is none of that name.
            Unavailable: the database did not answer.
        """
        agent = self.current(name).agents.get(name)
        if agent is None or version is None or version == agent.version or not self._pins:
            return agent
        key = (name, version, agent.source)
        with self._building:
            if key in self._built:
                self._built.move_to_end(key)
                return self._built[key]
        built = self._stored(agent, version)
        with self._building:
            # Of two threads that built it the first counts: a runtime is kept as long as its agent is the same.
            built = self._built.setdefault(key, built)
            if len(self._built) > MOST_KEPT:
                self._built.popitem(last=False)
        return built

    def _stored(self, agent: Agent, version: str) -> Agent:
        document = self._versions.document(agent.name, version)
        advice = (
            f"move the session to another one (PATCH with {agent.name}@latest), or all sessions of the agent (loom "
            f"agents activate {agent.name} VERSION --all-sessions)"
        )
        if document is None:
            raise BadFile(f"there is no version {version!r} of it; {advice}")
        try:
            return load.stored(json.loads(document), version=version, source=agent.source)
        except InvalidField as error:
            raise BadFile(f"this Loom refuses its version {version!r}: {error}; {advice}") from error

    def _record(self, wanted: str) -> _Recorded:
        is_stored = False
        for _ in range(MOST_TRIES):
            known = self._versions.newest()
            found = self._live.current(wanted)
            changed = _changed(found, known)
            if any(each.agent in known for each in changed):
                self._live.renew()
                found = self._live.current(wanted)
                changed = _changed(found, known)
            stored = self._versions.record(changed, known, now_ms=self._now_ms()) if changed else ()
            for new in stored:
                _tell(known.get(new.agent), new)
                known[new.agent] = new
            is_stored = len(stored) == len(changed)
            if is_stored:
                break
        return _Recorded(found if is_stored else None, self._named(found, known))

    def _named(self, found: Agents, known: Mapping[str, AgentVersion]) -> Agents:
        """With the names of their stored versions; an agent that did not change is the same object as before."""
        before = {} if self._recorded is None else self._recorded.named.agents
        named = dict(found.agents)
        for name, agent in found.agents.items():
            if name in known:
                named[name] = replace(agent, version=known[name].version)
                if before.get(name) == named[name]:
                    named[name] = before[name]
        return replace(found, agents=MappingProxyType(named))


def _changed(found: Agents, known: Mapping[str, AgentVersion]) -> Sequence[Seen]:
    all_seen = (seen(agent.name, agent.version, agent.raw) for agent in found.agents.values())
    return [each for each in all_seen if each.agent not in known or known[each.agent].digest != each.digest]


def _tell(former: AgentVersion | None, new: AgentVersion) -> None:
    if former is None:
        log.info("agent.added", extra={"agent": new.agent, "version": new.version})
        return
    log.info("agent.updated", extra={"agent": new.agent, "version": new.version, "former": former.version})
    metrics.CONTENT_CHANGES.count("agent", "updated")
