"""The adapter and the real SDK against a real server that misbehaves in every way we know of."""

import json
import math
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal

import pytest

from loom_worker.core.errors import Overloaded, ProviderFailed, StreamBroken
from loom_worker.core.values.chat import (
    ChatMessage,
    Reply,
    Request,
    Restarted,
    Sampling,
    Shape,
    TextDelta,
    Thinking,
    ToolOutcome,
    ToolSpec,
    ToolUse,
    object_schema,
)
from loom_worker.llm.anthropic import NO_KEY, Anthropic
from loom_worker.llm.model import NotSent
from loom_worker.llm.retry import Guarded, Retrying
from tests.support.messages_rules import signature_of
from tests.support.messages_server import (
    Cut,
    MessagesServer,
    Pings,
    Plain,
    Say,
    Stream,
    events,
    failure,
)
from tests.support.messages_wire import WireCall, answer, error_event, sse, start, text_block

pytestmark = [pytest.mark.integration, pytest.mark.heavy, pytest.mark.takes(11)]

KEY = "sk-ant-test-verysecret"
REQUEST = Request("You help.", (ChatMessage("user", "hello", context="today"),))
WHOLE = sse(answer("one two", [WireCall("c1", "find", {"q": "x" * 20})]))


@pytest.fixture
def server():
    with MessagesServer() as running:
        yield running


def model_of(server, **fields):
    return Anthropic(**{"model": "claude-test", "api_key": KEY, "base_url": server.url, **fields})


def retrying(model):
    return Retrying(model, pause=lambda _seconds, _is_given_up: None, chance=lambda: 0.0, clock=time.monotonic)


def reply_of(server, *behaviours, **fields):
    server.then(*behaviours)
    return list(model_of(server, **fields).reply(REQUEST))[-1]


def test_a_question_is_answered_and_streamed(server):
    *deltas, reply = model_of(server).reply(REQUEST)
    assert [type(delta) for delta in deltas] == [TextDelta] * 2
    assert reply.text == "".join(delta.text for delta in deltas) == "echo: hello"
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("reported", ["/models/served.gguf", "claude-opus-4-1-20250805", "claude-haiku-4-5"])
def test_a_reply_is_booked_and_priced_under_the_name_that_was_asked(server, reported):
    usage = {"input_tokens": 1000, "output_tokens": 100}
    reply = reply_of(server, Say("hi", model=reported, usage=usage), model="claude-haiku-4-5")
    assert (reply.model, reply.usage.cost_usd) == ("claude-haiku-4-5", Decimal("0.0015"))


def test_a_server_of_ones_own_needs_no_key(server):
    reply_of(server, api_key=None)
    assert server.headers[0]["authorization"] == f"Bearer {NO_KEY}"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "claude-3-opus-20240229"])
def test_a_deprecated_model_does_not_warn(server, model):
    assert reply_of(server, model=model).text == "echo: hello"


def test_calls_share_connections(server):
    for _ in range(20):
        reply_of(server)
    assert server.connections == 1


def test_a_connection_cut_after_the_last_event_is_an_answer(server):
    assert reply_of(server, Cut(WHOLE, len(WHOLE))).text == "one two"


@pytest.mark.parametrize(
    "behaviour",
    [
        Plain(200, b"<html><body>Welcome to the portal</body></html>", "text/html"),
        Plain(200, b"", "text/event-stream"),
        Plain(200, b'{"type": "message", "content": []}'),
        Stream(b"data: {broken\n\n"),
        Stream(b"data: [1, 2]\n\n"),
        Stream(b"\x00\xff\xfe garbage \n\n" * 100),
        Stream(b"not gzip at all", headers={"content-encoding": "gzip"}),
        Stream(sse([{"type": "ping"}] * 20)),
        events(start(), text_block(0, ["x"]), {"type": "message_stop"}),
        events({"type": "content_block_delta", "index": 4, "delta": {"type": "text_delta", "text": "x"}}),
        events(start(), error_event("novel_error")),
    ],
)
def test_what_is_no_reply_is_a_broken_stream(server, behaviour):
    with pytest.raises(StreamBroken):
        reply_of(server, behaviour)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_a_busy_provider_is_overloaded_with_its_wish(server, status):
    with pytest.raises(Overloaded) as caught:
        reply_of(server, failure(status, "whatever", headers={"retry-after": "4294967"}))
    assert caught.value.retry_after_s == 4_294_967.0


def test_the_sdk_does_not_retry_by_itself(server):
    with pytest.raises(Overloaded):
        reply_of(server, *[failure(529, "overloaded_error")] * 3)
    assert len(server.requests) == 1


@pytest.mark.parametrize("kind", ["overloaded_error", "rate_limit_error", "api_error"])
def test_an_error_event_in_the_stream_is_overloaded(server, kind):
    with pytest.raises(Overloaded):
        reply_of(server, events(start(), text_block(0, ["x"]), error_event(kind)))


def test_a_proxys_html_error_page_is_overloaded(server):
    with pytest.raises(Overloaded):
        reply_of(server, Plain(503, b"<html>busy</html>", "text/html"))


@pytest.mark.parametrize(
    ("status", "kind", "named"),
    [
        (400, "invalid_request_error", "refused"),
        (401, "authentication_error", "ANTHROPIC_API_KEY"),
        (403, "permission_error", "ANTHROPIC_API_KEY"),
        (404, "not_found_error", "LOOM_MODEL"),
        (413, "request_too_large", "LOOM_MAX_CONTEXT_TOKENS"),
        (422, "unprocessable", "refused"),
    ],
)
def test_a_refusal_names_its_remedy_and_never_the_key(server, status, kind, named):
    with pytest.raises(ProviderFailed) as caught:
        reply_of(server, failure(status, kind, f"refused (key {KEY})"))
    assert named in str(caught.value)
    assert "verysecret" not in str(caught.value)


def test_an_agents_file_has_its_own_settings_named_and_gets_nothing_of_the_environment(server, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Tenant: another-secret")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "another-secret")
    for in_file, named in ((True, "llm.api_key in the agent's file"), (False, "ANTHROPIC_API_KEY")):
        with pytest.raises(ProviderFailed, match=named):
            reply_of(server, failure(401, "authentication_error", "refused"), in_file=in_file)
    assert ["another-secret" in str(headers) for headers in server.headers] == [False, True]
    assert KEY in str(server.headers[0])


@pytest.mark.parametrize("body", [b'{"error": "no such model"}', b"no such model", b"[]", b""])
def test_a_refusal_of_another_shape_is_a_refusal_too(server, body):
    with pytest.raises(ProviderFailed, match="LOOM_MODEL"):
        reply_of(server, Plain(404, body))


def test_an_invalid_request_is_refused_as_by_the_real_server(server):
    with pytest.raises(ProviderFailed, match="at least one message"):
        list(model_of(server).reply(Request("", ())))


def thought(server):
    """Thinking that is this server's own: what one refuses is left out of later requests of the process."""
    return {"type": "thinking", "thinking": server.url, "signature": signature_of(server.url)}


def later(*said, **fields):
    return Request("You help.", (*REQUEST.messages, *said, ChatMessage("user", "and then?")), **fields)


def kinds(body):
    return [block["type"] for message in body["messages"] for block in message["content"]]


def test_thinking_whose_signature_is_refused_is_left_out_from_then_on(server):
    signed = {**thought(server), "signature": f"of the key {server.url}"}
    request, model = later(ChatMessage("assistant", "so", opaque=(signed,))), model_of(server)
    for _ in range(2):
        assert list(model.reply(request))[-1].text == "echo: and then?"
    assert ["thinking" in kinds(body) for body in server.requests] == [True, False, False]


@pytest.mark.parametrize(
    "refusal",
    [
        failure(400, "invalid_request_error", "Provider returned error"),
        failure(400, "", "x " * 200 + "Invalid `signature` in `thinking` block"),
        failure(500, "api_error", "litellm.BadRequestError: Invalid `signature` in `thinking` block"),
        events(error_event("api_error", "Invalid `signature` in `thinking` block")),
        Plain(422, b'{"detail": [{"msg": "Input tag thinking found"}]}'),
    ],
)
def test_thinking_is_left_out_however_a_gateway_words_its_refusal(server, refusal):
    server.then(refusal)
    assert list(model_of(server).reply(later(ChatMessage("assistant", "so", opaque=(thought(server),)))))[-1].text
    assert ["thinking" in kinds(body) for body in server.requests] == [True, False]


@pytest.mark.parametrize(
    ("status", "kind"), [(401, "authentication_error"), (402, "billing_error"), (500, "api_error")]
)
def test_an_error_that_is_no_refusal_of_the_request_is_not_tried_in_another_form(server, status, kind):
    server.then(failure(status, kind, "request signature of claude-thinking" if status < 500 else "internal error"))
    with pytest.raises((ProviderFailed, Overloaded)):
        list(model_of(server).reply(later(ChatMessage("assistant", "so", opaque=(thought(server),)))))
    assert len(server.requests) == 1


def test_a_server_that_refuses_cache_marks_is_asked_without_them(server):
    server.then(failure(400, "invalid_request_error", "system.0.cache_control: Extra inputs are not permitted"))
    assert reply_of(server).text == "echo: hello"
    assert ["cache_control" in json.dumps(body) for body in server.requests] == [True, False]


@pytest.mark.parametrize(("asked", "kept"), [({"may_call_tools": False}, 0), ({"must_call": "find"}, 1)])
def test_a_server_that_refuses_tool_choice_is_asked_without_it(server, asked, kept):
    server.then(failure(400, "invalid_request_error", "tool_choice: not supported"))
    spec = ToolSpec("find", "Finds.", {"type": "object"})
    assert list(model_of(server).reply(later(tools=(spec,), **asked)))[-1].text == "echo: and then?"
    assert ["tool_choice" in body for body in server.requests] == [True, False]
    assert len(server.requests[1].get("tools", ())) == kept


@pytest.mark.parametrize("words", ["tool_choice: not supported", "cache_control: not permitted"])
def test_a_server_that_refuses_every_form_is_not_asked_for_ever(server, words):
    server.then(*[failure(400, "invalid_request_error", words)] * 9)
    with pytest.raises(ProviderFailed):
        list(model_of(server).reply(later(tools=(ToolSpec("find", "", {"type": "object"}),), may_call_tools=False)))
    assert len(server.requests) == 2


SHAPE = Shape("verdict", object_schema("ok", ok={"type": "boolean"}))
TOO_MUCH = "`temperature` and `top_p` cannot both be specified for this model. Please use only one."


@pytest.mark.cases(
    ("fields", "complaints", "left"),
    [
        ({"sampling": Sampling(temperature=0.5, top_p=0.9)}, [TOO_MUCH], {"temperature"}),
        (
            {"sampling": Sampling(temperature=0.5, top_k=2)},
            ["top_k: no", "`temperature` is deprecated for this model."],
            set(),
        ),
        ({"sampling": Sampling(extra={"speed": "fast"})}, ["speed: Extra inputs are not permitted"], set()),
        ({"thinking": Thinking("low")}, ["adaptive thinking is not supported on this model"], set()),
        ({"thinking": Thinking("low")}, ["This model does not support the effort parameter."], set()),
        ({"thinking": Thinking("low")}, ["When `thinking` is enabled, a final `assistant` message must"], set()),
        ({"thinking": Thinking("low"), "shape": SHAPE}, ["output_config.format: Schema is too complex"], {"tools"}),
        (
            {"thinking": Thinking("low"), "shape": SHAPE},
            ["output_config: Extra inputs are not permitted"],
            {"tools"},
        ),
    ],
)
def test_what_a_model_does_not_take_is_left_out_and_a_shape_is_then_had_by_a_tool(fields, complaints, left):
    refusals = [failure(400, "invalid_request_error", each) for each in complaints]
    with MessagesServer(refusals, is_strict=False) as lenient:
        model = model_of(lenient, model="claude-opus-4-6")
        assert list(model.reply(replace(REQUEST, **fields)))[-1].text == "echo: hello"
    assert len(lenient.requests) == len(complaints) + 1
    assert {"temperature", "top_p", "speed", "thinking", "output_config", "tools"} & lenient.requests[-1].keys() == left


def test_cache_marks_can_be_left_out_from_the_start(server):
    assert reply_of(server, cache_marks=False).text == "echo: hello"
    assert "cache_control" not in json.dumps(server.requests)


def test_calls_that_a_server_refuses_in_the_history_are_told_in_words(server):
    said = ChatMessage("assistant", "I look.", tool_uses=(ToolUse("c1", "find", {"q": "hats"}),))
    found = ChatMessage("tool", outcomes=(ToolOutcome("c1", "find", "7 hats"),))
    server.then(failure(400, "invalid_request_error", "messages.1.content.1: unsupported block"))
    assert list(model_of(server).reply(later(said, found)))[-1].text == "echo: and then?"
    assert set(kinds(server.requests[1])) == {"text"}
    assert all(word in json.dumps(server.requests[1]) for word in ("I look.", "hats", "7 hats"))


def test_what_is_refused_in_every_form_is_refused_in_the_end(server):
    server.then(*[failure(400, "invalid_request_error", "no")] * 3)
    said = ChatMessage("assistant", "so", tool_uses=(ToolUse("c1", "find", {}),), opaque=(thought(server),))
    with pytest.raises(ProviderFailed):
        list(model_of(server).reply(later(said)))
    assert len(server.requests) == 3


@pytest.mark.parametrize("suffix", ["/v1", "/v1/", "/v1/messages", "/"])
def test_an_address_may_end_as_other_makers_addresses_do(server, suffix):
    assert reply_of(server, base_url=server.url + suffix).text == "echo: hello"


def test_a_whole_message_in_place_of_a_stream_is_a_reply(server):
    body = {"type": "message", "content": [{"type": "text", "text": "whole"}], "stop_reason": "end_turn"}
    assert reply_of(server, Plain(200, json.dumps(body, indent=1).encode())).text == "whole"


@pytest.mark.parametrize(
    "behaviour",
    [
        Plain(200, b'{"error": {"message": "Invalid API key", "code": 401}}'),
        Stream(sse([start(), *text_block(0, ["par"])[:2]]) + b'event: error\ndata: {"error": {"code": 403}}\n\n'),
        Stream(b'data: {"error": "unauthorized"}\n\n'),
    ],
)
def test_a_refusal_with_status_200_ends_at_the_first_attempt(server, behaviour):
    server.then(behaviour)
    with pytest.raises(ProviderFailed):
        list(retrying(model_of(server)).reply(REQUEST))
    assert len(server.requests) == 1


def test_a_reply_that_begins_anew_takes_the_place_of_what_came_before(server):
    server.then(events(start(), text_block(0, ["par"]), answer("whole")))
    *told, reply = model_of(server).reply(REQUEST)
    assert [type(event) for event in told] == [TextDelta, Restarted, TextDelta]
    assert reply.text == "whole"


def test_no_server_is_a_broken_stream():
    with MessagesServer() as gone:
        pass
    with pytest.raises(StreamBroken):
        reply_of(gone)


def test_no_key_and_no_address_names_the_setting(monkeypatch, tmp_path):
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path))
    with pytest.raises(ProviderFailed, match="ANTHROPIC_API_KEY"):
        list(Anthropic(model="claude-test").reply(REQUEST))


def test_an_address_that_is_no_url_names_the_setting():
    with pytest.raises(ProviderFailed, match="ANTHROPIC_BASE_URL"):
        list(Anthropic(model="claude-test", base_url="nowhere").reply(REQUEST))


def test_pings_alone_do_not_outlive_the_deadline(server):
    release = threading.Event()
    with pytest.raises(StreamBroken, match="LOOM_LLM_TIMEOUT_S"):
        reply_of(server, Pings(release), call_timeout_s=0.4)
    release.set()


def test_many_threads_share_one_adapter(server):
    model = model_of(server)

    def ask(n):
        return list(model.reply(Request("", (ChatMessage("user", f"number {n}"),))))[-1].text

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, range(100))) == [f"echo: number {n}" for n in range(100)]


def test_a_cut_reply_is_tried_again_and_its_deltas_taken_back(server):
    server.then(Cut(WHOLE, 600), failure(529, "overloaded_error"), Say("whole"))
    seen = list(retrying(model_of(server)).reply(REQUEST))
    assert [type(event) for event in seen[:2]] == [TextDelta, Restarted]
    assert seen[-1].text == "whole"
    assert len(server.requests) == 3


def test_a_tool_call_survives_the_round_trip(server):
    spec = ToolSpec("find", "Finds.", {"type": "object"})
    server.then(Say("Let me see.", [WireCall("c1", "find", {"q": "é"})]))
    (first,) = [event for event in model_of(server).reply(REQUEST) if isinstance(event, Reply)]
    said = ChatMessage("assistant", first.text, tool_uses=first.tool_uses, opaque=first.opaque)
    list(model_of(server).reply(Request("", (*REQUEST.messages, said), tools=(spec,))))
    assert server.requests[1]["messages"][1]["content"][1]["input"] == {"q": "é"}


def test_a_number_that_is_too_large_spoils_its_call_and_not_the_session(server):
    spec = ToolSpec("find", "Finds.", {"type": "object"})
    reply = reply_of(server, Say("Let me see.", [WireCall("c1", "find", '{"q": 1e999}')]))
    (use,) = reply.tool_uses
    assert (use.arguments, "Out of range" in use.flaw) == ({}, True)
    said = ChatMessage("assistant", reply.text, tool_uses=reply.tool_uses)
    told = ChatMessage("tool", outcomes=(ToolOutcome("c1", "find", use.flaw, is_error=True),))
    assert list(model_of(server).reply(Request("", (*REQUEST.messages, said, told), tools=(spec,))))[-1].text


def test_a_journal_that_holds_an_infinity_already_can_be_sent(server):
    spec = ToolSpec("find", "Finds.", {"type": "object"})
    stored = ToolUse("c1", "find", json.loads('{"q": 1e999, "also": ["x", NaN]}'))
    said = ChatMessage("assistant", tool_uses=(stored,))
    told = ChatMessage("tool", outcomes=(ToolOutcome("c1", "find", "none"),))
    assert list(model_of(server).reply(Request("", (*REQUEST.messages, said, told), tools=(spec,))))[-1].text
    assert server.requests[0]["messages"][1]["content"][0]["input"] == {"q": None, "also": ["x", None]}


class Unasked:
    """A breaker that is closed, and keeps what is reported to it."""

    open_for_s = token = None

    def __init__(self):
        self.told = []

    def permit(self, name, *, probe_s):
        return self

    def tell_answer(self, model, failure=None):
        pass

    def succeeded(self, name, token):
        self.told.append("succeeded")

    def failed(self, name, token, *, source):
        self.told.append("failed")

    def abandoned(self, name, token):
        self.told.append("abandoned")


@pytest.mark.parametrize("value", [math.inf, math.nan, "\ud800", object()])
def test_a_request_that_cannot_be_written_is_refused_at_once_and_is_no_failure_of_the_provider(server, value):
    spec = ToolSpec("find", "Finds.", {"type": "object", "default": value})
    breaker, pauses = Unasked(), []
    guarded = Guarded(model_of(server), breaker, provider="anthropic", probe_s=1.0)
    model = Retrying(guarded, pause=lambda *pause: pauses.append(pause), chance=lambda: 0.0, clock=time.monotonic)
    with pytest.raises(NotSent, match="not sent"):
        list(model.reply(Request("", REQUEST.messages, tools=(spec,))))
    assert (breaker.told, pauses, server.requests) == (["abandoned"], [], [])


IMPORT = """
import json, sys, time
began = time.process_time()
import loom_worker.llm.anthropic, loom_worker.llm.retry, loom_worker.llm.tokens
made = loom_worker.llm.anthropic.Anthropic(model="m", base_url="http://127.0.0.1:9")
loaded = [name for name in ("anthropic", "httpx2", "tiktoken", "pydantic") if name in sys.modules]
print(json.dumps({"loaded": loaded}))
"""


def test_importing_and_making_the_adapter_loads_no_sdk():
    out = subprocess.run([sys.executable, "-c", IMPORT], check=True, capture_output=True, text=True, timeout=60).stdout
    assert json.loads(out)["loaded"] == []
