"""The judge ``grounded``: do the numbers and names of an answer occur in what the tools of its turn returned? Pure.

A number is grounded if a source has one that is the same when rounded as the answer rounds it, thousands and millions
in words, and shares as percentages, included. A name is a word in capitals that does not just begin a sentence; it is
grounded if it occurs as a word. Signs, marks of lists, dates, years and names of months are left out. What the user
said is a source, too: an answer may repeat the question.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from decimal import Decimal

import regex

from loom_worker.judge.checks import Opinion

PARTS = ("numbers", "names")
"""What can be looked for."""
MOST_SHOWN = 10
"""Of what is not grounded, in the critique."""
MOST_PARTS = 1_000
"""Of a list of numbers without spaces."""
MOST_DIGITS = 30
"""Of a number; longer ones are identifiers, and compared as words."""

_NUMBER = regex.compile(
    r"(?<![\p{L}\p{N}_])\d++(?:[.,'\u2019\u00a0\u2009\u202f]\d++)*+"
    r"(?:[ \u00a0]?(?P<unit>%|percent\b|thousand\b|million\b|billion\b|[kKM]\b|bn\b))?+(?![\p{N}_])"
)
_SPACES = regex.compile(r"['\u2019\u00a0\u2009\u202f ]")
_FORMS = (
    (regex.compile(r"(?P<whole>\d+|\d{1,3}(?:,\d{2,3})*,\d{3})(?:\.(?P<fraction>\d+))?"), ","),
    (regex.compile(r"(?P<whole>\d+|\d{1,3}(?:\.\d{2,3})*\.\d{3})(?:,(?P<fraction>\d+))?"), "."),
)
"""Numbers with points and with commas before their fraction, each with what parts their thousands."""
_SCALES = {"thousand": 3, "k": 3, "million": 6, "m": 6, "billion": 9, "bn": 9}
_DATE = regex.compile(
    r"(?<!\d)(?:\d{4}-\d\d?-\d\d?(?:[T ]\d\d:\d\d(?::\d\d)?)?|\d{1,2}([./-])\d{1,2}\1(?:19|20)\d\d)(?!\d)"
)
_YEAR = regex.compile(r"(?:19|20)\d\d")
_LIST_MARK = regex.compile(r"(?m)^[ \t>]*+(?:\d{1,3}[.)]|[-*+\u2022])[ \t]++|^[ \t]*+#{1,6}[ \t]++")
_EMPHASIS = regex.compile(r"[*_`#|]++")
_WORD = regex.compile(r"[\p{L}\p{N}](?:[\p{L}\p{N}\p{M}]|['\u2019&.-](?=[\p{L}\p{N}]))*+")
_SENTENCE_END = regex.compile(r"[.!?:;\n\"\u201c\u201d(\u2014\u2013]\s*+$")
_CALENDAR = frozenset(
    "january february march april may june july august september october november december monday tuesday wednesday "
    "thursday friday saturday sunday jan feb mar apr jun jul aug sep oct nov dec i".split()
)


def grounded(answer: str, sources: Sequence[str], parts: Sequence[str] = PARTS) -> Opinion:
    """The share of the answer's numbers and names that the sources have; 1 for an answer without any.

    Args:
        sources: results of the turn's tools, and what the user said.
        parts: what is looked for, of PARTS.
    """
    text = _DATE.sub(" ", _EMPHASIS.sub(" ", _LIST_MARK.sub("\n", answer)))
    known_words = {word.casefold() for source in sources for word in _WORD.findall(_EMPHASIS.sub(" ", source))}
    wanted: dict[str, bool] = {}
    if "numbers" in parts:
        known = sorted(value for source in sources for value in _values(source))
        numbers = {each: found for each, found in _numbers(text).items() if not _YEAR.fullmatch(each)}
        wanted |= {each: _is_number_known(found, known, known_words) for each, found in numbers.items()}
    if "names" in parts:
        wanted |= {name: _is_name_known(name, known_words) for name in _names(text)}
    missing = [each for each, is_known in wanted.items() if not is_known]
    if not missing:
        return Opinion(1.0)
    shown = ", ".join(missing[:MOST_SHOWN]) + (f" and {len(missing) - MOST_SHOWN} more" * (len(missing) > MOST_SHOWN))
    return Opinion((len(wanted) - len(missing)) / len(wanted), f"not in the results of this turn's tools: {shown}")


def _numbers(text: str) -> dict[str, "regex.Match[str]"]:
    """The numbers of a text as they are written, each once."""
    return {found[0]: found for found in _NUMBER.finditer(text)}


def _is_number_known(found: "regex.Match[str]", known: Sequence[Decimal], words: set[str]) -> bool:
    if found[0].casefold() in words or any(_is_near(value, step, known) for value, step in _meanings(found)):
        return True
    parts = _parts(found[0])
    return bool(parts) and all(
        any(_is_near(value, _step(digits), known) for value, digits in _readings(part)) for part in parts
    )


def _is_near(value: Decimal, step: Decimal, known: Sequence[Decimal]) -> bool:
    """Whether a source's number becomes this one when it is rounded to a multiple of ``step``."""
    place = bisect_left(known, value - step / 2)
    return place < len(known) and known[place] <= value + step / 2


def _meanings(found: "regex.Match[str]") -> Iterator[tuple[Decimal, Decimal]]:
    """The values that a number may stand for, each with the size of its last digit."""
    unit = (found["unit"] or "").casefold()
    for value, digits in _readings(found[0][: found.start("unit") - found.start()] if unit else found[0]):
        step = _step(digits)
        exponent = _SCALES.get(unit, 0)
        yield value.scaleb(exponent), step.scaleb(exponent)
        if unit in ("%", "percent"):
            yield value.scaleb(-2), step.scaleb(-2)


def _step(digits: int) -> Decimal:
    """The size of the last of so many digits behind the point."""
    return Decimal(1).scaleb(-digits)


def _values(text: str) -> Iterator[Decimal]:
    for written, found in _numbers(text).items():
        yield from (value for value, _ in _meanings(found))
        yield from (value for part in _parts(written) for value, _ in _readings(part))


def _parts(written: str) -> list[str]:
    """The numbers of a list without spaces, such as those of a row of JSON; none if there is no comma."""
    parts = written.split(",", MOST_PARTS)
    return parts[:MOST_PARTS] if len(parts) > 1 else []


def _readings(written: str) -> Iterator[tuple[Decimal, int]]:
    """A number as it may be meant, with its digits behind the point: 1,234 is a thousand, or one and a bit."""
    plain = _SPACES.sub("", written)
    if len(plain) > MOST_DIGITS:
        return
    for form, comma in _FORMS:
        if found := form.fullmatch(plain):
            fraction = found["fraction"] or ""
            yield Decimal(f"{found['whole'].replace(comma, '')}.{fraction or 0}"), len(fraction)


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
