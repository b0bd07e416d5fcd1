"""What each adapter keeps to, with its real SDK against a server that is cut off, slow or given up."""

import base64
import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from loom_worker.core.errors import Interrupted, Overloaded, ProviderFailed, StreamBroken
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.chat import (
    ChatMessage,
    Reply,
    Request,
    TextDelta,
    ThinkingDelta,
    ToolOutcome,
    ToolSpec,
    ToolUse,
)
from loom_worker.core.values.media import Media
from loom_worker.llm.anthropic import Anthropic
from loom_worker.llm.bedrock import Bedrock
from loom_worker.llm.http_model import HttpModel
from loom_worker.llm.model import Fallbacks, Model, NotSent
from loom_worker.llm.openai import OpenAiServer
from loom_worker.llm.presets import preset
from loom_worker.llm.provider_errors import is_rate_limit
from tests.support import openai_server
from tests.support.bedrock_wire import BedrockServer, Frames, converse_frames, conversed, frames, give_credentials
from tests.support.files_made import pdf, png
from tests.support.messages_server import Cut, Drip, Hang, MessagesServer, Plain, Stream
from tests.support.messages_wire import WireCall, answer, error_event, sse
from tests.support.openai_server import chat, chunk, responses
from tests.support.until import until

pytestmark = pytest.mark.integration

Json = dict[str, Any]
TOOL = ToolSpec("find", "Finds.", {"type": "object"})
REQUEST = Request("You help.", (ChatMessage("user", "hello", context="today"),), tools=(TOOL,))
CALLS = [WireCall("c1", "find", {"q": "x" * 20})]


@dataclass(frozen=True)
class Provider:
    """An adapter and how its server speaks."""

    server: Callable[[], Any]
    model: Callable[..., Model]
    events: Callable[..., list[Json]]
    """A whole reply of a text and calls; ``stop``: by this word of the format's."""
    packed: Callable[[list[Json]], bytes]
    streamed: Callable[[bytes], Any]
    words: dict[str, Any]
    """The format's words for a cut reply, a refusal and a failure, and where its usage is."""
    is_whole_without: int = 1
    """Bytes at the end that tell nothing more."""

    @property
    def whole(self) -> bytes:
        """A reply of two deltas and a call."""
        return self.packed(self.events("one two", CALLS))

    @property
    def begun_bytes(self) -> int:
        """After these the first delta is there, and not the last."""
        events = self.events("one two", CALLS)
        second = next(n for n, event in enumerate(events) if '" two"' in str(event).replace("'", '"'))
        return len(self.packed(events[:second]).removesuffix(b"data: [DONE]\n\n"))

    def says(self, *given: Any, **fields: Any) -> Any:
        """What the server does to reply with this."""
        return self.streamed(self.packed(self.events(*given, **fields)))


def anthropic(server: Any, **fields: Any) -> Anthropic:
    return Anthropic(**{"model": "claude-test", "api_key": "sk-ant-test", "base_url": server.url, **fields})


def bedrock(server: Any, **fields: Any) -> Bedrock:
    return Bedrock(**{"model": "us.anthropic.claude-haiku-4-5-20251001-v1:0", "base_url": server.url, **fields})


def converse(server: Any, **fields: Any) -> Bedrock:
    return bedrock(server, **{"model": "us.amazon.nova-lite-v1:0", **fields})


def openai(kind: str, server: Any, **fields: Any) -> HttpModel:
    return HttpModel(OpenAiServer(preset(kind), server.url, "sk-test", kind), **{"model": "gpt-test", **fields})


def messages_events(text: str = "", calls: Sequence[WireCall] = (), *, stop: str | None = None, **fields: Any) -> Any:
    return answer(text, calls, stop_reason=stop, **fields)


def chat_events(text: str = "", calls: Sequence[WireCall] = (), *, stop: str | None = None, **fields: Any) -> Any:
    return chat(text, calls, finish=stop, **fields)


def responses_events(text: str = "", calls: Sequence[WireCall] = (), *, stop: str = "", **fields: Any) -> Any:
    return responses(text, calls, incomplete=stop, **fields)


PNG, PAGES = png(), pdf(1)
PIXELS, SHEET = base64.b64encode(PNG).decode(), base64.b64encode(PAGES).decode()
PNG_URL, PDF_URL = f"data:image/png;base64,{PIXELS}", f"data:application/pdf;base64,{SHEET}"
SHELF = Media("file_" + "a" * 32, "image/png", "shelf.png", len(PNG), 3, 2)
LIST = Media("file_" + "b" * 32, "application/pdf", "list [1].pdf", len(PAGES), pages=1)
FILES = {SHELF.file_id: PNG, LIST.file_id: PAGES}
LOOK = ChatMessage("user", f"Look at\n\n{SHELF.stub}\n\n{LIST.stub}\n\nand compare.", "today", media=(SHELF, LIST))
SHOWN = ChatMessage("tool", outcomes=(ToolOutcome("c1", "find", f"It is\n{SHELF.stub}", media=(SHELF,)),))
CALLED = ChatMessage("assistant", "", tool_uses=(ToolUse("c1", "find", {}),))
ASKED = Request("You help.", (LOOK,), memory=f"Of {SHELF.stub}", tools=(TOOL,), read_file=FILES.__getitem__)
ANSWERED = replace(ASKED, messages=(ChatMessage("user", "hello"), CALLED, SHOWN, ChatMessage("user", "Well?")))
OF_MESSAGES = {
    "image": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXELS}},
    "pdf": {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": SHEET},
        "title": LIST.name,
    },
    "cut": "max_tokens",
    "refused": "refusal",
    "failure": error_event("overloaded_error"),
    "usage": {"input_tokens": 26, "output_tokens": 7},
    "unknown": {"type": "brand_new", "delta": {"type": "newer"}},
}
OF_CHAT = {
    "image": {"type": "image_url", "image_url": {"url": PNG_URL}},
    "pdf": {"type": "file", "file": {"filename": LIST.name, "file_data": PDF_URL}},
    "cut": "length",
    "refused": "content_filter",
    "failure": {"error": {"message": "Overloaded", "type": "server_error", "code": 503}},
    "usage": openai_server.USAGE,
    "unknown": chunk({"brand_new": {"a": [1]}, "content": None}, moderation={"results": []}),
}
OF_RESPONSES = {
    "image": {"type": "input_image", "image_url": PNG_URL},
    "pdf": {"type": "input_file", "filename": LIST.name, "file_data": PDF_URL},
    "cut": "max_output_tokens",
    "refused": "content_filter",
    "failure": {"type": "error", "code": "server_error", "message": "Overloaded"},
    "usage": {"input_tokens": 26, "output_tokens": 7, "total_tokens": 33},
    "unknown": {"type": "response.brand_new", "output_index": 3, "item": {"type": "newer"}},
}
OF_CONVERSE = {
    "image": {"image": {"format": "png", "source": {"bytes": PIXELS}}},
    "pdf": {"document": {"format": "pdf", "name": "list [1] pdf 1", "source": {"bytes": SHEET}}},
    "cut": "max_tokens",
    "refused": "guardrail_intervened",
    "failure": {"modelStreamErrorException": {"message": "Overloaded"}},
    "usage": {"inputTokens": 26, "outputTokens": 7, "totalTokens": 33},
    "unknown": {"brandNew": {"delta": {}}},
}
PROVIDERS = {
    "converse": Provider(BedrockServer, converse, conversed, converse_frames, Frames, OF_CONVERSE),
    "anthropic": Provider(MessagesServer, anthropic, messages_events, sse, Stream, OF_MESSAGES),
    "bedrock": Provider(BedrockServer, bedrock, messages_events, frames, Frames, OF_MESSAGES),
    "chat": Provider(
        openai_server.OpenAiServer,
        partial(openai, "vllm"),
        chat_events,
        openai_server.sse,
        Stream,
        OF_CHAT,
        # Once reason and usage are told, an end of the stream is as good as its [DONE].
        is_whole_without=len(b"\ndata: [DONE]\n\n") + 1,
    ),
    "responses": Provider(
        openai_server.OpenAiServer,
        partial(openai, "openai"),
        responses_events,
        partial(openai_server.sse, ends=False),
        Stream,
        OF_RESPONSES,
    ),
}
HEAVY = ("anthropic", "bedrock", "converse", "responses")


@pytest.fixture(params=["chat", *(pytest.param(name, marks=pytest.mark.heavy) for name in HEAVY)])
def provider(request, monkeypatch, tmp_path):
    if request.param in ("bedrock", "converse"):
        pytest.importorskip("boto3", reason="the extra packages of bedrock are not installed")
        give_credentials(monkeypatch, tmp_path)
    return PROVIDERS[request.param]


@pytest.fixture
def server(provider):
    with provider.server() as running:
        yield running


@pytest.fixture
def release():
    """Lets go what hangs; set in the end."""
    released = threading.Event()
    yield released
    released.set()


@pytest.mark.parametrize("is_clean", [False, True])
def test_a_cut_stream_is_never_an_answer(provider, server, is_clean):
    model = provider.model(server)
    whole = len(provider.whole) - provider.is_whole_without
    for after_bytes in (*range(0, whole, 97), whole):
        server.then(Cut(provider.whole, after_bytes, is_clean=is_clean))
        with pytest.raises(StreamBroken):
            list(model.reply(REQUEST))


@pytest.mark.parametrize("kind", ["silent before the head", "silent in the middle", "slow drip"])
def test_no_slowness_outlives_the_deadline(provider, server, release, kind):
    behaviours = {
        "silent before the head": Hang(release),
        "silent in the middle": Hang(release, provider.whole, 300),
        "slow drip": Drip(release, provider.whole, every_s=0.02),
    }
    server.then(behaviours[kind])
    with pytest.raises(StreamBroken, match="LOOM_LLM_TIMEOUT_S"):
        list(provider.model(server, call_timeout_s=0.4).reply(REQUEST))


@pytest.mark.parametrize("after_bytes", [None, 300])
def test_a_process_that_stops_does_not_wait_for_a_silent_server(provider, server, release, after_bytes):
    stopping = Stopping(0.0)
    server.then(Hang(release, provider.whole, after_bytes))
    replies = provider.model(server, stopping=stopping).reply(REQUEST)
    with ThreadPoolExecutor(1) as pool:
        seen = pool.submit(list, replies)
        until(lambda: server.requests, 5.0, "the request")
        stopping.ask()
        with pytest.raises(Interrupted):
            seen.result(timeout=60)


def test_deltas_come_at_once_and_a_call_given_up_drops_its_connection_and_hurts_no_other(provider, server, release):
    server.then(Hang(release, provider.whole, provider.begun_bytes), provider.streamed(provider.whole))
    model = provider.model(server)
    replies = model.reply(REQUEST)
    assert isinstance(next(replies), TextDelta | ThinkingDelta)
    replies.close()
    readers = [thread for thread in threading.enumerate() if thread.name == "loom-llm-read"]
    until(lambda: not any(thread.is_alive() for thread in readers), 5.0, "the end of the reading thread")
    reply = list(model.reply(REQUEST))[-1]
    assert isinstance(reply, Reply)
    assert [(use.id, use.name, use.arguments) for use in reply.tool_uses] == [("c1", "find", {"q": "x" * 20})]
    assert (reply.text, reply.stop_reason) == ("one two", "tool_use")


def test_a_request_that_cannot_be_written_is_refused_as_such(provider, server):
    spec = ToolSpec("find", "Finds.", {"type": "object", "default": float("inf")})
    with pytest.raises(NotSent):
        list(provider.model(server).reply(Request("", REQUEST.messages, tools=(spec,))))


def reply_of(provider, server, *behaviours, request=REQUEST):
    server.then(*behaviours)
    return list(provider.model(server).reply(request))[-1]


def test_an_empty_reply_is_one(provider, server):
    reply = reply_of(provider, server, provider.says())
    assert (reply.text, reply.tool_uses, reply.stop_reason) == ("", (), "end_turn")


def test_parallel_calls_come_in_their_order_with_their_arguments(provider, server):
    calls = [WireCall(f"c{n}", "find", {"q": n}) for n in range(3)]
    reply = reply_of(provider, server, provider.says("both", calls))
    assert [(use.id, use.arguments) for use in reply.tool_uses] == [
        ("c0", {"q": 0}),
        ("c1", {"q": 1}),
        ("c2", {"q": 2}),
    ]


@pytest.mark.cases("raw", ['{"q": ', '{"q": 1e999}', "[1]", "nothing"])
def test_arguments_that_are_no_json_are_a_flaw_of_their_call(provider, server, raw):
    reply = reply_of(provider, server, provider.says("", [WireCall("c1", "find", raw)]))
    assert [(use.arguments, bool(use.flaw)) for use in reply.tool_uses] == [({}, True)]


def test_a_call_that_the_limit_cut_is_flawed_and_the_reply_says_why(provider, server):
    whole, cut = WireCall("c1", "find", {"q": "a"}), WireCall("c2", "find", '{"q": "b')
    reply = reply_of(provider, server, provider.says("one", [whole, cut], stop=provider.words["cut"]))
    assert reply.stop_reason == "max_tokens"
    assert [bool(use.flaw) for use in reply.tool_uses] == [False, True]
    assert "cut off" in reply.tool_uses[1].flaw


def test_a_refusal_is_no_answer_and_no_error(provider, server):
    reply = reply_of(provider, server, provider.says("I cannot.", stop=provider.words["refused"]))
    assert (reply.text, reply.stop_reason) == ("I cannot.", "refusal")


def test_an_error_in_the_middle_of_a_stream_is_no_answer(provider, server):
    events = provider.events("one two", CALLS)
    broken = [*events[:3], provider.words["failure"]]
    with pytest.raises(Overloaded, match="Overloaded"):
        reply_of(provider, server, provider.streamed(provider.packed(broken)))


@pytest.mark.cases(
    ("headers", "wait_s"),
    [({}, None), ({"retry-after": "7"}, 7.0), ({"retry-after-ms": "1500"}, 1.5), ({"retry-after": "soon"}, None)],
)
def test_a_limit_of_the_account_is_waited_for_as_long_as_it_says(provider, server, headers, wait_s):
    body = b'{"error": {"type": "rate_limit_error", "code": "rate_limit_exceeded", "message": "Too many requests"}}'
    with pytest.raises(Overloaded) as caught:
        reply_of(provider, server, Plain(429, body, headers=headers))
    assert (caught.value.retry_after_s, is_rate_limit(caught.value)) == (wait_s, True)


def test_a_wrong_key_is_refused_for_good(provider, server):
    body = b'{"error": {"type": "authentication_error", "code": "invalid_api_key", "message": "Incorrect API key"}}'
    with pytest.raises(ProviderFailed, match="401"):
        reply_of(provider, server, Plain(401, body))


def test_the_usage_is_that_of_the_last_word_on_it(provider, server):
    reply = reply_of(provider, server, provider.says("one", usage=provider.words["usage"]))
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.llm_calls) == (26, 7, 1)


def test_a_reply_whose_usage_is_missing_is_an_answer(provider, server):
    reply = reply_of(provider, server, provider.says("one two", usage={"unknown": None}))
    assert (reply.text, reply.usage.tokens) == ("one two", 0)


def test_what_is_not_known_is_passed_over(provider, server):
    events = provider.events("one two", CALLS)
    odd = [*events[:2], provider.words["unknown"], *({**event, "brand_new": {"a": 1}} for event in events[2:])]
    reply = reply_of(provider, server, provider.streamed(provider.packed(odd)))
    assert (reply.text, len(reply.tool_uses)) == ("one two", 1)


def test_no_tool_is_called_where_none_may_be(provider, server):
    reply_of(provider, server, provider.says("one"), request=replace(REQUEST, may_call_tools=False))
    assert "none" in str(server.requests[-1].get("tool_choice", "none"))


def texts(parts):
    """The parts of a message, each text as it is and everything else without marks."""
    plain = ({key: each for key, each in part.items() if key != "cache_control"} for part in parts)
    return [part.get("text", part) for part in plain if "cachePoint" not in part]


def sent(server):
    """All messages of the latest request, as the list of their contents."""
    body = server.requests[-1]
    return [each.get("content", each.get("output", "")) for each in body.get("messages", body.get("input"))]


def test_an_image_and_a_pdf_are_sent_where_they_stand_in_a_message(provider, server):
    reply_of(provider, server, provider.says("one"), request=ASKED)
    *before, told, image, document, after = texts(sent(server)[-1])
    assert "\n\n".join(before) == f"Of {SHELF.stub}\n\ntoday"
    assert [told, image, document, after] == ["Look at", provider.words["image"], provider.words["pdf"], "and compare."]


def test_an_image_in_a_result_is_sent_after_its_words_and_before_the_next_message(provider, server):
    reply_of(provider, server, provider.says("one"), request=ANSWERED)
    parts = json.dumps(sent(server))
    places = [parts.index(json.dumps(each)[1:-1]) for each in ("It is", provider.words["image"], "Well?")]
    assert places == sorted(places)
    assert parts.count(PIXELS) == 1


@pytest.mark.cases("request_", [ASKED, ANSWERED])
def test_lines_stand_for_what_a_model_cannot_see_and_for_what_is_gone(provider, server, request_):
    server.then(*[provider.says("one")] * 3)
    list(provider.model(server, sees=()).reply(request_))
    list(provider.model(server).reply(replace(request_, read_file=lambda _file_id: b"")))
    list(provider.model(server, sees=("images",)).reply(request_))
    assert [PIXELS in json.dumps(each) for each in server.requests[-3:]] == [False, False, True]
    assert not any(SHEET in json.dumps(each) for each in server.requests[-3:])
    assert all(each.stub in str(server.requests[-3]) for message in request_.messages for each in message.all_media)


@pytest.mark.cases(
    ("status", "says"),
    [
        (500, "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"),
        (400, "This model doesn't support the image content block that you provided. Remove it and try again."),
        (400, "Failed to deserialize the JSON body: messages[0]: unknown variant `image_url`, expected `text`"),
        (400, "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum"),
        (404, "No endpoints found that support image input"),
        (422, "Input should be a valid string"),
        (400, "Provider returned error"),
    ],
)
def test_what_a_server_refuses_of_images_is_asked_once_more_without_them(provider, server, status, says):
    body = json.dumps({"error": {"message": says, "type": "invalid_request_error"}, "message": says}).encode()
    seen = len(server.requests)
    reply = reply_of(provider, server, Plain(status, body), provider.says("one"), request=ASKED)
    assert (reply.text, len(server.requests) - seen) == ("one", 2)
    assert SHELF.stub in str(sent(server)[-1])
    assert PIXELS not in str(server.requests[-1])


def test_a_history_with_images_goes_to_whoever_stands_in_and_back(provider, server):
    busy = Plain(529, b'{"error": {"type": "overloaded_error", "message": "Overloaded"}}')
    with openai_server.OpenAiServer() as other:
        other.then(Stream(openai_server.sse(chat("two"))))
        server.then(busy, provider.says("one"))
        model = Fallbacks((provider.model(server), openai("openrouter", other)))
        assert [list(model.reply(ANSWERED))[-1].text for _ in range(2)] == ["two", "one"]
        assert str(OF_CHAT["image"]) in str(other.requests)
    assert str(provider.words["image"])[1:-1] in str(server.requests[-1])
