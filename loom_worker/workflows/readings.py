"""What is read out of agents' answers: JSON, yes or no, one of several choices, a vote, a call to begin again. Pure."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jsonschema
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for

from loom_worker.core.values.json import Json, strict_json

_FENCED = re.compile(r"```[a-zA-Z]*\s*\n(.*?)```", re.DOTALL)
_YES = frozenset({"yes", "true", "pass", "passed", "passes", "valid", "ok", "okay", "correct", "approved"})
_NO = frozenset({"no", "false", "fail", "failed", "fails", "invalid", "incorrect", "rejected"})
_WORD = re.compile(r"[A-Za-z]+")
_VERDICT_MEMBERS = ("valid", "passed", "pass", "ok", "approved")
_VOTE_MEMBERS = ("vote", "choice", "answer", "decision")
_VOTE_LINE = re.compile(
    r"^\W*(?:vote|choice|decision|my vote)\W*[:=][\s*_`]*(?P<choice>.+?)[\s*_`.]*$", re.IGNORECASE | re.MULTILINE
)
_CONFIDENCE_LINE = re.compile(
    r"^\W*confidence\W*[:=][\s*_`]*(?P<value>\d+(?:\.\d+)?)\s*(?P<unit>%?)", re.IGNORECASE | re.MULTILINE
)
_RESTART_LINE = re.compile(
    r"^\W*RESTART\b(?:[ \t]+(?P<stage>[A-Za-z0-9._:-]+))?[ \t]*(?::[ \t]*(?P<reason>.*))?$", re.MULTILINE
)
_DENIES = re.compile(r"\b(?:no|not|none|neither|never|cannot|nothing)\b|n['’]t\b", re.IGNORECASE)
_LEADING_NUMBER = re.compile(
    r"\W*(?:the )?(?:best )?(?:answer|option|number|no\.?)?\W*(?P<number>\d{1,9})\b", re.IGNORECASE
)
_ABSTAINS = frozenset({"none", "abstain", "abstention", "no vote", "undecided"})
MOST_CHOICE_CHARS = 80
"""Characters of an answer in which a choice may stand among other words."""
_NO_WORD = re.compile(r"\W+")
MOST_SHOWN = 20
"""Values of an enumeration that an agent is told of."""
MOST_ERROR_CHARS = 500


@dataclass(frozen=True, slots=True)
class Vote:
    """What one agent voted for."""

    choice: str
    """As it was written."""
    confidence: float
    """0-1."""

    @property
    def counted_as(self) -> str:
        """Choices that differ in case, blanks or the punctuation around them are the same one."""
        return normalized(self.choice)


@dataclass(frozen=True, slots=True)
class Restart:
    """An agent asks for another iteration."""

    stage: str
    """From which stage on; empty: from the first."""
    reason: str


def normalized(text: str) -> str:
    """A short answer as it is compared: lower case, single blanks, nothing but letters and digits at its ends."""
    return re.sub(r"^\W+|\W+$", "", " ".join(text.split()).casefold())


def json_in(text: str) -> Any:
    """The JSON of an answer: all of it, the first fenced block, or the outermost braces or brackets.

    Raises:
        ValueError: there is none.
    """
    fenced = _FENCED.search(text)
    candidates = [text, *([fenced[1]] if fenced else []), *_outermost(text)]
    for candidate in candidates:
        try:
            return strict_json(candidate)
        except ValueError:
            continue
    raise ValueError("there is no JSON in it")


def _outermost(text: str) -> Iterable[str]:
    for opening, closing in ("{}", "[]"):
        begin, end = text.find(opening), text.rfind(closing)
        if 0 <= begin < end:
            yield text[begin : end + 1]


def schema_error(text: str, schema: Mapping[str, Any], *, shows_values: bool) -> str:
    """Why an output is not what its schema says; empty if it is.

    Args:
        shows_values: True: the values that an enumeration allows are named.
    """
    try:
        value = json_in(text)
    except ValueError as error:
        return f"JSON is needed, and {error}"
    found = jsonschema.exceptions.best_match(_validator(schema).iter_errors(value))
    if found is None:
        return ""
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in found.absolute_path).lstrip(".")
    said = found.message if shows_values or found.validator not in ("enum", "const") else "the value is not allowed"
    return f"{place}: {said}"[:MOST_ERROR_CHARS] if place else said[:MOST_ERROR_CHARS]


def _validator(schema: Mapping[str, Any]) -> Validator:
    return validator_for(dict(schema), default=jsonschema.Draft202012Validator)(dict(schema))


def valid_values(schema: Mapping[str, Any], place: str = "") -> list[str]:
    """The enumerations of a schema, each as ``place: a, b, c``."""
    found = []
    options = schema.get("enum")
    if isinstance(options, list):
        listed = ", ".join(json.dumps(option, ensure_ascii=False) for option in options[:MOST_SHOWN])
        found.append(f"{place or 'the value'}: {listed}")
    properties = schema.get("properties")
    for name, part in properties.items() if isinstance(properties, Mapping) else ():
        found += valid_values(part, f"{place}.{name}".lstrip(".")) if isinstance(part, Mapping) else []
    part = schema.get("items")
    return found + (valid_values(part, f"{place}[]") if isinstance(part, Mapping) else [])


def verdict(text: str) -> bool | None:
    """Whether an answer says yes; None if it begins with neither yes nor no.

    JSON counts by its member ``valid`` (or ``passed``, ``ok``, ``approved``). Of a text the first word alone counts:
    "it is not valid" holds a yes, too.
    """
    found = _member(text, _VERDICT_MEMBERS)
    if isinstance(found, bool):
        return found
    first = _WORD.search(found if isinstance(found, str) else text)
    word = "" if first is None else first[0].casefold()
    return True if word in _YES else False if word in _NO else None


def choice_of(text: str, choices: Sequence[str]) -> str | None:
    """Which of several choices an answer names; None if it names none, or more than one.

    All of the answer, its last or its first line may be the choice. Of a short answer it is the only one that stands in
    it as words, unless the answer denies something; a long one may hold any word.
    """
    by_name = {normalized(choice): choice for choice in choices}
    lines = [line for line in text.splitlines() if line.strip()]
    for part in (text, *lines[-1:], *lines[:1]):
        if (named := by_name.get(normalized(part))) is not None:
            return named
    if len(text) > MOST_CHOICE_CHARS or _DENIES.search(text):
        return None
    whole = _words(text)
    found = [choice for name, choice in by_name.items() if name and _words(name) in whole]
    longest = [choice for choice in found if not any(choice != other and choice in other for other in found)]
    return longest[0] if len(longest) == 1 else None


def _words(text: str) -> str:
    return f" {' '.join(_NO_WORD.split(text.casefold()))} "


def vote_of(text: str) -> Vote | None:
    """The vote in an answer: JSON with ``vote`` and ``confidence``, or lines ``VOTE: …`` and ``CONFIDENCE: …``.

    Without a confidence the vote counts as a sure one; a percentage, or a number above 1, is taken as of 100.
    """
    found = _member(text, _VOTE_MEMBERS)
    if isinstance(found, str | int | float) and str(found).strip():
        return _vote(str(found), _member(text, ("confidence",)))
    lines = _VOTE_LINE.findall(text)
    if not lines:
        return None
    stated = _CONFIDENCE_LINE.findall(text)
    number = float(stated[-1][0]) / (100 if stated[-1][1] else 1) if stated else 1.0
    return _vote(lines[-1], number)


def _vote(choice: str, confidence: Any) -> Vote | None:
    name = normalized(choice)
    return None if not name or name in _ABSTAINS else Vote(choice.strip(), _confidence(confidence))


def _confidence(value: Any) -> float:
    if isinstance(value, str):
        value = float(value) if re.fullmatch(r"\d+(?:\.\d+)?", value) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 1.0
    return min(max(value / 100 if value > 1 else float(value), 0.0), 1.0)


def restart_of(text: str) -> Restart | None:
    """What an answer says about another iteration: JSON with ``restart``, or a line ``RESTART [stage][: reason]``."""
    found = _member(text, ("restart",))
    if found is True or (isinstance(found, str) and found):
        return Restart("" if found is True else found, str(_member(text, ("reason",)) or ""))
    line = _RESTART_LINE.search(text)
    return Restart(line["stage"] or "", (line["reason"] or "").strip()) if line else None


def leading_number(text: str, *, most: int) -> int | None:
    """The number with which an answer begins, such as ``2`` or ``Answer 2:``; None if that is not one of 1 to most."""
    found = _LEADING_NUMBER.match(text)
    return int(found["number"]) if found and 1 <= int(found["number"]) <= most else None


def _member(text: str, names: Sequence[str]) -> Any:
    """The first of these members in the JSON object of an answer; None if there is none."""
    try:
        value = json_in(text)
    except ValueError:
        return None
    members: Json = {str(name).casefold(): each for name, each in value.items()} if isinstance(value, dict) else {}
    return next((members[name] for name in names if members.get(name) is not None), None)
