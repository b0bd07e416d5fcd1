"""How long matching a question and building the index take, in libraries of several sizes."""

import random
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from bench.stats import percentile
from loom_worker.core.values.patterns import Pattern
from loom_worker.patterns.index_store import IndexStore
from loom_worker.patterns.match import Matcher

SIZES = (20, 100, 1000, 5000)
QUICK_SIZES = (20, 100, 1000)
ASKED = 2000
THREADS = 4


def many(library: Sequence[Pattern], count: int) -> list[Pattern]:
    """As many patterns as asked for: the shipped ones, then new ones whose texts are halves of two shipped ones'."""
    drawn = random.Random(7)
    made = [_mixed(drawn.sample(list(library), 2), number) for number in range(max(0, count - len(library)))]
    return [*library[:count], *made]


def speeds(library: Sequence[Pattern], *, is_quick: bool) -> None:
    """Print a table."""
    questions = [intent for pattern in library for intent in (*pattern.intents, *pattern.use_cases)]
    print(
        "\n| patterns | build ms | after one change ms | question p50 ms | p99 ms | questions/s | in 4 threads |\n"
        + "| --- " * 7
        + "|"
    )
    for size in QUICK_SIZES if is_quick else SIZES:
        some = many(library, size)
        with tempfile.TemporaryDirectory() as place:
            index = IndexStore(Path(place))
            build_ms, matcher = _built(some, None, index)
            again_ms, _ = _built([replace(some[0], title="Something else"), *some[1:]], matcher, index)
            fitted_behind()
        drawn = random.Random(11).choices(questions, k=ASKED)
        taken_ms = _asked(matcher, drawn)
        rate = 1000 * len(drawn) / sum(taken_ms)
        cells = (build_ms, again_ms, percentile(taken_ms, 50), percentile(taken_ms, 99))
        print(
            f"| {size:,} | {' | '.join(f'{ms:.2f}' for ms in cells)} | {rate:,.0f} | {_at_once(matcher, drawn):,.0f} |"
        )


def fitted_behind() -> None:
    """Wait until the patterns that changed are fitted, which goes on while the library serves."""
    for thread in threading.enumerate():
        if thread.name == "loom-patterns-fit":
            thread.join()


def _mixed(two: Sequence[Pattern], number: int) -> Pattern:
    one, other = two
    return Pattern(
        f"made/{one.name}_{number}",
        f"{one.name}_{number}",
        _half(one.title, other.title),
        _half(one.description, other.description),
        use_cases=tuple(map(_half, one.use_cases, other.use_cases)),
        intents=tuple(map(_half, one.intents, other.intents)),
    )


def _half(one: str, other: str) -> str:
    first, second = one.split(), other.split()
    return " ".join((*first[: len(first) // 2], *second[len(second) // 2 :]))


def _built(patterns: Sequence[Pattern], before: Matcher | None, index: IndexStore) -> tuple[float, Matcher]:
    began_s = time.perf_counter()
    matcher = Matcher(patterns, before, index=index)
    return (time.perf_counter() - began_s) * 1000, matcher


def _asked(matcher: Matcher, questions: Sequence[str]) -> list[float]:
    """Milliseconds of each."""
    taken_ms = []
    for question in questions:
        began_s = time.perf_counter()
        matcher.match(question)
        taken_ms.append((time.perf_counter() - began_s) * 1000)
    return taken_ms


def _at_once(matcher: Matcher, questions: Sequence[str]) -> float:
    """Questions a second when several threads ask."""
    began_s = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(matcher.match, questions):
            pass
    return len(questions) / (time.perf_counter() - began_s)
