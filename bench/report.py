"""What was measured: a JSON line at once, a table in the end."""

import json
import os
import platform

from bench.stats import percentile, short

HEAD = "| figure | value | to no-op Celery tasks | model | command |\n| --- | --- | --- | --- | --- |"


class Report:
    """Prints figures as they come, and all of them in the end."""

    def __init__(self, *, is_quick: bool) -> None:
        self._rows: list[tuple[str, ...]] = []
        self._options = " --quick" if is_quick else ""
        self._name = ""
        self._tables: list[str] = []
        self.exceeded: list[str] = []
        """A sentence for each count above its ceiling."""

    def begin(self, name: str) -> None:
        """What comes now is of this name of ``--only``."""
        self._name = name

    def machine(self) -> None:
        """Where this runs."""
        line = {"machine": platform.platform(), "cores": os.cpu_count(), "python": platform.python_version()}
        load = [round(load, 2) for load in os.getloadavg()]
        print(json.dumps({**line, "nice": os.nice(0), "load": load}), flush=True)

    def add(
        self, figure: str, value: float, unit: str, *, model: str = "", ratio: float | None = None, **more: object
    ) -> None:
        """Add one figure.

        Args:
            model: that answered; empty where none did.
            ratio: to the raw Celery tasks of the same run.
            more: for the JSON line alone.
        """
        own: dict[str, object] = {"model": model} if model else {}
        own |= {} if ratio is None else {"ratio_to_noop_celery": round(ratio, 2)}
        self.line(figure, value, unit, **own, **more)
        command = f"`python -m bench --only {self._name}{self._options}`"
        self._rows.append(
            (figure, f"{short(value)} {unit}", "" if ratio is None else f"{ratio:.2f}", model or "none", command)
        )

    def line(self, figure: str, value: float, unit: str, **more: object) -> None:
        """Print a figure as JSON, and leave it out of the table of all figures: it stands in one of its own."""
        line: dict[str, object] = {"figure": figure, "value": round(value, 3), "unit": unit, "only": self._name}
        print(json.dumps(line | more), flush=True)

    def count(self, figure: str, value: float, *, ceiling: float | None, **more: object) -> None:
        """A line for what a turn costs; remembers what is above its ceiling, if it has one."""
        self.line(figure, value, "", **({} if ceiling is None else {"ceiling": ceiling}), **more)
        if ceiling is not None and value > ceiling:
            self.exceeded.append(f"{figure}: {value:.2f}, and {ceiling:g} are allowed")

    def append_table(self, markdown: str) -> None:
        """One more table for the end."""
        self._tables.append(markdown)

    def shares(self, figure: str, values: list[float], unit: str, *, shares: tuple[int, ...], model: str = "") -> None:
        """Add percentiles of the same samples."""
        for share in shares:
            self.add(f"{figure}, p{share}", percentile(values, share), unit, model=model, samples=len(values))

    def table(self) -> None:
        """Print all figures as a Markdown table, and the tables that were appended."""
        rows = ["| " + " | ".join(row) + " |" for row in self._rows]
        own = ["\n".join((HEAD, *rows))] if rows else []
        for markdown in (*own, *self._tables):
            print("\n" + markdown)
