"""The pattern library in memory, and what came of it: a catalog of patterns as tests put them there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loom_worker.core.errors import LoomError, Unavailable
from loom_worker.core.values.json import Json
from loom_worker.core.values.patterns import Effect, Pattern, PatternMatch, Template
from loom_worker.patterns.live import LibraryState
from loom_worker.patterns.match import Matcher
from loom_worker.service.pattern_catalog import PatternCatalog

SUMMED = ("uses", "succeeded", "failed", "cost_usd", "tokens")
LOADED_MS = 1_795_253_400_000
TOP = Pattern(
    id="sql/top_n",
    name="top_n",
    title="Best of each kind",
    description="Ranks things and keeps the first few.",
    category="ranking",
    backend_type="sql",
    intents=("which products sold best", "top ten customers"),
    templates={"plain": Template("SELECT {{x}} FROM t", required_parameters=("x",))},
    extra={"library": {"name": "shop"}, "since": None},
    source="sql/ranking.yaml",
    line=7,
    digest="00c0ffee00c0ffee",
)
NOTES = Pattern(
    id="writing/en/notes",
    name="notes",
    title="Release notes",
    category="Writing",
    intents=("write release notes", "was hat sich geändert", "変更点をまとめて"),
    source="writing/en/notes.yaml",
    digest="0123456789abcdef",
)


@dataclass
class MemoryPatterns:
    """Library, table of uses and workers in one; the catalog over them is the real one."""

    kept: tuple[Pattern, ...] = (TOP, NOTES)
    problems: tuple[str, ...] = ()
    root: Path = Path("/srv/patterns")
    came_of: dict[tuple[str, str, str], Effect] = field(default_factory=dict)
    """Workspace, pattern id and digest to what came of it."""
    told: list[Json] = field(default_factory=list)
    """By the workers."""
    outage: LoomError | None = None
    """Of Redis."""
    loss: LoomError | None = None
    """Of the database."""
    asked: list[tuple[str, str, int, str | None]] = field(default_factory=list)
    """Workspace, question, most candidates, agent."""
    learns: bool = True

    def catalog(self) -> PatternCatalog:
        here: Any = self
        return MemoryCatalog(
            library=here, uses=here, matcher=here, agents=here, library_events=here, workers=here, learns=self.learns
        )

    def alive(self) -> frozenset[str]:
        return frozenset()

    def state(self) -> LibraryState:
        return LibraryState(Matcher(self.kept), self.problems, LOADED_MS, len(self.kept))

    def patterns(self) -> tuple[Pattern, ...]:
        return self.kept

    def by_id(self, pattern_id: str) -> Pattern | None:
        return next((each for each in self.kept if each.id == pattern_id), None)

    def effects(self, workspace: str) -> Mapping[tuple[str, str], Effect]:
        if self.loss is not None:
            raise self.loss
        return {(name, digest): each for (of, name, digest), each in self.came_of.items() if of == workspace}

    def effect(self, workspace: str, pattern_id: str, digest: str) -> tuple[Effect, Effect]:
        texts = {version: each for (name, version), each in self.effects(workspace).items() if name == pattern_id}
        sums = [sum(getattr(each, name) for each in texts.values()) for name in SUMMED]
        latest_ms = max((each.last_ms or 0 for each in texts.values()), default=None)
        return texts.get(digest, Effect()), Effect(*sums, last_ms=latest_ms)

    def match(self, workspace: str, question: str, k: int, agent: str | None) -> tuple[PatternMatch, ...]:
        self.asked.append((workspace, question, k, agent))
        return Matcher(self.kept).match(question, k)

    def processes(self, _alive: frozenset[str]) -> list[Json]:
        if self.outage is not None:
            raise self.outage
        return self.told


class MemoryCatalog(PatternCatalog):
    """The real catalog, but for the agent: what it works on is not looked up."""

    def match(self, workspace: str, question: str, k: int, agent: str | None) -> Sequence[PatternMatch]:
        here: Any = self.library
        return here.match(workspace, question, k, agent)  # type: ignore[no-any-return]


AWAY = Unavailable("Redis did not answer: connection refused")
