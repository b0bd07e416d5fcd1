"""The first minute with OPENAI_API_KEY alone: a server that speaks OpenAI's API answers about the sample shop."""

from collections.abc import Iterator

import pytest

from tests.support.messages_wire import WireCall
from tests.support.openai_server import OpenAiServer, Told
from tests.support.system import Json, System, rows

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(20)]
QUERY = "SELECT count(*) AS products FROM products"
CALL = WireCall("call_1", "execute_sql", {"sql": QUERY})


def script(body: Json) -> Told:
    """Counts the products first, and then says what the tool gave."""
    last = body["messages"][-1]
    return Told(body, last["content"]) if last["role"] == "tool" else Told(body, "I count.", [CALL])


@pytest.fixture(scope="module")
def server() -> Iterator[OpenAiServer]:
    with OpenAiServer(script=script) as server:
        yield server


@pytest.fixture(scope="module")
def system(server: OpenAiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    home = tmp_path_factory.mktemp("openai") / "home"
    with System(home, OPENAI_API_KEY="sk-first-minute", OPENAI_BASE_URL=server.url) as system:
        yield system


def test_with_openais_key_alone_a_question_about_the_shop_is_answered(system: System, server: OpenAiServer) -> None:
    turn_id = system.submit("s1", "How many products are there?")
    turn = system.ended(turn_id)
    ((products,),) = rows(system.home / "shop.db", QUERY)
    called = [(call["name"], call["arguments"], call["status"]) for call in turn["tool_calls"]]
    assert (turn["status"], called) == ("completed", [("execute_sql", {"sql": QUERY}, "completed")])
    assert f"{products}" in turn["output_text"]
    assert set(server.paths) == {"/v1/chat/completions"}
    assert {headers["authorization"] for headers in server.headers} == {"Bearer sk-first-minute"}
    named = [message["role"] for message in server.requests[-1]["messages"]]
    assert named[0] == "system"
    assert named[-3:] == ["user", "assistant", "tool"]
    assert (turn["model"], turn["usage"]["llm_calls"]) == ("openai/gpt-6.1-sol", 2)
    assert turn["usage"]["cost_usd"] == pytest.approx(2 * (26 * 2 + 7 * 10) / 1_000_000)
    assert "gpt-6.1-sol (openai) at " in system.output
