"""The judge ``grounded``: do the numbers, days and names of an answer follow from what its turn's tools returned? Pure.

A number follows if a result has it, in its unit and in a row that its sentence names, or if it is computed from few
such values: totals, means, counts, and pairs of one row or column. The more values might meet it by accident, the
less that proves: then the judge cannot tell. The user's words are a source of names, days, limits and periods alone.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, permutations
from typing import NamedTuple

from loom_worker.core.values.judges import CannotTell
from loom_worker.judge import evidence as read
from loom_worker.judge.checks import Opinion
from loom_worker.judge.evidence import Evidence, Value, parts_of_day, stem
from loom_worker.judge.figures import Day, Figure, dates, figures, rule, spelled, words

PARTS = ("numbers", "names")  # What can be looked for.
MOST_SHOWN = 10  # Of what is not grounded, in the critique.
MOST_SCORE = 0.5  # For an answer with anything that does not follow: one invented figure among ten makes it false.
FEW = 12  # Values of a column of which each may be compared with each.
LIKELY = 0.45  # Chance to be met by accident from which on a computed number proves nothing.


class Finding(NamedTuple):
    """A number, a day or a name of an answer, and whether it follows; None if that cannot be told."""

    written: str
    follows: bool | None
    how: str = ""


@dataclass
class Sentence:
    """A sentence of an answer without its days, and the rows that its words name, with their places.

    ``stated``: what the answer has said so far that follows from the results.
    """

    text: str
    evidence: Evidence
    question: str
    mentions: Sequence[tuple[int, frozenset[int]]]
    stated: list[Value]

    def finding(self, figure: Figure) -> Finding:
        """Whether a number follows from the results."""
        rows, values = self._rows(figure.start), self.evidence.in_unit(figure)
        direction, made = read.direction_of(self.text, figure), list[Value]()
        if (holds := self._limit(figure, rows, values)) is not None:
            return Finding(figure.written, holds, "a limit or period of the question")
        taken = {each.column for each in chain.from_iterable(self.evidence.columns.values()) if each.rows & rows}
        cells = [each for each in values if each.rows & rows or each.column not in taken]
        met = [each for each in cells if each.meets(figure, direction)][:FEW]
        counts = self.evidence.counts.union(len(named) for _, named in self.mentions)
        if not met and figure.unit in ("", "time") and figure.number in counts:
            return Finding(figure.written, True, "a count of rows")
        if not met:
            made = list(self._made(figure, rows, {each.column for each in values}))
            met = [each for each in made if each.meets(figure, direction)]
        is_sure = _is_telling(figure, made)
        self.stated += met[:1] if is_sure else []
        if met:
            return Finding(figure.written, is_sure or None, met[0].how)
        is_open = len(self.evidence.days) > FEW or (figure.unit == "time" and any(self.evidence.days))
        return Finding(figure.written, None if is_open else False)

    def _rows(self, place: int) -> frozenset[int]:
        """The rows that the clause at a place is about, or else the sentence; empty: any."""
        edges = [0, *(found.end() for found in rule("clause").finditer(self.text)), len(self.text) + 1]
        start, end = edges[bisect_right(edges, place) - 1], edges[bisect_right(edges, place)]
        here = [rows for at, rows in self.mentions if start <= at < end]
        common = frozenset.intersection(*here) if here else frozenset()
        return common or frozenset().union(*(here or [rows for _, rows in self.mentions]))

    def _limit(self, figure: Figure, rows: frozenset[int], values: Sequence[Value]) -> bool | None:
        """Whether a limit of the question, said again, holds; a period or what is denied does. None for others."""
        sign, limit = {"over": 1, "under": -1}.get(figure.bound or "", 0), figure.readings[0][0]
        is_asked = figure.number in [each.number for each in figures(spelled(self.question))]
        if not is_asked or not (sign or figure.unit == "time" or rule("denied").search(self.text, 0, figure.start)):
            return None
        meant = [each.as_in(figure) * sign > limit * sign for each in values if not rows or each.rows & rows]
        how_many = all if rule("all").search(self.text) else any
        return not (sign and meant) or bool(rule("negation").search(self.text)) or how_many(meant)

    def _made(self, figure: Figure, rows: frozenset[int], own: set[tuple[str, ...]]) -> Iterator[Value]:
        """Totals and means of the columns, and what pairs of their values give."""
        base, pool = rows or frozenset().union(*(each.rows for each in self.stated)), self.stated[-FEW:]
        for name, cells in self.evidence.columns.items():
            if "" not in name and set(name).intersection(words()["keys"]):
                continue
            some = [each for each in cells if each.rows & base][:FEW]
            pool = pool + (some if len(some) > 1 or len(cells) > FEW else cells)
            for group in (*(named for _, named in self.mentions), frozenset().union(*(each.rows for each in cells))):
                meant = [each for each in cells if each.rows & group]
                total = sum(each.number for each in meant)
                for how, number in (("total", total), ("mean", total / len(meant))) if len(meant) > 1 else ():
                    made = replace(meant[0], number=number, rows=group, how=f"{how} of {' '.join(name)}", trend=0)
                    pool = [*pool, *([made] if figure.unit == "share" and how == "total" else [])]
                    yield from [made] if name in own and figure.unit != "share" else []
        for first, second in permutations(pool[: 4 * FEW], 2):
            yield from self._pair(first, second, figure, own)

    def _pair(self, first: Value, second: Value, figure: Figure, own: set[tuple[str, ...]]) -> Iterator[Value]:
        """Growth or share, or difference, sum and quotient, of two values of a column or of a row."""
        a, b, early, late = first.number, second.number, self._order(first), self._order(second)
        is_alike = first.size == second.size and read.is_same_unit(first.unit or "money", second.unit or "money")
        is_column = first.column == second.column or (is_alike and "" in first.column and "" in second.column)
        if not (is_column or first.rows == second.rows) or (early and late and early > late):
            return
        made: dict[str, float] = {}
        if figure.unit == "share":
            if is_column and rule("trend").search(self.text):
                made["growth from {0} to {1}"] = 100 * (b - a) / abs(a) if a else 0
            elif (first.rows == second.rows and first.column != second.column) or len(first.rows) != len(second.rows):
                made["{0} of {1}"] = 100 * a / b if b else 0
        elif is_alike and first.column in own:
            made["{0} to {1}"] = abs(b - a)
            made["{0} and {1}"] = a + b if rule("sum").search(self.text) else 0
        if figure.unit != "share" and read.is_same_unit(first.unit or figure.unit, figure.unit or first.unit):
            made["{0} for each of {1}"] = a / b if b not in (0, 1) else 0
        for how, number in made.items():
            size, rows = 1 if figure.unit == "share" else first.size, first.rows | second.rows
            trend = (b > a) - (b < a) if early and late and early != late else 0
            yield Value(number, size, figure.unit, rows, (), how.format(first.how, second.how), trend)

    def _order(self, value: Value) -> Day | None:
        """Which comes first: the earlier, or what another is compared with."""
        if rule("than").search(self.text):
            return next(((-at, 0, 0) for at, rows in self.mentions if value.rows & rows), None)
        days = [day for row in value.rows for day in self.evidence.days[row]] if len(value.rows) == 1 else ()
        return min((day for day in days if day[0] >= 0), default=None)

    def contradictions(self) -> Iterator[Finding]:
        """Words for a movement or for an extreme that the numbers contradict."""
        found = [each for each in figures(self.text) if not each.bound]
        for move in rule("move").finditer(self.text):
            before = [each for each in found if each.end <= move.start()][-1:]
            start = [each for each in found if self.text[: each.start].endswith("from ")] or before
            end = [each for each in found if self.text[move.end() : each.start].endswith("to ")]
            if start and end and (end[0].readings[0] < start[0].readings[0]) == bool(move["up"]):
                yield Finding(f"{move[0]} to {end[0].written}", False)
        extremes = list(rule("extreme").finditer(self.text))
        cells = [each for each in self.stated if each.column]
        numbers = [each.number for each in self.evidence.columns[cells[-1].column]] if cells else []
        if numbers and len(extremes) == 1:
            best = (max if extremes[0]["most"] else min)(numbers)
            yield Finding(extremes[0][0], best in [each.number for each in self.stated])


def _is_telling(figure: Figure, made: Sequence[Value]) -> bool:
    """Whether so few numbers were computed that one of them is hardly this one by accident."""
    value, low, high = figure.readings[0]
    near = {round(size, 6) for each in made if value / 2 <= (size := abs(each.as_in(figure))) <= 2 * value}
    return len(near) * (high - low) <= LIKELY * value * (2 if any(abs(size - value) < 1e-6 for size in near) else 1)


def findings(answer: str, results: Sequence[str], parts: Sequence[str], question: str) -> Iterator[Finding]:
    """All that is looked for in an answer, and what was found for it."""
    evidence, stated, text = Evidence(), list[Value](), spelled(read.plain(answer))
    for result in results:
        evidence.read(result)
    days = {part for day in read.without_dates(question)[1] for part in parts_of_day(day)}
    days |= {key for key in evidence.rows_of if isinstance(key, tuple)}
    unknown = False if any(month for _, month, _ in days) else None
    for line in rule("between").split(text) if "numbers" in parts else ():
        bare = read.without_dates(line)[0]
        mentions = [(each.start(), evidence.named(stem(each[0]))) for each in rule("word").finditer(bare)]
        at = frozenset().union(*(rows for _, rows in mentions if all(len(evidence.days[row]) == 1 for row in rows)))
        said = {found[0].rstrip("."): list(map(parts_of_day, each)) for found, each in dates(line)}
        said = {day: [each for each in said[day] if not at or at & (evidence.named(*each) or at)] for day in said}
        mentions += [(line.index(day), evidence.named(*each)) for day in said for each in said[day]]
        known = {day: any(map(days.issuperset, each)) or unknown for day, each in said.items()}
        yield from (Finding(day, follows, "a day") for day, follows in known.items() if not day.isdigit())
        sentence = Sentence(bare, evidence, question, [each for each in mentions if each[1]], stated)
        for figure in figures(bare):
            yield Finding(figure.written, True, "a year") if known.get(figure.written) else sentence.finding(figure)
        yield from sentence.contradictions()
    if "names" in parts and len(rule("german").findall(text)) < 2:
        seen = read.known_words(" ".join((*results, question, *words()["months"], *words()["weekdays"], "am pm")))
        for name in rule("name").findall(text):
            yield Finding(name, all(stem(part) in seen for part in name.split("-")), "a word")


def grounded(
    answer: str,
    results: Sequence[str],
    parts: Sequence[str] = PARTS,
    *,
    question: str = "",
    cannot_tell: CannotTell = "skip",
) -> Opinion:
    """Compare an answer with the results of its turn's tools.

    Args:
        cannot_tell: whether what cannot be told counts as found (``pass``), as not found (``fail``) or not at all.

    Returns:
        1 if all is found, else the share that is, at most MOST_SCORE; no score if nothing is wrong, but not all told.
    """
    said: dict[str, bool | None] = {}
    for each in findings(answer, results, parts, question):
        said[each.written] = each.follows if said.get(each.written, True) else said[each.written]
    missing = [each for each, follows in said.items() if follows is False]
    open_ = [each for each, follows in said.items() if follows is None]
    lacks = missing + (open_ if cannot_tell == "fail" else [])
    score = min(MOST_SCORE, (len(said) - len(lacks)) / len(said)) if lacks else 1.0
    is_open = bool(open_) and not missing
    why, shown = ("cannot be told from", open_) if is_open else ("not in", missing)
    more = f" and {len(shown) - MOST_SHOWN} more" if len(shown) > MOST_SHOWN else ""
    critique = f"{why} the results of this turn's tools: {', '.join(shown[:MOST_SHOWN])}{more}" if shown else ""
    return Opinion(None if is_open and cannot_tell == "skip" else score, critique, is_undecided=is_open)
