"""The Ollama adapter and the real SDK against a server that speaks as Ollama does."""

import logging
import math

import pytest

from loom_worker.core.errors import Overloaded, ProviderFailed, StreamBroken
from loom_worker.core.values.chat import ChatMessage, Request, TextDelta, ToolSpec
from loom_worker.llm.ollama import Ollama
from tests.support.messages_server import MessagesServer, Plain, Stream
from tests.support.messages_wire import WireCall
from tests.support.ollama_wire import refusal, stream

pytestmark = pytest.mark.integration

TOOL = ToolSpec("find", "Finds.", {"type": "object"})
REQUEST = Request("You help.", (ChatMessage("user", "hello", context="today"),), tools=(TOOL,))
WHOLE = stream("one| two", [WireCall("c1", "find", {"q": "x" * 20})], thinking="hm")


@pytest.fixture(scope="module")
def only_server():
    """One for all tests: a new address would mean a new client of the SDK's, which takes 50 ms to make."""
    with MessagesServer() as running:
        yield running


@pytest.fixture
def server(only_server):
    """Its requests are counted from here on."""
    only_server.before = len(only_server.requests)
    return only_server


def asked(server):
    return server.requests[server.before :]


def model_of(server, **fields):
    return Ollama(**{"model": "qwen3-coder", "host": server.url, **fields})


def reply_of(server, *behaviours, request=REQUEST, **fields):
    server.then(*behaviours)
    return list(model_of(server, **fields).reply(request))[-1]


def test_a_question_is_answered_streamed_and_free(server):
    server.then(Stream(stream("one| two")))
    *deltas, reply = model_of(server).reply(REQUEST)
    assert deltas == [TextDelta("one"), TextDelta(" two")]
    assert (reply.text, reply.stop_reason, reply.model) == ("one two", "end_turn", "ollama/qwen3-coder")
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.cost_usd) == (26, 7, 0.0)


def test_no_key_of_another_provider_is_sent_to_it(server, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-secret")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "secret-token")
    with MessagesServer([Stream(WHOLE)]) as fresh:
        reply_of(fresh)
        assert "secret" not in str(fresh.headers)
        assert fresh.requests[0]["model"] == "qwen3-coder"


def test_calls_and_thoughts_come_back_whole(server):
    reply = reply_of(server, Stream(WHOLE))
    assert [(use.id, use.name, use.arguments) for use in reply.tool_uses] == [("c1", "find", {"q": "x" * 20})]
    assert reply.stop_reason == "tool_use"
    assert [block["thinking"] for block in reply.opaque] == ["hm"]


def test_its_thoughts_may_go_back_to_it(server):
    reply = reply_of(server, Stream(WHOLE))
    spoken = ChatMessage("assistant", reply.text, opaque=reply.opaque)
    again = Request("", (ChatMessage("user", "hello"), spoken, ChatMessage("user", "go on")))
    reply_of(server, Stream(stream("yes")), request=again)
    assert asked(server)[1]["messages"][1]["content"][0] == {"type": "thinking", "thinking": "hm"}


def test_a_reply_at_its_limit_is_cut_and_says_so(server):
    assert reply_of(server, Stream(stream("one", stop_reason="max_tokens"))).stop_reason == "max_tokens"


def test_a_reply_without_a_stop_reason_is_never_an_answer(server):
    with pytest.raises(StreamBroken):
        reply_of(server, Stream(stream("one", stop_reason=None)))


def test_no_ollama_says_how_to_start_it():
    with MessagesServer() as gone:
        pass
    with pytest.raises(StreamBroken, match=rf"{gone.url}: start it with `ollama serve`"):
        reply_of(gone)


def test_a_missing_model_says_how_to_get_it(server):
    with pytest.raises(ProviderFailed, match="ollama pull qwen3-coder"):
        reply_of(server, refusal(404, "not_found_error", "model 'qwen3-coder' not found"))


def test_an_ollama_that_is_too_old_says_so(server):
    with pytest.raises(ProviderFailed, match=r"update it to 0\.14"):
        reply_of(server, Plain(404, b"404 page not found", "text/plain"))


def test_a_model_without_tools_is_named(server):
    said = "registry.ollama.ai/library/gemma3:4b does not support tools"
    with pytest.raises(ProviderFailed, match="does not support tools"):
        reply_of(server, refusal(400, "invalid_request_error", said))


def test_a_model_that_does_not_fit_the_memory_is_not_waited_for(server):
    said = "model requires more system memory (41.2 GiB) than is available (14.8 GiB)"
    with pytest.raises(ProviderFailed, match=r"smaller model .*41\.2 GiB"):
        reply_of(server, refusal(500, "api_error", said))


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (500, "api_error", "llama runner process has terminated"),
        (503, "overloaded_error", "server busy, please try again.  maximum pending requests exceeded"),
        (429, "rate_limit_error", "you have reached your hourly usage limit"),
    ],
)
def test_a_busy_ollama_is_overloaded(server, status, kind, said):
    with pytest.raises(Overloaded):
        reply_of(server, refusal(status, kind, said))
    assert len(asked(server)) == 1


def test_a_prompt_that_was_cut_is_told_in_the_log(server, caplog):
    long = Request("x " * 30_000, REQUEST.messages)
    with caplog.at_level(logging.WARNING):
        reply_of(server, Stream(stream("one", input_tokens=20_000)), request=long)
        assert caplog.records == []
        reply_of(server, Stream(stream("one", input_tokens=4096)), request=long)
    assert "OLLAMA_CONTEXT_LENGTH" in caplog.text


@pytest.mark.parametrize("number", [math.inf, math.nan])
def test_a_number_that_no_json_holds_is_a_flaw_of_its_call(server, number):
    (use,) = reply_of(server, Stream(stream("one", [WireCall("c1", "find", {"q": number})]))).tool_uses
    assert use.flaw
    assert use.arguments == {}
