"""Loom starts on the home of an older one that was killed with turns in every state, and goes on where it was."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import standardwebhooks

from loom_worker.store import schema
from tests.hostile.old_home import AGENTS, DONE, FACT, LATE, SECRET, Json, Model, Old, still_says, unpack
from tests.support.agents import written
from tests.support.messages_server import MessagesServer
from tests.support.system import System, rows
from tests.support.until import until
from tests.support.webhook_receiver import WebhookReceiver

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(20)]

SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name"


@dataclass(frozen=True)
class Upgraded:
    """The old home, and this code's Loom at work on it."""

    old: Old
    system: System
    receiver: WebhookReceiver
    agents: Path

    def ended(self, session: str) -> list[Json]:
        """The turns of a session that had not ended in the old Loom, now that they have."""
        return [self.system.ended(turn_id) for turn_id in self.old.unfinished[session]]

    def said(self, session: str) -> list[tuple[str, str]]:
        """Turn and role of each message of a session."""
        return [(message["turn_id"], message["role"]) for message in self.system.messages(session)]


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upgraded]:
    place = tmp_path_factory.mktemp("upgrade")
    model = Model()
    model.release.set()
    with WebhookReceiver() as receiver, MessagesServer(script=model) as server:
        old = unpack(place / "home", hook=receiver.url)
        environ = {
            "ANTHROPIC_BASE_URL": server.url,
            "LOOM_AGENTS_DIR": written(place / "agents", AGENTS),
            "LOOM_WEBHOOK_SECRET": SECRET,
            "LOOM_ALLOW_PRIVATE_WEBHOOKS": "1",
        }
        with System(place / "home", **environ) as system:
            yield Upgraded(old, system, receiver, place / "agents")


def ids(hits: list[Json]) -> list[str]:
    """The messages that a search found, best first."""
    return [hit["message_id"] for hit in hits]


def talk(turn_id: str, *, replies: int = 1) -> list[tuple[str, str]]:
    """Turn and role of each message of a turn in which the model replied so many times."""
    return [(turn_id, role) for role in ("user", *(("assistant", "tool") * replies)[:-1])]


def test_the_database_has_the_newest_schema_as_if_it_had_been_made_so_and_is_sound(
    upgraded: Upgraded, empty_database: Path
) -> None:
    file = upgraded.system.home / "loom.db"
    assert upgraded.old.version == "0006"
    assert rows(file, "SELECT version_num FROM loom_version") == [(schema.VERSION,)]
    assert rows(file, SCHEMA) == rows(empty_database, SCHEMA)
    assert rows(file, "PRAGMA integrity_check") == [("ok",)]
    assert rows(file, "PRAGMA foreign_key_check") == []


def test_all_that_had_ended_reads_as_before_with_its_events_errors_and_large_results(upgraded: Upgraded) -> None:
    old, system = upgraded.old, upgraded.system
    assert [one for one, turn in old.turns.items() if not still_says(system.turn(one), turn)] == []
    assert [name for name, said in old.messages.items() if not still_says(system.messages(name), said)] == []
    for turn_id, events in old.events.items():
        now = [[event.id, event.type, event.data] for event in system.events(turn_id)]
        assert still_says(now, events), f"{turn_id} was {events}, and is {now}"
    found = system.get("/v1/sessions/done/search?q=spare+key").json["data"]
    assert ids(found) == ids(old.found)
    assert FACT in {message["content"] for message in system.messages("done") if message["id"] in ids(found)}
    assert still_says(system.get(f"/v1/errors/{old.error['id']}").json, old.error)
    ref = next(call["ref"] for turn in old.turns.values() for call in turn["tool_calls"] if call["ref"])
    assert hashlib.sha256(system.get(f"/v1/blobs/{ref}").body).hexdigest() == old.blob


def test_a_turn_cut_off_in_its_answer_is_answered_once_and_those_behind_it_follow_in_order(upgraded: Upgraded) -> None:
    turns = upgraded.ended("running")
    outputs = [(turn["status"], turn["output_text"]) for turn in turns]
    assert outputs == [("completed", LATE), ("completed", "echo: second"), ("completed", "echo: third")]
    assert upgraded.said("running")[:6] == [each for turn in turns for each in talk(turn["id"])]


def test_of_turns_parked_on_tools_the_call_that_waited_is_made_and_the_one_under_way_is_not_made_again(
    upgraded: Upgraded,
) -> None:
    counting, changing = upgraded.ended("counting"), upgraded.ended("changing")
    for turns in (counting, changing):
        first, *others = turns
        assert (first["status"], first["output_text"]) == ("completed", DONE)
        assert [turn["output_text"] for turn in others] == ["echo: and then?", "echo: and after that?"]
        said = [*talk(first["id"], replies=2), *(each for turn in others for each in talk(turn["id"]))]
        assert upgraded.said(first["session_id"]) == said
    (counted,), (changed,) = counting[0]["tool_calls"], changing[0]["tool_calls"]
    assert (counted["status"], counted["content"]) == ("completed", "42")
    assert (changed["status"], changed["error_id"] is None) == ("unknown", True)


def test_a_turn_that_waits_for_a_person_takes_the_approval_pays_once_and_lets_the_others_go_on(
    upgraded: Upgraded,
) -> None:
    system, (turn_id, *behind) = upgraded.system, upgraded.old.unfinished["person"]
    paid = upgraded.agents / "paid.jsonl"
    waiting = system.turn(turn_id)
    assert (waiting["status"], waiting["tool_calls"][0]["approval"]) == ("requires_action", "waiting")
    assert [system.turn(other)["status"] for other in behind] == ["queued", "queued"]
    assert not paid.exists()

    call = waiting["tool_calls"][0]["id"]
    answer = system.post(f"/v1/turns/{turn_id}/approvals/{call}", {"decision": "approve"})
    assert answer.status == 200, answer.text
    turns = upgraded.ended("person")
    outputs = [(turn["status"], turn["output_text"]) for turn in turns]
    others = [("completed", "echo: and then?"), ("completed", "echo: and after that?")]
    assert outputs == [("completed", DONE), *others]
    assert [json.loads(line)["amount"] for line in paid.read_text().splitlines()] == [70]
    said = [*talk(turn_id, replies=2), *(each for other in behind for each in talk(other))]
    assert upgraded.said("person") == said
    kinds = Counter(event.type for event in system.events(turn_id))
    assert (kinds["turn.completed"], kinds["approval.required"]) == (1, 1)


def test_the_webhook_that_was_refused_is_delivered_once_under_its_old_id(upgraded: Upgraded) -> None:
    old, system = upgraded.old.delivery, upgraded.system

    def delivered() -> bool:
        deliveries: list[Json] = system.get("/v1/deliveries").json["data"]
        return [(each["id"], each["status"]) for each in deliveries] == [(old["id"], "delivered")]

    until(delivered, 30, "the webhook is delivered")
    (request,) = upgraded.receiver.received
    assert request.headers["webhook-id"] == old["id"]
    told = standardwebhooks.Webhook(SECRET).verify(request.body, dict(request.headers))
    assert (told["type"], told["data"]["id"]) == ("turn.completed", old["turn_id"])


def test_a_new_turn_of_an_old_session_comes_after_all_that_was_said_and_is_found(upgraded: Upgraded) -> None:
    system, before = upgraded.system, upgraded.ended("running")
    turn = system.ended(system.submit("running", "The ladder is in the shed."))
    assert (turn["status"], turn["seq"]) == ("completed", before[-1]["seq"] + 1)
    assert upgraded.said("running")[-2:] == talk(turn["id"])
    found = system.get("/v1/sessions/running/search?q=ladder").json["data"]
    assert found[0]["turn_id"] == turn["id"]
