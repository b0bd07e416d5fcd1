"""What is wrong with arguments, in words a model can act on: the place, what was expected, what was given."""

import difflib
import json
from typing import Any

from jsonschema.exceptions import ValidationError, best_match

from loom_worker.tools.schemas import pointer

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
