"""The Bedrock adapter, the real SDK and AWS' own packages against a server that speaks Bedrock's wire format."""

from decimal import Decimal

import pytest

from loom_worker.core.errors import Overloaded, PromptTooLong, ProviderFailed, StreamBroken
from loom_worker.core.values.chat import ChatMessage, Request, TextDelta, ToolSpec
from loom_worker.llm.bedrock import Bedrock
from loom_worker.llm.provider_errors import is_rate_limit
from tests.support.bedrock_wire import (
    BedrockServer,
    Frames,
    chunk,
    exception,
    frame,
    frames,
    give_credentials,
    raw_chunk,
    refusal,
)
from tests.support.messages_server import Cut, Plain
from tests.support.messages_wire import WireCall, answer, finish, start, text_block

pytest.importorskip("boto3", reason="the extra packages of bedrock are not installed")
pytestmark = [pytest.mark.heavy, pytest.mark.integration]

MODEL = "us.anthropic.claude-haiku-4-5-20251001-v1:0"
TOOL = ToolSpec("find", "Finds.", {"type": "object"})
REQUEST = Request("You help.", (ChatMessage("user", "hello", context="today"),), tools=(TOOL,))
WHOLE = frames(answer("one two", [WireCall("c1", "find", {"q": "x" * 20})]))


@pytest.fixture(autouse=True)
def aws(monkeypatch, tmp_path):
    give_credentials(monkeypatch, tmp_path)


@pytest.fixture(scope="module")
def only_server():
    """One for all tests: a new address would mean a new client of the SDK's, which takes 50 ms to make."""
    with BedrockServer() as running:
        yield running


@pytest.fixture
def server(only_server):
    only_server.forget()
    return only_server


def model_of(server, **fields):
    return Bedrock(**{"model": MODEL, "base_url": server.url, **fields})


def reply_of(server, *behaviours, **fields):
    server.then(*behaviours)
    return list(model_of(server, **fields).reply(REQUEST))[-1]


def test_a_question_is_answered_and_streamed(server):
    server.then(Frames(frames(answer("one two three"))))
    *deltas, reply = model_of(server).reply(REQUEST)
    assert [type(delta) for delta in deltas] == [TextDelta] * 3
    assert reply.text == "one two three"
    assert reply.stop_reason == "end_turn"


def test_the_request_is_signed_for_the_region_and_names_the_model_in_its_path(server):
    reply_of(server, Frames(WHOLE))
    assert server.paths == [f"/model/{MODEL}/invoke-with-response-stream"]
    assert "/us-west-2/bedrock/aws4_request" in server.headers[0]["authorization"]
    assert server.requests[0]["anthropic_version"] == "bedrock-2023-05-31"
    assert not {"model", "stream"} & server.requests[0].keys()


def test_an_inference_profile_is_named_by_its_arn(server):
    arn = "arn:aws:bedrock:us-west-2:123456789012:application-inference-profile/abc"
    told = answer("one two", model="claude-haiku-4-5-20251001", usage={"input_tokens": 1000, "output_tokens": 100})
    reply = reply_of(server, Frames(frames(told)), model=arn)
    assert (reply.text, reply.model, reply.usage.cost_usd) == ("one two", arn, Decimal("0.0015"))
    assert "application-inference-profile%2Fabc" in server.paths[0]


def test_a_session_token_and_a_given_region_are_used(server, monkeypatch):
    monkeypatch.setenv("AWS_SESSION_TOKEN", "temporary")
    reply_of(server, Frames(WHOLE), region="eu-west-1")
    assert server.headers[0]["x-amz-security-token"] == "temporary"
    assert "x-amz-security-token" in server.headers[0]["authorization"]
    assert "/eu-west-1/bedrock" in server.headers[0]["authorization"]


def test_a_bearer_token_of_bedrock_needs_no_other_credentials(server, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-key")
    reply_of(server, Frames(WHOLE), region="eu-west-2")
    assert server.headers[0]["authorization"] == "Bearer bedrock-key"


def test_a_wrong_key_is_refused(server, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(ProviderFailed, match="credentials are not valid"):
        reply_of(server, region="eu-west-3")


@pytest.mark.parametrize("answered_as", ["claude-haiku-4-5-20251001", MODEL])
def test_a_reply_costs_what_the_model_costs_elsewhere(server, answered_as):
    usage = {"input_tokens": 1000, "output_tokens": 100}
    reply = reply_of(server, Frames(frames(answer("hi", model=answered_as, usage=usage))))
    assert reply.usage.cost_usd == Decimal("0.0015")


@pytest.mark.parametrize(
    ("status", "name", "is_limit"),
    [
        (429, "ThrottlingException", True),
        (400, "ServiceQuotaExceededException", True),
        (429, "ModelNotReadyException", False),
        (424, "ModelErrorException", False),
        (408, "ModelTimeoutException", False),
        (500, "InternalServerException", False),
        (503, "ServiceUnavailableException", False),
    ],
)
def test_a_busy_bedrock_is_overloaded_and_throttling_is_no_fault_of_its_own(server, status, name, is_limit):
    with pytest.raises(Overloaded) as caught:
        reply_of(server, refusal(status, name, "later"))
    assert is_rate_limit(caught.value) is is_limit
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "name", "said", "named"),
    [
        (400, "ValidationException", "The provided model identifier is invalid.", "model identifier is invalid"),
        (403, "AccessDeniedException", "You don't have access to the model", "credentials"),
        (403, "ExpiredTokenException", "The security token has expired", "any more"),
        (404, "ResourceNotFoundException", "Could not resolve the foundation model", "AWS_REGION"),
    ],
)
def test_a_refusal_names_its_remedy(server, status, name, said, named):
    with pytest.raises(ProviderFailed, match=named) as caught:
        reply_of(server, refusal(status, name, said))
    assert "ANTHROPIC" not in str(caught.value)


def test_a_prompt_that_is_too_long_is_told_apart(server):
    with pytest.raises(PromptTooLong):
        reply_of(server, refusal(400, "ValidationException", "Input is too long for requested model."))


@pytest.mark.parametrize(
    ("name", "kind", "is_limit"),
    [
        ("throttlingException", Overloaded, True),
        ("internalServerException", Overloaded, False),
        ("modelStreamErrorException", Overloaded, False),
        ("modelTimeoutException", Overloaded, False),
        ("serviceUnavailableException", Overloaded, False),
        ("validationException", ProviderFailed, False),
        ("novelException", StreamBroken, False),
    ],
)
def test_an_exception_in_the_stream_is_what_it_is_outside_of_it(server, name, kind, is_limit):
    began = frames([start(), *text_block(0, ["x"])])
    with pytest.raises(kind) as caught:
        reply_of(server, Frames(began + exception(name, "no")))
    assert type(caught.value) is kind
    assert kind is not Overloaded or is_rate_limit(caught.value) is is_limit


def test_frames_of_other_kinds_are_passed_over(server):
    novel = frame({":event-type": "metrics", ":message-type": "event"}, b"{}") + frame({":novel": "x"}, b"")
    assert reply_of(server, Frames(novel + WHOLE)).text == "one two"


@pytest.mark.parametrize("place", range(3, len(WHOLE), 311))
def test_a_flipped_byte_is_never_an_answer(server, place):
    damaged = WHOLE[:place] + bytes([WHOLE[place] ^ 1]) + WHOLE[place + 1 :]
    with pytest.raises(StreamBroken):
        reply_of(server, Frames(damaged))


@pytest.mark.parametrize(
    "body",
    [
        b"<html><body>Welcome to the portal, please log in</body></html>",
        raw_chunk(b"not json"),
        raw_chunk(b"{}"),
        raw_chunk(b'{"bytes": "%%%"}'),
        raw_chunk(b'{"bytes": "WzFd"}'),
        frame({":message-type": "error", ":error-code": "x"}, b"")[:-1],
        chunk({"type": "content_block_delta", "index": 4, "delta": {"type": "text_delta", "text": "x"}}),
    ],
)
def test_what_is_no_reply_is_a_broken_stream(server, body):
    with pytest.raises(StreamBroken):
        reply_of(server, Frames(body))


def test_an_error_frame_is_overloaded(server):
    with pytest.raises(Overloaded):
        reply_of(server, Frames(frame({":message-type": "error", ":error-message": "internal"}, b"")))


def test_a_proxys_html_error_page_is_overloaded(server):
    with pytest.raises(Overloaded):
        reply_of(server, Plain(503, b"<html>busy</html>", "text/html"))


def test_no_server_is_a_broken_stream():
    with BedrockServer() as gone:
        pass
    with pytest.raises(StreamBroken, match="Bedrock"):
        reply_of(gone)


def test_no_region_names_the_setting(monkeypatch):
    monkeypatch.delenv("AWS_REGION")
    with pytest.raises(ProviderFailed, match="AWS_REGION"):
        list(Bedrock(model=MODEL).reply(REQUEST))


def test_no_credentials_name_the_settings(server, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(ProviderFailed, match="AWS_PROFILE"):
        reply_of(server, region="eu-north-1")
    assert server.requests == []


def test_credentials_that_cannot_be_had_now_are_waited_for(server, monkeypatch, tmp_path):
    (tmp_path / "config").write_text("[profile broken]\ncredential_process = false\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_PROFILE", "broken")
    with pytest.raises(StreamBroken, match="AWS gives no credentials"):
        reply_of(server, region="eu-north-2")


@pytest.mark.parametrize("raw", ['{"q": 1e999}', '{"q": NaN}', '{"q": ' + "9" * 5_000 + "}"])
def test_a_number_that_no_json_holds_is_a_flaw_of_its_call(server, raw):
    (use,) = reply_of(server, Frames(frames(answer("one", [WireCall("c1", "find", raw)])))).tool_uses
    assert use.flaw
    assert use.arguments == {}


def test_a_reply_without_end_is_cut(server):
    events = [start(), *text_block(0, ["word " * 1_000] * 50)]
    server.then(Frames(frames([*events, *finish("end_turn")])))
    reply = list(model_of(server, max_reply_bytes=20_000).reply(REQUEST))[-1]
    assert reply.stop_reason == "reply_too_large"
    assert 19_900 < len(reply.text) <= 20_000


def test_a_frame_without_end_is_not_waited_for(server):
    large = raw_chunk(b"x" * 5_000_000)
    server.then(Cut(large, len(large) - 1))
    reply = list(model_of(server, max_reply_bytes=20_000).reply(REQUEST))[-1]
    assert (reply.text, reply.stop_reason) == ("", "reply_too_large")
