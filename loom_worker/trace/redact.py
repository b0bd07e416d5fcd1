"""What leaves of a span: nothing that identifies a person, no secret, no attribute named like a credential. Pure."""

import json
import re
from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

from loom_worker.core.values.json import Json
from loom_worker.core.values.spans import SpanEvent, TraceSpan
from loom_worker.guard.findings import KEPT_OUT, SECRET, redacted

LONGEST_CHARS = 16_000
"""Characters of a value that is looked at; no more of it could be sent."""
CUT_CHARS = 512
"""Taken off the end of a value that was longer: a secret that is cut in two is not recognized there."""
SHORT_CHARS = 64
"""Up to which a text that was looked at is remembered."""
DEPTH = 20
"""Levels of JSON, texts that hold JSON in their turn included; what lies deeper is replaced."""
_OF_IDS = frozenset({"secret", "email", "ssn"})
"""What is looked for in ids and in names of models: their digits would pass for telephone numbers and cards."""
_OF_NUMBERS = frozenset({"card"})

_JSON = ("{", "[")
_short = lru_cache(4096)(redacted)
"""For names of attributes, models, agents and tools, which come again and again."""
_NUMBER = re.compile(r"[0-9][0-9,._:TZ+-]{0,31}")
"""Or a moment, such as that of the first token."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_PLAIN = re.compile(r"[a-z][a-z_.]{0,29}")
"""A word of Loom's own, such as ``completed`` or ``turn.reply``: too short for a key, and nothing else is one word."""
_CREDENTIAL = re.compile(
    r"passw(?:or)?d|passphrase|passcode|secrets?\Z|^secrets?(?!ar)|apikey|authorization|cookie|credential|bearer"
    r"|(?:private|access|signing|encryption|master)keys?"
)
_PAIR = re.compile(
    r"(?:api|private|access|account|auth|signing|encryption|master|secret|ssh|client)(?:keys?|secrets?)"
    r"|pass(?:word|wd|phrase|code)s?"
)
_LONE = frozenset({"pwd", "jwt", "sessionkey", "otp"})
_TOKEN = re.compile(r"tokens?\Z")
_COUNTED = frozenset(
    "count counts max min total limit budget usage used input output cached cache prompt completion reasoning window"
    " number num per first size remaining estimated reserved length context saved spent before after tokens".split()
)
"""Words that make "token" one of a model's, which are counted."""
_ID = frozenset({"id", "ids", "model", "models", "traceparent", "fence", "version", "hash", "digest"})


def redacted_span(span: TraceSpan) -> TraceSpan:
    """The span as others may see it; its ids, times and numbers are as they were."""
    return replace(
        span,
        name=redacted_text(span.name),
        attributes=redacted_attributes(span.attributes),
        events=tuple(
            SpanEvent(redacted_text(event.name), event.at_us, redacted_attributes(event.attributes))
            for event in span.events
        ),
        status_message=redacted_text(span.status_message),
    )


def redacted_attributes(attributes: Json) -> Json:
    """Attributes, or any object of JSON, without those that are named like credentials."""
    return _object(attributes, DEPTH)


def redacted_text(text: str) -> str:
    """A text without secrets and personal data; one that holds JSON also loses what is named like a credential."""
    return _text(text, KEPT_OUT, DEPTH)


def is_credential(name: str, value: object) -> bool:
    """True if the name says that the value is a credential; a count of tokens is none, nor is yes or no."""
    if isinstance(value, bool) or value is None:
        return False
    kind = _kind(name)
    if kind == "token":
        return not isinstance(value, int | float)
    if kind == "count":
        return not isinstance(value, int | float) and not (isinstance(value, str) and _NUMBER.fullmatch(value))
    return kind == "credential"


@lru_cache(4096)
def _kind(name: str) -> str:
    """What a name stands for: credential, token (one if it is a text), count (none if it is a number), id, or other."""
    words = [word.lower() for word in _WORD.findall(name)]
    pairs = ["".join(pair) for pair in pairwise(words)]
    if any(_CREDENTIAL.search(word) or word in _LONE for word in words) or any(map(_PAIR.fullmatch, pairs)):
        return "credential"
    if any(map(_TOKEN.search, words)):
        return "count" if _COUNTED.intersection(words) else "token"
    return "id" if words and words[-1] in _ID else "other"


def _object(values: Json, depth: int) -> Json:
    kept: Json = {}
    for name, value in values.items():
        if not is_credential(name, value):
            kinds = _OF_IDS if _kind(name) == "id" else KEPT_OUT
            kept[_text(name, KEPT_OUT, depth=0)] = _value(value, kinds, depth - 1)
    return kept


def _value(value: Any, kinds: Collection[str], depth: int) -> Any:
    match value:
        case str():
            return _text(value, kinds, depth)
        case dict() | list() | tuple() if depth <= 0:
            return SECRET
        case dict():
            return _object(value, depth)
        case list() | tuple():
            return [_value(each, kinds, depth - 1) for each in value]
        case _:
            return value


def _text(text: str, kinds: Collection[str], depth: int) -> str:
    if _PLAIN.fullmatch(text):
        return text
    if len(text) > LONGEST_CHARS:
        return redacted(text[:LONGEST_CHARS], kinds)[:-CUT_CHARS]
    if len(text) <= SHORT_CHARS and not text.lstrip().startswith(_JSON):
        return _short(text, frozenset(kinds))
    if depth > 0 and (found := _json(text)) is not None:
        # Texts and names within it were searched one by one. A card can also stand there as a number.
        return redacted(_without_credentials(text, found, depth - 1), _OF_NUMBERS)
    return redacted(text, kinds)


def _json(text: str) -> Any:
    """The object or list that a text holds; None for any other text, or if a name stands twice in an object."""
    if not text.lstrip().startswith(_JSON):
        return None
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        return None


def _unique(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice, and only the last value would be seen")
    return found


def _without_credentials(text: str, found: Any, depth: int) -> str:
    kept = _value(found, KEPT_OUT, depth)
    # What did not change keeps its spelling.
    return text if kept == found else json.dumps(kept, ensure_ascii=False)
