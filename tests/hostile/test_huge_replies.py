"""A model whose replies have no end or no hurry: the turn ends, the worker stays small, the session goes on."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.memory_use import MEGABYTE, peaks
from tests.support.messages_server import Behaviour, Hang, MessagesServer, Outgoing, Say, Stream
from tests.support.messages_wire import WireCall, answer, call_block, finish, sse, start, text_block
from tests.support.system import System, plain_agent, spoken

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(40)]

SIZE = 60 * MEGABYTE
GROWTH = 150 * MEGABYTE
"""Of one worker, over all of these. Without a bound a single reply took 834 MB."""
WORDS = "word " * 3_000


@dataclass(frozen=True)
class Flood:
    """A beginning, then a piece again and again, up to 60 MB, unless the client hangs up."""

    beginning: bytes
    piece: bytes

    def send(self, out: Outgoing) -> None:
        try:
            out.begin()
            out.piece(self.beginning)
            for _ in range(SIZE // len(self.piece)):
                out.piece(self.piece)
            out.piece(sse(finish("end_turn")))
            out.end()
        except OSError:
            out.cut()


def flood(opening: dict[str, object], delta: dict[str, object]) -> Flood:
    beginning = sse([start(), {"type": "content_block_start", "index": 0, "content_block": opening}])
    return Flood(beginning, sse([{"type": "content_block_delta", "index": 0, "delta": delta}]))


CALLS = [event for n in range(5_000) for event in call_block(n, WireCall(f"c{n}", "no_such_tool", {"n": n}))]
TWICE = [WireCall("same", "no_such_tool", {"n": n}) for n in range(5)]
REPLIES: dict[str, Behaviour] = {
    "text": flood({"type": "text", "text": ""}, {"type": "text_delta", "text": WORDS}),
    "arguments": flood(
        {"type": "tool_use", "id": "c1", "name": "find", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"a": [' + "1," * 5_000},
    ),
    "thinking": flood(
        {"type": "thinking", "thinking": "", "signature": ""}, {"type": "thinking_delta", "thinking": WORDS}
    ),
    "line": Flood(b"data: ", b"x" * 60_000),
    "calls": Stream(sse([start(), *CALLS, *finish("tool_use")])),
}


def script(body: dict[str, object]) -> Behaviour:
    """By the last thing the user said; results of tools are answered with words."""
    last = body["messages"][-1]["content"]  # type: ignore[index]
    if last[-1]["type"] == "tool_result":
        return Say(f"There were {sum(block['type'] == 'tool_result' for block in last)} results.")
    word = last[-1]["text"]
    return Stream(sse(answer("", TWICE))) if word == "twice" else REPLIES.get(word, Say("All is well."))


@pytest.fixture(scope="module")
def loom(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("huge")
    with (
        MessagesServer(script=script) as model,
        System(folder / "home", ANTHROPIC_BASE_URL=model.url, LOOM_AGENTS_DIR=plain_agent(folder / "agents")) as loom,
    ):
        loom.ended(loom.submit("warm", "hello"))
        yield loom


@pytest.mark.parametrize("kind", REPLIES)
def test_a_reply_that_is_too_large_ends_the_turn_and_not_the_session(loom: System, kind: str) -> None:
    before = peaks(loom, "worker")
    turn = loom.ended(loom.submit(kind, kind))
    assert (turn["status"], turn["reason"], turn["tool_calls"]) == ("incomplete", "reply_too_large", [])
    text = turn["output_text"]
    if kind == "text":
        assert 2_000_000 < len(text) <= 2 * 1024 * 1024
        assert set(text.split(" ")) <= {"word", "wor", "wo", "w", ""}
        assert spoken(list(loom.events(turn["id"]))) == text
    else:
        assert text == ""
    following = loom.ended(loom.submit(kind, "and now?"))
    assert (following["status"], following["output_text"]) == ("completed", "All is well.")
    grown = {name: peak - before.get(name, peak) for name, peak in peaks(loom, "worker").items()}
    assert max(grown.values()) < GROWTH, grown


def test_what_is_kept_of_it_in_redis_is_no_more_than_a_log_may_have(loom: System) -> None:
    loom.ended(loom.submit("again", "text"))
    with loom.redis() as client:
        sizes = [client.memory_usage(key, samples=0) for key in client.scan_iter("loom:events:*")]
    assert sizes
    assert max(sizes) < 8 * MEGABYTE


def test_calls_with_one_id_are_told_apart(loom: System) -> None:
    turn = loom.ended(loom.submit("twice", "twice"))
    assert (turn["status"], turn["output_text"]) == ("completed", "There were 5 results.")
    assert len({call["id"] for call in turn["tool_calls"]}) == 5


@pytest.mark.parametrize(
    ("timeout_s", "silence_s"), [("3", 0.0), pytest.param("120", 30.0, marks=pytest.mark.long)], ids=["short", "30 s"]
)
def test_silence_in_the_middle_of_a_reply_is_outlived(
    tmp_path_factory: pytest.TempPathFactory, timeout_s: str, silence_s: float
) -> None:
    """With a short deadline the call is made again; with the usual one the reply just goes on."""
    folder, released = tmp_path_factory.mktemp("silent"), threading.Event()
    body = sse(answer("one two three"))
    heard = sse([start(), {"type": "ping"}, *text_block(0, ["one"])[:2]])
    agents = plain_agent(folder / "agents")
    with (
        MessagesServer([Hang(released, body=body, after_bytes=len(heard))]) as model,
        System(
            folder / "home", ANTHROPIC_BASE_URL=model.url, LOOM_AGENTS_DIR=agents, LOOM_LLM_TIMEOUT_S=timeout_s
        ) as loom,
    ):
        if silence_s:
            threading.Timer(silence_s, released.set).start()
        turn = loom.ended(loom.submit("quiet", "one two three"), 90)
        assert turn["status"] == "completed"
        assert turn["output_text"] == ("one two three" if silence_s else "echo: one two three")
        assert spoken(list(loom.events(turn["id"]))) == turn["output_text"]
        assert turn["usage"]["llm_calls"] == len(model.requests) == (1 if silence_s else 2)
