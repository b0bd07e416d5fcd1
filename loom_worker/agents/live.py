"""Agents that follow their files, so that every process of Loom comes to have the same ones."""

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Set
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from loom_worker.agents.load import DEFAULT, Agents, files_of, load
from loom_worker.core.values.agents import Agent, Alone, Content
from loom_worker.core.values.problems import Problem

LOOK_S = 1.0
"""Between two checks of the files."""
SETTLE_S = 1.0
"""A file that was written less than this ago may be incomplete: half of it can be an agent that needs no approvals."""

PART = "agents"
"""Their name among the content that all processes must have alike."""
STEP_S = 0.05
"""Between two checks of a file that is waited for."""
_PLACES = frozenset({"source", "lines"})
"""The fields of an agent that say where its file lies on this machine, and where things stand in it."""

log = logging.getLogger(__name__)

Stamp = tuple[tuple[str, int, int, int], ...]
"""Of each file: path, inode, size in bytes, time of its last change in ns."""


class LiveAgents:
    """Agents as their files are; an error in a file leaves its agents as they last were."""

    def __init__(
        self,
        folder: Path | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        """Read them; an error in a file is logged, not raised."""
        self._folder = folder
        self._clock, self._wall_clock, self._pause = clock, wall_clock, pause
        self._content: Content = Alone()
        self._looking = threading.Lock()
        self._looked_s = clock()
        self._stamp: Stamp | None = _stamp(folder)
        self._agents = load(folder)
        self._digest = digest(self._agents.agents)
        _log(self._agents.problems)

    def share(self, content: Content) -> None:
        """Compare these agents with those of other processes from now on."""
        self._content = content
        content.follow(PART, self)

    def digest(self) -> str:
        """SHA-256 of all that the agents in use say, the same in every process and on every machine."""
        return self._digest

    def current(self, wanted: str = DEFAULT) -> Agents:
        """The agents as of a moment ago; as of now if ``wanted`` was not among them: another process may know it."""
        before = self._digest
        if wanted not in self._agents.agents:
            with self._looking:
                self._look()
        elif self._clock() - self._looked_s >= LOOK_S and self._looking.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._looking.release()
        if self._digest != before:
            self._content.accepted(PART)
        return self._agents

    def renew(self) -> None:
        """Read the files now, after a wait of at most twice SETTLE_S for one that was written a moment ago."""
        end_s = self._clock() + 2 * SETTLE_S
        with self._looking:
            while self._is_fresh(_stamp(self._folder)) and self._clock() < end_s:
                self._pause(STEP_S)
            self._stamp = None  # whatever the times of the files say: those of a share may lag behind
            self._look()

    def _look(self) -> None:
        self._looked_s = self._clock()
        stamp = _stamp(self._folder)
        if stamp == self._stamp or self._is_fresh(stamp):
            return
        before = self._agents
        self._agents, self._stamp = following(load(self._folder), before), stamp
        self._digest = digest(self._agents.agents)
        log.info("agents read anew: %s", ", ".join(sorted(self._agents.agents)))
        _log(tuple(problem for problem in self._agents.problems if problem not in before.problems))

    def _is_fresh(self, stamp: Stamp) -> bool:
        now_s = self._wall_clock()
        return any(0 <= now_s - changed_ns / 1e9 < SETTLE_S for *_, changed_ns in stamp)


def following(found: Agents, before: Agents) -> Agents:
    """The new agents, with the former ones in place of those that are refused now. Pure.

    Agents that did not change are the same objects as before.
    """
    same = {name: before.agents[name] for name, agent in found.agents.items() if before.agents.get(name) == agent}
    kept = {
        name: agent
        for name, agent in before.agents.items()
        if name in found.refused or Path(agent.file) in found.unread
    }
    refused = {name: problem for name, problem in found.refused.items() if name not in kept}
    return replace(found, agents=MappingProxyType({**found.agents, **same, **kept}), refused=MappingProxyType(refused))


def digest(agents: Mapping[str, Agent]) -> str:
    """SHA-256 of all that agents say, in hexadecimal; where their files lie makes no difference."""
    text = json.dumps(_plain(agents), sort_keys=True, default=repr)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _plain(value: Any) -> Any:
    """As JSON takes it; sets in order, for theirs differs from process to process."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value) if each.name not in _PLACES}
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, Set):
        return sorted(json.dumps(_plain(each), sort_keys=True, default=repr) for each in value)
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def _stamp(folder: Path | None) -> Stamp:
    stamps = []
    try:
        for path in files_of(folder):
            facts = path.stat()
            stamps.append((str(path), facts.st_ino, facts.st_size, facts.st_mtime_ns))
    except OSError:  # deleted meanwhile
        return ()
    return tuple(stamps)


def _log(problems: tuple[Problem, ...]) -> None:
    for problem in problems:
        log.warning("agent file: %s", problem)
