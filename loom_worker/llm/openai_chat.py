"""Chat Completions: a Request in this format, and the reply that comes of its stream, or in one piece. Pure.

Servers differ most in what they leave out, so the reply is put together from whatever is there. What thinking, calls
and messages must go back with is kept as one opaque block, of type ``thinking``, which only the same model gets.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from loom_worker.core.errors import StreamBroken
from loom_worker.core.text import storable
from loom_worker.core.values.chat import ChatMessage, Reply, Request, Shape, ToolUse, Usage
from loom_worker.core.values.json import Json
from loom_worker.core.values.media import Media
from loom_worker.llm.anthropic_request import EARLIER, GO_ON, NO_CONTENT, POSITION_KEY
from loom_worker.llm.assembly import (
    INCOMPLETE,
    MAX_BLOCKS,
    MAX_REPLY_BYTES,
    STOP_REASONS,
    Assembly,
    Delta,
    ErrorEvent,
    count_of,
    ended,
    read_tool_use,
    well_formed,
)
from loom_worker.llm.conversation import fit_to_send
from loom_worker.llm.media import Form, after_results, blocks, chat_part
from loom_worker.llm.presets import Preset
from loom_worker.llm.sanitize import json_error, sendable
from loom_worker.llm.shaped import ANY_TOOL

MOST_NAME_CHARS = 64
"""Characters of a tool's name, and a shape's; Anthropic takes 128."""
UNSTRICT = frozenset(
    "allOf oneOf not if then else dependentRequired dependentSchemas patternProperties unevaluatedProperties".split()
)
"""Keywords that OpenAI's strict mode refuses."""
BROKEN = frozenset({"error", "insufficient_system_resource", "malformed_function_call", "function_call_filter"})
"""Reasons for an end that the same request may not meet again (OpenRouter and Mistral, DeepSeek, Gemini)."""
TICKS = Decimal(10) ** 10
"""xAI's unit of cost: so many are a USD."""
_long_names: dict[str, str] = {}
"""Names of tools that were shortened in this process, by the short ones."""


def chat_body(request: Request, name: str, preset: Preset) -> Json:
    """The JSON body of ``POST /chat/completions``, streaming asked for.

    Args:
        name: of the model inside Loom, ``provider/model``.
    """
    body: Json = {"model": name.partition("/")[2], "messages": _messages(request, name, preset), "stream": True}
    body[preset.max_tokens] = request.max_tokens
    if preset.includes_usage:
        body["stream_options"] = {"include_usage": True}
    if tools := offered(request, preset):
        body["tools"] = [{"type": "function", "function": function(spec)} for spec in tools]
    if choice := tool_choice(request, preset):
        body["tool_choice"] = choice if isinstance(choice, str) else {"type": "function", "function": choice}
    if request.shape:
        body["response_format"] = {"type": "json_schema", "json_schema": shape_format(request.shape)}
    if request.stop_sequences:
        body["stop"] = list(request.stop_sequences)
    if request.thinking:
        body |= preset.asks_for(request.thinking)
    return body | common(request, preset)


def common(request: Request, preset: Preset) -> Json:
    """Members that both of OpenAI's formats have."""
    chosen = request.sampling
    found: Json = {"temperature": chosen.temperature, "top_p": chosen.top_p, preset.seed: chosen.seed}
    if "top_k" in preset.knows:
        found["top_k"] = chosen.top_k
    body = {name: value for name, value in found.items() if value is not None}
    if preset.cache_key and request.source and request.cache_marks:
        body["prompt_cache_key"] = _digest(request.source, 32)
    return body | dict(preset.always) | chosen.extra


def offered(request: Request, preset: Preset) -> Sequence[Any]:
    """The tools that a request lists: those that may be called, where the server obeys no choice."""
    if preset.tool_choice:
        return request.tools
    demanded = [spec for spec in request.tools if spec.name == request.must_call]
    return demanded or (request.tools if request.may_call_tools else ())


def function(spec: Any) -> Json:
    """A tool as both formats describe it."""
    return {"name": short(spec.name), "description": storable(spec.description), "parameters": dict(spec.input_schema)}


def tool_choice(request: Request, preset: Preset) -> str | Json:
    """Which tool is to be called: a word, or its name; empty: as the model likes."""
    if not request.tools or not preset.tool_choice:
        return ""
    if request.must_call:
        return "required" if request.must_call == ANY_TOOL else {"name": short(request.must_call)}
    return "" if request.may_call_tools else "none"


def shape_format(shape: Shape) -> Json:
    """A shape as both formats have it, strict where its schema allows that."""
    return {"name": shape.name, "schema": shape.schema, "strict": _is_strict(shape.schema)}


def _is_strict(schema: object) -> bool:
    if isinstance(schema, list):
        return all(map(_is_strict, schema))
    if not isinstance(schema, dict):
        return True
    if UNSTRICT & schema.keys():
        return False
    properties = schema.get("properties") or {}
    if schema.get("type") == "object" or properties:
        is_closed = schema.get("additionalProperties") is False
        if not is_closed or set(schema.get("required") or ()) != set(properties):
            return False
    inner = [*properties.values(), *(schema.get("$defs") or {}).values(), *(schema.get("definitions") or {}).values()]
    return all(map(_is_strict, [*inner, schema.get("items"), schema.get("anyOf")]))


def short(name: str) -> str:
    """A tool's name with at most 64 characters; ``long_name`` leads back."""
    if len(name) <= MOST_NAME_CHARS:
        return name
    made = f"{name[:55]}_{_digest(name, 8)}"
    _long_names[made] = name
    return made


def long_name(use: ToolUse) -> ToolUse:
    """A call with its tool's own name, where that was shortened."""
    return replace(use, name=_long_names.get(use.name, use.name))


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:length]


def user_text(message: ChatMessage) -> str:
    """A user's message with what stands before it."""
    return storable(_together(message.context, message.text))


def parts_of(text: str, media: Sequence[Media], request: Request, form: Form, *, before: str = "") -> list[Json]:
    """A text and its media as parts of a message.

    Args:
        form: the part of an image or a PDF.
        before: another text, which has none.
    """
    kind = "text" if form is chat_part else "input_text"

    def say(text: str) -> Sequence[Json]:
        return [{"type": kind, "text": storable(text)}] if text.strip() else ()

    return [*say(before), *blocks(text, media, request.read_file, say=say, form=form)]


def user_content(message: ChatMessage, request: Request, form: Form) -> str | list[Json]:
    """A user's message as it is sent: a text, unless it has media."""
    if not message.media:
        return user_text(message)
    return parts_of(message.text, message.media, request, form, before=message.context)


def own_thinking(message: ChatMessage, name: str) -> list[Json]:
    """Opaque blocks that the model of this name made, and that can be sent."""
    return [
        block for block in message.opaque if block.get(POSITION_KEY, {}).get("model") == name and not json_error(block)
    ]


def turns(request: Request) -> Iterator[ChatMessage]:
    """The conversation in an order that every template takes: a user begins it, and no role speaks twice in a row."""
    # Remembered text comes from users and tools: it has their rights, not those of the system text.
    waiting = ChatMessage("user", storable(request.memory)) if request.memory.strip() else None
    for message in fit_to_send(request.messages):
        if message.role == "user":
            if not user_text(message):
                continue
        elif not (message.text.strip() or message.tool_uses or message.outcomes):
            continue
        elif waiting is None and message.role == "assistant":
            waiting = ChatMessage("user", EARLIER)
        if waiting and waiting.role == message.role and not waiting.tool_uses and message.role != "tool":
            waiting = _joined(waiting, message)
            continue
        if waiting:
            yield waiting
        waiting = message
    if waiting:
        yield waiting
    if waiting and waiting.role == "assistant":
        yield ChatMessage("user", GO_ON)


def _joined(first: ChatMessage, second: ChatMessage) -> ChatMessage:
    if second.role == "user" and not first.media:  # what came before may speak of its media, whose place it is not
        return replace(second, context=_together(first.context, first.text, second.context))
    text, media = _together(first.text, second.context, second.text), (*first.media, *second.media)
    return replace(second, context=first.context, text=text, media=media)


def _together(*texts: str) -> str:
    return "\n\n".join(filter(str.strip, texts))


def _messages(request: Request, name: str, preset: Preset) -> list[Json]:
    messages: list[Json] = []
    if request.system.strip():
        messages.append({"role": "system", "content": storable(request.system)})
    for message in turns(replace(request, messages=tuple(after_results(request.messages)))):
        if message.role == "assistant":
            messages.append(_assistant(message, name, preset))
        elif message.role == "tool":
            messages += [
                {
                    "role": "tool",
                    "tool_call_id": preset.call_id(each.tool_use_id),
                    "content": outcome_text(each.content),
                }
                for each in message.outcomes
            ]
        else:
            if preset.after_results and messages and messages[-1]["role"] == "tool":
                messages.append({"role": "assistant", "content": preset.after_results})
            messages.append({"role": "user", "content": user_content(message, request, chat_part)})
    return messages


def outcome_text(content: str) -> str:
    """A result as it is sent; never blank."""
    return storable(content if content.strip() else NO_CONTENT)


def _assistant(message: ChatMessage, name: str, preset: Preset) -> Json:
    text, own = storable(message.text) if message.text.strip() else None, own_thinking(message, name)
    found: Json = {"role": "assistant", "content": text}
    kept: Json = next(iter(own), {})
    thought = str(kept.get("thinking") or "")
    if preset.returns == "content" and thought:
        thinking = {"type": "thinking", "thinking": [{"type": "text", "text": thought}]}
        found["content"] = [thinking, *([{"type": "text", "text": text}] if text else [])]
    elif preset.returns and (value := kept.get(preset.returns) or thought):
        found[preset.returns] = value
    if message.tool_uses:
        found = dict(preset.unsigned_message) | found
        found["tool_calls"] = list(_calls(message.tool_uses, kept.get("calls") or {}, preset))
    return found | dict(kept.get("message") or {})


def _calls(uses: Sequence[ToolUse], kept: Mapping[str, Json], preset: Preset) -> Iterator[Json]:
    for n, use in enumerate(uses):
        called = {"name": short(use.name), "arguments": arguments(use)}
        extra = kept.get(str(n)) or ({} if kept or n else preset.unsigned_call)
        yield {"id": preset.call_id(use.id), "type": "function", "function": called, **extra}


def arguments(use: ToolUse) -> str:
    """A call's arguments as they are sent."""
    return json.dumps(sendable(use.arguments), ensure_ascii=False)


def usage_of(told: Mapping[str, Any]) -> Usage:
    """A usage in either format; what is missing counts as nothing.

    Output includes thinking: xAI and Gemini count that in the total alone. The cost is OpenRouter's or xAI's own.
    """
    prompt = count_of(told.get("prompt_tokens")) or count_of(told.get("input_tokens"))
    written = count_of(told.get("completion_tokens")) or count_of(told.get("output_tokens"))
    details = told.get("prompt_tokens_details") or told.get("input_tokens_details") or {}
    known = (details.get("cached_tokens"), told.get("prompt_cache_hit_tokens"), told.get("cached_tokens"))
    cached = min(next(filter(None, map(count_of, known)), 0), prompt)
    cache_write = min(count_of(details.get("cache_write_tokens")), prompt - cached)
    output = max(written, count_of(told.get("total_tokens")) - prompt)
    return Usage(prompt - cached - cache_write, output, cached, cache_write, cost_usd=_cost(told), llm_calls=1)


def _cost(told: Mapping[str, Any]) -> Decimal | None:
    cost, ticks = told.get("cost"), told.get("cost_in_usd_ticks")
    for given, unit in ((cost, Decimal(1)), (ticks, TICKS)):
        if isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given < float("inf"):
            return Decimal(str(given)) / unit
    return None


_TAG = re.compile(r"\s*<(think|thinking|thought)>")
_TAGS = ("<think>", "<thinking>", "<thought>")


class Tagged:
    """Splits thinking in a leading tag (``<think>``), as local servers and open models write it, off a text."""

    def __init__(self) -> None:
        self._held = ""
        self._is_after = self._has_begun = False
        """The thinking has ended; the text has begun."""
        self._end = ""
        """The closing tag that is awaited."""

    def feed(self, piece: str, *, is_last: bool = False) -> Iterator[tuple[bool, str]]:
        """Pieces, and whether each is thinking; what may yet be a tag is held back until it is the last."""
        self._held += piece
        if not (self._end or self._is_after or self._has_begun):
            if (found := _TAG.match(self._held)) is not None:
                self._end, self._held = f"</{found[1]}>", self._held[found.end() :]
            else:
                self._has_begun = is_last or not any(tag.startswith(self._held.lstrip()) for tag in _TAGS)
        if self._end:
            thought, tag, rest = self._held.partition(self._end)
            kept = 0 if tag or is_last else _overlap(thought, self._end)
            yield True, thought[: len(thought) - kept]
            self._held = rest if tag else thought[len(thought) - kept :]
            self._is_after, self._end = bool(tag), "" if tag else self._end
        if self._is_after and not self._has_begun:
            self._held = self._held.lstrip()
            self._has_begun = bool(self._held)
        if self._has_begun:
            text, self._held = self._held, ""
            yield False, text


def _overlap(text: str, tag: str) -> int:
    """How many last characters of the text may begin the tag."""
    return next((n for n in range(len(tag) - 1, 0, -1) if text.endswith(tag[:n])), 0)


@dataclass(slots=True)
class _GrowingCall:
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    given: object = None
    """Arguments that came as an object."""
    extra: Json = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """True once its arguments are there."""
        if self.given is not None or not self.pieces or not self.pieces[-1].rstrip().endswith("}"):
            return self.given is not None
        try:
            return isinstance(json.loads("".join(self.pieces)), dict)
        except (ValueError, RecursionError):
            return False


class ChatAssembly(Assembly):
    """A reply of Chat Completions as it arrives."""

    def __init__(self, model: str, *, max_bytes: int = MAX_REPLY_BYTES, most_blank: int | None = None) -> None:
        """Args: most_blank: blank characters in a row after which the reply is over; None: there is no limit."""
        super().__init__(model, max_bytes=max_bytes)
        self._most_blank, self._blank = most_blank, 0
        self._told: Json = {}
        self._calls: list[_GrowingCall] = []
        self._by_index: dict[object, _GrowingCall] = {}
        self._thoughts: list[str] = []
        self._details: list[Json] = []
        self._message: Json = {}
        self._tagged = Tagged()
        self._is_refusal = False
        self._stop_reason = ""

    @property
    def usage(self) -> Usage:
        """What the provider has told so far; its cost only if the provider told that, too."""
        return usage_of(self._told)

    def feed(self, event: Json) -> Sequence[Delta]:
        with well_formed():
            if event.get("type") == "done":
                self.is_complete = True
                return tuple(self._text("", is_last=True))
            choices = event.get("choices") or ()
            if (
                event.get("error")
                or event.get("object") == "error"
                or (not choices and event.keys() & {"detail", "msg"})
            ):
                raise ErrorEvent(event)
            self._served = str(event.get("model") or self._served)
            told = event.get("usage") or (event.get("x_groq") or {}).get("usage") or {}
            if told:
                self._told |= {name: value for name, value in told.items() if value}
                self.has_usage_news = True
            return [delta for each in choices if not each.get("index") for delta in self._choice(each)]

    def _choice(self, choice: Json) -> Iterator[Delta]:
        if choice.get("error"):
            raise ErrorEvent({"error": choice["error"]})
        whole = choice.get("message") if "delta" not in choice else None
        yield from self._add(whole or choice.get("delta") or {}, is_whole=whole is not None)
        if reason := choice.get("finish_reason"):
            self._stop_reason = str(reason).partition(":")[0].lower()
            yield from self._text("", is_last=True)
        if whole is not None:
            self._stop_reason, self.is_complete = self._stop_reason or "stop", True

    def _add(self, part: Json, *, is_whole: bool) -> Iterator[Delta]:
        details = part.get("reasoning_details") or ()
        merge_details(self._details, details)
        shown = "".join(str(each.get("text") or each.get("summary") or "") for each in details)
        self._room_for("".join(str(each.get("data") or "") for each in details))
        yield from self._think(part.get("reasoning_content") or part.get("reasoning") or shown)
        content = part.get("content")
        for each in content if isinstance(content, list) else [{"text": content}]:
            if each.get("thinking"):
                yield from self._think(_texts(each["thinking"]))
            else:
                yield from self._text(_texts(each.get("text")))
        if part.get("refusal"):
            self._is_refusal = True
            yield from self._text(str(part["refusal"]))
        if "thought_signature" in str(part.get("extra_content")):
            self._message["extra_content"] = part["extra_content"]
        calls = part.get("tool_calls") or ()
        if called := part.get("function_call"):
            calls = [*calls, {"index": "function_call", "function": called}]
        for call in calls:
            self._call(call, is_whole=is_whole)

    def _text(self, text: str, *, is_last: bool = False) -> Iterator[Delta]:
        for is_thinking, piece in self._tagged.feed(text, is_last=is_last):
            if piece:
                yield from self._think(piece) if is_thinking else self._said(piece)
                self._end_if_stuck(piece)

    def _end_if_stuck(self, piece: str) -> None:
        end = len(piece) - len(piece.rstrip())
        self._blank = self._blank + end if end == len(piece) else end
        if self._most_blank is not None and self._blank > self._most_blank:
            self._stop_reason, self.is_complete = "stop", True

    def _think(self, text: str) -> Sequence[Delta]:
        piece = self._room_for(storable(str(text)))
        self._thoughts.append(piece)
        return self._thought(piece)

    def _call(self, told: Json, *, is_whole: bool) -> None:
        index, called = told.get("index"), told.get("function") or {}
        call_id, name, given = told.get("id") or "", called.get("name") or "", called.get("arguments")
        call = self._by_index.get(index)
        if call is not None and not is_whole:
            is_other = call_id and call.id and call_id != call.id
            # Servers without indices, or with the same one for all, begin a call with its name.
            has_new_name = call.name not in ("", name) and not (call_id or call.id)
            if is_other or (name and not (call_id and call_id == call.id) and (call.is_whole or has_new_name)):
                call = None
        if call is None or is_whole:
            if len(self._calls) >= MAX_BLOCKS:
                self.is_too_large = True
                return
            call = self._by_index[index] = _GrowingCall()
            self._calls.append(call)
        call.id = call.id or str(call_id)
        if name != call.name and not call.pieces:
            call.name += str(name)
        if isinstance(given, str):
            piece = self._room_for(given)
            call.pieces += [piece] if piece else []
        elif given is not None:
            self._room_for(json.dumps(given))
            call.given = given
        call.extra |= {each: told[each] for each in ("extra_content",) if told.get(each)}

    def _whole(self) -> Reply:
        # A server that ends its stream without [DONE] has told all once it has told the usage, too.
        if self.is_complete and not self._stop_reason and (self._texts or self._calls):
            self._stop_reason = "stop"  # some servers end with [DONE] and no reason
        if not self._stop_reason or not (self.is_complete or self._told):
            raise StreamBroken(INCOMPLETE)
        if self._stop_reason in BROKEN:
            raise StreamBroken(f"The model's provider ended the reply: {self._stop_reason}.")
        is_full = STOP_REASONS.get(self._stop_reason) == "max_tokens"
        uses = tuple(
            long_name(read_tool_use(_opening(call), "".join(call.pieces), was_cut=is_full and call is self._calls[-1]))
            for call in self._calls
        )
        reason = "refusal" if self._is_refusal else ended(self._stop_reason, has_calls=bool(uses))
        opaque = tuple(self._opaque())
        return Reply("".join(self._texts), reason, self.usage, self._asked, uses, opaque, served=self._served)

    def _opaque(self) -> Iterator[Json]:
        calls = {str(n): call.extra for n, call in enumerate(self._calls) if call.extra}
        kept = {"reasoning_details": self._details, "calls": calls, "message": self._message}
        block = {
            "type": "thinking",
            "thinking": "".join(self._thoughts),
            **{name: each for name, each in kept.items() if each},
        }
        if (block["thinking"] or len(block) > 2) and json_error(block) is None:
            yield block | {POSITION_KEY: {"model": self._asked, "text": 0, "calls": 0}}


def _opening(call: _GrowingCall) -> Json:
    return {"id": call.id, "name": call.name, "input": call.given}


def _texts(content: object) -> str:
    """The text of a part that is one, or a list of parts."""
    if isinstance(content, list):
        return "".join(str(each.get("text") or "") for each in content)
    return str(content or "")


def merge_details(kept: list[Json], pieces: Iterable[Json]) -> None:
    """Add pieces of OpenRouter's ``reasoning_details`` to those before them: texts grow, the rest is as last told."""
    for piece in pieces:
        same = (each for each in reversed(kept) if all(each.get(name) == piece.get(name) for name in ("type", "index")))
        if (last := next(same, None)) is None:
            kept.append(dict(piece))
            continue
        for name, value in piece.items():
            grows = name in ("text", "summary", "data") and isinstance(last.get(name), str) and isinstance(value, str)
            last[name] = last[name] + value if grows else last.get(name) if value is None else value
