"""Bedrock's Converse API, which all of its models share: requests and replies of the Messages API in its form. Pure.

Models differ in what they take beside text and tools; ``FAMILIES`` says what is known of them.
https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from loom_worker.core.errors import StreamBroken
from loom_worker.core.values.chat import AS_USUAL, EFFORT_TOKENS, ChatMessage, Effort, Request
from loom_worker.core.values.json import Json
from loom_worker.llm.anthropic_request import merged, native_schema, request_body
from loom_worker.llm.assembly import well_formed
from loom_worker.llm.conversation import as_text
from loom_worker.llm.media import after_results
from loom_worker.llm.response import MALFORMED
from loom_worker.llm.shaped import ANY_TOOL

MAX_NAME = 64
"""Characters of a tool's name."""
MOST_NAME_CHARS = 190
"""Characters of a document's name, of 200, before its number: letters, digits, hyphens, brackets and single spaces."""
AS_GIVEN = "(A file.)"
"""The text that a document must have beside it."""
CACHE_POINT: Json = {"cachePoint": {"type": "default"}}
CALL_IT = "(Answer with a call of the tool {name}, without any other text.)"
CALL_ONE = "(Answer with a call of one of the tools, without any other text.)"
OWN_MEMBERS = frozenset(
    "additionalModelRequestFields additionalModelResponseFieldPaths guardrailConfig inferenceConfig outputConfig "
    "performanceConfig promptVariables requestMetadata serviceTier".split()
)
"""Members of a request's body; further ones go to the model itself."""
REFUSED = frozenset({"guardrail_intervened", "content_filtered"})
COUNTS = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "cacheReadInputTokens": "cache_read_input_tokens",
    "cacheWriteInputTokens": "cache_creation_input_tokens",
}
"""The first is without the tokens of the cache, as in the Messages API."""


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """What a family of models can do beside text and tools."""

    choices: frozenset[str] = frozenset()
    """Kinds of ``toolChoice``: a model without any is told in words what to call."""
    caches: bool = False
    has_results: bool = False
    """A tool's result may have a status, and images."""
    streams_calls: bool = True
    """False: with tools, its whole reply comes as one piece."""
    has_shapes: bool = False
    efforts: Mapping[Effort, Json] | None = None
    """The model's own fields for an effort of thinking."""
    top_k: tuple[str, ...] = ("top_k",)
    """Path of that setting in the model's own fields."""


ANY, BOTH = frozenset({"any"}), frozenset({"any", "tool"})
NOVA = ModelFamily(BOTH, caches=True, has_results=True, top_k=("inferenceConfig", "topK"))
NOVA_EFFORTS: Mapping[Effort, Json] = {
    each: {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low" if each == "low" else "medium"}}
    for each in EFFORT_TOKENS
}
"""Nova's highest effort takes no limit of tokens, without which no budget would hold."""
WORDS: Mapping[Effort, Json] = {each: {"reasoning_effort": each} for each in EFFORT_TOKENS}
FAMILIES: tuple[tuple[str, ModelFamily], ...] = (
    (r"amazon\.nova-2", replace(NOVA, efforts=NOVA_EFFORTS)),
    (r"amazon\.nova", NOVA),
    (r"mistral\.(?:mistral-large-2|pixtral)", ModelFamily(ANY)),
    (r"meta\.llama|writer\.palmyra", ModelFamily(streams_calls=False)),
    (r"openai\.gpt", ModelFamily(BOTH, has_shapes=True, efforts=WORDS)),
    (r"deepseek\.v|mistral\.mistral-large", ModelFamily(ANY, has_shapes=True)),
    (r"(?:qwen|google|nvidia|minimax|moonshot(?:ai)?)\.|mistral\.(?:mini|magi|vox|dev)", ModelFamily(has_shapes=True)),
)
"""Part of a model's id after its region to what it can do; the first match applies. Sources in the Bedrock user guide:
conversation-inference-supported-models-features, structured-output, prompt-caching; API reference: ToolChoice."""


def family_of(model: str) -> ModelFamily:
    """By its id, the id of an inference profile, or an ARN of either; nothing is taken for granted of other models."""
    return next((family for name, family in FAMILIES if re.search(rf"(?:\A|[./]){name}", model)), ModelFamily())


def converse_body(request: Request, model: str) -> Json:
    """The JSON body of ``POST /model/…/converse-stream``, or of ``…/converse``."""
    family = family_of(model)
    form, choice = _demanding(_with_tools_or_words(request), family)
    if not family.has_results:
        form = replace(form, messages=tuple(after_results(form.messages)))
    plain = replace(form, thinking=None, sampling=AS_USUAL, shape=None, cache_marks=form.cache_marks and family.caches)
    given = request_body(plain, model)
    sampling = {"temperature": form.sampling.temperature, "topP": form.sampling.top_p}
    body: Json = {
        "messages": _with_names(
            [{"role": each["role"], "content": list(_contents(each["content"], family))} for each in given["messages"]]
        ),
        "inferenceConfig": {"maxTokens": form.max_tokens} | {k: v for k, v in sampling.items() if v is not None},
    }
    if "system" in given:
        body["system"] = list(_contents(given["system"], family))
    if form.stop_sequences:
        body["inferenceConfig"]["stopSequences"] = list(form.stop_sequences)
    if form.tools:
        body["toolConfig"] = {"tools": [_tool(each) for each in given["tools"]], **choice}
    if (schema := native_schema(form.shape)) is not None and form.shape:
        structure = {"jsonSchema": {"name": form.shape.name, "schema": json.dumps(schema)}}
        body["outputConfig"] = {"textFormat": {"type": "json_schema", "structure": structure}}
    extra, own = form.sampling.extra, _models_own(form, family)
    body = merged(body, {"additionalModelRequestFields": own} if own else {})
    return merged(body, {name: value for name, value in extra.items() if name in OWN_MEMBERS})


def _with_tools_or_words(request: Request) -> Request:
    """Calls need tools beside them, and no choice forbids new ones: without tools, former calls are told in words."""
    if request.tools and request.may_call_tools:
        return request
    told = (as_text(each) if each.tool_uses or each.outcomes else each for each in request.messages)
    return replace(request, tools=(), may_call_tools=True, must_call="", messages=tuple(told))


def _demanding(request: Request, family: ModelFamily) -> tuple[Request, Json]:
    """The request for a call in the form that the family understands, and its choice of a tool."""
    name = request.must_call
    if not name:
        return request, {}
    if name != ANY_TOOL and "tool" in family.choices:
        return request, {"toolChoice": {"tool": {"name": name}}}
    offered = tuple(each for each in request.tools if name in (ANY_TOOL, each.name)) or request.tools
    form = replace(request, tools=offered)
    if "any" in family.choices:
        return form, {"toolChoice": {"any": {}}}
    words = CALL_ONE if name == ANY_TOOL else CALL_IT.format(name=name)
    return replace(form, messages=(*form.messages, ChatMessage("user", words))), {}


def _models_own(request: Request, family: ModelFamily) -> Json:
    """The model's own fields, for what not every model has."""
    fields: Json = {}
    if request.thinking and family.efforts and not request.must_call:
        fields = dict(family.efforts[request.thinking.nearest_effort])
    if request.sampling.top_k is not None:
        top_k: Any = request.sampling.top_k
        for name in reversed(family.top_k):
            top_k = {name: top_k}
        fields = merged(fields, top_k)
    return merged(fields, {name: value for name, value in request.sampling.extra.items() if name not in OWN_MEMBERS})


def _tool(tool: Json) -> Json:
    described = {"description": tool["description"]} if tool["description"].strip() else {}
    return {"toolSpec": {"name": tool["name"], **described, "inputSchema": {"json": tool["input_schema"]}}}


def _contents(blocks: Iterable[Json], family: ModelFamily) -> Iterator[Json]:
    """The blocks of a message, each mark for the cache as a block after its own."""
    for block in blocks:
        yield _content(block, family)
        if "cache_control" in block:
            yield CACHE_POINT


def _content(block: Json, family: ModelFamily) -> Json:
    """One block of the Messages API as a block of this one."""
    match block["type"]:
        case "tool_use":
            use = {"toolUseId": block["id"], "name": block["name"][:MAX_NAME], "input": block["input"]}
            return {"toolUse": use}
        case "tool_result":
            given = block["content"]
            parts = [{"text": given}] if isinstance(given, str) else [_content(each, family) for each in given]
            status = {"status": "error"} if block.get("is_error") and family.has_results else {}
            return {"toolResult": {"toolUseId": block["tool_use_id"], "content": parts, **status}}
        case "thinking":
            text = {"text": block["thinking"], "signature": block["signature"]}
            return {"reasoningContent": {"reasoningText": text}}
        case "redacted_thinking":
            return {"reasoningContent": {"redactedContent": block["data"]}}
        case "image":
            kind, data = block["source"]["media_type"].partition("/")[2], block["source"]["data"]
            return {"image": {"format": kind, "source": {"bytes": data}}}
        case "document":
            name = " ".join(re.sub(r"[^A-Za-z0-9()\[\]-]+", " ", block["title"]).split())
            return {"document": {"format": "pdf", "name": name, "source": {"bytes": block["source"]["data"]}}}
    return {"text": block["text"]}


def _with_names(messages: list[Json]) -> list[Json]:
    """Messages whose documents have names of which none comes twice, and a text beside each."""
    numbers = count(1)
    for message in messages:
        documents = [block["document"] for block in message["content"] if "document" in block]
        for document in documents:
            document["name"] = f"{document['name'][:MOST_NAME_CHARS]} {next(numbers)}".strip()
        if documents and not any("text" in block for block in message["content"]):
            message["content"].insert(0, {"text": AS_GIVEN})
    return messages


def message_events(events: Iterable[tuple[str, Json]]) -> Iterator[Json]:
    """The events of a stream, each with its name, as those of the Messages API.

    Raises:
        StreamBroken: one lacks what it must have, or the model's output made no reply.
    """
    begun: set[int] = set()
    is_over = False
    for name, event in events:
        with well_formed():
            yield from _message_events(name, event, begun)
        is_over = is_over or name == "messageStop"
        if is_over and name == "metadata":  # the last one; where it is missing, the end of the stream stands for it
            break
    if is_over:
        yield {"type": "message_stop"}


def _message_events(name: str, event: Json, begun: set[int]) -> Iterator[Json]:
    match name:
        case "messageStart":
            yield {"type": "message_start", "message": {}}
        case "contentBlockStart" if "toolUse" in event["start"]:
            yield _start(event["contentBlockIndex"], _block(event["start"]))
        case "contentBlockDelta":
            yield from _deltas(event["contentBlockIndex"], event["delta"], begun)
        case "contentBlockStop":
            yield {"type": "content_block_stop", "index": event["contentBlockIndex"]}
        case "messageStop":
            yield {"type": "message_delta", "delta": {"stop_reason": _stop_reason(event)}}
        case "metadata":
            yield {"type": "message_delta", "usage": _counts(event)}


def whole_message(reply: Json) -> Json:
    """The answer of ``converse``, which is no stream, as one event; raises as message_events."""
    with well_formed():
        content = [block for each in reply["output"]["message"]["content"] if (block := _block(each))]
        return {"type": "message", "content": content, "stop_reason": _stop_reason(reply), "usage": _counts(reply)}


def _block(part: Json) -> Json:
    """One whole block, or the beginning of one, as a block of the Messages API; empty: a kind not known here."""
    match part:
        case {"text": text}:
            return {"type": "text", "text": text}
        case {"toolUse": use}:
            return {"type": "tool_use", "id": use["toolUseId"], "name": use["name"], "input": use.get("input") or {}}
        case {"reasoningContent": {"redactedContent": data}}:
            return {"type": "redacted_thinking", "data": data}
        case {"reasoningContent": thought}:
            thought = thought.get("reasoningText", {})
            return {"type": "thinking", "thinking": thought.get("text", ""), "signature": thought.get("signature", "")}
    return {}


def _deltas(index: int, delta: Json, begun: set[int]) -> Iterator[Json]:
    """The events for one piece; blocks of text and thinking have no beginning of their own."""
    match delta:
        case {"text": text}:
            piece = {"type": "text_delta", "text": text}
        case {"toolUse": {"input": text}}:
            piece = {"type": "input_json_delta", "partial_json": text}
        case {"reasoningContent": thought}:
            if index not in begun:
                begun.add(index)
                yield _start(index, _block({"reasoningContent": thought if "redactedContent" in thought else {}}))
            if "signature" in thought:
                piece = {"type": "signature_delta", "signature": thought["signature"]}
            elif "text" in thought:
                piece = {"type": "thinking_delta", "thinking": thought["text"]}
            else:
                return
        case _:
            return
    yield {"type": "content_block_delta", "index": index, "delta": piece}


def _start(index: int, block: Json) -> Json:
    return {"type": "content_block_start", "index": index, "content_block": block}


def _stop_reason(event: Json) -> str:
    reason = str(event["stopReason"])
    if reason.startswith("malformed"):  # the output made no reply, which another try may
        raise StreamBroken(f"{MALFORMED} ({reason})")
    return "refusal" if reason in REFUSED else reason


def _counts(event: Json) -> Json:
    usage = event.get("usage") or {}
    return {name: usage[own] for own, name in COUNTS.items() if own in usage}
