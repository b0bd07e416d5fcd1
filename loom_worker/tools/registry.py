"""The tools of one agent: which of them a session may call, the check of a call, and the tool ``more_tools``."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loom_worker.core.errors import BadSettings, ToolFailed
from loom_worker.core.text import short
from loom_worker.core.values.chat import ChatMessage, ToolSpec, ToolUse, object_schema
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import MAX_SHOWN, Caller, Tool
from loom_worker.core.words import STOP_WORDS, WORD, stemmed
from loom_worker.tools.arguments import MAX_ERROR_CHARS, OfferedTool, coerced, error_in, nearest, offered


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call that may run, or why it may not."""

    arguments: Json
    """For the tool, under its own names, converted to the types that the schema requires where nothing is lost."""
    error: str | None = None
    """Why the call cannot run, in words the model can act on; None if it can."""


class Registry:
    """The tools of an agent; immutable once built."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        """Check every tool and compile its schema; one that cannot be offered costs itself alone.

        Of two tools with one name the first is kept.
        """
        self._tools: dict[str, Tool] = {}
        self._offered: dict[str, OfferedTool] = {}
        problems: list[str] = []
        for tool in sorted(tools, key=lambda each: each.spec.name):
            name = tool.spec.name
            try:
                if name in self._tools:
                    raise BadSettings(f"tool {name!r}: another one has that name")
                self._offered[name] = offered(tool.spec)
                self._tools[name] = tool
            except BadSettings as error:
                problems.append(f"{error}; it is left out ({tool.group or 'a tool of Loom'})")
        self.problems = tuple(problems)
        """Why tools were left out."""
        self.changes = tuple(found.change for found in self._offered.values() if found.change)
        """Where models see other tools than their authors wrote."""

    def specs(self, allowed: tuple[str, ...] | None = None, *, read_only: bool = False) -> tuple[ToolSpec, ...]:
        """Specs as providers take them, sorted by name alike in every process; unknown names are skipped.

        Args:
            read_only: leave out tools that change something outside Loom.
        """
        return tuple(self._offered[tool.spec.name].spec for tool in self.permitted(allowed, read_only=read_only))

    def permitted(self, allowed: tuple[str, ...] | None = None, *, read_only: bool = False) -> tuple[Tool, ...]:
        """The tools that an agent may call, by name; the arguments are those of ``specs``."""
        return tuple(
            tool
            for name, tool in self._tools.items()
            if (allowed is None or name in allowed) and (tool.is_read_only or not read_only)
        )

    def get(self, name: str) -> Tool | None:
        """The tool of that name."""
        return self._tools.get(name)

    def prepared(self, call: ToolUse, allowed: tuple[str, ...] | None = None, *, read_only: bool = False) -> Prepared:
        """Check a call and its arguments; arguments of another type with the same value are converted, in a copy."""
        refusal = self._refusal(call, allowed, read_only)
        if refusal is not None:
            return Prepared(call.arguments, short(refusal, MAX_ERROR_CHARS))
        found = self._offered[call.name]
        own = found.sent.own(call.arguments) if found.sent.own_names else call.arguments
        arguments = coerced(own, found.validator)
        error = error_in(arguments, found.validator)
        return Prepared(arguments) if error is None else Prepared(own, short(found.sent.told(error), MAX_ERROR_CHARS))

    def _refusal(self, call: ToolUse, allowed: tuple[str, ...] | None, read_only: bool) -> str | None:
        if call.name not in self._tools:
            names = [tool.spec.name for tool in self.permitted(allowed, read_only=read_only)]
            return f"there is no tool {short(call.name, 64)!r}; {nearest(call.name, names)}"
        if allowed is not None and call.name not in allowed:
            return f"the tool {call.name!r} is not allowed for this agent"
        if read_only and not self._tools[call.name].is_read_only:
            return f"the tool {call.name!r} changes something, and this agent may only read"
        return None if call.flaw is None else f"the arguments could not be read: {call.flaw}"


MORE = "more_tools"
MOST_FOUND = 20


def more_tool(tools: Sequence[ToolSpec]) -> Tool:
    """The tool ``more_tools``, which offers these; ``asked_for`` finds which a conversation asked for."""
    known = [tool.name for tool in tools]

    def run(arguments: Json, _caller: Caller) -> str:
        names = arguments.get("names") or []
        if names and {*names} <= {*known}:
            return f"You can call them now: {', '.join(names)}"
        found = _found(" ".join([arguments.get("query") or "", *names]), tools)
        if not found:
            raise ToolFailed("no tool is described by these words; give query others, or names", "INVALID_INPUT")
        return "\n".join([f"To call some of these, first get them by their names with {MORE}:", *found])

    one: Json = {"enum": known} if len(known) <= MAX_SHOWN else {"type": "string"}
    query = {"type": "string", "description": "words of what a tool is for, to find its name"}
    schema = object_schema(names={"type": "array", "items": one, "minItems": 1}, query=query)
    text = f"Get some of {len(known)} further tools, which are not shown to save room."
    return Tool(ToolSpec(MORE, text, schema), run, is_bounded=True)


def _found(query: str, tools: Sequence[ToolSpec]) -> list[str]:
    wanted = _stems(query)
    telling = wanted - STOP_WORDS

    def score(tool: ToolSpec) -> int:
        name, text = _stems(tool.name), _stems(tool.description)
        parts = sum(word in tool.name.lower() for word in telling)
        return 20 * len(telling & name) + 10 * len(telling & text) + 2 * parts + len(wanted & name)

    scores = {tool.name: score(tool) for tool in tools}
    best = sorted(tools, key=lambda tool: (-scores[tool.name], len(tool.name)))[:MOST_FOUND]
    return [f"{tool.name}: {tool.description}" for tool in best if scores[tool.name]]


def _stems(text: str) -> set[str]:
    """Words, those of a camelCaseName too, in lower case and without endings."""
    return {stemmed(word.lower()) for word in WORD.findall(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text))}


def asked_for(messages: Iterable[ChatMessage]) -> frozenset[str]:
    """The tools that these messages asked for or called."""
    uses = [use for message in messages for use in message.tool_uses]
    wanted = [use.arguments.get("names") for use in uses if use.name == MORE]
    # A call that was refused for its arguments may contain anything.
    asked = {name for names in wanted if isinstance(names, list) for name in names if isinstance(name, str)}
    return frozenset({use.name for use in uses} | asked)
