"""Which skills a message calls for: those it names, and those whose keywords it contains."""

import re
import unicodedata
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Literal

from loom_worker.core.values.skills import Skill, SkillShelf
from loom_worker.core.words import UNSPACED

Reason = Literal["manual", "keyword"]
"""Why a skill was chosen."""
MAX_CHARS = 20_000
"""Most characters of a message that are searched; of a longer one, half are its beginning and half its end."""
_HALF = MAX_CHARS // 2
_CALL = re.compile(r"(?<!\w)use\s+skills?\s*[:：]")
_QUOTES = "\"'`*“”„‘’«»「」"
_NAMED = re.compile(rf"[\s{_QUOTES}]*([\w.-]+)[{_QUOTES}]*")
_AND = re.compile(r"\s*(?:[,，、;；&+]\s*(?:and\b)?|\band\b)")
_SPACED = rf"[^\W{UNSPACED.pattern[1:-1]}]"
"""A character of a word in a script that is written with spaces."""
_WORD = re.compile(f"{_SPACED}+")


def chosen(shelf: SkillShelf, message: str, *, most: int) -> tuple[tuple[Skill, Reason], ...]:
    """At most so many skills, each with why: first those called by ``use skill: name``, in the order of their mention.

    Any skill can be called. Then come skills with trigger keyword, those with the most different keywords first.
    """
    text = _folded(message if len(message) <= MAX_CHARS else f"{message[:_HALF]}\n{message[-_HALF:]}")
    words = frozenset(_WORD.findall(text))
    called = _called(text, {skill.name: skill for skill in shelf.skills})
    hits = [
        (-found, skill.name, skill)
        for skill in shelf.skills
        if skill.trigger == "keyword" and skill.name not in called and (found := _hits(skill.keywords, text, words))
    ]
    found_all: list[tuple[Skill, Reason]] = [(skill, "manual") for skill in called.values()]
    found_all += [(skill, "keyword") for _, _, skill in sorted(hits, key=lambda hit: hit[:2])]
    return tuple(found_all[: max(most, 0)])


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _called(text: str, skills: Mapping[str, Skill]) -> dict[str, Skill]:
    """Skills by name; one ``use skill:`` may name several, with commas or "and" between them."""
    folded = {_folded(name): skill for name, skill in skills.items()}
    called: dict[str, Skill] = {}
    for call in _CALL.finditer(text):
        at = call.end()
        while (named := _NAMED.match(text, at)) and (skill := folded.get(named[1].strip("-_."))):
            called[skill.name] = skill
            if (further := _AND.match(text, named.end())) is None:
                break
            at = further.end()
    return called


def _hits(keywords: tuple[str, ...], text: str, words: AbstractSet[str]) -> int:
    """How many different keywords stand in a folded text that has these words."""
    return sum(
        parts <= words and keyword in text and _as_words(keyword).search(text) is not None
        for keyword, parts in _folded_all(keywords).items()
    )


@lru_cache(maxsize=1024)
def _folded_all(keywords: tuple[str, ...]) -> Mapping[str, frozenset[str]]:
    """Folded keywords, each with its words: if one of those is missing, there is no need to search."""
    folded = set(map(_folded, keywords)) - {""}
    return {keyword: frozenset(_WORD.findall(keyword)) for keyword in folded}


@lru_cache(maxsize=4096)
def _as_words(keyword: str) -> re.Pattern[str]:
    """The keyword between the ends of words; at a Chinese, Japanese or Korean end of it, anywhere."""
    before = "" if UNSPACED.match(keyword) else f"(?<!{_SPACED})"
    after = "" if UNSPACED.match(keyword[-1:]) else f"(?!{_SPACED})"
    return re.compile(before + re.escape(keyword) + after)
