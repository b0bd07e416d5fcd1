"""What was said in one session is known in another one of the same user, until the user is deleted."""

import json

import pytest

from tests.support.messages_server import MessagesServer, Say
from tests.support.messages_wire import WireCall
from tests.support.system import System
from tests.support.tool_wire import results
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.takes(10)]

FACT = {"subject": "user", "relation": "owns", "object": "the boat Amalia", "message": 1}
SAID = json.dumps({"summary": "About a boat.", "facts": [FACT]})
"""The model of these journeys repeats what it is sent: asked for summary and facts, it gives these."""


def test_a_fact_of_one_session_is_recalled_in_another_and_goes_with_its_user(
    system: System, server: MessagesServer
) -> None:
    for session in ("tiers-1", "tiers-2"):
        system.post("/v1/sessions", {"id": session, "agent": "keeper", "user": "tiers-maria"})
    for text in (SAID, "And now?", "Still there?"):
        assert system.ended(system.submit("tiers-1", text))["status"] == "completed"
    url = "/v1/users/tiers-maria/facts"
    [fact] = until(lambda: system.get(url).json["data"], 30, "the fact is known")
    assert (fact["object"], fact["session_id"]) == ("the boat Amalia", "tiers-1")
    until(lambda: system.get("/v1/sessions/tiers-1/context").json["tiers"]["summaries"], 30, "there is a summary")

    # A further summary would take what the model is to say next.
    is_due = "SELECT count(*) FROM memory WHERE due_ms IS NOT NULL OR held_by IS NOT NULL"
    until(lambda: system.rows(is_due) == [(0,)], 30, "nothing is left to be summarized")

    server.then(Say("", [WireCall("toolu_1", "memory_recall", {"topic": "which boat"})]))
    assert system.ended(system.submit("tiers-2", "Which boat is mine?"))["status"] == "completed"
    [told] = next(found for request in reversed(server.requests) if (found := results(request)))
    assert "user owns the boat Amalia" in told["content"]

    assert system.delete("/v1/users/tiers-maria").status == 200
    assert system.get(url).status == 404
    assert system.rows("SELECT count(*) FROM facts WHERE user = 'tiers-maria'") == [(0,)]
