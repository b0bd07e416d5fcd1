"""Kinds of text that a session with a database holds: out of this checkout, or made up with a fixed seed."""

import json
import random
from functools import lru_cache
from pathlib import Path

from loom_worker.llm.tokens import EXACT_BYTES

ROOT = Path(__file__).parents[1]


def texts() -> dict[str, str]:
    """Kind to a text of it."""
    rng = random.Random(1)
    rows = [{"order_id": rng.randrange(10**6), "total": round(rng.random() * 1000, 2)} for _ in range(300)]
    return {
        "English prose": _docs(),
        "Python": _files("loom_worker/turn/*.py"),
        "SQL": _files("loom_worker/store/migrations/versions/*.sql"),
        "YAML": _files("patterns/**/*.yaml")[:EXACT_BYTES],
        "JSON of rows": json.dumps(rows),
        "CSV of figures": "\n".join(",".join(f"{rng.random() * 10**n:.2f}" for n in range(1, 7)) for _ in range(300)),
        "Markdown table": "\n".join(f"| product {n:<20} | {n * 37:>10} | in stock |" for n in range(200)),
        "identifiers": "\n".join(f"{rng.getrandbits(128):032x}" for _ in range(300)),
    }


def prose(n: int, size: int) -> str:
    """The n-th piece of English prose, of so many characters before its white space was made even."""
    start = n * 997 % (len(_docs()) - size)
    return " ".join(_docs()[start : start + size].split())


@lru_cache(1)
def _docs() -> str:
    return _files("docs/*.md")


def _files(pattern: str) -> str:
    return "\n".join(file.read_text("utf-8") for file in sorted(ROOT.glob(pattern)))
