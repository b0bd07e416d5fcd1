"""What leaves the context of a session is summarized, and found again when it is asked for."""

import json
from pathlib import Path

import pytest

from tests.support.flower_client import FlowerClient
from tests.support.messages_server import Behaviour, MessagesServer, Say
from tests.support.messages_wire import WireCall
from tests.support.system import Json, System, plain_agent
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(35)]

FACT = "The spare key hangs behind the blue clock."
NOTES = "The user told where the spare key hangs."


def script(body: Json) -> Behaviour:
    """Notes for whoever keeps the memory; a search for ``Where?``; else the same answer."""
    if "tools" not in body:
        return Say("[]" if "JSON" in body["system"][0]["text"] else NOTES)
    last = body["messages"][-1]["content"][-1]
    if last["type"] == "tool_result":
        return Say(f"This was found: {last['content']}")
    if last["text"] == "Where is the spare key?":
        return Say("I look.", [WireCall("toolu_1", "search_conversation", {"query": "spare key"})])
    return Say("Understood, and noted for later.")


def test_what_left_the_context_is_summarized_by_a_worker_after_the_first_was_killed_at_it_and_is_found_by_the_model(
    tmp_path: Path,
) -> None:
    agents = plain_agent(tmp_path / "agents", "default")
    points = "summary.claimed,summary.made,summary.applied"
    with (
        MessagesServer(script=script) as server,
        System(
            tmp_path / "home",
            ANTHROPIC_BASE_URL=server.url,
            LOOM_AGENTS_DIR=agents,
            LOOM_CRASHPOINTS=points,
            LOOM_L1_TOKENS="300",
        ) as system,
    ):
        for text in (FACT, *(f"Something else, number {n}." for n in range(8))):
            assert system.ended(system.submit("s", text))["status"] == "completed"
        died = system.home / "crashes"
        until(lambda: len(list(died.glob("summary.*"))) == 3, 60, "a worker died at each step of a summary")
        until(lambda: not system.rows("SELECT 1 FROM memory WHERE due_ms IS NOT NULL"), 60, "nothing is due")

        answer = system.ended(system.submit("s", "Where is the spare key?"))
        assert FACT in answer["output_text"]
        asked = [body for body in server.requests if "tools" in body][-1]
        assert NOTES in asked["messages"][0]["content"][0]["text"]
        assert NOTES not in json.dumps(asked["system"])
        assert FACT not in json.dumps(asked["messages"][:-1])
        assert system.messages("s")[0]["content"] == FACT
        assert system.rows("SELECT count(*), count(DISTINCT n) FROM messages") == [(22, 22)]

        with FlowerClient.of(system.state["flower_url"], system.home) as flower:
            until(lambda: summaries(flower), 20, "Flower shows a summary")
            assert {task["args"] for task in summaries(flower)} == {repr(("s",))}


def summaries(flower: FlowerClient) -> list[Json]:
    """Those tasks of Flower's that made some."""
    tasks = [task for task in flower.tasks().values() if task["name"] == "loom.summary.compress"]
    return [task for task in tasks if task["state"] == "SUCCESS" and "compressed by claude" in task["result"]]
