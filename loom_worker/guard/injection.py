"""Finds prompt injection: text that gives a model instructions which are not its operator's. Pure, and linear.

Rules over words can be talked around; they catch what is copied from lists of attacks, and much that is like it. What
a model may do must be limited elsewhere, by tools, approvals and budgets. docs/guardrails.md has recall and alarms.
"""

import base64
import codecs
import html
import re
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

Rule = tuple[frozenset[str], re.Pattern[str]]
"""Beginnings of words of which a text must hold one, which are looked for first and fast; and the rule."""


def _read(text: str, parts: dict[str, str]) -> tuple[Rule, ...]:
    """Read entries, each on a line and the indented ones after it: ``word,word ~ pattern``, and ``NAME ~ part``."""
    rules = []
    for line in re.sub(r"\n    ", "", text).splitlines():
        if line and not line.startswith("# "):
            words, pattern = re.sub(r"{([A-Z]+)}", lambda name: parts[name[1]], line).split(" ~ ", 1)
            if words.isupper():
                parts[words] = pattern
            else:
                rules.append((frozenset(words.split(",")), re.compile(pattern)))
    return tuple(rules)


_ALL, _IN_RESULTS = Path(__file__).with_name("injection_rules.txt").read_text("utf-8").split("# [in results alone]\n")
_PARTS: dict[str, str] = {}
RULES = _read(_ALL, _PARTS)
RESULT_RULES = _read(_IN_RESULTS, _PARTS)
"""Rules for what tools return alone, where an order has no business; a user may say such things."""


MOST_CHARS = 4_000
"""Characters of a paragraph that are looked at in one piece."""


def injections(text: str, *, in_result: bool = False) -> Iterator[tuple[int, int]]:
    """Paragraphs in which somebody tries it: where each begins and ends.

    Args:
        in_result: a tool has returned the text, so that what a user may well ask for is suspect, too.
    """
    rules = (*RULES, *RESULT_RULES) if in_result else RULES
    for match in _PARAGRAPH.finditer(text):
        for start in range(match.start(), match.end(), MOST_CHARS):
            end = min(start + MOST_CHARS, match.end())
            # Windows overlap by a sentence, for a cut must not hide one.
            if _is_one(text[max(match.start(), start - _OVERLAP_CHARS) : end], rules):
                yield start, end


def _is_one(paragraph: str, rules: tuple[Rule, ...]) -> bool:
    if not paragraph.isascii() and _HIDDEN.search(paragraph):
        return True
    for form in _forms(paragraph):
        beginnings = {"", *_BEGINNING.findall(form)} if form.isascii() else _STEMS.keys()
        held = {stem for beginning in beginnings for stem in _STEMS.get(beginning, ()) if stem in form}
        if held and any(pattern.search(form) for stems, pattern in rules if not stems.isdisjoint(held)):
            return True
    return False


def _forms(paragraph: str) -> Iterator[str]:
    """The words as they are meant: without disguises. A code within the same code is decoded, too."""
    shown = _unescaped(_shown(paragraph))
    plain = _words(shown)
    yield plain
    if not plain.isascii():
        yield _words("".join(c for c in unicodedata.normalize("NFKD", plain.translate(_LOOKALIKES)) if c.isascii()))
    if _MIXED.search(plain):
        yield plain.translate(_LEET)
    if _SPACED.search(shown):
        yield _words(_SPACED.sub(lambda found: _RUN_TOGETHER.sub(r"\g<0> ", found[0].replace(found[1], "")), shown))
    joined = shown.replace("\n", "").casefold()
    if len(joined) < len(shown) and any(joined.count(word) > plain.count(word) for word in _KEY_WORDS):
        yield _words(_RUN_TOGETHER.sub(r"\g<0> ", joined))
    if _TURNED.search(plain):
        yield from (plain[::-1], " ".join(word[::-1] for word in plain.split()), codecs.encode(plain, "rot13"))
    if pieces := "\n".join(filter(None, _decoded(paragraph, shown))):
        yield pieces


def _decoded(paragraph: str, shown: str) -> Iterator[str]:
    for pattern, decode in _CODES:
        for found in pattern.finditer(paragraph if pattern is _BASE64 else shown):
            try:
                text = decode(found[0])
                text = decode(text) if pattern.fullmatch(text) else text
            except ValueError:  # no bytes, or no text in UTF-8
                continue
            yield _words(text) if any(map(str.isalpha, text)) else ""


def _shown(text: str) -> str:
    """The text as readers see it: without what is invisible, and without marks of emphasis."""
    if not text.isascii():
        text = "".join(c for c in unicodedata.normalize("NFKC", text) if unicodedata.category(c) != "Cf")
    return _EMPHASIS.sub("", text)


def _words(text: str) -> str:
    return " ".join(text.casefold().split())


def _unescaped(text: str) -> str:
    if "\\" in text:
        text = _ESCAPED.sub(lambda found: chr(int(found[1] or found[2], 16)) if found[1] or found[2] else " ", text)
    return html.unescape(unquote(text) if "%" in text else text)


def _bytes(digits: str, base: int) -> str:
    return bytes(int(each, base) for each in digits.split()).decode()


def _base(decode: Callable[[str], bytes], text: str, unit: int) -> str:
    text = "".join(text.split()).rstrip("=")
    return decode(text + "=" * (-len(text) % unit)).decode()


_BEGINNING = re.compile(r"(?<![^\W\d_])[^\W\d_]{1,3}")
_STEMS: dict[str, list[str]] = {}
"""Stems that rules need, by how their first words begin; a text is asked for no more of them than it can hold."""
for _stem in frozenset[str]().union(*(stems for stems, _ in (*RULES, *RESULT_RULES))):
    _STEMS.setdefault(next(iter(_BEGINNING.findall(_stem)), ""), []).append(_stem)
_PARAGRAPH = re.compile(r"(?:[^\n]{1,24}\n{2,}){2,60}[^\n]{1,24}(?![^\n])|(?:[^\n]+\n?)+")
"""Lines up to an empty one; a word or two with nothing but empty lines between them are one paragraph."""
_OVERLAP_CHARS = 200
_HIDDEN = re.compile(r"[\U000e0020-\U000e007f]{3}|[\u202a-\u202e\u2066-\u2069]{2}|[\u200b\u2060\ufeff]{4}")
"""Tags, turned directions and invisible characters in a row, in which no person writes."""
_EMPHASIS = re.compile(r"[*`]|</?(?:b|i|u|em|strong|span|font|mark|small)(?: [^<>\n]{0,80})?>")
_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})|\\[nrt]")
_BASE64 = re.compile(r"(?<![\w+/-])[\w+/-]{20,2000}(?:\r?\n[\w+/-]{2,2000}){0,40}={0,2}(?![\w+/-])", re.ASCII)
_SIGNS = ".- -... -.-. -.. . ..-. --. .... .. .--- -.- .-.. -- -. --- .--. --.- .-. ... - ..- ...- .-- -..- -.-- --.."
_MORSE = dict(zip(_SIGNS.split(), "abcdefghijklmnopqrstuvwxyz", strict=True))
_CODES: tuple[tuple[re.Pattern[str], Callable[[str], str]], ...] = (
    (_BASE64, lambda text: _base(base64.urlsafe_b64decode, text.replace("+", "-").replace("/", "_"), 4)),
    (re.compile(r"[A-Z2-7](?<!\w.)[A-Z2-7]{23,2000}={0,6}"), lambda text: _base(base64.b32decode, text, 8)),
    (
        re.compile(r"[0-9a-fA-F](?<!\w.)[0-9a-fA-F](?:[ :]?[0-9a-fA-F]{2}){11,2000}\b"),
        lambda text: bytes.fromhex(text.replace(":", "")).decode(),
    ),
    (re.compile(r"[01](?<!\w.)[01]{7}(?: [01]{8}){7,500}\b"), lambda text: _bytes(text, 2)),
    (re.compile(r"\d(?<!\w.)\d{1,2}(?: \d{2,3}){11,500}\b"), lambda text: _bytes(text, 10)),
    (
        re.compile(r"[.-](?<!\S.)[.-]{0,3}(?: {1,3}(?:/ )?[.-]{1,4}){7,500}(?!\S)"),
        lambda text: "".join(_MORSE.get(sign, " ") for sign in re.sub(" {2,}", " / ", text).split()),
    ),
    (re.compile(r"[A-Z](?<!\w.)[a-z]+(?:[A-Z][a-z]+){2,20}"), lambda text: re.sub(r"(?=[A-Z])", " ", text)),
    (
        re.compile(r"(?<![^\W_])(?:[^\W\d_]{2,20}[_./+~|-]){2,20}[^\W\d_]{2,20}"),
        lambda text: re.sub(r"[\W_]", " ", text),
    ),
    (
        re.compile(r"(?:['\"][^'\"\n]{1,80}['\"]\s?(?:\+|[,;]\s?\w{1,9}\s?=)\s?){1,5}['\"][^'\"\n]{1,80}['\"]"),
        lambda text: re.sub(r"['\"][^'\"]{1,30}['\"]", "", text[1:-1]),
    ),
)
"""Ways of writing that are quickly undone; what the function cannot read raises ValueError."""
_SPACED = re.compile(r"(?<!\w)[^\W_]([ .\-_/])[^\W_](?:\1[^\W_]){1,60}(?!\w)")
_RUN_TOGETHER = re.compile(
    r"(?i)ignore|disregard|forget|override|bypass|reveal|show|print|all|any|the|your|me|previous|prior|above|system|prompt|"
    r"hidden|secret|password|rules|instructions|guidelines|directives"
)
"""Words that are parted again where no gap is left between them."""
_MIXED = re.compile(r"[a-z][013457@$][a-z]|(?<!\w)[013457@$][a-z]{3}")
_LEET = str.maketrans("013457@$", "oieastas")
_LOOKALIKES = str.maketrans("аеорсухіԁѕјһԛԝ’οαιυνρτκηε", "aeopcyxidsjhqw'oaiuvptkne")
_KEY_WORDS = "ignore instruct prompt disregard forget reveal password guideline previous override".split()
_TURNED = re.compile("|".join(turned for word in _KEY_WORDS for turned in (word[::-1], codecs.encode(word, "rot13"))))
