"""A monitor that writes down what it is told."""

from dataclasses import dataclass, field

from loom_worker.core.monitor import Work


@dataclass(frozen=True)
class Note:
    """One report."""

    how: str
    work: Work
    words: str = ""
    run_ms: int = 0


@dataclass
class Notes:
    """All reports, in order."""

    all: list[Note] = field(default_factory=list)

    def started(self, work: Work) -> None:
        self.all.append(Note("started", work))

    def waits(self, work: Work, what_for: str, *, run_ms: int) -> None:
        self.all.append(Note("waits", work, what_for, run_ms))

    def succeeded(self, work: Work, what: str, *, run_ms: int) -> None:
        self.all.append(Note("succeeded", work, what, run_ms))

    def failed(self, work: Work, why: str, *, run_ms: int) -> None:
        self.all.append(Note("failed", work, why, run_ms))

    def cancelled(self, work: Work, why: str, *, run_ms: int) -> None:
        self.all.append(Note("cancelled", work, why, run_ms))

    def of(self, kind: str) -> list[tuple[str, int, str]]:
        """How, entry and words of all reports on this kind of work."""
        return [(note.how, note.work.entry, note.words) for note in self.all if note.work.kind == kind]
