"""Real exchanges with servers that speak OpenAI's formats, replayed through a real server and the real SDK."""

import json
import os
import re
from decimal import Decimal
from pathlib import Path

import pytest

from loom_worker.core.errors import LoomError
from loom_worker.core.values.chat import ChatMessage, Request, TextDelta, ThinkingDelta, ToolOutcome, ToolSpec, ToolUse
from loom_worker.llm.http_model import HttpModel
from loom_worker.llm.openai import OpenAiServer
from loom_worker.llm.openai_chat import chat_body
from loom_worker.llm.openai_responses import responses_body
from loom_worker.llm.presets import preset
from tests.support.messages_server import Plain, Stream
from tests.support.openai_server import OpenAiServer as Stub

pytestmark = [pytest.mark.integration, pytest.mark.takes(8)]

FOLDER = os.environ.get("LOOM_TEST_DATA")
FILE = Path(FOLDER or "", "openai_recordings", "recordings.jsonl")
HAS_FILE = bool(FOLDER) and FILE.exists()
RECORDINGS = [json.loads(line) for line in FILE.read_text("utf-8").splitlines()] if HAS_FILE else []
NONE = pytest.param(None, marks=pytest.mark.skip(reason="LOOM_TEST_DATA is not set: no recordings"))
PRESETS = {"openrouter": "openrouter", "groq": "groq", "mistral": "mistral", "deepseek": "deepseek", "ollama": "ollama"}


def each_of(recordings):
    return [pytest.param(each, id=each["id"]) for each in recordings] or [NONE]


def is_response(recording):
    return recording["path"].endswith("/responses")


def named_preset(recording):
    """The preset of the maker; Azure's for all who speak Chat Completions as OpenAI does."""
    if is_response(recording):
        return preset("openai")
    return preset("gemini" if "v1beta/openai" in recording["path"] else PRESETS.get(recording["provider"], "azure"))


def pieces(recording):
    """The objects that the server sent."""
    if not recording["sse"]:
        try:
            return [json.loads(recording["body"])]
        except ValueError:
            return []
    found = re.findall(r"^data: ?(\{.*)$", recording["body"], re.M)
    return [json.loads(each, parse_float=str) for each in found]


def has_failed(recording):
    """True for all but a complete answer: an error, a job for later, an echo of the request."""
    last = ([*pieces(recording)] or [{}])[-1]
    last = last.get("response") or last
    is_whole = "choices" in last or ("output" in last and last["status"] in ("completed", "complete"))
    return recording["status"] >= 300 or not is_whole or bool(last.get("error"))


ANSWERS = [each for each in RECORDINGS if not has_failed(each)]
FAILURES = [each for each in RECORDINGS if has_failed(each)]


def text_in(content):
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content)
    return content or ""


def chat_answer(recording):
    """Text, thinking, calls, reason and usage of Chat Completions by plain joining; no code of Loom's."""
    text, thinking, calls, reason, usage = "", "", [], None, {}
    for piece in pieces(recording):
        usage = piece.get("usage") or (piece.get("x_groq") or {}).get("usage") or usage
        for choice in piece.get("choices") or []:
            part = choice.get("delta") or choice.get("message") or {}
            reason = choice.get("finish_reason") or reason
            thinking += part.get("reasoning_content") or part.get("reasoning") or ""
            content = part.get("content")
            if isinstance(content, list):
                thinking += "".join(text_in(each["thinking"]) for each in content if "thinking" in each)
            text += text_in(content)
            for call in part.get("tool_calls") or []:
                if call.get("id") is not None:
                    calls.append([call["id"], call["function"]["name"], ""])
                calls[-1][2] += call["function"].get("arguments") or ""
    if tagged := re.match(r"\s*<think>(.*?)(?:</think>\s*|\Z)", text, re.S):
        text, thinking = text[tagged.end() :], thinking + tagged[1]
    return text, thinking, calls, reason, usage


def response_answer(recording):
    """The same of Responses, by its last event, which has all."""
    response = pieces(recording)[-1]
    response = response.get("response", response)
    items = response["output"]
    text = "".join(text_in(item["content"]) for item in items if item["type"] == "message")
    thinking = "".join(
        text_in(item.get("summary") or item.get("content")) for item in items if item["type"] == "reasoning"
    )
    calls = [[item["call_id"], item["name"], item["arguments"]] for item in items if item["type"] == "function_call"]
    return text, thinking, calls, "stop", response["usage"]


@pytest.fixture(scope="module")
def stub():
    """One for all: a new address would mean a new client of the SDK's."""
    with Stub() as running:
        yield running


def replayed(recording, stub):
    body = recording["body"].encode()
    stub.then(Stream(body) if recording["sse"] else Plain(recording["status"], body))
    chosen = named_preset(recording)
    request = Request("", (ChatMessage("user", "hello"),))
    return list(HttpModel(OpenAiServer(chosen, stub.url, "sk-test", chosen.name), model="any").reply(request))


def body_of(recording, request, model):
    make = responses_body if is_response(recording) else chat_body
    chosen = named_preset(recording)
    return make(request, f"{chosen.name}/{model}", chosen)


@pytest.mark.parametrize("recording", each_of(ANSWERS))
def test_a_recorded_answer_is_read_as_it_was_sent(recording, stub):
    text, thinking, calls, reason, usage = (response_answer if is_response(recording) else chat_answer)(recording)
    *deltas, reply = replayed(recording, stub)
    assert reply.text == text
    assert "".join(each.text for each in deltas if isinstance(each, TextDelta)) == text
    shown = "".join(each.text for each in deltas if isinstance(each, ThinkingDelta))
    assert (shown.replace("\n\n", ""), len(shown) > 0) == (thinking.replace("\n\n", ""), len(thinking) > 0)
    assert [[use.id, use.name, use.arguments, use.flaw] for use in reply.tool_uses] == [
        [call_id, name, json.loads(arguments), None] for call_id, name, arguments in calls
    ]
    reasons = {"length": "max_tokens", "content_filter": "refusal"}
    assert reply.stop_reason == reasons.get(reason, "tool_use" if calls else "end_turn")
    compare_usage(reply.usage, usage)


def compare_usage(found, told):
    prompt = told.get("prompt_tokens", told.get("input_tokens"))
    output = told.get("completion_tokens", told.get("output_tokens"))
    details = told.get("prompt_tokens_details") or told.get("input_tokens_details") or {}
    cached, written = details.get("cached_tokens") or 0, details.get("cache_write_tokens") or 0
    assert (found.sent_tokens, found.cache_read_tokens, found.cache_write_tokens) == (prompt, cached, written)
    assert found.output_tokens == max(output, told["total_tokens"] - prompt)  # Gemini's thinking is in the total alone
    if told.get("cost") is not None:
        assert found.cost_usd == Decimal(str(told["cost"]))


@pytest.mark.skipif(not HAS_FILE, reason="LOOM_TEST_DATA is not set: no recordings")
def test_there_are_recordings_of_every_kind():
    assert len(ANSWERS) > 160
    assert {each["status"] for each in FAILURES} == {200, 400, 404, 429}
    assert {"cost"} <= {name for each in ANSWERS if not is_response(each) for name in chat_answer(each)[4]}


@pytest.mark.parametrize("recording", each_of(FAILURES))
def test_a_recorded_failure_is_an_error_with_the_servers_words(recording, stub):
    with pytest.raises(LoomError) as caught:
        replayed(recording, stub)
    said = re.search(r'"message": ?"([^"\\]{10,60})', recording["body"])
    assert said is None or said[1] in str(caught.value)


# What was asked: a Request made of it is written as the recorded client wrote it.


def plain(content):
    """The text of a message, of whatever parts it is made."""
    return (
        "\n\n".join(part["text"] for part in content if part.get("text"))
        if isinstance(content, list)
        else content or ""
    )


def as_request(recording):
    """The recorded request as Loom would hold it."""
    asked, messages, systems = recording["request"], [], []
    for each in asked.get("messages") or inputs(asked):
        role = each["role"]
        if role in ("system", "developer"):
            systems.append(plain(each["content"]))
        elif role == "tool":
            outcome = ToolOutcome(each["tool_call_id"], "", plain(each["content"]))
            if messages[-1].role == "tool":
                outcomes = (*messages.pop().outcomes, outcome)
                messages.append(ChatMessage("tool", outcomes=outcomes))
            else:
                messages.append(ChatMessage("tool", outcomes=(outcome,)))
        else:
            uses = tuple(
                ToolUse(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
                for call in each.get("tool_calls") or []
            )
            messages.append(ChatMessage(role, plain(each.get("content")), tool_uses=uses))
    tools = tuple(
        ToolSpec(tool["name"], tool.get("description") or "", tool.get("parameters") or {})
        for tool in (each.get("function", each) for each in asked.get("tools") or [])
        if "name" in tool
    )
    must_call = "*" if asked.get("tool_choice") == "required" and tools else ""
    systems.append(asked.get("instructions") or "")
    return Request("\n\n".join(filter(None, systems)), tuple(messages), tools=tools, must_call=must_call)


def inputs(asked):
    """The items of Responses as messages of Chat Completions."""
    for item in [{"role": "user", "content": asked["input"]}] if isinstance(asked["input"], str) else asked["input"]:
        if item.get("type") == "function_call":
            called = {"name": item["name"], "arguments": item["arguments"]}
            yield {"role": "assistant", "tool_calls": [{"id": item["call_id"], "function": called}]}
        elif item.get("type") == "function_call_output":
            yield {"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]}
        elif "role" in item:
            yield item


def meaning(asked):
    """Who said what, which calls were made with which results, and what may be called: in the order of the request."""
    told = []
    for each in asked.get("messages") or inputs(asked):
        role = "system" if each["role"] == "developer" else each["role"]
        if (text := plain(each.get("content")).strip()) and role != "system":
            same = told and told[-1][0] == role and role != "tool"
            told = [*told[:-1], (role, f"{told[-1][1]}\n\n{text}")] if same else [*told, (role, text)]
        for call in each.get("tool_calls") or []:
            told.append(("call", call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])))
        if role == "tool":
            told[-1] = ("result", each["tool_call_id"], text)
    tools = {
        tool["name"] for tool in (each.get("function", each) for each in asked.get("tools") or []) if "name" in tool
    }
    return told, tools, bool(tools) and asked.get("tool_choice") == "required"


def is_of_text(recording):
    """False for requests with images and the like, with calls of the maker's own tools, or only a stored part."""
    text = json.dumps(recording["request"].get("messages") or recording["request"].get("input"))
    kinds = {"image_url", "input_audio", "video_url", "file", "input_file", "input_image", "refusal"}
    has_parts = bool(kinds & set(re.findall(r'"type": "(\w+)"', text)))
    is_stored = any(recording["request"].get(each) for each in ("previous_response_id", "conversation"))
    return recording["request"] and not has_parts and not is_stored


@pytest.mark.parametrize("recording", each_of([each for each in RECORDINGS if is_of_text(each)]))
def test_a_recorded_request_is_asked_again_with_the_same_meaning(recording):
    told, tools, must_call = meaning(recording["request"])
    found = meaning(body_of(recording, as_request(recording), "any"))
    assert found[1:] == (tools, must_call)
    assert [
        each for each in found[0] if each[1:] not in [("(Go on.)",), ("(The conversation began earlier.)",)]
    ] == told
