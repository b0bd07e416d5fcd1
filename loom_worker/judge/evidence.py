"""Results of tools as numbers of columns and rows, with the words and the days of each row. Pure."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

from loom_worker.core.words import STOP_WORDS
from loom_worker.judge.figures import Day, Figure, dates, figures, rule, spelled, unit_of, words, words_of
from loom_worker.tools.result_rows import content_of, parsed


@dataclass(frozen=True, slots=True)
class Value:
    """A number of a result, or one computed from such: as written, with its unit in the smallest of its kind."""

    number: float
    size: float
    unit: str
    rows: frozenset[int]
    column: tuple[str, ...]
    """The words of its name; in a text an empty one and the word beside the number; () if it is computed."""
    how: str
    trend: int = 0
    """1 or -1 if the results say that something rose or fell by it."""

    def as_in(self, figure: Figure) -> float:
        """The number in the unit of the readings of another."""
        return self.number * (self.size if figure.unit else 1)

    def meets(self, figure: Figure, direction: int) -> bool:
        """Whether this is the number when it is rounded, and its sign or direction is the same."""
        is_near = any(low <= abs(self.as_in(figure)) <= high for _, low, high in figure.readings)
        if (self.number < 0) != figure.is_negative:
            return is_near and self.number < 0 and direction < 0
        return is_near and (direction in (0, self.trend) or not self.trend)


@dataclass(slots=True)
class Evidence:
    """The results of a turn; ``counts``: rows of each result."""

    columns: dict[tuple[str, ...], list[Value]] = field(default_factory=lambda: defaultdict(list))
    rows_of: dict[object, set[int]] = field(default_factory=lambda: defaultdict(set))
    """By word, by year, by month, and by month with day; ``days``: by row."""
    days: list[list[Day]] = field(default_factory=list)
    counts: set[float] = field(default_factory=set)

    def read(self, result: str) -> None:
        records = list(_records(parsed(result, ""), ""))
        self.counts.add(len(records))
        for row, record in enumerate(records, len(self.days)):
            self.days.append([])
            currency = next((unit_of(str(value))[0] for name, value in record if name in ("unit", "currency")), "")
            for label, value in record:
                name = words_of(label)
                if isinstance(value, str) or "year" in name:
                    self._read_text(str(value), row, name)
                elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e30:
                    unit, size = _column_unit(name)
                    unit = currency if unit in ("", "money") and currency else unit
                    self.columns[name].append(Value(value, size, unit, frozenset((row,)), name, f"{label} {value}"))

    def _read_text(self, text: str, row: int, name: tuple[str, ...]) -> None:
        bare, days = without_dates(spelled(plain(text)))
        self.days[row] += days
        known = [each for each in known_words(text) - STOP_WORDS if each[:1].isalpha()]
        for key in (*known, *chain.from_iterable(map(parts_of_day, days))):
            self.rows_of[key].add(row)
        for figure in figures(bare):
            column = name or ("", *(figure.noun or words_of(bare[: figure.start])[-1:])[:1])
            unit = figure.unit or _column_unit(name)[0]
            trend, rows = 0 if name else direction_of(bare, figure), frozenset((row,))
            for number, *_ in figure.readings:
                signed = (-number if figure.is_negative else number) / figure.size
                self.columns[column].append(Value(signed, figure.size, unit, rows, column, figure.written, trend))

    def named(self, *keys: object) -> frozenset[int]:
        """The rows with all of these words or days, unless all rows have them."""
        rows = frozenset.intersection(*(frozenset(self.rows_of.get(key, ())) for key in keys or [""]))
        return rows if len(rows) < len(self.days) else frozenset()

    def in_unit(self, figure: Figure) -> list[Value]:
        """The values that a number may be: those of its unit, else without one; or of the column that it names."""
        values = list(chain.from_iterable(self.columns.values()))
        if not figure.unit:
            nouns = set(map(stem, figure.noun))
            meant = (each for each in values if "" not in each.column)
            return [each for each in meant if nouns.intersection(map(stem, each.column))] or values
        same = [each for each in values if is_same_unit(each.unit, figure.unit)]
        bare = [each for each in values if not each.unit and (not same or "" in each.column)]
        if figure.unit == "share":
            return same or bare + [replace(each, number=each.number * 100) for each in bare if abs(each.number) <= 1]
        return same + bare if same or not any(figure.unit.split()[0] in each.unit.split() for each in values) else []


def is_same_unit(one: str, other: str) -> bool:
    """Whether two units are the same, or of one kind that one of them leaves open."""
    return one == other or other.partition(" ")[0] == one or one.partition(" ")[0] == other


def _column_unit(name: tuple[str, ...]) -> tuple[str, float]:
    known = [unit_of(each) for each in reversed(name) if len(name) > 1 or len(each) > 2]
    return next((each for each in known if each[0]), ("money" if set(name).intersection(words()["money"]) else "", 1.0))


def _records(value: object, label: str) -> Iterator[list[tuple[str, object]]]:
    """The rows of a result: names with values; what stands inside one is rows of its own, under its name."""
    content = content_of(value, "")
    if content.kind == "lines":
        yield from ([("", line)] for line in rule("between").split(plain(content.text)))
        return
    names = [label] if content.kind == "items" else content.columns
    is_object = content.kind == "entries"
    for row in [[*content.rows]] if is_object else [[*zip(names, row, strict=False)] for row in content.rows]:
        flat = [(str(name), each) for name, each in row if not isinstance(each, dict | list)]
        yield from [[(" ", label), *flat]] if flat else ()
        for name, each in row:
            yield from _records(each, str(name)) if isinstance(each, dict | list) else ()


def plain(text: str) -> str:
    """A text without marks of lists and emphasis."""
    return rule("emphasis").sub(" ", rule("list mark").sub("\n", text))


def without_dates(text: str) -> tuple[str, list[Day]]:
    """A text with blanks for its dates, though not for years, and the days that they may mean."""
    bare = rule("date").sub(lambda found: found[0] if found[0].isdigit() else " " * len(found[0]), text)
    return bare, [day for _, days in dates(text) for day in days]


def parts_of_day(day: Day) -> list[Day]:
    """The year, the month, and the month with the day, as far as a day has them; or a time."""
    parts = [day] if day[0] < 0 else [(day[0], 0, 0), (0, day[1], 0), (0, *day[1:])]
    return [part for part in parts if any(part)]


def direction_of(text: str, figure: Figure) -> int:
    """1 or -1 if the nearest words say that something rose or fell, or is more or less."""
    found = list(rule("trend").finditer(text, max(0, figure.start - 60), figure.end + 25))
    nearest = min(found, key=lambda each: abs(each.start() - figure.start), default=None)
    return 0 if nearest is None or rule("negation").search(text) else 1 if nearest["up"] else -1


def known_words(text: str) -> set[str]:
    """The stems of a text's words, and of the parts of those with a hyphen."""
    return {stem(part) for word in rule("word").findall(plain(text)) for part in (word, *word.split("-"))}


def stem(word: str) -> str:
    """A word in small letters, without the ending of a plural or a genitive; stop words as they are."""
    folded = word.casefold()
    return folded if folded in STOP_WORDS else rule("ending").sub("", folded)
