"""Which tools there are, and why a call of the model's may not run."""

import difflib
import re
from collections.abc import Iterable, Iterator

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from referencing import Registry as SchemaRegistry
from referencing import Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from loom_worker.errors import BadSettings
from loom_worker.values.chat import ToolSpec, ToolUse
from loom_worker.values.tools import Tool

MAX_FLAW_CHARS = 200


class Registry:
    """The tools of a process; never changes once it is built."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        """Check every tool and compile its schema.

        Raises:
            BadSettings: a name is taken or one that providers refuse, or a schema is not valid.
        """
        self._tools: dict[str, Tool] = {}
        self._validators: dict[str, Draft202012Validator] = {}
        for tool in sorted(tools, key=lambda each: each.spec.name):
            name = tool.spec.name
            if name in self._tools:
                raise BadSettings(f"two tools are named {name!r}")
            self._validators[name] = _validator(tool.spec)
            self._tools[name] = tool

    def specs(self, allowed: tuple[str, ...] | None = None) -> tuple[ToolSpec, ...]:
        """Specs by name, the same order in every process; names in ``allowed`` that do not exist are skipped."""
        return tuple(self._tools[name].spec for name in self._tools if _may(name, allowed))

    def get(self, name: str) -> Tool | None:
        """The tool of that name."""
        return self._tools.get(name)

    def flaw(self, call: ToolUse, allowed: tuple[str, ...] | None = None) -> str | None:
        """Why this call cannot run, in words the model can act on; None if it can."""
        if call.name not in self._tools:
            return self._unknown(call.name, allowed)
        if not _may(call.name, allowed):
            return _short(f"the tool {call.name!r} is not allowed for this agent")
        if call.flaw is not None:
            return _short(f"the arguments could not be read: {call.flaw}")
        error = best_match(self._validators[call.name].iter_errors(call.arguments))
        return _short(f"{_pointer(error)}: {error.message}") if error else None

    def _unknown(self, name: str, allowed: tuple[str, ...] | None) -> str:
        names = [known for known in self._tools if _may(known, allowed)]
        close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        advice = f"did you mean {', '.join(close)}?" if close else f"tools: {', '.join(names) or 'none'}"
        return _short(f"there is no tool {_short(name, 64)!r}; {advice}")


def _may(name: str, allowed: tuple[str, ...] | None) -> bool:
    return allowed is None or name in allowed


def _validator(spec: ToolSpec) -> Draft202012Validator:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", spec.name):
        raise BadSettings(f"tool {spec.name!r}: a name is 1-64 of A-Z a-z 0-9 _ -")
    try:
        Draft202012Validator.check_schema(spec.input_schema)
        if spec.input_schema.get("type") != "object":
            raise BadSettings(f"tool {spec.name!r}: the input schema's type must be object")
        _check_references(spec)
    except SchemaError as error:
        raise BadSettings(f"tool {spec.name!r}: invalid input schema at {_pointer(error)}: {error.message}") from error
    except Unresolvable as error:
        raise BadSettings(
            f"tool {spec.name!r}: the input schema refers to {error.ref!r}, which is not in it"
        ) from error
    # An empty registry: the default one would fetch foreign references from the network.
    return Draft202012Validator(dict(spec.input_schema), registry=SchemaRegistry())


def _check_references(spec: ToolSpec) -> None:
    whole = Resource.from_contents(dict(spec.input_schema), default_specification=DRAFT202012)
    resolver = SchemaRegistry().with_resource("", whole).resolver()
    for reference in _references(spec.input_schema):
        resolver.lookup(reference)


def _references(schema: object) -> Iterator[str]:
    match schema:
        case dict():
            if isinstance(schema.get("$ref"), str):
                yield schema["$ref"]
            for value in schema.values():
                yield from _references(value)
        case list():
            for value in schema:
                yield from _references(value)


def _pointer(error: ValidationError | SchemaError) -> str:
    """A JSON pointer (RFC 6901) to the place; ``/`` stands for the whole."""
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in error.absolute_path)
    return "/" + "/".join(steps)


def _short(text: str, limit: int = MAX_FLAW_CHARS) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
