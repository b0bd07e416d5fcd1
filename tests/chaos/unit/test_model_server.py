"""The model server as a process, asked by Loom's own adapter and by a bare socket."""

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from loom_worker.core.errors import LoomError, Overloaded, StreamBroken
from loom_worker.core.values.chat import ChatMessage, Reply, Request, ToolOutcome, ToolSpec
from loom_worker.judge import llm
from loom_worker.judge.llm import Case
from loom_worker.llm.anthropic import Anthropic
from tests.chaos import model_log
from tests.chaos.model_log import STILL_OPEN
from tests.chaos.records import ModelCall
from tests.chaos.summaries import BEGINS, notes_in
from tests.chaos.unit.served import serving
from tests.support.until import until

TOOLS = (ToolSpec("note", "Notes.", {"type": "object"}), ToolSpec("pause", "Waits.", {"type": "object"}))


@dataclass(frozen=True)
class Server:
    url: str
    log: Path

    def calls(self, mark: str) -> list[ModelCall]:
        return [call for call in model_log.read(self.log) if call.mark == mark]

    def ended(self, mark: str, n: int = 1) -> list[ModelCall]:
        """The requests of a mark, once there are n that have ended."""
        calls = until(
            lambda: [c for c in self.calls(mark) if c.ended_s != STILL_OPEN][n - 1 :] and self.calls(mark), 5, mark
        )
        return list(calls)

    def ask(
        self, *said: ChatMessage | str, timeout_s: float = 30.0, may_call: bool = True, max_tokens: int = 4_000
    ) -> Reply:
        """The reply to a conversation."""
        messages = tuple(ChatMessage("user", text=each) if isinstance(each, str) else each for each in said)
        asked = Request("Be kind.", messages, tools=TOOLS, may_call_tools=may_call, max_tokens=max_tokens)
        return self._reply(asked, timeout_s)

    def judge(self, answer: str, question: str) -> Reply:
        """A judge's reply."""
        case = Case("turn_1", question, answer)
        asked = llm.request(case, "Rubric of first: all.", budget_tokens=9_000, count=len, is_given_up=lambda: False)
        return self._reply(asked, 30.0)

    def _reply(self, asked: Request, timeout_s: float) -> Reply:
        *_, reply = Anthropic(model="claude-test", base_url=self.url, call_timeout_s=timeout_s).reply(asked)
        assert isinstance(reply, Reply)
        return reply


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("model") / "log.jsonl"
    with serving("model_server", log, "--seed", "7") as url:
        yield Server(url, log)


def test_a_plain_question_is_answered_with_its_mark_and_number(server: Server) -> None:
    assert server.ask("T10001 plain").text.startswith("T10001.1 says: ")
    assert server.ask("T10001 plain").text.startswith("T10001.2 says: ")
    first, second = server.ended("T10001", 2)
    assert (first.nth, second.nth, first.is_complete, first.status, first.complaint) == (1, 2, True, 200, None)
    assert first.said.startswith("T10001.1 says: ")
    assert first.began_s <= first.ended_s <= second.began_s


def test_a_text_has_as_many_words_as_were_asked_for(server: Server) -> None:
    assert len(server.ask("T10002 words=300").text.split()) == 302


def test_tools_are_called_round_by_round_and_then_there_is_an_answer(server: Server) -> None:
    said: list[ChatMessage] = [ChatMessage("user", text="T10003 tools=note,pause:2.5 tools=note", context="Notes.")]
    names, nonces = [], []
    while (reply := server.ask(*said)).tool_uses:
        names.append([use.name for use in reply.tool_uses])
        nonces += [use.arguments["nonce"] for use in reply.tool_uses]
        outcomes = tuple(ToolOutcome(use.id, use.name, "done") for use in reply.tool_uses)
        said += [
            ChatMessage("assistant", text=reply.text, tool_uses=reply.tool_uses),
            ChatMessage("tool", outcomes=outcomes),
        ]
    assert names == [["note", "pause"], ["note"]]
    assert nonces == ["T10003-1-0", "T10003-1-1", "T10003-2-0"]
    assert said[1].tool_uses[1].arguments["seconds"] == 2.5
    assert reply.text.startswith("T10003.3 says: ")


def test_a_forbidden_tool_is_not_called(server: Server) -> None:
    assert not server.ask("T10004 tools=note", may_call=False).tool_uses


def test_the_newest_question_counts(server: Server) -> None:
    said = ("T10005 tools=note", ChatMessage("assistant", text="T10005.1 says: hm"), "T10006 plain")
    assert server.ask(*said).text.startswith("T10006.1 says")
    (call,) = server.ended("T10006")
    assert [message["role"] for message in call.body["messages"]] == ["user", "assistant", "user"]
    assert call.body["messages"][0]["content"] == [{"type": "text", "text": "T10005 tools=note"}]
    assert call.body["system"] == [{"type": "text", "text": "Be kind."}]
    assert call.body["tools"][0]["name"] == "note"
    assert call.body["model"] == "claude-test"


def test_a_summary_is_asked_for_as_a_part_and_says_what_it_is_of(server: Server) -> None:
    system = f"{BEGINS} between two people."
    for _ in range(2):
        said = "<conversation>\nuser: T60001 hang\nuser: T60002 fault=cut tools=note\n</conversation>"
        model = Anthropic(model="claude-test", base_url=server.url, call_timeout_s=10)
        *_, reply = model.reply(Request(system, (ChatMessage("user", said),), tools=TOOLS))
        assert isinstance(reply, Reply)
        assert not reply.tool_uses
        assert notes_in(reply.text)[0].marks == ("T60001", "T60002")
    first, second = server.ended("part T60001", 2)
    assert (first.nth, second.nth, first.is_complete, first.fault) == (1, 2, True, "")
    assert first.part == second.part
    assert server.calls("T60001") == server.calls("T60002") == []


@pytest.mark.parametrize(
    ("fault", "error", "status"),
    [
        ("rate429", Overloaded, 429),
        ("rate429_absurd", Overloaded, 429),
        ("overloaded529", Overloaded, 529),
        ("server500", Overloaded, 500),
        ("cut", StreamBroken, 200),
        ("early_end", StreamBroken, 200),
        ("error_event", Overloaded, 200),
        ("garbage", StreamBroken, 200),
    ],
)
def test_a_fault_is_never_an_answer(server: Server, fault: str, error: type[LoomError], status: int) -> None:
    mark = f"T2{len(fault):02}{status}"
    with pytest.raises(error):
        server.ask(f"{mark} fault={fault}")
    assert server.ask(f"{mark} fault={fault}").text.startswith(f"{mark}.2 says")
    failed, good = server.ended(mark, 2)
    assert (failed.fault, failed.is_complete, failed.status) == (fault, False, status)
    assert (good.fault, good.is_complete) == ("", True)


def test_a_reset_is_never_an_answer(server: Server) -> None:
    for number in range(8):  # some before the head, some after
        with pytest.raises(StreamBroken):
            server.ask(f"T3000{number} fault=reset")
    statuses = {server.ended(f"T3000{number}")[0].status for number in range(8)}
    assert statuses == {0, 200}


def test_the_wished_pauses_are_sent_along(server: Server) -> None:
    waits = {}
    for mark, fault in (("T10007", "rate429"), ("T10008", "rate429_absurd")):
        with pytest.raises(Overloaded) as raised:
            server.ask(f"{mark} fault={fault}")
        waits[fault] = raised.value.retry_after_s
    assert waits == {"rate429": 1.0, "rate429_absurd": 4294967.0}


def test_a_fault_can_be_asked_for_several_times_and_one_after_the_other(server: Server) -> None:
    for _ in range(3):
        with pytest.raises(LoomError):
            server.ask("T10009 fault=server500*2 fault=garbage")
    assert server.ask("T10009 fault=server500*2 fault=garbage").text.startswith("T10009.4")
    assert [call.fault for call in server.ended("T10009", 4)] == ["server500", "server500", "garbage", ""]


@pytest.mark.parametrize("directive", ["slow=0.2", "fault=drip", "wait=0.05"])
def test_a_slow_reply_is_whole(server: Server, directive: str) -> None:
    mark = f"T4000{len(directive)}"
    assert server.ask(f"{mark} {directive}").text.endswith("again")
    (call,) = server.ended(mark)
    assert call.is_complete
    assert call.ended_s - call.began_s >= 0.05


@pytest.mark.parametrize("directive", ["hang", "fault=hang"])
def test_a_request_that_hangs_ends_when_its_client_goes(server: Server, directive: str) -> None:
    mark = f"T5000{len(directive)}"
    with _connected(server) as connection:
        connection.sendall(_request(f"{mark} {directive}"))
        until(lambda: server.calls(mark), 5, "the request is logged")
        assert server.calls(mark)[0].ended_s == STILL_OPEN
    (call,) = server.ended(mark)
    assert (call.is_complete, call.status, call.fault) == (False, 0, "hang")
    until(lambda: server.calls(mark)[0].connection_gone_s == call.ended_s, 5, "the connection's end is logged")


def test_a_client_that_goes_in_the_middle_of_a_reply_has_no_whole_reply(server: Server) -> None:
    with _connected(server) as connection:
        connection.sendall(_request("T10010 slow=30"))
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
    (call,) = server.ended("T10010")
    assert (call.is_complete, call.status) == (False, 200)


def test_a_connection_that_stays_open_has_no_end_in_the_log(server: Server) -> None:
    with _connected(server) as connection:
        for _ in range(2):
            connection.sendall(_request("T10011 plain"))
            _read_reply(connection)
        assert [call.connection_gone_s for call in server.ended("T10011", 2)] == [None, None]
    until(lambda: all(call.connection_gone_s for call in server.calls("T10011")), 5, "its end is logged")


def test_what_the_real_server_refuses_is_refused_and_logged(server: Server) -> None:
    body = _body("T10012 plain")
    body["messages"].insert(0, {"role": "assistant", "content": "Hello"})
    with _connected(server) as connection:
        connection.sendall(_http(body))
        assert connection.recv(1000).startswith(b"HTTP/1.1 400")
    (call,) = server.ended("T10012")
    assert call.complaint == "messages: first message must use the user role"
    assert (call.is_complete, call.status) == (False, 400)


def test_broken_and_unknown_and_many_calls_come_as_asked(server: Server) -> None:
    broken = server.ask("T10013 fault=bad_tool_json")
    assert broken.tool_uses[0].flaw is not None
    assert [use.name for use in server.ask("T10014 fault=unknown_tool").tool_uses] == ["no_such_tool"]
    many = server.ask("T10015 fault=fifty_calls").tool_uses
    assert len({use.arguments["nonce"] for use in many}) == len({use.id for use in many}) == 50
    assert all(server.ended(mark)[0].is_complete for mark in ("T10013", "T10014", "T10015"))


def test_a_judge_is_answered_as_the_question_says_and_counted_by_itself(server: Server) -> None:
    answered = server.ask("T10020 judged=fail,mute").text
    (verdict,) = server.judge(answered, "T10020 judged=fail,mute").tool_uses
    assert (verdict.name, verdict.arguments["score"]) == ("give_verdict", 0.2)
    assert server.judge("T10020.2 says: anew-1 thread", "T10020 judged=fail,mute").tool_uses == ()
    reply, failed, mute = server.ended("T10020", 3)
    assert (reply.look, reply.nth, failed.nth, mute.nth) == (None, 1, 1, 2)
    assert failed.look is not None
    assert (failed.look.key, failed.said) == (("T10020", 1, "first"), "0.2")


def test_what_a_reply_costs_is_logged_and_told(server: Server) -> None:
    reply = server.ask("T10021 words=20")
    (call,) = server.ended("T10021")
    assert call.tokens == reply.usage.tokens > 470


def test_a_reply_is_cut_at_its_most_tokens(server: Server) -> None:
    reply = server.ask("T10022 words=400", max_tokens=30)
    assert (reply.stop_reason, reply.usage.output_tokens, len(reply.text)) == ("max_tokens", 30, 120)


def test_chance_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    drawn = []
    for run in ("one", "two"):
        log = tmp_path / f"{run}.jsonl"
        options = ("--seed", "3", "--fault-rate", "0.5", "--faults", "server500,garbage")
        with serving("model_server", log, *options) as url:
            for number in range(20):
                with _connected(Server(url, log)) as connection:
                    connection.sendall(_request(f"T{number:05} plain"))
                    connection.recv(100)
        drawn.append([(call.mark, call.fault) for call in model_log.read(log)])
    assert drawn[0] == drawn[1]
    assert {fault for _, fault in drawn[0]} == {"", "server500", "garbage"}


def test_what_was_under_way_when_the_server_ended_is_still_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with serving("model_server", log) as url, _connected(Server(url, log)) as connection:
        connection.sendall(_request("T10001 hang"))
        until(lambda: model_log.read(log), 5, "the request is logged")
    assert [call.is_complete for call in model_log.read(log)] == [False]


def test_half_a_line_at_the_end_of_a_log_is_left_out(tmp_path: Path, server: Server) -> None:
    server.ask("T10016 plain")
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes(server.log.read_bytes() + b'{"began": 9')
    assert len(model_log.read(torn)) == len(model_log.read(server.log))


def _connected(server: Server) -> socket.socket:
    where = urlsplit(server.url)
    return socket.create_connection((str(where.hostname), where.port or 0), timeout=5)


def _body(text: str) -> dict[str, Any]:
    return {"model": "claude-test", "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": text}]}


def _request(text: str) -> bytes:
    return _http(_body(text))


def _http(body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    return b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data) + data


def _read_reply(connection: socket.socket) -> None:
    read = b""
    while not read.endswith(b"\r\n0\r\n\r\n"):
        read += connection.recv(65536)
