"""A conversation in the form that every provider takes, whatever was stored of it. Pure.

One message that a provider refuses would end its session for good, since it is sent again with every later request.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from loom_worker.core.values.chat import ChatMessage, Request, Role, ToolOutcome, ToolUse
from loom_worker.core.values.json import Json
from loom_worker.llm.media import without_media
from loom_worker.llm.sanitize import CALL_ID, tool_name
from loom_worker.llm.shaped import as_tool

NO_RESULT = "The result of this call was lost."
_ABOUT_THINKING = re.compile("thinking|reasoning|signature", re.IGNORECASE)
_ABOUT_SHAPE = re.compile(
    r"(?:response|text).?format|json.?schema|response mime type|structured.?output|schema is too"
    r"|output_?config(?!\.effort)",
    re.IGNORECASE,
)
_ABOUT_EFFORT = re.compile(
    r"reasoning.?(?:effort|format|summar|config)|thinking.?(?:config|budget|level|type)|budget_tokens|\beffort\b"
    r"|chat_template_kwargs|prompt_mode|output_?config|(?:not support|unsupported|unknown).{0,40}(?:think|reason)ing\b"
    r"|(?:thinking|reasoning)\b.{0,40}(?:not (?:supported|permitted)|is enabled)",
    re.IGNORECASE,
)
"""How thinking is asked for, which not every model takes in this form; blocks of thinking are another matter."""
_ABOUT_CALLS = re.compile(r"\bmessages?[.\[]\d|\btool.(?:use|result|call)|\bfunction.?call", re.IGNORECASE)
_ABOUT_MEDIA = re.compile(
    r"\b(?:input_)?(?:images?|pdf|documents?|files?)(?:\b|_)|\bmedia_type\b|multi-?modal|\bvision\b|\bmmproj\b"
    r"|content\b.{0,60}\bstring\b|expected a string",
    re.IGNORECASE,
)
_ABOUT_OTHERS = re.compile(r"\btools?[.\[]\d|stop_sequences|max_tokens|system[.\[]\d", re.IGNORECASE)
"""Fields that no other form of the conversation makes better."""


def fit_to_send(messages: Sequence[ChatMessage]) -> Iterator[ChatMessage]:
    """The same conversation, in an order and with names and ids that no provider refuses.

    Each call has an id of its own, and its one result in the message after it. Results without a call are left out.
    """
    taken: set[str] = set()
    for n, message in enumerate(messages):
        if message.tool_uses:
            ids = [_free(use.id, taken) for use in message.tool_uses]
            uses = (
                replace(use, id=own, name=tool_name(use.name)) for use, own in zip(message.tool_uses, ids, strict=True)
            )
            yield replace(message, tool_uses=tuple(uses))
            outcomes = _outcomes(message.tool_uses, messages[n + 1 :])
            yield ChatMessage(
                "tool", outcomes=tuple(replace(each, tool_use_id=own) for each, own in zip(outcomes, ids, strict=True))
            )
        elif message.role != "tool":
            yield message


def _free(wanted: str, taken: set[str]) -> str:
    """The id itself, or one made of it, so that none comes twice and all have the letters that providers take."""
    own = wanted if CALL_ID.fullmatch(wanted) else re.sub(r"[^A-Za-z0-9_-]", "_", wanted)[:56] or "call"
    free, n = own, 1
    while free in taken:
        n += 1
        free = f"{own[:56]}_{n}"
    taken.add(free)
    return free


def _outcomes(uses: Sequence[ToolUse], later: Iterable[ChatMessage]) -> Iterator[ToolOutcome]:
    """The results of a reply's calls, in their order: they stand before the next reply that has calls."""
    found: dict[str, list[ToolOutcome]] = {}
    for message in later:
        if message.tool_uses:
            break
        for outcome in message.outcomes:
            found.setdefault(outcome.tool_use_id, []).append(outcome)
    for use in uses:
        own = found.get(use.id)
        yield own.pop(0) if own else ToolOutcome(use.id, use.name, NO_RESULT, is_error=True)


def proofs(request: Request) -> frozenset[str]:
    """Signatures, or encrypted texts, that prove the thinking in a request to be its provider's."""
    return frozenset(_proof(block) for message in request.messages for block in message.opaque)


def without_thinking(request: Request, refused: Collection[str]) -> Request:
    """The same request without the blocks of thinking that bear one of these proofs."""
    if not refused or proofs(request).isdisjoint(refused):
        return request
    kept = (tuple(block for block in each.opaque if _proof(block) not in refused) for each in request.messages)
    messages = (replace(each, opaque=opaque) for each, opaque in zip(request.messages, kept, strict=True))
    return replace(request, messages=tuple(messages))


def _proof(block: Json) -> str:
    found = (block.get(name) for name in ("signature", "data", "encrypted_content", "thinking"))
    return str(next(filter(None, found), ""))


def without_what_is_refused(request: Request, complaint: str, *, is_certain: bool) -> Request | None:
    """The same request in a form that the refusal may not be about; None if there is none.

    Args:
        complaint: the provider's own words.
        is_certain: the request was refused, so it is about something in it; else its words must name that.
    """
    if request.cache_marks and re.search("cache_control|cachePoint", complaint):
        return replace(request, cache_marks=False)
    is_choice = request.must_call or (request.tools and not request.may_call_tools)
    if is_choice and re.search("tool_choice|toolChoice", complaint):
        return replace(request, must_call="", tools=request.tools if request.may_call_tools else ())
    if (plainer := _with_fewer_options(request, complaint)) is not None:
        return plainer
    plain = replace(request, messages=tuple(map(without_media, request.messages)))
    if _ABOUT_MEDIA.search(complaint) and plain != request:
        return plain
    if is_certain and _ABOUT_OTHERS.search(complaint):
        return None
    if (signed := proofs(request)) and (is_certain or _ABOUT_THINKING.search(complaint)):
        return without_thinking(request, signed)
    if any(each.tool_uses for each in request.messages) and (is_certain or _ABOUT_CALLS.search(complaint)):
        return replace(request, messages=tuple(map(as_text, request.messages)))
    return plain if is_certain and plain != request else None


def _with_fewer_options(request: Request, complaint: str) -> Request | None:
    """The request without the option that a refusal names; of two that exclude each other one stays."""
    if request.cache_marks and "prompt_cache_key" in complaint:
        return replace(request, cache_marks=False)
    if request.shape and _ABOUT_SHAPE.search(complaint):
        return as_tool(request)
    if request.thinking and _ABOUT_EFFORT.search(complaint):
        return replace(request, thinking=None)
    if request.stop_sequences and re.search(r"""['"`]stop(?:_sequences)?['"`]|stopSequences field""", complaint):
        return replace(request, stop_sequences=())
    sampling = request.sampling
    for name in ("seed", "top_k", "top_p", "temperature"):
        pattern = rf"\b(?:random_)?{name.replace('_', '_?')}\b"
        if getattr(sampling, name) is not None and re.search(pattern, complaint, re.IGNORECASE):
            unset: Json = {name: None}
            return replace(request, sampling=replace(sampling, **unset))
    named = {key for key in sampling.extra if re.search(rf"\b{re.escape(key)}\b", complaint)}
    kept = {key: value for key, value in sampling.extra.items() if key not in named}
    return replace(request, sampling=replace(sampling, extra=kept)) if named else None


def as_text(message: ChatMessage) -> ChatMessage:
    """A reply's calls, or their results, told in words: the last form that no rule about calls applies to."""
    told = [f"[Called {use.name} with {json.dumps(use.arguments)}]" for use in message.tool_uses]
    given = [f"[{outcome.name} gave] {outcome.content}" for outcome in message.outcomes]
    role: Role = "user" if message.outcomes else message.role
    text = "\n".join(filter(None, (message.text, *told, *given)))
    return ChatMessage(role, text, message.context, media=message.all_media)
