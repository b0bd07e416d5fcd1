"""The judge ``grounded``: do the numbers, days and names of an answer follow from what its turn's tools returned? Pure.

A number follows if a cell has it, with the same unit, in a row and a column that its sentence does not contradict, or
if it is computed from few of them: the rows that the sentence names, what the answer has stated, totals, means, counts.
The more values might meet it by accident, the less that proves: then the judge cannot tell. What the user said is a
source of names, days, limits and periods alone.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property, lru_cache
from itertools import chain, combinations, permutations, takewhile
from statistics import fmean, median

import regex

from loom_worker.core.values.judges import CannotTell
from loom_worker.core.words import STOP_WORDS
from loom_worker.judge.checks import Opinion
from loom_worker.judge.figures import (
    COMPUTES,
    EXTREME,
    MOVES,
    NEGATED,
    THAN,
    TREND,
    UNITS,
    Day,
    Figure,
    dates,
    days_in,
    figures,
    fractions,
    spelled,
    unit_of,
    words_of,
)
from loom_worker.tools.result_rows import content_of, parsed

PARTS = ("numbers", "names")
"""What can be looked for."""
MOST_SHOWN = 10
"""Of what is not grounded, in the critique."""
MOST_SCORE = 0.5
"""For an answer with anything that does not follow: one invented figure among ten makes it false."""
FEW = 12
"""Values of a column of which each may be compared with each."""
MOST_LABEL = 30
"""Characters of a name in a table: a number in it is none of the table's."""
MOST_VALUE = 1e30
"""Larger numbers are left out."""
LIKELY = 0.3
"""Chance to be met by accident from which on a computed number proves nothing."""
_LIST_MARK = regex.compile(r"(?m)^[ \t>]*+(?:\d{1,3}[.)]|[-*+\u2022])[ \t]++|^[ \t]*+#{1,6}[ \t]++")
_EMPHASIS = regex.compile(r"[*_`#|]++|<[^<>]{1,40}>")
_WORD = regex.compile(r"[\p{L}\p{N}](?:[\p{L}\p{N}\p{M}]|['\u2019&.-](?=[\p{L}\p{N}]))*+")
_SENTENCE_END = regex.compile(r"[.!?:;\n\"\u201c\u201d(\u2014\u2013]\s*+$")
_CALENDAR = frozenset(
    "january february march april may june july august september october november december monday tuesday wednesday "
    "thursday friday saturday sunday jan feb mar apr jun jul aug sep oct nov dec i pm am".split()
)
_GERMAN = regex.compile(r"(?i)\b(?:der|die|das|und|ist|sind|nicht|eine?|mit|seit|dem|den|um|auf|bei|von|im)\b")
_SENTENCE = regex.compile(r"(?<=\p{L}{2}[.!?]|[\d)%][.!?])(?<!Mio\.|Mrd\.)\s+(?=[\p{Lu}\d])|\n+")
_CLAUSE = regex.compile(
    r"[,;:(]\s|\b(?:and|but|while|whereas|against|than(?! [$€£]?\d)|versus|vs|compared|und|als|gegen)\b"
)
_AGAIN = regex.compile(r"\b(?:They|It|He|She|This|That)\b")
_ALL = regex.compile(r"(?i)\b(?:all|every|each|both|alle|beide)\b")
_DENIED = regex.compile(
    r"(?i)(?:\b(?:not|nicht|rather than|instead of|top|first|last|past|next|no\.|number|page)|#) ?[$€£]?$"
)
_MEAN = regex.compile(r"(?i)\b(?:average|mean|median|typical|per|each|schnitt|mittel)")
_MONEY = frozenset("revenue price cost sales amount fee salary turnover spend budget income profit umsatz".split())
_KEYS = frozenset("year id month week day date quarter no nr number".split())
_LETTERS = frozenset("c d f g h l m s t min ms".split())
_MULTIPLES = ("as", "more", "the", "higher", "larger", "bigger", "that", "what")
_SUM = regex.compile(r"(?i)\b(?:total|sum|together|combined|altogether|in all|insgesamt|plus|including|costs?|of)\b")
_REST = regex.compile(r"(?i)\b(?:others?|rest|remain\w*|left|free|without|besides|unused|übrig\w*)\b")
Signed = tuple[float, bool]
"""A computed value, and whether its sign says that something rose or fell."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A number of a result, or a total of a column."""

    value: float
    row: int
    column: tuple[str, ...]
    """The words of its name; in a text an empty one and the words beside the number."""
    unit: str
    trend: int = 0
    """1 or -1 if its text says that something rose or fell by it."""


@dataclass(slots=True)
class Evidence:
    """Results as rows of numbers, words and days."""

    columns: dict[tuple[str, ...], list[Cell]] = field(default_factory=lambda: defaultdict(list))
    rows_of: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """By word."""
    days: list[tuple[Day, ...]] = field(default_factory=list)
    """By row."""
    counts: set[float] = field(default_factory=set)

    def read(self, result: str) -> None:
        """Add a result."""
        records = list(_records(parsed(result, ""), ""))
        self.counts.add(len(records))
        for row, record in enumerate(records, len(self.days)):
            days: list[Day] = []
            unit = next((unit_of(str(value)) for name, value in record if name in ("unit", "currency")), "")
            has_money = bool(unit) and any(_column_unit(words_of(name)) == "money" for name, _ in record)
            for label, value in record:
                name = words_of(label)
                if isinstance(value, str):
                    days += self._read_text(value, row, name)
                elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MOST_VALUE:
                    own = _column_unit(name)
                    own = unit if unit and (own == "money" or not (own or has_money)) else own
                    self.columns[name].append(Cell(float(value), row, name, own))
                    days += [(int(value), 0, 0)] if "year" in name else []
                    if "id" in name:
                        self.rows_of[f"#{value}"].add(row)
            self.days.append(tuple(days))

    def _read_text(self, text: str, row: int, name: tuple[str, ...]) -> list[Day]:
        for word in known_words(text):
            self.rows_of[word].add(row)
        is_label = bool(name) and len(text) < MOST_LABEL and text[:1].isalpha()
        if is_label or not (name == () or any(map(str.isdigit, text))):
            return [day for *_, each in dates(text) for day in each] if is_label else []
        bare, found = _parted(spelled(_EMPHASIS.sub(" ", text)))
        self.counts |= {text.count(",") + 1.0} if not name else set()
        for figure in (*fractions(bare), *figures(bare)):
            behind = [each for each in figure.noun if each and each not in STOP_WORDS][:1]
            column = name or ("", *(behind or words_of(bare[max(0, figure.start - 30) : figure.start])[-1:]))
            trend = 0 if name else _direction(bare, figure)
            for value, *_ in figure.readings:
                signed = -value if figure.is_negative else value
                self.columns[column].append(Cell(signed, row, column, figure.unit or _column_unit(name), trend))
        return [day for _, _, _, each in found for day in each]

    def named(self, word: str) -> frozenset[int]:
        """The rows with a word, unless all have it."""
        forms = [f"#{word}"] if word[0].isdigit() else _forms(word)
        rows = next((self.rows_of[form] for form in forms if form in self.rows_of), set())
        is_name = len(rows) < len(self.days) and word.casefold() not in STOP_WORDS
        return frozenset(rows) if is_name else frozenset()

    def dated(self, days: Sequence[Day]) -> frozenset[int]:
        """The rows of a day, unless all are."""
        rows = frozenset(row for row, has in enumerate(self.days) if any(_is_same(a, b) for a in has for b in days))
        return rows if len(rows) < len(self.days) else frozenset()

    def fitting(self, figure: Figure) -> list[list[Cell]]:
        """The columns that a number may be of, in its unit: by that, or by the words behind it."""
        columns = list(self.columns.values())
        if not figure.unit or figure.unit == "x":
            behind = takewhile(lambda noun: noun not in STOP_WORDS, figure.noun)
            nouns = {form for noun in behind for form in _forms(noun)}
            return [
                cells for cells in columns if "" not in cells[0].column and nouns.intersection(cells[0].column)
            ] or columns
        family, size = UNITS[figure.unit]
        known = [cells for cells in columns if UNITS.get(cells[0].unit, (cells[0].unit,))[0] == family]
        is_known, is_money = bool(known), family == "money"
        bare = [cells for cells in columns if not cells[0].unit and (not known or (is_money and "" in cells[0].column))]
        if family == "share" and not known:
            bare += [_times(cells, 100) for cells in columns if not cells[0].unit and abs(cells[0].value) <= 1]
        if family in ("money", "temperature"):
            known = [cells for cells in known if UNITS.get(cells[0].unit, ("", 0))[1] in (0, size) or not size]
            return [*known, *bare] if known or len(bare) == len(columns) or not is_known else []
        return [*(_times(cells, UNITS[cells[0].unit][1] / size) for cells in known), *bare]


@dataclass
class Sentence:
    """A sentence of an answer without its days, and the rows that its words name."""

    text: str
    evidence: Evidence
    question: str
    mentions: Sequence[tuple[int, frozenset[int]]]
    stated: set[int]
    """The rows of what the whole answer has said so far."""
    here: set[int] = field(default_factory=set)
    shown: list[Cell] = field(default_factory=list)
    """Those of this sentence."""

    def verdict(self, figure: Figure) -> bool | None:
        """Whether a number follows from the results; None: that cannot be told."""
        rows, columns = self._rows(figure.start), self.evidence.fitting(figure)
        if self._is_restated(figure):
            return self._holds(figure, rows, columns)
        direction = _direction(self.text, figure)
        cells = [cell for cell in _same(figure, columns) if _has_trend(cell, figure, direction)]
        own = [each for each in self.evidence.columns.values() if cells and any(cell.row in rows for cell in each)]
        taken = {each[0].column for each in own}
        here = [cell for cell in cells if cell.row in rows or cell.column not in taken]
        self.here.update(cell.row for cell in here[:FEW])
        self.shown += here[:1]
        self.stated |= self.here
        if here or ((not figure.unit or days_in(figure.unit)) and figure.readings[0][0] in self.counts):
            return True
        scale = 100.0 if figure.unit == "%" else 0.0
        shown = permutations([replace(cell, column=("",)) for cell in self.shown[-FEW:]], 2)
        of_shown = {each for pair in shown for each in self._pair(*pair, scale, [("",)], rows)}
        if self._computed(figure, of_shown, direction):
            return True
        if figure.unit in ("%", "x"):
            rows = rows.union(*(each for _, each in self.mentions))
        verdict = self._computed(figure, set(self._candidates(figure, rows, columns)), direction)
        others = [each for each in self.evidence.columns.values() if not figure.unit and not each[0].unit]
        same = [cell for cell in _same(figure, others) if _has_trend(cell, figure, direction)]
        is_elsewhere = verdict is False and any(not rows or cell.row in rows for cell in same)
        if is_elsewhere or (verdict is False and not direction and COMPUTES.search(self.text) and self._may_be(figure)):
            return None
        return verdict

    def _may_be(self, figure: Figure) -> bool:
        """Whether two numbers of the results give this one, whatever they are about; not if those are many."""
        values = [cell.value for cells in self.evidence.columns.values() for cell in cells]
        values = values if len(values) <= 2 * FEW else []
        scale = 100 if figure.unit == "%" else 1
        made = [each for a, b in permutations(values, 2) for each in (a - b, a + b, a * b, scale * a / b if b else 0)]
        return any(low <= abs(each) <= high for each in made for _, low, high in figure.readings)

    def _rows(self, place: int) -> frozenset[int]:
        """The rows that the clause at a place is about, or else the sentence; empty: any."""
        start, end = self._edges(place)
        here = [rows for at, rows in self.mentions if start <= at < end]
        if not here and _AGAIN.search(self.text, start, end):
            return frozenset(self.stated)
        if not here and MOVES.search(self.text, start, end):
            return frozenset()
        common = frozenset.intersection(*here) if here else frozenset()
        return common or frozenset().union(*(here or [rows for _, rows in self.mentions]))

    def _edges(self, place: int) -> tuple[int, int]:
        edges = [0, *(found.end() for found in _CLAUSE.finditer(self.text)), len(self.text) + 1]
        n = bisect_right(edges, place)
        return edges[n - 1], edges[n]

    def _is_restated(self, figure: Figure) -> bool:
        """Whether a limit, a period or an identifier of the question is said again."""
        asked, before = spelled(self.question), self.text[: figure.start]
        same = [each for each in figures(asked) if each.readings[0][0] == figure.readings[0][0]]
        last = words_of(before)[-1:]
        return bool(same) and bool(
            figure.bound in ("over", "under")
            or days_in(figure.unit)
            or _DENIED.search(before)
            or any(last == words_of(asked[: each.start])[-1:] and not STOP_WORDS.issuperset(last) for each in same)
            or (figure.unit == "%" and self.text[figure.end :].startswith(" of"))
        )

    def _holds(self, figure: Figure, rows: frozenset[int], columns: Sequence[Sequence[Cell]]) -> bool:
        sign, limit = {"over": 1, "under": -1}.get(figure.bound or "", 0), figure.readings[0][0]
        values = [cell.value * sign for cells in columns for cell in cells if not rows or cell.row in rows]
        return (
            not (sign and values)
            or bool(NEGATED.search(self.text))
            or (all if _ALL.search(self.text) else any)(each > limit * sign for each in values)
        )

    @cached_property
    def counts(self) -> set[float]:
        """How many rows there are: in all, of a name, and beyond the limits of question and sentence."""
        limits = [each.readings[0][0] for each in figures(spelled(f"{self.question}\n{self.text}")) if each.readings]
        columns = [[cell.value for cell in cells] for cells in self.evidence.columns.values()]
        above = {(sum(v > limit for v in values), len(values)) for limit in limits[:FEW] for values in columns[:FEW]}
        named = {float(len(rows)) for _, rows in self.mentions}
        return self.evidence.counts | named | {float(each) for n, whole in above for each in (n, whole - n)}

    def _computed(self, figure: Figure, candidates: set[Signed], direction: int) -> bool | None:
        verdict: bool | None = False
        for value, low, high in figure.readings:
            near = {round(abs(each), 6) for each, _ in candidates if value / 2 <= abs(each) <= 2 * value}
            hits = [each for each in candidates if low <= abs(each[0]) <= high]
            right = [each for each, is_signed in hits if not is_signed or not direction or each * direction >= 0]
            width = (high - low) / (2 if any(abs(abs(each) - value) < 1e-9 * value for each in right) else 1)
            if right and len(near) * width <= LIKELY * 1.5 * value:
                return True
            is_open = not hits and len(self.evidence.days) > FEW and COMPUTES.search(self.text)
            verdict = None if right or is_open else verdict
        return verdict

    def _candidates(self, figure: Figure, rows: frozenset[int], columns: Sequence[Sequence[Cell]]) -> Iterator[Signed]:
        """Values computed from few others: totals, means, and pairs of a column or of a row."""
        is_times = figure.unit == "x" or (figure.noun[:1] == ("times",) and figure.noun[1] in _MULTIPLES)
        scale = 100.0 if figure.unit == "%" else 1.0 if is_times else 0.0
        own = {cells[0].column: cells for cells in columns}
        said = {
            form for word in words_of(self.text[slice(*self._edges(figure.start))]) for form in _forms(word)
        } - STOP_WORDS
        meant = {name for name in self.evidence.columns if scale and said.intersection(name) and not _is_key(name)}
        pool: list[Cell] = []
        focus: list[Cell] = []
        for name, cells in (self.evidence.columns | own).items():
            if _is_key(name):
                continue
            base = rows or self.stated
            some = [cell for cell in cells if cell.row in base][:FEW]
            focus += some
            beside = [cell for cell in cells if cell.row - 1 in base or cell.row + 1 in base][: 2 * len(some)]
            pool += some if len(some) > 1 else cells if len(cells) <= FEW else [*some, *beside, cells[0], cells[-1]]
            groups = [*(named for _, named in self.mentions), {cell.row for cell in cells}]
            for n, group in enumerate(groups):
                values = [cell.value for cell in cells if cell.row in group]
                if len(values) > 1:
                    pool += (
                        [Cell(sum(values), n - len(groups), name, cells[0].unit)] if len(values) > 2 or scale else []
                    )
                    made = [sum(values), *([fmean(values), median(values)] if _MEAN.search(self.text) else [])]
                    yield from ((each, False) for each in made if name in own and not scale)
        for row in sorted(rows)[:FEW]:
            values = [cell.value for cells in columns for cell in cells if cell.row == row]
            yield from [(sum(values), False), (fmean(values), False)] if len(values) > 2 and not scale else []
            alike = [cell for cell in pool if cell.row == row and not cell.unit]
            written = {each.readings[0][0] for each in figures(self.text) if each.readings}
            pairs = ((a.value + b.value) for a, b in combinations(alike, 2)) if scale or _MEAN.search(self.text) else ()
            sums = [Cell(each, row, ("+",), "") for each in pairs if each in written or not scale]
            focus += sums
            pool += sums
        for first, second in permutations(pool[: 4 * FEW], 2):
            is_meant = not meant or not meant.isdisjoint((first.column, second.column)) or second.column == ("+",)
            alike = [cell for cell in focus if cell.unit == first.unit]
            if is_meant and (not alike or first in focus or second in focus):
                yield from self._pair(first, second, scale, own, rows)
        known = sorted({date(*day) for days in self.evidence.days for day in days if min(day) > 0})[:FEW]
        for early, late in combinations(known, 2) if days_in(figure.unit) else ():
            yield (late - early).days / days_in(figure.unit), False

    def _pair(
        self, first: Cell, second: Cell, scale: float, own: Collection[tuple[str, ...]], rows: frozenset[int]
    ) -> Iterator[Signed]:
        is_text = "" in first.column and "" in second.column
        a, b, is_alike = first.value, second.value, _family(first.unit) == _family(second.unit)
        is_column = first.column == second.column or (is_text and is_alike)
        if not is_column and first.row != second.row:
            return
        early, late = self._order(first), self._order(second)
        is_dated = early is not None and late is not None and early != late
        if early and late and early > late:
            return
        is_total = first.row < 0 or second.row < 0
        if is_column and is_total and not scale and not _REST.search(self.text):
            return
        if scale and first.column == second.column and not is_total and not TREND.search(self.text) and len(rows) == 1:
            return
        is_growth = bool(scale) and is_column and TREND.search(self.text) is not None
        if not is_growth and (scale or not is_column or first.unit != second.unit):
            yield from (((scale or 1.0) * x / y, False) for x, y in ((a, b), (b, a)) if y not in (0, 1))
        if is_growth and a:
            yield scale * (b - a) / abs(a), is_dated
        if not scale and is_alike and first.column in own:
            yield from [(b - a, is_dated), *([(b + a, False)] if is_column or _SUM.search(self.text) else [])]
        if scale and is_alike and not is_column and b:
            yield scale * (b - a) / b, False
        if not scale and (not is_alike or first.unit != second.unit) and min(abs(a), abs(b)) > 1:
            yield a * b, False

    def _order(self, cell: Cell) -> Day | None:
        """What comes first: the earlier, or what another is compared with."""
        if THAN.search(self.text):
            return next(((-at, 0, 0) for at, rows in self.mentions if cell.row in rows), None)
        return (
            min((day for day in self.evidence.days[cell.row] if day[0] >= 0), default=None) if cell.row >= 0 else None
        )


def _same(figure: Figure, columns: Sequence[Sequence[Cell]]) -> Iterator[Cell]:
    is_small = (
        len(columns) > 1
        and not (figure.unit or figure.bound)
        and figure.readings[0][0] < FEW
        and "." not in figure.written
    )
    for cells in columns:
        for value, low, high in figure.readings:
            low, high = (value, value) if is_small else (low, high)
            yield from (cell for cell in cells if low <= abs(cell.value) <= high)


def _times(cells: Sequence[Cell], factor: float) -> list[Cell]:
    return [cell if factor == 1 else replace(cell, value=cell.value * factor) for cell in cells]


def _records(value: object, label: str) -> Iterator[list[tuple[str, object]]]:
    """The rows of a result: names with values; what stands inside one is rows of its own, under its name."""
    content = content_of(value, "")
    if content.kind == "lines":
        yield from ([("", line)] for line in _SENTENCE.split(_LIST_MARK.sub("", content.text)))
        return
    if content.kind == "entries":
        named = [[(str(name), each) for name, each in content.rows]]
    else:
        names = [label] if content.kind == "items" else content.columns
        named = [[*zip(names, row, strict=False)] for row in content.rows]
    for row in named:
        flat = [each for each in row if not isinstance(each[1], dict | list)]
        yield from [[(" ", label), *flat]] if flat else ()
        for name, each in row:
            yield from _records(each, name) if isinstance(each, dict | list) else ()


def _parted(text: str) -> tuple[str, list[tuple[str, int, int, tuple[Day, ...]]]]:
    found = list(dates(text))
    for written, start, end, _ in found:
        text = text if written.isdigit() else text[:start] + " " * (end - start) + text[end:]
    return text, found


@lru_cache(maxsize=1_000)
def _column_unit(words: tuple[str, ...]) -> str:
    units = filter(None, map(unit_of, () if len(words) == 1 and words[0] in _LETTERS else reversed(words)))
    return next(units, "money" * bool(_MONEY.intersection(words)))


def _family(unit: str) -> str:
    return UNITS[unit][0] if unit in UNITS else "money"  # what has no unit may be money


def _is_key(column: tuple[str, ...]) -> bool:
    return "" not in column and not _KEYS.isdisjoint(column)


def _is_same(known: Day, said: Day) -> bool:
    return all(not b or a == b for a, b in zip(known, said, strict=True))


def _direction(text: str, figure: Figure) -> int:
    """1 or -1 if the nearest words say that something rose or fell, or is more or less."""
    behind = TREND.search(text, figure.start, figure.end + 15)
    before = list(TREND.finditer(text, max(0, figure.start - 60), figure.start))
    nearest = behind or (before[-1] if before else TREND.search(text, figure.end, figure.end + 25))
    return 0 if nearest is None or NEGATED.search(text) else 1 if nearest["up"] else -1


def _has_trend(cell: Cell, figure: Figure, direction: int) -> bool:
    if (cell.value < 0) != figure.is_negative:
        return cell.value < 0 and direction < 0
    return not cell.trend or not direction or cell.trend == direction


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
        parts: what is looked for, of PARTS.
        question: what the user said; its names, days, limits and periods may be repeated.
        cannot_tell: whether what cannot be told counts as found (``pass``), as not found (``fail``) or not at all.

    Returns:
        1 if all is found, else the share that is, at most MOST_SCORE; no score where nothing is wrong, but something
        cannot be told and is not to count.
    """
    evidence = Evidence()
    for result in results:
        evidence.read(result)
    text = _EMPHASIS.sub(" ", _LIST_MARK.sub("\n", answer))
    said: dict[str, bool | None] = {}
    if "numbers" in parts:
        stated: set[int] = set()
        for line in _SENTENCE.split(spelled(text)):
            for written, verdict in _verdicts(line, evidence, question, stated):
                said[written] = verdict if said.get(written, True) else said[written]
    if "names" in parts and len(_GERMAN.findall(text)) < 2:
        known = known_words(" ".join((*results, question)))
        said |= {name: _is_name_known(name, known) for name in _names(spelled(text))}
    missing = [each for each, verdict in said.items() if verdict is False]
    open_ = [each for each, verdict in said.items() if verdict is None]
    lacks = missing + (open_ if cannot_tell == "fail" else [])
    score = min(MOST_SCORE, (len(said) - len(lacks)) / len(said)) if lacks else 1.0
    if missing or not open_:
        return Opinion(score, _shown("not in the results of this turn's tools", missing))
    critique = _shown("cannot be told from the results of this turn's tools", open_)
    return Opinion(None if cannot_tell == "skip" else score, critique, is_undecided=True)


def _shown(why: str, texts: Sequence[str]) -> str:
    more = f" and {len(texts) - MOST_SHOWN} more" if len(texts) > MOST_SHOWN else ""
    return f"{why}: {', '.join(texts[:MOST_SHOWN])}{more}" if texts else ""


def _verdicts(line: str, evidence: Evidence, question: str, stated: set[int]) -> Iterator[tuple[str, bool | None]]:
    bare, days = _parted(line)
    asked = [day for _, _, _, each in dates(spelled(question)) for day in each]
    known = [day for each in evidence.days for day in each] + asked
    mentions = [(found.start(), rows) for found in _WORD.finditer(bare) if (rows := evidence.named(found[0]))]
    mentions += [(start, rows) for _, start, _, each in days if (rows := evidence.dated(each))]
    sentence = Sentence(bare, evidence, question, mentions, stated)
    for written, _, _, each in days:
        if not written.isdigit():
            yield written, _is_day_known(each, known)
    words = [each for each in fractions(bare) if not regex.search(r"\d", each.written) or sentence.verdict(each)]
    years = {written: _is_day_known(each, known) for written, _, _, each in days if written.isdigit()}
    for figure in (*words, *figures(bare)):
        if figure in words or not any(word.start <= figure.start < word.end for word in words):
            verdict = sentence.verdict(figure)
            is_year = years.get(figure.written, False)
            yield figure.written, True if is_year else verdict
    yield from ((written, False) for written in _contradicted(sentence))


def _is_day_known(said: Sequence[Day], known: Sequence[Day]) -> bool | None:
    years = {day[0] for day in known}
    for year, month, day in said:
        if any(_is_same(each, (year if each[0] else 0, month, day)) and (not year or year in years) for each in known):
            return True
        if month and not day and not any(each[1] for each in known):
            return True if year in (0, *years) else None
    return False if any(known) else None


def _contradicted(sentence: Sentence) -> Iterator[str]:
    """Words for a movement or an extreme that the numbers contradict."""
    text = sentence.text
    found = [figure for figure in figures(text) if not figure.bound]
    for move in () if NEGATED.search(text) else MOVES.finditer(text):
        target = _after(r"\bto [$€£]?$", text[: move.end() + 60], [each for each in found if each.start > move.end()])
        origin = _after(r"\bfrom [$€£]?$", text, found) or _after(
            "", text, [f for f in found[::-1] if f.end <= move.start()]
        )
        if target and origin and target.unit == origin.unit and (target.signed < origin.signed) == bool(move["up"]):
            yield f"{move[0]} to {target.written}"
    rows = {rows for _, rows in sentence.mentions if len(rows) == 1} or {frozenset(sentence.here)}
    words = set(words_of(text))
    if len(rows) != 1 or "per" in words or len(next(iter(rows))) != 1:
        return
    [[row]] = rows
    columns: dict[object, list[Cell]] = defaultdict(list)
    for cell in chain.from_iterable(sentence.evidence.columns.values()):
        columns[cell.unit if "" in cell.column and cell.unit else cell.column].append(cell)
    own = [cells for cells in columns.values() if len(cells) > 1 and any(cell.row == row for cell in cells)]
    said = {form for word in words - STOP_WORDS for form in _forms(word)}
    meant = [each for each in own if said.intersection(each[0].column)] or own * (len(own) == 1)
    for extreme in EXTREME.finditer(text):
        best = max if extreme["most"] else min
        if any(best(c.value for c in cells) not in [c.value for c in cells if c.row == row] for cells in meant[:1]):
            yield extreme[0]


def _after(words: str, text: str, among: Sequence[Figure]) -> Figure | None:
    return next((each for each in among if regex.search(words, text[: each.start])), None)


def known_words(text: str) -> set[str]:
    """The words of a text in small letters, and the parts of those with a hyphen."""
    words = [word.casefold() for word in _WORD.findall(_EMPHASIS.sub(" ", text))]
    return {part for word in words for part in (word, *word.split("-"))}


def _names(text: str) -> Iterator[str]:
    """Words in capitals, each once; one that begins a sentence may be any word, unless another follows at once."""
    seen: set[str] = set()
    last_end = -1
    begins_name = False
    for found in _WORD.finditer(text):
        word = found[0]
        is_capital = word[0].isupper() and len(word) > 1
        follows = begins_name and text[last_end : found.start()] == " "
        is_first = _begins_sentence(text, found.start())
        is_sure = is_capital and (not is_first or any(letter.isupper() or letter.isdigit() for letter in word[1:]))
        if (is_sure or (is_capital and follows)) and word.casefold() not in _CALENDAR and word not in seen:
            seen.add(word)
            yield word
        begins_name, last_end = is_capital, found.end()


def _begins_sentence(text: str, start: int) -> bool:
    before = text[max(0, start - 8) : start]
    return not before.strip() or _SENTENCE_END.search(before) is not None


def _is_name_known(name: str, words: set[str]) -> bool:
    """A word in its singular, plural or genitive is the same; one with a hyphen is known if its parts are."""
    parts = name.casefold().split("-")
    return any(form in words for form in _forms(name)) or (len(parts) > 1 and all(part in words for part in parts))


def _forms(name: str) -> Iterator[str]:
    folded = name.casefold()
    yield folded
    yield folded + "s"
    for ending in ("'s", "\u2019s", "s", "'", "\u2019"):
        yield folded.removesuffix(ending)
