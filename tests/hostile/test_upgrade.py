"""A database that the code of schema 0006 left behind, killed in the middle of its work, under the code of today.

data/schema_0006.db.gz was written by a whole `loom up` whose schema was 0006: one turn had ended, one waited for a
person, with one of its calls run, one was queued behind it, and three were queued in a paused session when all its
processes got SIGKILL. Then the file was brought out of WAL mode and vacuumed, and the machine's name taken out.
"""

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_worker.store import schema
from tests.support.agents import written
from tests.support.messages_server import MessagesServer, Say
from tests.support.system import System

pytestmark = pytest.mark.journey

DATA = Path(__file__).parent / "data" / "schema_0006.db.gz"
OLD_ANSWER = "The blue whale is the largest."


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    place = tmp_path_factory.mktemp("upgrade")
    (place / "home").mkdir()
    (place / "home" / "loom.db").write_bytes(gzip.decompress(DATA.read_bytes()))
    agents = written(place / "agents", {"payer": {"backend": False, "tools": ["handmade.py"]}})
    with (
        MessagesServer(script=lambda body: Say("Gone on.")) as server,
        System(place / "home", ANTHROPIC_BASE_URL=server.url, LOOM_AGENTS_DIR=agents) as system,
    ):
        yield system


def turns_of(system: System, session: str) -> list[str]:
    """The ids of a session's turns, the first one first."""
    return [each for (each,) in system.rows("SELECT id FROM turns WHERE session_id = ? ORDER BY seq", session)]


def test_the_file_has_todays_schema_and_what_had_ended_is_read_as_before(system: System) -> None:
    assert system.rows("SELECT version_num FROM loom_version") == [(schema.VERSION,)]
    (turn_id,) = turns_of(system, "ended")
    assert (system.turn(turn_id)["status"], system.turn(turn_id)["output_text"]) == ("completed", OLD_ANSWER)
    told = list(system.events(turn_id))
    assert "".join(event.data["text"] for event in told if event.type == "output_text.delta") == OLD_ANSWER
    assert (told[0].type, told[-1].type) == ("turn.queued", "turn.completed")


def test_a_turn_that_waited_for_a_person_goes_on_and_so_does_the_one_behind_it(system: System) -> None:
    asks, behind = turns_of(system, "asks")
    assert system.turn(asks)["status"] == "requires_action"
    decided = system.post(f"/v1/turns/{asks}/approvals/toolu_pay", {"decision": "approve"})
    assert decided.status == 200, decided.text
    ended = system.ended(asks)
    assert (ended["status"], ended["output_text"]) == ("completed", "Gone on.")
    assert [call["status"] for call in ended["tool_calls"]] == ["completed", "completed"]
    assert system.ended(behind)["status"] == "completed"


def test_turns_that_were_queued_end_once_and_in_their_order(system: System) -> None:
    first, *queued = turns_of(system, "waits")
    assert [system.turn(turn_id)["status"] for turn_id in queued] == ["queued"] * 3
    resumed = system.patch("/v1/sessions/waits", {"status": "active"})
    assert resumed.status == 200, resumed.text
    assert [system.ended(turn_id)["status"] for turn_id in queued] == ["completed"] * 3
    said = [(each["turn_id"], each["role"]) for each in system.messages("waits")]
    assert said == [(turn_id, role) for turn_id in (first, *queued) for role in ("user", "assistant")]
