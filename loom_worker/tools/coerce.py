"""Makes of what a model wrote what the schema asks for, where nothing is lost by it.

Models quote numbers, write JSON into a string and give one thing where a list of them is asked. Guided by what the
validator finds, so it follows references and alternatives as the validator does.
"""

import copy
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from jsonschema.exceptions import ValidationError

from loom_worker.tools.lossless import NOTHING, converted

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
