"""Measure the judge `grounded`: `python -m bench.grounding [--held-out] [--why TEXT]`.

How many true answers it rejects, how many false ones it accepts, on how many it cannot tell, and how long it takes
with 200 kB of results. Answers of the development part that it gets wrong are printed. `--why` prints what was found
for each number of the answers with a text.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import yaml

from loom_worker.judge.grounded import PARTS, findings, grounded

QUESTIONS = Path(__file__).parent / "questions"
BIG_BYTES, ROUNDS = 200_000, 5
SETS = ("development", "held_out", "fresh")
VERDICTS = ("accepted", "cannot tell", "rejected")


def verdicts(part: str) -> Iterator[tuple[bool, str, str, str]]:
    """Whether each answer of a part is true, what the judge says of it, the answer, and the judge's critique."""
    for case in yaml.safe_load((QUESTIONS / f"grounded_{part}.yaml").read_text(encoding="utf-8")):
        for is_true in (True, False):
            for answer in case.get(str(is_true).lower(), ()):
                found = grounded(answer, case["results"], question=case["question"])
                said = VERDICTS[1] if found.score is None else VERDICTS[0 if found.score >= 1 else 2]
                yield is_true, said, answer, found.critique


def _whys(text: str) -> Iterator[str]:
    for part in SETS:
        for case in yaml.safe_load((QUESTIONS / f"grounded_{part}.yaml").read_text(encoding="utf-8")):
            for answer in (each for key in ("true", "false") for each in case.get(key, ()) if text in each):
                yield answer
                yield from (f"  {found}" for found in findings(answer, case["results"], PARTS, case["question"]))


def big_ms() -> float:
    """Milliseconds for an answer of ten numbers about 200 kB of rows."""
    rows = [{"city": f"City {n}", "orders": n * 7 % 991, "revenue": round(n * 12.34, 2)} for n in range(4_000)]
    result = json.dumps(rows)[:BIG_BYTES].rpartition(",")[0] + "]"
    answer = " ".join(f"City {n} had {n * 7 % 991} orders, {n} more than City {n + 1}." for n in range(5))
    began_s = time.perf_counter()
    for _ in range(ROUNDS):
        grounded(answer, [result], question="Which cities had more than 500 orders?")
    return (time.perf_counter() - began_s) * 1000 / ROUNDS


def main() -> None:
    """Print the table of all parts, or of the part to build by with what is wrong there."""
    options = argparse.ArgumentParser(prog="python -m bench.grounding", description=__doc__)
    options.add_argument("--held-out", action="store_true", help="the parts that were set aside, too")
    options.add_argument("--why", metavar="TEXT", help="what was found for the numbers of the answers with this text")
    chosen = options.parse_args()
    if chosen.why:
        print(*_whys(chosen.why), sep="\n")
        return
    for part in SETS if chosen.held_out else SETS[:1]:
        said = list(verdicts(part))
        for is_true in (True, False):
            counts = Counter(verdict for truth, verdict, *_ in said if truth is is_true)
            print(part, "true" if is_true else "false", ", ".join(f"{name} {counts[name]}" for name in VERDICTS))
        if part == "development":
            wrong = [each for each in said if each[1] != VERDICTS[0 if each[0] else 2]]
            print(
                *(f"  {truth} {verdict}: {answer} [{critique}]" for truth, verdict, answer, critique in wrong), sep="\n"
            )
    print(f"200 kB of results: {big_ms():.0f} ms")


if __name__ == "__main__":
    main()
