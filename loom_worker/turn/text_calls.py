"""Tool calls that a model wrote as text, for want of another way; docs/providers.md says which are run. Pure."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from loom_worker.core.values.chat import Reply, Request, ToolUse
from loom_worker.llm.sanitize import checked, read_arguments
from loom_worker.turn.agent_runtime import AgentRuntime

MOST_BEGINNINGS = 32  # places, from the end, where a call may begin: to read a long text takes 20 ms each time
_TAG = r"<\|?(?:tool|function)_calls?\|?>|\[TOOL_CALLS\]|<\|python_tag\|>"
_CLOSE = r"<\|?/\|?(?:(?:tool|function)_calls?|tools)\|?>|\[/TOOL_CALLS\]|<\|\w+\|>"
_BEGIN = re.compile(
    rf"(?m)(?P<tag>^[ \t]*(?:{_TAG})|(?<!`)(?:{_TAG}|<tools>)(?=\s*(?:```\w*\s*)?[\[{{]))"
    r"|^[ \t]*(?:```\w*[ \t\r]*$|(?:```\w*[ \t]*)?(?=[\[{]))"
)
_AROUND = rf"(?:[\s,;]|```\w*|{_TAG}|<tools>|{_CLOSE})*+"
_NEXT, _REST = re.compile(_AROUND + r"(?=[\[{])"), re.compile(_AROUND)
_BODY = re.compile(rf"(?:{_TAG}|<tools>)(.*?)(?:{_CLOSE}|\Z)", re.DOTALL)
_JSON = json.JSONDecoder(strict=False)  # takes line ends in a string as they are: small models write SQL so
_ARGUMENTS = ("arguments", "parameters", "input")
_KEYS = frozenset({"name", "id", "type", *_ARGUMENTS})


@dataclass(frozen=True, slots=True)
class _Written:
    """The calls that end a text; no ``uses`` if they cannot be read, or more text follows them."""

    begin: int
    is_tagged: bool  # in a tag that is there for calls alone, so they are hardly meant as an example
    raw: tuple[str, ...]
    uses: tuple[ToolUse, ...] = ()


def settled(reply: Reply, request: Request, runtime: AgentRuntime) -> Reply:
    """The reply with the calls that are to be run, those in its text among them; else why there are none."""
    if reply.tool_uses and not request.may_call_tools:
        return replace(reply, stop_reason="unasked_calls", tool_uses=(), opaque=())
    if reply.stop_reason not in ("end_turn", "stop_sequence") or reply.tool_uses or runtime.agent.remote:
        return reply
    found = _written(reply.text)
    if found is None or _is_quoted(found.raw, request):
        return reply
    is_known = bool(found.uses) and {use.name for use in found.uses} <= {spec.name for spec in request.tools}
    if not found.is_tagged and not (is_known and all(runtime.prepared(use).error is None for use in found.uses)):
        return reply
    tools, holds = [runtime.tool(use.name) for use in found.uses], runtime.agent.approval.holds
    is_safe = found.is_tagged or all(tool and (tool.is_read_only or holds(tool)) for tool in tools)  # maybe an example
    if not (is_known and request.may_call_tools and is_safe):
        return replace(reply, stop_reason="tool_call_as_text")
    return replace(reply, text=reply.text[: found.begin].rstrip(), stop_reason="tool_use", tool_uses=found.uses)


def _is_quoted(raw: tuple[str, ...], request: Request) -> bool:
    """True if the user or a tool, or a summary, holds one of these calls, laid out anew or in a string of JSON, too."""
    said = [request.memory, *(message.text for message in request.messages if message.role == "user")]
    said += [outcome.content for message in request.messages for outcome in message.outcomes]
    known, calls = ([re.sub(r"[\s\\]+", "", each) for each in texts] for texts in (said, raw))
    return any(call and call in each for each in known for call in calls)


def _written(text: str) -> _Written | None:
    """The first calls that nothing else follows; else the first tag for calls outside of code, whatever it holds."""
    found = [*_BEGIN.finditer(text)][-MOST_BEGINNINGS:]
    begins = [(each.start(), bool(each["tag"]) and text.count("```", 0, each.start()) % 2 == 0) for each in found]
    for begin, is_tagged in begins:
        try:
            calls = [(raw, _use(value, is_tagged=is_tagged)) for raw, value in _values(text, begin)]
        except (ValueError, RecursionError):  # no JSON, or none that is a call
            continue
        if calls:
            return _Written(begin, is_tagged, *zip(*calls, strict=True))
    tag = next((begin for begin, is_tagged in begins if is_tagged), None)
    body = None if tag is None else _BODY.search(text, tag)
    return _Written(body.start(), is_tagged=True, raw=(body[1],)) if body else None


def _values(text: str, at: int) -> Iterator[tuple[str, Any]]:
    """The JSON from there on, each value as it was written and as it is read; ValueError if there is anything else."""
    while begin := _NEXT.match(text, at):
        value, at = _JSON.raw_decode(text, begin.end())
        value = value.get("tool_calls", value) if isinstance(value, dict) else value
        yield from ((text[begin.end() : at], each) for each in (value if isinstance(value, list) else [value]))
    if not _REST.fullmatch(text, at):
        raise ValueError("more text follows")


def _use(value: Any, *, is_tagged: bool) -> ToolUse:
    """The call that a JSON value is; ValueError if it is none."""
    value = value.get("function", value) if isinstance(value, dict) else value
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not _KEYS.issuperset(value):
        raise ValueError("not a call")
    given: object = next((value[key] for key in _ARGUMENTS if key in value), {} if is_tagged else None)
    arguments, flaw = read_arguments(given or "{}") if isinstance(given, str) else checked(given)
    return ToolUse("", value["name"], arguments, flaw)
