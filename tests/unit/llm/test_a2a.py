"""The adapter against servers that do what the protocol's own SDK does not."""

import json

import pytest

from loom_worker.core.errors import Interrupted, Invalid, Overloaded, ProviderFailed, StreamBroken
from loom_worker.core.values.chat import ChatMessage, Reply, Request, Restarted, TextDelta
from loom_worker.llm.a2a import A2aAgent
from loom_worker.llm.a2a_http import RemoteAddress
from tests.support.http_server import serving
from tests.unit.llm.test_a2a_task import artifact, status, task

REQUEST = Request("", (ChatMessage("user", "hello"),), key="turn_1.0")
DONE = status("TASK_STATE_COMPLETED")


class Server:
    """Answers the n-th call with the n-th of ``answers``: a function of the exchange, or the events of a stream."""

    def __init__(self, *answers, rpc="/rpc", streaming=True):
        self.answers = list(answers)
        self.rpc = rpc
        self.streaming = streaming
        self.calls = []
        self.headers = []
        self.cards = 0

    def __call__(self, exchange):
        if exchange.command == "GET":
            self.cards += 1
            place = {"protocolBinding": "JSONRPC", "protocolVersion": "1.0", "url": self.rpc}
            card = {"supportedInterfaces": [place], "capabilities": {"streaming": self.streaming}}
            exchange.answer(200, json.dumps(card).encode())
            return
        self.calls.append(json.loads(exchange.body()))
        self.headers.append(dict(exchange.headers))
        self.answers.pop(0)(exchange)

    @property
    def methods(self):
        return [call["method"] for call in self.calls]


def streams(*results, cut=False):
    def answer(exchange):
        exchange.begin_chunked()
        for result in results:
            exchange.chunk(b"data: " + json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode() + b"\n\n")
        exchange.cut() if cut else exchange.chunk(b"")

    return answer


def says(result=None, *, error=None, status=200):
    body = {"jsonrpc": "2.0", "id": 1, **({"error": error} if error else {"result": result})}
    return lambda exchange: exchange.answer(status, json.dumps(body).encode())


def fails(code, **headers):
    def answer(exchange):
        exchange.send_response(code)
        for name, value in {"Content-Length": "0", **headers}.items():
            exchange.send_header(name.replace("_", "-"), value)
        exchange.end_headers()

    return answer


def asked(server, request=REQUEST, **address):
    with serving(server) as url:
        server.rpc = server.rpc if "://" in server.rpc else url + server.rpc
        agent = A2aAgent("far", RemoteAddress(url, allow_private=True, timeout_s=10.0, **address))
        return list(agent.reply(request))


def test_a_stream_that_breaks_is_taken_up_again_where_the_task_is():
    server = Server(
        streams({"task": task("TASK_STATE_WORKING")}, artifact("One", name="a0"), cut=True),
        says(task("TASK_STATE_WORKING", "One two")),
        streams({"task": task("TASK_STATE_WORKING", "One two")}, artifact(" three", name="a0", append=True), DONE),
    )
    *pieces, reply = asked(server)
    assert pieces == [TextDelta("One"), TextDelta(" two"), TextDelta(" three")]
    assert reply.text == "One two three"
    assert server.methods == ["SendStreamingMessage", "GetTask", "SubscribeToTask"]


def test_an_answer_that_begins_anew_takes_back_what_was_said():
    server = Server(streams(artifact("half"), artifact("all of it"), DONE))
    first, back, again, reply = asked(server)
    assert (first, again, reply.text) == (TextDelta("half"), TextDelta("all of it"), "all of it")
    assert isinstance(back, Restarted)


def test_a_stream_that_breaks_before_the_task_is_known_may_be_sent_again_as_the_same_message():
    server = Server(streams(cut=True), streams(DONE))
    with serving(server) as url:
        server.rpc = f"{url}/rpc"
        agent = A2aAgent("far", RemoteAddress(url, allow_private=True))
        with pytest.raises(StreamBroken):
            list(agent.reply(REQUEST))
        list(agent.reply(REQUEST))
    assert {call["params"]["message"]["messageId"] for call in server.calls} == {"turn_1.0"}
    assert server.cards == 1


def test_a_task_that_ended_meanwhile_is_left_and_the_message_begins_another():
    gone = {"code": -32004, "message": "it has ended"}
    block = {"type": "a2a", "context_id": "c", "task_id": "t", "said": {}}
    server = Server(says(error=gone), streams(artifact("New."), DONE))
    messages = (ChatMessage("assistant", "May I?", opaque=(block,)), ChatMessage("user", "hello"))
    *_, reply = asked(server, Request("", messages, key="turn_2.0"))
    assert reply.text == "New."
    sent = [call["params"]["message"] for call in server.calls]
    assert [(message.get("taskId"), message["contextId"]) for message in sent] == [("t", "c"), (None, "c")]


def test_its_secret_is_sent_with_card_and_call():
    server = Server(streams(DONE))
    asked(server, headers={"Authorization": "Bearer s3cret"})
    assert server.headers[0]["Authorization"] == "Bearer s3cret"
    assert server.headers[0]["A2A-Version"] == "1.0"


def test_a_card_that_leads_to_another_origin_is_not_followed():
    server = Server(rpc="https://elsewhere.example/rpc")
    with pytest.raises(ProviderFailed, match="another origin"):
        asked(server)
    assert server.calls == []


@pytest.mark.cases(
    ("answer", "error", "text"),
    [
        (fails(401), ProviderFailed, "check a2a.auth"),
        (fails(404), ProviderFailed, "check a2a.url"),
        (fails(302, Location="http://127.0.0.1:1/"), ProviderFailed, "Redirects"),
        (fails(429, Retry_After="7"), Overloaded, "busy"),
        (fails(500), StreamBroken, "HTTP 500"),
        (says(error={"code": -32602, "message": "no such"}), ProviderFailed, "no such"),
        (says(7), StreamBroken, "neither"),
        (lambda exchange: exchange.answer(200, b"<html>"), StreamBroken, "ended before"),
        (streams(status("TASK_STATE_REJECTED", "Not that.")), ProviderFailed, "rejected: Not that"),
        (streams(status("TASK_STATE_AUTH_REQUIRED", "Log in.")), ProviderFailed, "auth_required: Log in"),
    ],
)
def test_what_goes_wrong_is_told_as_of_any_model(answer, error, text):
    with pytest.raises(error, match=text) as raised:
        asked(Server(answer))
    if error is Overloaded:
        assert raised.value.retry_after_s == 7.0


class Older(Server):
    """One whose card is of another version, and is served at the older place alone."""

    def __init__(self, result, card, elsewhere=(404, b"")):
        super().__init__(says(result), rpc="/")
        self.card, self.elsewhere = card, elsewhere

    def __call__(self, exchange):
        if exchange.command == "POST":
            return super().__call__(exchange)
        card = (200, json.dumps({"url": self.rpc, "skills": [], **self.card}).encode())
        return exchange.answer(*(card if exchange.path == "/.well-known/agent.json" else self.elsewhere))


HELLO = {"parts": [{"kind": "text", "text": "Hello."}], "messageId": "m", "role": "agent"}
ENDED = {"id": "t", "status": {"state": "completed", "message": HELLO}}
OLD = {"protocolVersion": "0.2.6", "preferredTransport": "Json-RPC", "capabilities": {"streaming": False}}
OTHERS = [{"url": "/", "transport": "JSONRPC"}]


@pytest.mark.cases("elsewhere", [(404, b""), (403, b"{}"), (405, b""), (200, b"<html>"), (200, b"[]"), (200, b"{}")])
def test_a_card_at_the_older_place_is_found(elsewhere):
    *_, reply = asked(server := Older({"kind": "message", **HELLO}, OLD, elsewhere))
    assert (reply.text, server.methods) == ("Hello.", ["message/send"])
    assert server.calls[0]["params"]["message"]["parts"] == [{"kind": "text", "text": "hello"}]


@pytest.mark.cases("version", ["0.2.5", "0.3.0", "v0.3", "0.1.0", "0.4", None])
@pytest.mark.cases("card", [OLD, {"url": "grpc://h", "preferredTransport": "GRPC", "additionalInterfaces": OTHERS}])
@pytest.mark.cases(
    "result", [{"type": "message", **HELLO}, HELLO, {"kind": "task", **ENDED}, {"type": "task", **ENDED}]
)
def test_older_cards_and_results_are_understood(version, card, result):
    assert asked(Older(result, card | {"protocolVersion": version}))[-1].text == "Hello."


def test_an_agent_with_neither_card_is_told_by_the_newer_places_refusal():
    with pytest.raises(ProviderFailed, match=r"check a2a\.url"):
        asked(Older({}, {"protocolVersion": "2.0"}))


def test_what_does_not_answer_at_all_may_be_tried_again():
    with serving(Server()) as url:
        pass
    with pytest.raises(StreamBroken, match="cannot be reached"):
        list(A2aAgent("far", RemoteAddress(url, allow_private=True, timeout_s=5.0)).reply(REQUEST))


def test_a_private_address_is_called_only_where_the_file_allows_it():
    with pytest.raises(Invalid):
        A2aAgent("far", RemoteAddress("http://127.0.0.1:1/"))


def test_an_answer_that_is_too_long_is_cut():
    server = Server(streams(artifact("x" * 50), artifact("y" * 60, append=True), DONE))
    *_, reply = asked(server, max_reply_bytes=100)
    assert isinstance(reply, Reply)
    assert (reply.stop_reason, len(reply.text)) == ("reply_too_large", 110)


def test_nothing_is_sent_of_a_session_that_is_deleted():
    server = Server()
    with pytest.raises(Interrupted):
        asked(server, Request("", (ChatMessage("user", "hello"),), may_be_sent=lambda: False))
    assert (server.calls, server.cards) == ([], 0)
