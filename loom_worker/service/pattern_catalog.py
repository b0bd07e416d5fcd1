"""What clients may know of the pattern library: what is in it, what fits a question, what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from loom_worker.core.errors import NotFound
from loom_worker.core.text import one_line
from loom_worker.core.values.json import Json
from loom_worker.core.values.patterns import Effect, Pattern, PatternMatch
from loom_worker.lanes.lease_renewer import LiveWorkers
from loom_worker.patterns.events import LibraryEvents
from loom_worker.patterns.live import LibraryState, LiveLibrary
from loom_worker.store.patterns import PatternUses
from loom_worker.turn.agent_runtime import AgentRuntimes


@dataclass(frozen=True, slots=True)
class Account:
    """A pattern, and what came of it in one workspace."""

    pattern: Pattern
    effect: Effect
    """Effect of its text as it reads now."""
    all_time: Effect
    """Effect of all its texts together."""


@dataclass(frozen=True, slots=True)
class PatternCatalog:
    """Answers from this process' own library; ``loaded`` says what the workers have."""

    library: LiveLibrary
    uses: PatternUses
    agents: AgentRuntimes
    library_events: LibraryEvents
    workers: LiveWorkers

    def match(self, question: str, k: int, agent: str | None) -> Sequence[PatternMatch]:
        """The patterns that fit a question best, of those an agent can use; None: of any backend."""
        kinds = None if agent is None else self.agents.kinds(agent)
        return self.library.current().match(question, k, kinds=kinds)

    def state(self) -> LibraryState:
        """The library as it is now; problems name files by their place in it, not by that on this machine."""
        state = self.library.state()
        return replace(state, problems=tuple(map(self._within, state.problems)))

    def loaded(self) -> list[Json]:
        """What each worker process that is alive has loaded, likewise."""
        return [
            {**each, "errors": [self._within(error) for error in each["errors"]]}
            for each in self.library_events.processes(self.workers.alive())
        ]

    def _within(self, problem: str) -> str:
        return problem.replace(f"{one_line(str(self.library.root), len(problem) + 1)}/", "")

    def patterns(self, category: str | None = None) -> tuple[Pattern, ...]:
        """All patterns, or those of a category, of a library, or of the libraries in a folder; case does not count."""
        wanted = (category or "").strip(" /").casefold()
        return tuple(each for each in self.library.patterns() if not wanted or _is_of(each, wanted))

    def account(self, workspace: str, pattern_id: str) -> Account:
        """A pattern with what came of it.

        Raises:
            NotFound: there is no such pattern.
            Unavailable: the database did not answer.
        """
        pattern = self.library.by_id(pattern_id)
        if pattern is None:
            raise NotFound("no such pattern")
        return Account(pattern, *self.uses.effect(workspace, pattern.id, pattern.digest))


def _is_of(pattern: Pattern, category: str) -> bool:
    return category == pattern.category.casefold() or pattern.id.casefold().startswith(f"{category}/")
