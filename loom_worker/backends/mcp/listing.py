"""What a server offers, as far as it can be used: tools with their hints, and why others were left out. Pure.

A tool's schema comes from a stranger and is run against every call: references are written out (none leads anywhere
else, none in a circle), patterns become words (a crafted one keeps Python's ``re`` busy for years), texts lose what is
invisible. Whatever is thereby checked less is checked by the server itself.
"""

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loom_worker.backends.tool_schemas import Unfit, normal, pointed
from loom_worker.core.text import clean, short
from loom_worker.core.values.agents import McpServer
from loom_worker.core.values.json import Json

MAX_BYTES = 32 * 1024
"""Bytes of the schema as JSON, references written out."""
MAX_DEPTH = 24
MAX_NODES = 4000
"""Objects, lists and values; a few references that each hold two others would otherwise grow without end."""
MAX_TEXT_CHARS = 1024

_NAMED = frozenset({"properties", "dependentSchemas", "dependencies"})
"""Keywords whose keys are names of the tool's own."""
_DROPPED = frozenset(
    "$defs definitions $schema $id $anchor $comment $vocabulary $dynamicAnchor $dynamicRef $recursiveRef "
    "$recursiveAnchor pattern patternProperties".split()
)
_VALUES = frozenset({"const", "default", "enum", "examples", "example", "required", "dependentRequired"})
"""Keywords that hold values, in which ``$ref`` or ``pattern`` would mean nothing."""
_NOTES = frozenset({"description", "title", "default", "examples", "deprecated", "readOnly", "writeOnly"})
"""Keywords next to a reference that do not restrict it."""


def fitted(schema: object) -> Json:
    """A copy that is small, needs nothing from elsewhere and is of an object; whether it is valid is not looked at.

    Raises:
        Unfit: there is no such copy.
    """
    found = normal(_Copy(schema).schema(schema, (), 0) if isinstance(schema, dict) else schema)
    size = len(json.dumps(found).encode())
    if size > MAX_BYTES:
        raise Unfit(f"its input schema is {size} bytes long, {MAX_BYTES} are allowed")
    return found


class _Copy:
    def __init__(self, whole: Mapping[str, Any]) -> None:
        self._whole = whole
        self._nodes = 0

    def schema(self, node: Mapping[str, Any], inside: tuple[str, ...], depth: int) -> Json:
        """Copy one schema; ``inside`` are the references it is written out for."""
        self._count(depth)
        kept = {_name(key): value for key, value in node.items() if key not in _DROPPED and key != "$ref"}
        copy = {key: self._keyword(key, value, inside, depth + 1) for key, value in kept.items()}
        if isinstance(node.get("pattern"), str):
            note = f"(pattern: {visible(node['pattern'])})"
            copy["description"] = short(f"{copy.get('description', '')} {note}".strip(), MAX_TEXT_CHARS)
        if "patternProperties" in node:
            copy.pop("additionalProperties", None)
            copy.pop("unevaluatedProperties", None)
        return copy if "$ref" not in node else self._referred(node["$ref"], copy, inside, depth)

    def _referred(self, reference: object, siblings: Json, inside: tuple[str, ...], depth: int) -> Json:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise Unfit(f"its input schema refers to {short(visible(str(reference)), 60)!r}, which is not in it")
        if reference in inside:
            return siblings
        found = self._any(self._at(reference), (*inside, reference), depth + 1)
        if not isinstance(found, dict):
            return siblings if found is True else {**siblings, "not": {}}
        return {**found, **siblings} if siblings.keys() <= _NOTES else {**siblings, "allOf": [found]}

    def _at(self, reference: str) -> Any:
        try:
            return pointed(self._whole, reference)
        except (LookupError, TypeError, ValueError) as error:
            found = short(visible(reference), 60)
            raise Unfit(f"its input schema refers to {found!r}, which is not in it") from error

    def _keyword(self, key: str, value: Any, inside: tuple[str, ...], depth: int) -> Any:
        if key in _NAMED and isinstance(value, dict):
            self._count(depth)
            return {_name(name): self._any(each, inside, depth + 1) for name, each in value.items()}
        if key in _VALUES:
            return self._value(value, depth)
        return self._any(value, inside, depth)

    def _any(self, value: Any, inside: tuple[str, ...], depth: int) -> Any:
        if isinstance(value, dict):
            return self.schema(value, inside, depth)
        self._count(depth)
        if isinstance(value, list):
            return [self._any(each, inside, depth + 1) for each in value]
        return short(visible(value), MAX_TEXT_CHARS) if isinstance(value, str) else value

    def _value(self, value: Any, depth: int) -> Any:
        self._count(depth)
        if isinstance(value, dict):
            return {_name(name): self._value(each, depth + 1) for name, each in value.items()}
        if isinstance(value, list):
            return [self._value(each, depth + 1) for each in value]
        return _name(value) if isinstance(value, str) else value

    def _count(self, depth: int) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise Unfit(f"its input schema has more than {MAX_NODES} parts")
        if depth > MAX_DEPTH:
            raise Unfit(f"its input schema is nested more than {MAX_DEPTH} deep")


def _name(name: str) -> str:
    if visible(name) != name or len(name) > MAX_TEXT_CHARS:
        raise Unfit("its input schema has names or values with invisible characters, or very long ones")
    return name


_KEPT = "\n\t"
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_JOINERS = "\u200c\u200d\ufe0f"
_VARIATIONS = frozenset([*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0), 0x034F, 0x115F, 0x1160, 0x3164, 0xFFA0])
"""Selectors and fillers: no category of their own, nothing to see, and enough of them to carry hidden text."""


def visible(text: str) -> str:
    """The text without characters that a person cannot see but a model reads; joiners stay where they do join."""
    if text.isascii() and text.isprintable():
        return text
    return clean("".join(char for char in text if char in _KEPT or char in _JOINERS or not _is_hidden(char)))


def plain(text: str, limit: int) -> str:
    """Visible, in one line and short: fit for a log or an error."""
    return visible(short(" ".join(visible(text[: 4 * limit]).split()), limit))


def _is_hidden(char: str) -> bool:
    return unicodedata.category(char) in _INVISIBLE or ord(char) in _VARIATIONS


MAX_TOOLS = 128
"""Tools of one server; those beyond are left out."""
MAX_DESCRIPTION_CHARS = 1024
MAX_NAME_CHARS = 64
"""What providers take; the names of servers and tools are cut to this together."""
MAX_OWN_NAME_CHARS = 256
"""Characters of a tool's name on its server."""
_DIGEST_CHARS = 8


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as its server describes it, cleaned."""

    name: str
    """The server's own; calls use it."""
    description: str
    input_schema: Json
    says_read_only: bool = False
    says_idempotent: bool = False


@dataclass(frozen=True, slots=True)
class ToolListing:
    """All of one server."""

    tools: tuple[ListedTool, ...] = ()
    problems: tuple[str, ...] = field(default=())
    """Why tools were left out."""

    def as_json(self) -> Json:
        """What from_json reads."""
        tools = [[t.name, t.description, t.input_schema, t.says_read_only, t.says_idempotent] for t in self.tools]
        return {"tools": tools, "problems": list(self.problems)}

    @classmethod
    def from_json(cls, data: Json) -> "ToolListing":
        """Read what as_json wrote.

        Raises:
            KeyError, TypeError: something else wrote it.
        """
        return cls(tuple(ListedTool(*each) for each in data["tools"]), tuple(data["problems"]))


def listing(raw: Sequence[object]) -> ToolListing:
    """Take over what a server sent; a tool that cannot be used costs only itself."""
    tools: dict[str, ListedTool] = {}
    problems: list[str] = []
    for place, one in enumerate(raw[:MAX_TOOLS]):
        try:
            tool = _listed(one)
            if tool.name in tools:
                raise Unfit("its name is taken by one before it")
            tools[tool.name] = tool
        except Unfit as why:
            problems.append(f"the tool {_called(one, place)} was left out: {why}")
    if len(raw) > MAX_TOOLS:
        problems.append(f"only the first {MAX_TOOLS} tools were taken")
    return ToolListing(tuple(tools.values()), tuple(problems))


def chosen(found: ToolListing, server: McpServer) -> tuple[tuple[ListedTool, ...], tuple[str, ...]]:
    """The tools that the agent's file wants, and what it wants in vain."""
    if server.tools is None:
        return found.tools, ()
    by_name = {tool.name: tool for tool in found.tools}
    absent = [name for name in dict.fromkeys(server.tools) if name not in by_name]
    kept = tuple(by_name[name] for name in dict.fromkeys(server.tools) if name in by_name)
    return kept, tuple(f"it has no usable tool {plain(name, 60)!r}" for name in absent)


def names(pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Names fit for every provider, one for each (server, tool): ``server__tool``.

    Where that is too long, or two would be the same, the end is a digest of both names, so that a name depends on
    no order.
    """
    wanted = {pair: re.sub(r"[^A-Za-z0-9_-]", "_", "__".join(pair)) for pair in pairs}
    many = Counter(wanted.values())
    return {
        pair: name if many[name] == 1 and len(name) <= MAX_NAME_CHARS else _digested(pair, name)
        for pair, name in wanted.items()
    }


def _digested(pair: tuple[str, str], name: str) -> str:
    digest = hashlib.sha256("\0".join(pair).encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    return f"{name[: MAX_NAME_CHARS - _DIGEST_CHARS - 1]}_{digest}"


def _listed(one: object) -> ListedTool:
    if not isinstance(one, dict):
        raise Unfit("it is not an object")
    name, description = one.get("name"), one.get("description") or ""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_OWN_NAME_CHARS or visible(name) != name:
        raise Unfit(f"its name is not 1-{MAX_OWN_NAME_CHARS} visible characters")
    if not isinstance(description, str):
        raise Unfit("its description is not a text")
    execution = one.get("execution")
    if isinstance(execution, dict) and execution.get("taskSupport") == "required":
        raise Unfit("it can only be called as a task (execution.taskSupport), which Loom does not support")
    hints = one.get("annotations")
    hints = hints if isinstance(hints, dict) else {}
    return ListedTool(
        name,
        short(visible(description).strip(), MAX_DESCRIPTION_CHARS),
        fitted(one.get("inputSchema")),
        says_read_only=hints.get("readOnlyHint") is True,
        says_idempotent=hints.get("idempotentHint") is True,
    )


def _called(one: object, place: int) -> str:
    name = one.get("name") if isinstance(one, dict) else None
    return repr(plain(name, 60)) if isinstance(name, str) else f"at place {place}"
