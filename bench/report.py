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

    def begin(self, name: str) -> None:
        """What comes now is of this name of ``--only``."""
        self._name = name

    def machine(self) -> None:
        """Where this runs."""
        line = {"machine": platform.platform(), "cores": os.cpu_count(), "python": platform.python_version()}
        print(json.dumps({**line, "load": [round(load, 2) for load in os.getloadavg()]}), flush=True)

    def add(
        self, figure: str, value: float, unit: str, *, model: str = "", ratio: float | None = None, **more: object
    ) -> None:
        """Add one figure.

        Args:
            model: that answered; empty where none did.
            ratio: to the raw Celery tasks of the same run.
            more: for the JSON line alone.
        """
        line: dict[str, object] = {"figure": figure, "value": round(value, 3), "unit": unit, "only": self._name}
        line |= {"model": model} if model else {}
        line |= {} if ratio is None else {"ratio_to_noop_celery": round(ratio, 2)}
        print(json.dumps(line | more), flush=True)
        command = f"`python -m bench --only {self._name}{self._options}`"
        self._rows.append(
            (figure, f"{short(value)} {unit}", "" if ratio is None else f"{ratio:.2f}", model or "none", command)
        )

    def shares(self, figure: str, values: list[float], unit: str, *, shares: tuple[int, ...], model: str = "") -> None:
        """Add percentiles of the same samples."""
        for share in shares:
            self.add(f"{figure}, p{share}", percentile(values, share), unit, model=model, samples=len(values))

    def table(self) -> None:
        """Print all figures as a Markdown table."""
        print("\n" + HEAD)
        for row in self._rows:
            print("| " + " | ".join(row) + " |")
