"""What was said gets its vectors from a worker of its own, and is found by meaning in the user's next session."""

import pytest

from tests.support.messages_server import MessagesServer, Say
from tests.support.messages_wire import WireCall
from tests.support.system import System
from tests.support.tool_wire import results
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.takes(10)]


def test_what_a_user_said_in_one_session_is_found_by_meaning_in_another(server: MessagesServer, system: System) -> None:
    server.then(Say("A fine boat."), Say("I see."))
    for text in ("My boat lies in the harbour.", "It rained."):
        system.ended(system.submit("vectors-harbour", text, agent="embedder", user="vectors-ada"))
    until(
        lambda: system.get("/v1/sessions/vectors-harbour/context").json["embeddings"]["messages"] == 4,
        30,
        "all are embedded",
    )
    shown = system.get("/v1/sessions/vectors-harbour/context").json["embeddings"]
    assert shown == {"model": "scripted/hash", "messages": 4, "missing": 0}
    query = {"query": "Where is my boat?", "k": 2}
    server.then(Say("", [WireCall("toolu_1", "memory_semantic", query)]), Say("In the harbour."))
    system.ended(system.submit("vectors-later", "Where is it?", agent="embedder", user="vectors-ada"))
    [found] = results(server.requests[-1])
    assert "My boat lies in the harbour." in str(found)
    assert "fused" in str(found)
    usage = system.get("/v1/usage?group_by=kind&session=vectors-harbour").json["data"]
    assert "embedding" in {row["key"] for row in usage}
