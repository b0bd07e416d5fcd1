"""Measure which facts are refused: `python -m bench.said`.

`bench/questions/said.yaml` has facts that a message states and facts that it does not, facts that name a credential and
others, and replies that are summaries and others. Each figure is the share that is taken; the set is in two halves, and
the code was built by the first one alone.
"""

from pathlib import Path
from typing import Any

import yaml

from loom_worker.memory.extract import names_credential, says

CASES = Path(__file__).with_name("questions") / "said.yaml"


def main() -> None:
    """Print both halves, and which cases are wrong."""
    for half in ("build", "aside"):
        found = wrong(half)
        print(
            f"| {half} | "
            + " | ".join(f"{kind} {len(each)} of {total}" for kind, (each, total) in found.items())
            + " |"
        )
        print("\n".join(f"  {kind}: {case}" for kind, (each, _) in found.items() for case in each))


def wrong(half: str) -> dict[str, tuple[list[str], int]]:
    """By kind the cases that are taken for the other kind, and how many there are."""
    cases: dict[str, list[str]] = yaml.safe_load(CASES.read_text(encoding="utf-8"))[half]
    return {kind: ([case for case in each if not _is_right(kind, case)], len(each)) for kind, each in cases.items()}


def _is_right(kind: str, case: Any) -> bool:
    first, relation, object_ = case.split(" | ")
    if kind in ("said", "unsaid"):
        return says(first, relation, object_) is (kind == "said")
    return names_credential(first, relation, object_) is (kind == "kept_out")


if __name__ == "__main__":
    main()
