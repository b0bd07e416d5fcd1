"""Tool calls that a model wrote as text, for want of another way; docs/providers.md says which are run. Pure."""

import html
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from loom_worker.core.values.chat import Reply, Request, ToolUse
from loom_worker.core.values.json import Json
from loom_worker.llm.sanitize import checked, read_arguments, tool_name
from loom_worker.turn.agent_runtime import AgentRuntime

MOST_BEGINNINGS = 32  # places, from the end, where a call may begin: to read a long text takes 20 ms each time
MOST_OBJECTS = 10_000  # objects of JSON that are read in a text by others; in a longer one, any call may stand
_TAG = (
    r"<\|?(?:tool|function)[_-]?calls?\|?>|\[TOOL_CALLS\](?:[\w.:/-]{1,128}(?:\[ARGS\])?(?=\s*\{))?|<\|python_tag\|>"
    r"|<function=[^<>\n]{1,128}>|<[|｜]tool[_▁]calls?(?:[_▁]section)?[_▁]begin[|｜]>"
    r"|(?:<\|start\|>assistant)?<\|channel\|>commentary to=[^<\n]{1,128}"
)
_CLOSE = r"<\|?/\|?(?:(?:tool|function)[_-]?calls?|tools|function|s)\|?>|\[/TOOL_CALLS\]|<\|\w+\|>|<end_of_turn>|<eos>"
_NAME_LINE = r"(?:[ \t\r]*\n\s*)?[\w.:/-]{0,127}\w(?:[ \t\r]*$|[\[{<(])"
_CALL = (
    r"(?:\s*(?:```\w*\s*)?(?:[\[{]\s*[\[\]{}\"'\w]|<(?:function=|invoke|arg_|parameter|name\b|[|｜]))"
    rf"|{_NAME_LINE}|(?:\s|{_CLOSE})*+\Z)"
)
_BEGIN = re.compile(
    rf"(?im)(?P<tag>^[ \t]*(?:{_TAG})(?={_CALL})|(?<!`)(?:{_TAG}|<tools>)(?=\s*(?:```\w*\s*)?[\[{{]))"
    r"|^[ \t]*(?:```\w*[ \t\r]*$|(?:```\w*[ \t]*)?(?=[\[{]))"
)
_AROUND = rf"(?i)(?:[\s,;]|```\w*|{_TAG}|<tools>|{_CLOSE})*+"
_NEXT, _REST = re.compile(_AROUND + r"(?=[\[{])"), re.compile(_AROUND)
_NAMED = re.compile(r"(?i)(?:<function=|\[TOOL_CALLS\])([\w.:/-]+)")
_BODY = re.compile(rf"(?i)(?:{_TAG}|<tools>)(.*?)(?:{_CLOSE}|\Z)", re.DOTALL)
_WAIT = re.compile(r"(?i)\s(?:please |now )?(?:wait|one moment|hold on|stand by)\b[^\n{}<]{0,60}\s*\Z")
_FENCE = re.compile(r"(?ms)^[ \t]*(`{3,}|~{3,})[^`\n]*$.*?(?:(?P<end>^[ \t]*\1[`~]*[ \t\r]*$)|\Z)")
# A line of code, a table or a quotation in Markdown; a quotation goes on in the next line.
_SHOWN = re.compile(r"(?m)^(?: {4}| {0,3}[\t|>])[^\n]*\Z|^ {0,3}>[^\n]*\n[^\n]*\Z")
_OBJECT, _ESCAPE = re.compile(r'\{\s*"'), re.compile(r"""\\(?:(["'\\/])|[nrt])""")
_CODE, _THOUGHT = ("pre", "code", "samp", "blockquote"), ("think", "reasoning")
_JSON = json.JSONDecoder(strict=False)  # takes line ends in a string as they are: small models write SQL so
_NAMES = ("name", "function", "tool", "tool_name")
_ARGUMENTS = ("arguments", "parameters", "input", "args")
_KEYS = frozenset({*_NAMES, *_ARGUMENTS, "id", "type", "index", "description", "thought", "thoughts", "reasoning"})


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
    if found is None or _is_quoted(found, request):
        return reply
    is_known = bool(found.uses) and {use.name for use in found.uses} <= {spec.name for spec in request.tools}
    if not found.is_tagged and not (is_known and all(runtime.prepared(use).error is None for use in found.uses)):
        return reply
    tools, holds = [runtime.tool(use.name) for use in found.uses], runtime.agent.approval.holds
    is_apart = found.is_tagged and not reply.text[: found.begin].rpartition("\n")[2].strip()  # else maybe an example
    is_safe = is_apart or all(tool and (tool.is_read_only or holds(tool)) for tool in tools)
    if not (is_known and request.may_call_tools and is_safe):
        return replace(reply, stop_reason="tool_call_as_text")
    return replace(reply, text=reply.text[: found.begin].rstrip(), stop_reason="tool_use", tool_uses=found.uses)


def _is_quoted(found: _Written, request: Request) -> bool:
    """True if others than the model wrote one of these calls in any form, or just this text, laid out anew."""
    said = [request.system, request.memory, *(spec.description for spec in request.tools)]
    said += [text for chat in request.messages if chat.role == "user" for text in (chat.text, chat.context)]
    said += [outcome.content for message in request.messages for outcome in message.outcomes]
    known = [re.sub(r"[\s\\]+", "", html.unescape(text)) for text in said]
    calls = [re.sub(r"[\s\\]+", "", raw) for raw in found.raw if "{" in raw]
    return any(call in text for text in known for call in calls) or any(_holds(text, found.uses) for text in said)


def _holds(text: str, uses: tuple[ToolUse, ...]) -> bool:
    """True if JSON in a text, escaped or in a string, too, is one of these calls; also if that takes too long."""
    forms, seen = [text], set[str]()
    for form in forms:
        if form in seen or not any(use.name in form for use in uses):
            continue
        seen.add(form)
        begins = [begin.start() for begin in islice(_OBJECT.finditer(form), MOST_OBJECTS + 1)]
        if len(begins) > MOST_OBJECTS or any(_call(_object(form, begin)) in uses for begin in begins):
            return True
        forms += [html.unescape(form), _ESCAPE.sub(r"\1", form), form.replace("'", '"')]
    return False


def _object(text: str, at: int) -> Any:
    """The JSON value that begins there; None if there is none."""
    try:
        return _JSON.raw_decode(text, at)[0]
    except (ValueError, RecursionError):
        return None


def _begins(text: str) -> Iterator[tuple[int, bool, bool]]:
    """Where calls may begin that are not just shown: in a tag outside of code? In a thought that does not end?"""
    for each in [*_BEGIN.finditer(text)][-MOST_BEGINNINGS:]:
        head, is_shown = text[: each.start()].lower(), bool(_SHOWN.search(text[: each.end()]))
        in_code, in_thought = (any(head.rfind(f"<{m}") > head.rfind(f"</{m}") for m in of) for of in (_CODE, _THOUGHT))
        if not in_code and not (is_shown and head.strip()):
            is_plain = not is_shown and all(fence["end"] for fence in _FENCE.finditer(head))
            yield each.start(), bool(each["tag"]) and is_plain, in_thought


def _written(text: str) -> _Written | None:
    """The first calls that nothing else follows; else the first tag for calls outside of code, whatever it holds."""
    bare = _WAIT.sub("", text)
    begins = list(_begins(bare))
    for begin, is_tagged, is_thought in begins:
        try:
            calls = (
                [] if is_thought else [(raw, _use(value, is_tagged=is_tagged)) for raw, value in _values(bare, begin)]
            )
        except (ValueError, RecursionError):  # no JSON, or none that is a call
            continue
        if calls:
            return _Written(begin, is_tagged and bare == text, *zip(*calls, strict=True))
    tag = next((begin for begin, is_tagged, _ in begins if is_tagged), None)
    body = None if tag is None else _BODY.search(text, tag)
    return _Written(body.start(), is_tagged=True, raw=(body[1],)) if body else None


def _values(text: str, at: int) -> Iterator[tuple[str, Any]]:
    """The JSON from there on, each value as it was written and as it is read; ValueError if there is anything else."""
    while begin := _NEXT.match(text, at):
        value, at = _JSON.raw_decode(text, begin.end())
        if named := _NAMED.search(begin[0]):
            yield named[0] + text[begin.end() : at], {"name": named[1], "arguments": value}
            continue
        value = value.get("tool_calls", value) if isinstance(value, dict) else value
        yield from ((text[begin.end() : at], each) for each in (value if isinstance(value, list) else [value]))
    if not _REST.fullmatch(text, at):
        raise ValueError("more text follows")


def _use(value: Any, *, is_tagged: bool) -> ToolUse:
    """The call that a JSON value is; ValueError if it is none, or describes a tool."""
    use, (_, value) = _call(value, {} if is_tagged else "null"), _named(value)
    is_spec = use and "parameters" in value and not {"description", "properties"}.isdisjoint({*value, *use.arguments})
    if use is None or is_spec or not _KEYS.issuperset(value):
        raise ValueError("not a call")
    return use


def _call(value: Any, default: object = "null") -> ToolUse | None:
    """The call that a value is, or whose ``function`` is one; None if it has no name."""
    name, value = _named(value)
    given = next((value[key] for key in _ARGUMENTS if key in value), default) or {}
    arguments, flaw = read_arguments(given) if isinstance(given, str) else checked(given)
    return ToolUse("", tool_name(name), arguments, flaw) if name else None


def _named(value: Any) -> tuple[str, Json]:
    """The name in a call, empty if there is none, and the object that has it."""
    value = value if isinstance(value, dict) else {}
    value = value["function"] if isinstance(value.get("function"), dict) else value
    return next((value[key] for key in _NAMES if isinstance(value.get(key), str)), ""), value
