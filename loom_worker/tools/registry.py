"""The tools of one agent: which a session may call, a call checked against its schema, and the tool that shows more."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from loom_worker.core.errors import BadSettings
from loom_worker.core.values.chat import ChatMessage, ToolSpec, ToolUse
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Caller, Tool
from loom_worker.tools.arguments import MAX_FLAW_CHARS, coerced, flaw, nearest, short
from loom_worker.tools.schemas import compiled

__all__ = ["MAX_FLAW_CHARS", "Prepared", "Registry"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call as it may run, or why it may not."""

    arguments: Json
    """As the tool shall have them: the model's own, or what says the same in the types its schema asks for."""
    flaw: str | None = None
    """Why the call cannot run, in words the model can act on; None if it can."""


class Registry:
    """The tools of a process; never changes once it is built."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        """Check every tool and compile its schema.

        Raises:
            BadSettings: a name is taken or one that providers refuse, or a schema is not valid.
        """
        self._tools: dict[str, Tool] = {}
        self._validators: dict[str, Any] = {}
        for tool in sorted(tools, key=lambda each: each.spec.name):
            name = tool.spec.name
            if name in self._tools:
                raise BadSettings(f"two tools are named {name!r}")
            self._validators[name] = compiled(tool.spec)
            self._tools[name] = tool

    def specs(self, allowed: tuple[str, ...] | None = None, *, read_only: bool = False) -> tuple[ToolSpec, ...]:
        """Specs by name, the same order in every process; names in ``allowed`` that do not exist are skipped.

        Args:
            read_only: leave out what changes something outside of Loom.
        """
        return tuple(tool.spec for tool in self.permitted(allowed, read_only=read_only))

    def permitted(self, allowed: tuple[str, ...] | None = None, *, read_only: bool = False) -> tuple[Tool, ...]:
        """The tools that an agent may call, by name; the arguments are those of ``specs``."""
        return tuple(tool for tool in self._tools.values() if _may(tool, allowed, read_only))

    def get(self, name: str) -> Tool | None:
        """The tool of that name."""
        return self._tools.get(name)

    def prepared(self, call: ToolUse, allowed: tuple[str, ...] | None = None, *, read_only: bool = False) -> Prepared:
        """Check a call and its arguments; what is of another type and says the same is converted, in a copy."""
        refusal = self._refusal(call, allowed, read_only)
        if refusal is not None:
            return Prepared(call.arguments, short(refusal))
        validator = self._validators[call.name]
        arguments = coerced(call.arguments, validator)
        return Prepared(arguments, flaw(arguments, validator))

    def flaw(self, call: ToolUse, allowed: tuple[str, ...] | None = None) -> str | None:
        """Why this call cannot run, in words the model can act on; None if it can."""
        return self.prepared(call, allowed).flaw

    def _refusal(self, call: ToolUse, allowed: tuple[str, ...] | None, read_only: bool) -> str | None:
        if call.name not in self._tools:
            names = [tool.spec.name for tool in self.permitted(allowed, read_only=read_only)]
            return f"there is no tool {short(call.name, 64)!r}; {nearest(call.name, names)}"
        if not _is_listed(call.name, allowed):
            return f"the tool {call.name!r} is not allowed for this agent"
        if read_only and not self._tools[call.name].is_read_only:
            return f"the tool {call.name!r} changes something, and this agent may only read"
        return None if call.flaw is None else f"the arguments could not be read: {call.flaw}"


def _may(tool: Tool, allowed: tuple[str, ...] | None, read_only: bool) -> bool:
    return _is_listed(tool.spec.name, allowed) and (tool.is_read_only or not read_only)


def _is_listed(name: str, allowed: tuple[str, ...] | None) -> bool:
    return allowed is None or name in allowed


MORE = "more_tools"


def more_tool(names: Sequence[str]) -> Tool:
    """``more_tools``, which offers these by name; asked_for finds which of them a conversation asked for."""

    def run(arguments: Json, _caller: Caller) -> str:
        return f"You can call them now: {', '.join(arguments['names'])}"

    wanted = {"type": "array", "items": {"enum": list(names)}, "minItems": 1}
    schema = {"type": "object", "properties": {"names": wanted}, "required": ["names"], "additionalProperties": False}
    return Tool(ToolSpec(MORE, "Get further tools, which are not shown to save room.", schema), run, is_bounded=True)


def asked_for(messages: Iterable[ChatMessage]) -> frozenset[str]:
    """The tools that were asked for in these messages, or called in them."""
    uses = [use for message in messages for use in message.tool_uses]
    wanted = [use.arguments.get("names") for use in uses if use.name == MORE]
    # A call that was refused for its arguments may hold anything.
    asked = {name for names in wanted if isinstance(names, list) for name in names if isinstance(name, str)}
    return frozenset({use.name for use in uses} | asked)
