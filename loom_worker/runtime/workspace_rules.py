"""What workspaces allow, as this process knows it: read from the database at most once a second."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from loom_worker.core.values.skills import SkillSet
from loom_worker.core.values.workspaces import NO_RULES, Rules
from loom_worker.skills.index import Skills
from loom_worker.store.database import Database
from loom_worker.store.workspaces import Workspaces

KNOWN_S = 1.0
"""A change by an administrator takes effect after this long."""
_MOST_KEPT = 10_000


class RulesCache:
    """The rules of workspaces. Safe to be used by many threads."""

    def __init__(self, database: Database, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._workspaces = Workspaces(database)
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._known: dict[str, tuple[Rules, float]] = {}

    def of(self, workspace: str | None) -> Rules:
        """The rules of a workspace; None: of none.

        Raises:
            Unavailable: the database did not answer; what may be used is not guessed.
        """
        if workspace is None:
            return NO_RULES
        moment_s = self._clock_s()
        with self._lock:
            rules, until_s = self._known.get(workspace, (NO_RULES, 0.0))
        if moment_s < until_s:
            return rules
        rules = self._workspaces.get(workspace).rules
        with self._lock:
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            self._known[workspace] = (rules, moment_s + KNOWN_S)
        return rules


class RuledSkills(Skills):
    """The skills that workspaces have and may use."""

    def __init__(self, root: Path, rules: RulesCache) -> None:
        super().__init__(root)
        self._rules = rules

    def of(self, workspace: str) -> SkillSet:
        """The skills of a workspace, without those that its administrator has ruled out."""
        skill_set, names = super().of(workspace), self._rules.of(workspace).skills
        return replace(skill_set, skills=tuple(skill for skill in skill_set.skills if names.permit(skill.name)))
