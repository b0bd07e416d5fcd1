"""Measure the matching of patterns: `python -m bench.matching`.

How often the right pattern comes first or among three, over labelled questions of which those in held_out.yaml were
never tuned on, beside plain TF-IDF; the same for a public set of intents where LOOM_TEST_DATA names it; what the
confidence is worth; how long fitting the index and a question take.
"""

import json
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.stats import percentile
from loom_worker.core.values.patterns import Pattern
from loom_worker.patterns.library import load, packaged_root
from loom_worker.patterns.match import Matcher

QUESTIONS = Path(__file__).parent / "questions"
SEEDS = (1, 2, 3, 4, 5)
EXAMPLES = (5, 20)
"""Of each intent, that a pattern is made of."""
Asked = tuple[str, frozenset[str]]
"""A question and the ids that are right; none where no pattern is."""
Ranker = Callable[[str], Sequence[str]]
"""The ids of the best three, best first."""


@dataclass(frozen=True)
class Answer:
    """What the matcher said of a question at first place."""

    confidence: float
    is_right: bool


def patterns() -> tuple[Pattern, ...]:
    """Those that ship with Loom."""
    return load(packaged_root()).patterns


def labelled(name: str, known: Iterable[str]) -> tuple[list[Asked], list[Asked]]:
    """Questions with a right answer among the known ids, and questions with none.

    Args:
        name: development or held_out.
    """
    read: dict[str, Any] = yaml.safe_load((QUESTIONS / f"{name}.yaml").read_text("utf-8"))
    ids = frozenset(known)
    asked = [(each["text"], frozenset(each["right"]) & ids) for each in read["questions"]]
    return [each for each in asked if each[1]], [(text, frozenset()) for text in read["none"]]


def ours(matcher: Matcher) -> Ranker:
    """Ask the matcher."""
    return lambda question: [match.pattern.id for match in matcher.match(question)]


def plain(all_patterns: Sequence[Pattern], text: Callable[[Pattern], str]) -> Ranker:
    """scikit-learn's TF-IDF and cosine as it comes, over one text of each pattern."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer: Any = TfidfVectorizer()
    rows = vectorizer.fit_transform([text(pattern) for pattern in all_patterns])

    def best(question: str) -> list[str]:
        scores = (rows @ vectorizer.transform([question]).T).toarray().ravel()
        order = sorted(range(len(all_patterns)), key=lambda n: -scores[n])
        return [all_patterns[n].id for n in order[:3] if scores[n] > 0]

    return best


def all_fields(pattern: Pattern) -> str:
    """What the five fields say."""
    naming = (pattern.name.replace("_", " "), pattern.title, pattern.description)
    return " ".join((*naming, *pattern.use_cases, *pattern.intents))


def hits(ranker: Ranker, questions: Sequence[Asked]) -> tuple[float, float]:
    """Shares (0-1) of questions whose right pattern comes first, and among the first three."""
    found = [(ranker(text), right) for text, right in questions]
    first = sum(bool(right.intersection(ids[:1])) for ids, right in found)
    return first / len(found), sum(bool(right.intersection(ids)) for ids, right in found) / len(found)


def answers(matcher: Matcher, questions: Iterable[Asked]) -> Iterator[Answer]:
    """The first candidate of each question; where there is none, that is said with confidence 0."""
    for text, right in questions:
        best = matcher.match(text, 1)
        yield Answer(best[0].confidence, best[0].pattern.id in right) if best else Answer(0.0, is_right=False)


def bins(given: Sequence[Answer], count: int = 10) -> list[list[Answer]]:
    """Answers by their confidence, in as many steps of equal width."""
    found: list[list[Answer]] = [[] for _ in range(count)]
    for answer in given:
        found[min(int(answer.confidence * count), count - 1)].append(answer)
    return found


def calibration_error(given: Sequence[Answer]) -> float:
    """Expected calibration error: how far confidence and share of right ones are apart, a bin with more counts more."""
    return sum(abs(sum(a.confidence - a.is_right for a in some)) for some in bins(given)) / len(given)


def precision(given: Sequence[Answer], least: float = 0.5) -> float:
    """Of answers of at least this confidence, the share (0-1) that is right; 1 where there is none."""
    sure = [answer.is_right for answer in given if answer.confidence >= least]
    return sum(sure) / len(sure) if sure else 1.0


def auroc(higher: Sequence[float], lower: Sequence[float]) -> float:
    """How often (0-1) one of the first is above one of the second; equal ones count half."""
    return sum((one > other) + (one == other) / 2 for one in higher for other in lower) / (len(higher) * len(lower))


def intents() -> dict[str, list[Asked]] | None:
    """The public set by its parts train, val, test and oos; None where LOOM_TEST_DATA is not set."""
    if not (data := os.environ.get("LOOM_TEST_DATA")):
        return None
    read = json.loads((Path(data) / "intents" / "intents20.json").read_text("utf-8"))
    return {part: [(text, frozenset({f"intents/{name}"})) for text, name in read[part]] for part in read}


def intent_patterns(train: Sequence[Asked], examples: int, seed: int | None) -> list[Pattern]:
    """Each intent as a pattern: of its first examples, or of some that are drawn."""
    by_id: dict[str, list[str]] = {}
    for text, right in train:
        by_id.setdefault(min(right), []).append(text)
    drawn = random.Random(seed)
    return [
        Pattern(
            pattern_id,
            pattern_id.partition("/")[2],
            "",
            intents=tuple(texts[:examples] if seed is None else drawn.sample(texts, examples)),
        )
        for pattern_id, texts in sorted(by_id.items())
    ]


def strangers(*, is_held: bool) -> tuple[list[Pattern], list[Asked]]:
    """Files with one description each, and every second question of theirs: to build by, or set aside."""
    read = yaml.safe_load((QUESTIONS / "strangers.yaml").read_text("utf-8"))
    asked = [(text, frozenset({f"strangers/{each['name']}"})) for each in read for text in each["asked"]]
    return [_named("strangers", each) for each in read], asked[is_held::2]


def support() -> tuple[list[Pattern], list[Asked], list[Asked]]:
    """A library about everyday questions, those it has a pattern for, and those it has none for."""
    read = yaml.safe_load((QUESTIONS / "support.yaml").read_text("utf-8"))
    asked = [(text, frozenset({f"support/{each['name']}"})) for each in read["patterns"] for text in each["asked"]]
    return [_named("support", each) for each in read["patterns"]], asked, [(text, frozenset()) for text in read["none"]]


def _named(folder: str, each: dict[str, Any]) -> Pattern:
    title = each["name"].replace("-", " ").replace("_", " ")
    intents = tuple(each.get("intents", ()))
    return Pattern(f"{folder}/{each['name']}", each["name"], title, each.get("description", ""), intents=intents)


def everyday_questions() -> list[Asked]:
    """Those set aside: the background that ships with Loom has none of them."""
    lines = (QUESTIONS / "everyday.txt").read_text("utf-8").splitlines()
    return [(line, frozenset()) for line in lines if line and not line.startswith("#")]


def main() -> None:
    """Print tables."""
    library = patterns()
    began_s = time.perf_counter()
    matcher = Matcher(library)
    print(f"{len(library)} patterns, ready after {time.perf_counter() - began_s:.1f} s")
    for name in ("development", "held_out"):
        _labelled(name, library, matcher)
    everyday = everyday_questions()
    print(f"\neveryday questions set aside, {len(everyday)}: {_sure(answers(matcher, everyday)):.1%} shown")
    for name, is_held in (("to build by", False), ("set aside", True)):
        described, asked = strangers(is_held=is_held)
        first, three = hits(ours(Matcher(described)), asked)
        print(f"strangers' files, {name}, {len(asked)}: {first:.1%} first, {three:.1%} among three")
    own, asked, none = support()
    matched = Matcher(own)
    right, strange = (_sure(answers(matched, some)) for some in (asked, none))
    print(f"support library: {right:.1%} shown, {strange:.1%} of those that have no pattern")
    if sets := intents():
        _intents(sets)


def _labelled(name: str, library: Sequence[Pattern], matcher: Matcher) -> None:
    questions, none = labelled(name, matcher.ids())
    print(f"\n{name}: {len(questions)} questions, {len(none)} that no pattern is right for")
    print("\n| | first | among three |\n| --- | --- | --- |")
    rankers = {
        "Loom": ours(matcher),
        "plain TF-IDF, descriptions": plain(library, lambda pattern: pattern.description),
        "plain TF-IDF, all five fields": plain(library, all_fields),
    }
    for ranker_name, ranker in rankers.items():
        first, three = hits(ranker, questions)
        print(f"| {ranker_name} | {first:.1%} | {three:.1%} |")
    asked, unknown = list(answers(matcher, questions)), list(answers(matcher, none))
    both = [*asked, *unknown]
    right = [answer for answer in asked if answer.is_right]
    print(f"\nExpected calibration error {calibration_error(both):.3f}; right at 0.5 or more: {precision(both):.1%};")
    print(f"at 0.5 or more: {_sure(right):.1%} of the right ones, {_sure(unknown):.1%} of those that have no pattern.")
    took_ms = []
    for text, _ in questions:
        began_s = time.perf_counter()
        matcher.match(text)
        took_ms.append((time.perf_counter() - began_s) * 1000)
    print(f"A question takes {percentile(took_ms, 50):.2f} ms (p50), {percentile(took_ms, 99):.2f} ms (p99).")


def _sure(given: Iterable[Answer]) -> float:
    found = [answer.confidence >= 0.5 for answer in given]
    return sum(found) / max(1, len(found))


def _intents(sets: dict[str, list[Asked]]) -> None:
    print("\n| examples of each intent | first | AUROC | at 0.5 or more | of no intent |\n" + "| --- " * 5 + "|")
    for examples in EXAMPLES:
        drawn = [Matcher(intent_patterns(sets["train"], examples, seed)) for seed in SEEDS]
        first = sum(hits(ours(matcher), sets["test"])[0] for matcher in drawn) / len(drawn)
        apart = sum(told_apart(matcher, sets) for matcher in drawn) / len(drawn)
        known, strange = (sum(_sure(answers(m, sets[part])) for m in drawn) / len(drawn) for part in ("test", "oos"))
        print(f"| {examples} | {first:.1%} | {apart:.3f} | {known:.1%} | {strange:.1%} |")


def told_apart(matcher: Matcher, sets: dict[str, list[Asked]]) -> float:
    """AUROC of the confidence: questions of the test part against those of no intent."""
    known, strange = ([a.confidence for a in answers(matcher, sets[part])] for part in ("test", "oos"))
    return auroc(known, strange)


if __name__ == "__main__":
    main()
