"""What each adapter keeps to, with its real SDK against a server that is cut off, slow or given up."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from loom_worker.core.errors import Interrupted, StreamBroken
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.chat import ChatMessage, Reply, Request, TextDelta, ThinkingDelta, ToolSpec
from loom_worker.llm.anthropic import Anthropic
from loom_worker.llm.bedrock import Bedrock
from loom_worker.llm.model import NotSent
from loom_worker.llm.ollama import Ollama
from tests.support.bedrock_wire import BedrockServer, Frames, converse_frames, conversed, frames, give_credentials
from tests.support.messages_server import Cut, Drip, Hang, MessagesServer, Stream
from tests.support.messages_wire import WireCall, answer, sse
from tests.support.ollama_wire import stream
from tests.support.until import until

pytestmark = pytest.mark.integration

TOOL = ToolSpec("find", "Finds.", {"type": "object"})
REQUEST = Request("You help.", (ChatMessage("user", "hello", context="today"),), tools=(TOOL,))
CALLS = [WireCall("c1", "find", {"q": "x" * 20})]


@dataclass(frozen=True)
class Provider:
    """An adapter and how its server speaks."""

    server: Callable[[], Any]
    model: Callable[..., Any]
    whole: bytes
    """A reply of two deltas and a call."""
    streamed: Callable[[bytes], Any]
    begun_bytes: int
    """After these the first delta is there, and not the last."""


def anthropic(server: Any, **fields: Any) -> Anthropic:
    return Anthropic(**{"model": "claude-test", "api_key": "sk-ant-test", "base_url": server.url, **fields})


def bedrock(server: Any, **fields: Any) -> Bedrock:
    return Bedrock(**{"model": "us.anthropic.claude-haiku-4-5-20251001-v1:0", "base_url": server.url, **fields})


def converse(server: Any, **fields: Any) -> Bedrock:
    return bedrock(server, **{"model": "us.amazon.nova-lite-v1:0", **fields})


def ollama(server: Any, **fields: Any) -> Ollama:
    return Ollama(**{"model": "qwen3-coder", "host": server.url, **fields})


SAID = sse(answer("one two", CALLS))
FRAMED = frames(answer("one two", CALLS))
TOLD = conversed("one two", CALLS)
OF_OLLAMA = stream("one| two", CALLS, thinking="hm")
PROVIDERS = {
    "anthropic": Provider(MessagesServer, anthropic, SAID, Stream, SAID.index(b" two")),
    "bedrock": Provider(BedrockServer, bedrock, FRAMED, Frames, len(frames(answer("one two", CALLS)[:4]))),
    "converse": Provider(BedrockServer, converse, converse_frames(TOLD), Frames, len(converse_frames(TOLD[:2]))),
    "ollama": Provider(MessagesServer, ollama, OF_OLLAMA, Stream, OF_OLLAMA.index(b" two")),
}


@pytest.fixture(
    params=["ollama", *(pytest.param(name, marks=pytest.mark.heavy) for name in ("anthropic", "bedrock", "converse"))]
)
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
    for after_bytes in (*range(0, len(provider.whole), 97), len(provider.whole) - 1):
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
