"""Makes of what a model wrote what the schema asks for, where nothing is lost by it, and says what is wrong otherwise.

Models quote numbers, write JSON into a string and give one thing where a list of them is asked. Guided by what the
validator finds, so it follows references and alternatives as the validator does.
"""

import copy
import difflib
import json
import math
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import pairwise
from typing import Any

from jsonschema.exceptions import ValidationError, best_match

from loom_worker.tools.schemas import pointer

ROUNDS = 6
"""What was text and became an object can have texts of its own, so a value is looked at this often."""


def coerced(arguments: Any, validator: Any) -> Any:
    """Arguments as valid as they can be made without loss; a copy where anything is changed."""
    if validator.is_valid(arguments):
        return arguments
    box = [copy.deepcopy(arguments)]
    for _ in range(ROUNDS):
        mended = [_mend(box, error, validator) for error in list(validator.iter_errors(box[0]))]
        if not any(mended):
            break
    return box[0]


def _mend(box: list[Any], error: ValidationError, validator: Any) -> bool:
    """Put a value that says the same in the place of an error; False where there is none."""
    holder, last = _place(box, error)
    if holder is None or holder[last] is not error.instance:
        return False  # mended already, by another error at the same place
    if error.instance is None and _is_property(error, last):
        del holder[last]  # null for an argument: it is not given
        return True
    better = next(_better(error, validator), NOTHING)
    if better is NOTHING:
        return False
    holder[last] = better
    return True


def _place(box: list[Any], error: ValidationError) -> tuple[Any, Any]:
    """What holds the value of an error, and under which step; None if it is not there any more."""
    *above, last = [0, *error.absolute_path]
    holder: Any = box
    try:
        for step in above:
            holder = holder[step]
        holder[last]
    except (KeyError, IndexError, TypeError):
        return None, last
    return holder, last


def _better(error: ValidationError, validator: Any) -> Iterator[Any]:
    """Values that say the same as the one in error, those that end the error first."""
    here, wanted = validator.evolve(schema=error.schema), _wanted(error)
    if error.validator in ("anyOf", "oneOf"):
        trials = (coerced(error.instance, validator.evolve(schema=each)) for each in wanted)
        yield from (trial for trial in trials if here.is_valid(trial))
    elif error.validator == "type":
        found = [each for kind in wanted if (each := converted(error.instance, kind)) is not NOTHING]
        yield from (each for each in found if len(found) == 1 or here.is_valid(each))
        yield from found


def _wanted(error: ValidationError) -> list[Any]:
    value: Any = error.validator_value
    return value if isinstance(value, list) else [value]


def _is_property(error: ValidationError, name: object) -> bool:
    """True for an argument that the schema names; an entry of a map is data, and stays."""
    steps = list(error.absolute_schema_path)
    return ("properties", name) in list(pairwise(steps))


MAX_FLAW_CHARS = 200
_SHOWN_CHARS = 40


def flaw(arguments: Any, validator: Any) -> str | None:
    """The gravest flaw of arguments, None if they are valid."""
    error = best_match(validator.iter_errors(arguments))
    return None if error is None else short(f"{pointer(error)}: {_said(error)}")


def short(text: str, limit: int = MAX_FLAW_CHARS) -> str:
    """The beginning of a text, with an ellipsis where it goes on."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def nearest(name: str, names: list[str]) -> str:
    """Advice for a name that is not among these."""
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return f"did you mean {', '.join(close)}?" if close else f"known: {', '.join(names) or 'none'}"


def _said(error: ValidationError) -> str:
    if expected := _expected(error):
        return f"expected {' or '.join(expected)}, got {_shown(error.instance)}"
    if error.validator == "additionalProperties" and error.validator_value is False:
        return _unknown(error)
    # The library writes the whole value in front of its complaint, which would be all that is left of it.
    return str(error.message).replace(repr(error.instance), _shown(error.instance), 1)


def _expected(error: ValidationError) -> list[str]:
    """All types that would do, if its type is what is wrong: alternatives are errors of their own below one parent."""
    siblings = [error]
    whole = error if error.context else error.parent
    if whole is not None and whole.validator in ("anyOf", "oneOf"):
        siblings = [each for each in whole.context if each.absolute_path == error.absolute_path]
    if not all(each.validator == "type" for each in siblings):
        return []
    kinds: list[Any] = [each.validator_value for each in siblings]
    return list(dict.fromkeys(kind for each in kinds for kind in (each if isinstance(each, list) else [each])))


def _unknown(error: ValidationError) -> str:
    schema: Any = error.schema
    given: Any = error.instance
    known = list(schema.get("properties", {}))
    foreign = next((name for name in given if name not in known), "")
    left = [name for name in known if name not in given]
    return f"unknown property {short(foreign, _SHOWN_CHARS)!r}; {nearest(foreign, left or known)}"


def _shown(value: object) -> str:
    return short(json.dumps(value, ensure_ascii=False, default=str), _SHOWN_CHARS)


NOTHING = object()
"""No value of that type says the same."""
MOST_CHARS = 1_000_000
"""Longer text is not read as JSON."""

# As JSON writes numbers: 007 and +5 are names of something, and no numbers.
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,300})(?:\.[0-9]{1,300})?(?:[eE][+-]?[0-9]{1,3})?")
_WORDS = {"true": True, "false": False}


def converted(value: Any, kind: str) -> Any:
    """The value as this type of JSON Schema, NOTHING if there is none that says the same."""
    try:
        return _TO[kind](value)
    except (ValueError, KeyError, RecursionError):
        return NOTHING


def _whole(value: Any) -> int:
    if isinstance(value, float):
        return _integral(Decimal(value))
    return _integral(Decimal(_number_text(value)))


def _integral(number: Decimal) -> int:
    if not number.is_finite() or number != number.to_integral_value():
        raise ValueError(number)
    return int(number)


def _number(value: Any) -> int | float:
    text = _number_text(value)
    return int(text) if text.lstrip("-").isdecimal() else _exact(text)


def _number_text(value: Any) -> str:
    if not isinstance(value, str) or not _NUMBER.fullmatch(value.strip()):
        raise ValueError(value)
    return value.strip()


def _exact(text: str) -> float:
    """The number that is written so, if it is written back with the same digits."""
    number = float(text)
    if not math.isfinite(number) or Decimal(repr(number)) != Decimal(text):
        raise ValueError(text)
    return number


def _truth(value: Any) -> bool:
    return _WORDS[value.strip().lower() if isinstance(value, str) else ""]


def _text(value: Any) -> str:
    if not isinstance(value, int | float):
        raise ValueError(value)
    return json.dumps(value, allow_nan=False)


def _null(value: Any) -> None:
    if value != "null":
        raise ValueError(value)


def _list(value: Any) -> list[Any]:
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        parsed = _parsed(value)
        return parsed if isinstance(parsed, list) else [parsed]
    if value is None:
        raise ValueError(value)
    return [value]


def _object(value: Any) -> dict[str, Any]:
    parsed = _parsed(value)
    if not isinstance(parsed, dict):
        raise ValueError(value)
    return parsed


def _parsed(text: Any) -> Any:
    if not isinstance(text, str) or len(text) > MOST_CHARS:
        raise ValueError(text)
    return json.loads(text, object_pairs_hook=_distinct, parse_float=_exact, parse_constant=_refuse)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key stands there twice")
    return made


def _refuse(constant: str) -> None:
    raise ValueError(constant)


_TO: dict[str, Callable[[Any], Any]] = {
    "integer": _whole,
    "number": _number,
    "boolean": _truth,
    "string": _text,
    "null": _null,
    "array": _list,
    "object": _object,
}
