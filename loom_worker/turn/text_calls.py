"""Tool calls that a model wrote into its text, because it, or its server, knows no other way. Pure.

Small models behind a server without tool calling do so; docs/providers.md says which of them are run, and why.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from loom_worker.core.values.chat import Reply, ToolUse
from loom_worker.llm.sanitize import checked, read_arguments
from loom_worker.memory.fit import Context
from loom_worker.turn.agent_runtime import AgentRuntime

MOST_BEGINNINGS = 32
"""Places, from the end of a text, where a call may begin: to read the rest of a long text takes 20 ms each time."""
_TAG = r"<\|?(?:tool|function)_calls?\|?>|\[TOOL_CALLS\]|<\|python_tag\|>"
_CLOSE = r"<\|?/\|?(?:(?:tool|function)_calls?|tools)\|?>|\[/TOOL_CALLS\]"
_BEGIN = re.compile(
    rf"(?P<tag>^[ \t]*(?:{_TAG})|(?<!`)(?:{_TAG}|<tools>)(?=\s*(?:```\w*\s*)?[\[{{]))"
    r"|^[ \t]*(?:```\w*[ \t]*$|(?=[\[{]))",
    re.MULTILINE,
)
_AROUND = re.compile(rf"(?:[\s,;]+|```\w*|{_TAG}|<tools>|{_CLOSE})*")
_BODY = re.compile(rf"(?:{_TAG}|<tools>)(.*?)(?:{_CLOSE}|\Z)", re.DOTALL)
_JSON = json.JSONDecoder(strict=False)
"""Takes line ends in a string for what they are: small models write SQL so."""
_ARGUMENTS = ("arguments", "parameters", "input")
_KEYS = frozenset({"name", "id", "type", *_ARGUMENTS})


@dataclass(frozen=True, slots=True)
class _Written:
    """The calls that end a text."""

    begin: int
    is_tagged: bool
    """True: they stand in a tag that is there for calls alone, so they are hardly meant as an example."""
    raw: tuple[str, ...]
    """Each as it was written."""
    uses: tuple[ToolUse, ...]
    """Empty: they cannot be read, or more text follows them."""


def with_text_calls(reply: Reply, context: Context, runtime: AgentRuntime, *, may_call_tools: bool) -> Reply:
    """The reply, with the calls in its text taken for what they are; it ends tool_call_as_text if they must not be run.

    Args:
        context: what the model was sent. What it repeats from there is no call of its own.
    """
    if reply.tool_uses or reply.stop_reason not in ("end_turn", "stop_sequence") or runtime.agent.remote:
        return reply
    found = _written(reply.text)
    if found is None or _is_quoted(found.raw, context):
        return reply
    is_known = bool(found.uses) and {use.name for use in found.uses} <= {spec.name for spec in context.tools}
    if not found.is_tagged and not (is_known and all(runtime.prepared(use).error is None for use in found.uses)):
        return reply
    if not (is_known and may_call_tools and (found.is_tagged or _are_harmless(found.uses, runtime))):
        return replace(reply, stop_reason="tool_call_as_text")
    return replace(reply, text=reply.text[: found.begin].rstrip(), stop_reason="tool_use", tool_uses=found.uses)


def _are_harmless(uses: tuple[ToolUse, ...], runtime: AgentRuntime) -> bool:
    """True if calls that may be meant as an example do no harm: they only read, or a person is asked first."""
    tools = [tool for use in uses if (tool := runtime.tool(use.name))]
    return all(tool.is_read_only or runtime.agent.approval.holds(tool) for tool in tools)


def _is_quoted(raw: tuple[str, ...], context: Context) -> bool:
    """True if the user or a tool, or a summary of what they said, holds one of these calls."""
    said = [context.memory]
    for message in context.messages:
        said += [message.text if message.role == "user" else "", *(outcome.content for outcome in message.outcomes)]
    known, calls = [_bare(each) for each in said], [_bare(each) for each in raw]
    return any(call and call in each for each in known for call in calls)


def _bare(text: str) -> str:
    """Text without what differs where JSON is laid out anew, or stands in a string of other JSON."""
    return re.sub(r"[\s\\]+", "", text)


def _written(text: str) -> _Written | None:
    """The first calls that nothing else follows; failing that, the first tag for calls, whatever stands in it."""
    begins = [(match.start(), _is_tag(match)) for match in [*_BEGIN.finditer(text)][-MOST_BEGINNINGS:]]
    for begin, is_tagged in begins:
        try:
            found = [(raw, _use(value, is_tagged=is_tagged)) for raw, value in _values(text, begin)]
        except (ValueError, RecursionError):  # no JSON, or none that is a call
            continue
        if found:
            return _Written(begin, is_tagged, tuple(raw for raw, _ in found), tuple(use for _, use in found))
    tag = next((begin for begin, is_tagged in begins if is_tagged), None)
    body = None if tag is None else _BODY.search(text, tag)
    return _Written(body.start(), is_tagged=True, raw=(body[1],), uses=()) if body else None


def _is_tag(match: re.Match[str]) -> bool:
    """True of a tag for calls; one in a block of code is shown to somebody."""
    return match["tag"] is not None and match.string.count("```", 0, match.start()) % 2 == 0


def _values(text: str, begin: int) -> Iterator[tuple[str, Any]]:
    """The JSON from there on, each value as it was written and as it is read; ValueError if there is anything else."""
    at = _past(text, begin)
    while at < len(text):
        value, end = _JSON.raw_decode(text, at)
        value = value.get("tool_calls", value) if isinstance(value, dict) else value
        for each in value if isinstance(value, list) else [value]:
            yield text[at:end], each
        at = _past(text, end)


def _past(text: str, at: int) -> int:
    around = _AROUND.match(text, at)
    return around.end() if around else at


def _use(value: Any, *, is_tagged: bool) -> ToolUse:
    """The call that a JSON value is; ValueError if it is none."""
    value = value.get("function", value) if isinstance(value, dict) else value
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not _KEYS.issuperset(value):
        raise ValueError("not a call")
    given: object = next((value[key] for key in _ARGUMENTS if key in value), {} if is_tagged else None)
    arguments, flaw = read_arguments(given or "{}") if isinstance(given, str) else checked(given)
    return ToolUse("", value["name"], arguments, flaw)
