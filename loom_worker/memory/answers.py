"""The JSON that models write where a summary and facts were asked for, read as far as it is whole. Pure."""

import re
from collections import ChainMap
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from loom_worker.core.text import one_line

MOST_CHARS, MOST_DEPTH = 12_000, 4
"""Length of an answer that is read (the worst text takes 4 s); objects and lists around an answer or a fact."""
MOST_LINE_CHARS = 1_000
"""Length of a fact on a line; longer ones are cut."""
END = "\ue000"
"""Ends an answer; text that holds it was cut."""
_ORDER = ("subject", "relation", "object", "message", "confidence")
_BETWEEN = re.compile(r"\s*(?:\||;|\t|→|[-=]+>|\s[-–—]\s)\s*")
_QUOTES = str.maketrans("“”„‟«»‘’‚", '""""""\'\'\'')


class Words(NamedTuple):
    """The tables of ``words.yaml``: usual names by all others, digits by number words, and what names a credential."""

    names: dict[str, str]
    counts: dict[str, str]
    credential: re.Pattern[str]


@lru_cache(maxsize=1)
def words() -> Words:
    """Read them, once. Behind a line end a credential counts only if its value follows."""
    found = yaml.safe_load(Path(__file__).with_name("words.yaml").read_text("utf-8"))
    numbers = [*enumerate(found["counts"]), *zip(range(20, 100, 10), found["tens"], strict=True)]
    named = "|".join(found["credentials"].splitlines())
    return Words(
        {other: name for name, others in found["names"].items() for other in (name, *others.split())},
        {word: str(number) for number, words in reversed(numbers) for word in words.split()},
        re.compile(rf"(?i)(?:{named})(?:(?=.*\n)|\W*(?:[:=]|\b(?:is|are|ist|lautet|est|es)\b)\W*\w|\W+\w*\d)"),
    )


def answer(text: str) -> dict[str, Any]:
    """The object with a summary or facts, under their usual names; without one, all there is as facts."""
    value = _json(text)
    found = list(_objects(value, MOST_DEPTH))
    if not found:
        return {"facts": value}
    # A draft may stand before the answer, and each fact on a line of its own.
    lone = (
        [each for each in value if isinstance(each, dict) and "object" in _named(each)]
        if isinstance(value, list)
        else []
    )
    given = [each["facts"] for each in found if each.get("facts")] + [lone] * bool(lone)
    summaries = [each["summary"] for each in found if each.get("summary")]
    joined = (
        given[0]
        if len(given) == 1
        else [fact for each in given for fact in (each if isinstance(each, list) else [each])]
    )
    last = {"facts": joined} if given else {}
    return {**ChainMap(*reversed(found)), **last, "summary": summaries[-1] if summaries else ""}


def _json(text: str) -> object:
    import json_repair

    begin = re.search(r"[\[{]", text := re.sub(r"(?is)\A.*</(?:think(?:ing)?|thought|reasoning)>", "", text))
    broken = re.sub(r"\}\s*\n\s*\{", "},{", text[begin.start() :][:MOST_CHARS] if begin else "") + END
    try:
        return json_repair.loads(broken if '"' in broken else broken.translate(_QUOTES))
    except (ValueError, RecursionError):
        return None


def _objects(value: object, depth: int) -> Iterator[dict[str, Any]]:
    value = _json(value) if isinstance(value, str) and "{" in value else value
    named = _named(value) if isinstance(value, dict) else {}
    if {"summary", "facts"} & named.keys():
        yield named
    elif depth and isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _objects(part, depth - 1)


def _named(given: Mapping[Any, object]) -> dict[str, Any]:
    usual = words().names
    return {usual.get(re.sub(r"\W", "_", str(key).strip().casefold()), str(key)): each for key, each in given.items()}


def _is_triple(given: list[Any]) -> bool:
    return len(given) > 2 and all(isinstance(part, str) for part in given[:3])


def facts(given: object, known: Mapping[str, Any], depth: int = MOST_DEPTH) -> Iterator[Mapping[str, Any]]:
    """Each fact, be it an object, a list or a line, by the usual names of its parts; those around it are known."""
    parts: Any = _named(given) if isinstance(given, dict) else given
    if isinstance(given, dict):
        known = dict(known) | {name: parts.pop(name) for name in words().names.values() if name in parts}
        if "object" in known or not parts or not depth:
            parts = {known.get("relation", ""): known.pop("object", None)}
        place = "relation" if "subject" in known else "subject"
        for key, value in parts.items():
            yield from facts(value, {**known, place: key}, max(depth - 1, 0))
    elif isinstance(given, list) and ("relation" in known or depth == MOST_DEPTH or not _is_triple(given)):
        is_many = {"many": True} if "relation" in known and len(given) > 1 else {}
        for each in given if depth else ():
            yield from facts(each, {**known, **is_many}, depth - 1)
    elif "relation" in known:
        yield {**known, "object": given}
    else:
        parts = (
            given if isinstance(given, list) else _BETWEEN.split(one_line(str(given), MOST_LINE_CHARS).strip(" ()[]"))
        )
        missing = (name for name in _ORDER if name not in known)
        yield {**known, **(dict(zip(missing, parts, strict=False)) if len(parts) > 1 else {})}
