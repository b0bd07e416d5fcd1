"""A reply that is larger than it may be: read no further, kept as far as it came, in every shape it can have."""

import gzip
import threading
import zlib
from dataclasses import dataclass, field

import brotli
import pytest
import zstandard

from loom_worker.core.errors import ProviderFailed
from loom_worker.core.values.chat import ChatMessage, Reply, Request, TextDelta
from loom_worker.llm.anthropic import Anthropic
from loom_worker.llm.http_model import HttpModel
from loom_worker.llm.model import whole_reply
from loom_worker.llm.openai import OpenAiServer
from loom_worker.llm.presets import preset
from loom_worker.llm.response import MAX_ERROR_BYTES
from tests.support import openai_server
from tests.support.messages_server import MessagesServer, Outgoing, Plain, Stream, failure
from tests.support.messages_wire import WireCall, answer, block, call_block, finish, sse, start, thinking_block

pytestmark = [pytest.mark.heavy, pytest.mark.integration, pytest.mark.takes(5)]

REQUEST = Request("You help.", (ChatMessage("user", "hello"),))
MAX = 20_000
MEGABYTE = 1_000_000
USAGE = {"input_tokens": 7, "output_tokens": 1}


@dataclass
class Endless:
    """A beginning, then the same piece again and again, 64 MB at the most; says how much the client took."""

    beginning: bytes
    piece: bytes
    sent_bytes: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def send(self, out: Outgoing) -> None:
        try:
            out.begin()
            out.piece(self.beginning)
            while self.sent_bytes < 64 * MEGABYTE:
                out.piece(self.piece)
                self.sent_bytes += len(self.piece)
        except OSError:  # hung up, as it should be
            out.cut()
        finally:
            self.ended.set()


def delta(index, kind, name, piece):
    return sse([{"type": "content_block_delta", "index": index, "delta": {"type": kind, name: piece}}])


def opened(index, opening):
    return sse([start(usage=USAGE), {"type": "content_block_start", "index": index, "content_block": opening}])


WORDS = "word " * 200
TEXT = Endless(opened(0, {"type": "text", "text": ""}), delta(0, "text_delta", "text", WORDS))
ARGUMENTS = Endless(
    opened(0, {"type": "tool_use", "id": "c1", "name": "find", "input": {}}),
    delta(0, "input_json_delta", "partial_json", "[1," * 300),
)
THINKING = Endless(
    opened(0, {"type": "thinking", "thinking": "", "signature": ""}), delta(0, "thinking_delta", "thinking", WORDS)
)
BLOCKS = Endless(sse([start(usage=USAGE)]), sse(thinking_block(0, "hm", "sig")))
LINE = Endless(b"data: ", b"x" * 50_000)
DATA_LINES = Endless(b"", b"data: 1\n" * 5_000)
COMMENT = Endless(b": ", b"y" * 50_000)


@pytest.fixture
def server():
    with MessagesServer() as running:
        yield running


@pytest.fixture
def model(server):
    return Anthropic(model="claude-test", api_key="k", base_url=server.url, max_reply_bytes=MAX)


def piece(delta):
    return openai_server.sse([openai_server.chunk(delta)], ends=False)


def called(**fields):
    return piece({"tool_calls": [{"index": 0, "function": {"arguments": "[1," * 300}, **fields}]})


@pytest.mark.parametrize(
    ("again", "text"),
    [
        (piece({"content": WORDS}), MAX),
        (piece({"reasoning_content": WORDS}), 0),
        (called(), 0),
        (called(id="c"), 0),
        (piece({"content": "<think>" + WORDS}), 0),
        (openai_server.sse([{"type": "response.output_text.delta", "delta": WORDS}], ends=False), MAX),
    ],
    ids=["text", "thinking", "arguments", "call", "tag", "response"],
)
def test_a_reply_without_end_in_openais_formats_is_cut_too(again, text):
    behaviour, kind = Endless(b"", again), "openai" if b"response." in again else "vllm"
    with openai_server.OpenAiServer([behaviour]) as stub:
        server = OpenAiServer(preset(kind), stub.url, "k", kind)
        *deltas, reply = HttpModel(server, model="m", max_reply_bytes=MAX).reply(REQUEST)
        assert (reply.stop_reason, reply.tool_uses, reply.opaque) == ("reply_too_large", (), ())
        assert reply.text == "".join(each.text for each in deltas if isinstance(each, TextDelta))
        assert (len(reply.text), reply.usage.output_tokens) == (text, MAX // 4)
        assert behaviour.ended.wait(30)
        assert behaviour.sent_bytes < 24 * MEGABYTE


@pytest.mark.parametrize(
    "endless",
    [TEXT, ARGUMENTS, THINKING, BLOCKS, LINE, DATA_LINES, COMMENT],
    ids=["text", "arguments", "thinking", "blocks", "line", "data lines", "comment"],
)
def test_a_reply_without_end_is_cut_and_its_connection_closed(server, model, endless):
    behaviour = Endless(endless.beginning, endless.piece)
    server.then(behaviour)
    *deltas, reply = model.reply(REQUEST)
    assert isinstance(reply, Reply)
    assert (reply.stop_reason, reply.tool_uses, reply.opaque) == ("reply_too_large", (), ())
    assert reply.text == "".join(each.text for each in deltas if isinstance(each, TextDelta))
    assert len(reply.text) == (MAX - len('{"type": "text"}') if endless is TEXT else 0)
    assert behaviour.ended.wait(30)
    # What the two sockets and the chunks that are read ahead hold comes on top.
    assert behaviour.sent_bytes < 24 * MEGABYTE


def test_what_a_cut_reply_used_is_what_is_known(server):
    model = Anthropic(model="claude-haiku-4-5-20251001", api_key="k", base_url=server.url, max_reply_bytes=MAX)
    server.then(Endless(TEXT.beginning, TEXT.piece))
    reply = whole(model)
    assert (reply.usage.input_tokens, reply.usage.llm_calls) == (7, 1)
    assert reply.usage.output_tokens == MAX // 4  # the provider did not get to say it


def test_text_before_a_call_that_is_too_large_is_kept(server):
    call = WireCall("c1", "find", {"q": "x" * MAX})
    server.then(Stream(sse(answer("Let me look.", [call], usage=USAGE))))
    reply = whole(Anthropic(model="claude-test", api_key="k", base_url=server.url, max_reply_bytes=MAX))
    assert (reply.text, reply.stop_reason, reply.tool_uses) == ("Let me look.", "reply_too_large", ())


def test_thousands_of_calls_are_no_reply(server):
    calls = [event for n in range(3_000) for event in call_block(n, WireCall(f"c{n}", "f", {}))]
    server.then(Stream(sse([start(usage=USAGE), *calls, *finish("tool_use")])))
    reply = whole(Anthropic(model="claude-test", api_key="k", base_url=server.url))
    assert (reply.stop_reason, reply.tool_uses) == ("reply_too_large", ())


def test_a_letter_is_never_cut_in_two(server):
    pieces = [{"type": "text_delta", "text": "é€😀" * 100}] * 9
    events = block(0, {"type": "text", "text": ""}, pieces)
    server.then(Stream(sse([start(), *events, *finish("end_turn")])))
    reply = whole(Anthropic(model="claude-test", api_key="k", base_url=server.url, max_reply_bytes=3_000))
    assert reply.stop_reason == "reply_too_large"
    assert ("é€😀" * 900).startswith(reply.text)
    assert 2_950 < len(reply.text.encode()) <= 3_000


def members(data):
    return b"".join(gzip.compress(data[n : n + 40]) for n in range(0, len(data), 40))


PACK = {"gzip": members, "deflate": zlib.compress, "br": brotli.compress, "zstd": zstandard.compress}


@pytest.mark.parametrize("encoding", PACK)
def test_a_reply_that_is_compressed_all_the_same_is_read(server, encoding):
    server.then(Stream(PACK[encoding](sse(answer("one two " * 9_000))), headers={"content-encoding": encoding}))
    reply = whole(Anthropic(model="claude-test", api_key="k", base_url=server.url))
    assert reply.text == "one two " * 9_000
    assert server.headers[0]["accept-encoding"] == "identity"


@pytest.mark.parametrize("encoding", PACK)
def test_an_error_that_is_compressed_all_the_same_is_told(server, encoding):
    body = PACK[encoding](failure(400, "invalid_request_error", "the hat is too red").body)
    server.then(Plain(400, body, headers={"content-encoding": encoding}))
    with pytest.raises(ProviderFailed, match="the hat is too red"):
        whole(Anthropic(model="claude-test", api_key="k", base_url=server.url))


@pytest.mark.parametrize("encoding", PACK)
def test_a_bomb_is_not_unpacked(server, encoding):
    pack = gzip.compress if encoding == "gzip" else PACK[encoding]
    bomb = pack(b"data: " + b"x" * 100 * MEGABYTE)
    server.then(Stream(bomb, headers={"content-encoding": encoding}))
    reply = whole(Anthropic(model="claude-test", api_key="k", base_url=server.url, max_reply_bytes=MAX))
    assert reply.stop_reason == "reply_too_large"


@pytest.mark.parametrize("status", [400, 404, 307])
def test_of_a_refusal_only_the_beginning_is_read(server, status):
    said = '{"error": {"type": "x", "message": "' + "no " * 20 * MEGABYTE
    server.then(Plain(status, said.encode()))
    with pytest.raises(ProviderFailed) as failed:
        whole(Anthropic(model="claude-test", api_key="k", base_url=server.url))
    cause = failed.value.__cause__
    assert len(cause.response.content) == MAX_ERROR_BYTES  # type: ignore[union-attr]


def test_whoever_wants_a_whole_reply_is_given_none(server):
    server.then(Endless(TEXT.beginning, TEXT.piece))
    model = Anthropic(model="claude-test", api_key="k", base_url=server.url, max_reply_bytes=MAX)
    with pytest.raises(ProviderFailed, match="LOOM_MAX_REPLY_BYTES"):
        whole_reply(model, REQUEST)


def whole(model):
    return list(model.reply(REQUEST))[-1]
