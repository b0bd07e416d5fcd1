"""Numbers with their units, number words and dates of a text, by the words and patterns of ``figures.yaml``. Pure."""

from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import regex
import yaml

from loom_worker.core.words import STOP_WORDS

Day = tuple[int, int, int]
"""Year, month and day, 0 for a part that is not given; or -1, hour and minute."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number as it stands in a text."""

    written: str
    start: int
    end: int
    number: float
    size: float
    """Its unit in the smallest of its kind."""
    readings: tuple[tuple[float, float, float], ...]
    """What it may mean in the smallest unit of its kind, with the least and the greatest it was rounded from."""
    unit: str
    """A kind of ``figures.yaml``, or empty."""
    bound: str | None = None
    """The kind of word before it: ``about``, ``over`` or ``under``."""
    noun: tuple[str, ...] = ()
    """The two words behind it, unless the first is a unit or a stop word."""
    is_negative: bool = False


@cache
def words() -> dict[str, Any]:
    """The tables of ``figures.yaml``, with ``number``: small and large ones, and ``sizes`` by unit."""
    found: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("figures.yaml").read_text("utf-8"))
    sizes = {each: (kind, size) for kind, sizes in found["units"].items() for each, size in sizes.items()}
    return found | {"number": found["small"] | found["large"], "sizes": sizes}


@cache
def rule(name: str) -> "regex.Pattern[str]":
    """A pattern of ``figures.yaml``."""
    lists: dict[str, Any] = {name: list(map(str, table)) for name, table in words().items()}
    return regex.compile(f"(?x){words()['patterns'][name]}", ignore_unused=True, **lists)


def unit_of(word: str) -> tuple[str, float]:
    """The kind and the size of a unit, in its singular or plural; ("", 1) for another word."""
    folded, known = word.casefold(), words()["sizes"]
    singular = [folded, *(folded[:-n] for n in (1, 2) if len(folded) - n > 2)]
    return next((known[each] for each in singular if each in known), ("", 1))


def spelled(text: str) -> str:
    """The text with digits for number words and a sign for ``minus``; a lone "one" stays."""
    return rule("spelled").sub(_digits, text)


def _digits(found: "regex.Match[str]") -> str:
    large, small, number = words()["large"], words()["small"], 0
    for word in regex.split(r"[ -]", found[0].casefold()):
        number = (number or 1) * large[word] if word in large else number + small.get(word, 0)
    is_other = found[0].casefold() in ("one", "minus ")
    return found[0].replace("minus ", "-") if is_other else str(number // (2 if found["half"] else 1))


def figures(text: str) -> Iterator[Figure]:
    """The numbers of a text, shares in words ("2 thirds") and multiples ("twice") first; years are numbers."""
    shares = [_share(found, text) for found in rule("share").finditer(text)]
    yield from shares
    for found in rule("figure").finditer(text):
        behind, bound = (found["unit"] or "").casefold(), _bound(text, found.start())
        is_unit = bool(unit_of(behind)[0])
        unit, size = unit_of(found["before"] or behind)
        scale = size * words()["scales"].get((found["scale"] or "").casefold().rstrip("."), 1)
        values = list(_readings(found["number"], is_about=bound is not None))
        if values and not any(share.start <= found.start() < share.end for share in shares):
            end = found.end() if is_unit else max(found.end("number"), found.end("scale"))
            scaled = tuple((a * scale, b * scale, c * scale) for a, b, c in values)
            noun = () if is_unit or behind in ("", *STOP_WORDS) else (behind, (found["next"] or "").casefold())
            written, start = text[found.start() : end].rstrip(" ."), found.start("number")
            is_negative = bool(found["sign"])
            yield Figure(written, start, end, values[0][0], size, scaled, unit, bound, noun, is_negative)


def _share(found: "regex.Match[str]", text: str) -> Figure:
    of = words()["parts"].get((found["part"] or "").casefold()) or float(found["of"])
    value, bound = 100 * float((found["n"] or "1").casefold().replace("one", "1")) / of, _bound(text, found.start())
    by = (0.2 if bound else 0.05) * value
    return Figure(found[0], found.start(), found.end(), value, 1, ((value, value - by, value + by),), "share", bound)


def _bound(text: str, start: int) -> str | None:
    near = rule("bound").search(text[max(0, start - 20) : start])
    return near and near.lastgroup


def _readings(written: str, *, is_about: bool) -> Iterator[tuple[float, float, float]]:
    """A number as it may be meant: 1,234 is a thousand, or one and a bit; zeros at its end may be rounded."""
    plain = regex.sub(r"['\u2019\u00a0\u2009\u202f ]", "", written)
    for form, comma in (("points", ","), ("commas", ".")) if len(plain) <= 30 else ():
        if found := rule(form).fullmatch(plain):
            whole, fraction = found["whole"].replace(comma, ""), found["fraction"] or ""
            value, zeros = float(f"{whole}.{fraction or 0}"), len(whole) - len(whole.rstrip("0"))
            is_rounded = not fraction and (is_about or (zeros >= 2 and len(whole) - zeros >= 3))
            slack = 0.5 * 10.0 ** (zeros if is_rounded else -len(fraction)) + value * 1e-12
            yield value, value - slack, value + slack


def dates(text: str) -> Iterator[tuple["regex.Match[str]", list[Day]]]:
    """The dates, times, months and years of a text, each with the days that it may mean."""
    for found in rule("date").finditer(text):
        month, year, day = found["m"] or "", int(found["y"] or 0), int(found["d"] or 0)
        number = int(words()["months"].get(month.casefold(), month) or 0)
        swapped = (found.group("b", "a"), found.group("a", "b"))
        days = [(year, number, day), *((year, int(m), int(d)) for m, d in swapped if m)]
        hour = int(found["h"] or 0) % (12 if found["pm"] else 24) + 12 * (found["pm"] == "p")
        known = [(y, m, d) for y, m, d in days if any((m, d)) and m < 13 and d <= monthrange(y or 2000, m or 1)[1]]
        known += [(year, 0, 0)] if found[0].isdigit() else [(-1, hour, int(found["min"]))] if found["h"] else []
        if (year or day or found["h"] or month[:1].isupper()) and found[0] not in ("May", "Mar"):
            yield found, known


def words_of(name: str) -> tuple[str, ...]:
    """The words of a column's name, or of a text, in small letters."""
    return tuple(regex.findall(r"[\p{L}\p{N}%°$€£]+", regex.sub(r"(?<=\p{Ll})(?=\p{Lu})", " ", name).casefold()))
