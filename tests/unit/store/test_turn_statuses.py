from loom_worker.store.database import Database
from loom_worker.store.sessions import Sessions
from loom_worker.store.turns import TurnStatuses
from tests.unit.store.made import WORKSPACE, running, submitted


def test_turns_of_all_workspaces_are_found_at_once(database: Database) -> None:
    queued = submitted(database, "s1", workspace="other")
    begun = running(database, "s2").turn
    found = TurnStatuses(database).of([queued.id, begun.id, "turn_none"])
    assert found == {queued.id: "queued", begun.id: "in_progress"}


def test_turns_of_a_deleted_session_are_missing(database: Database) -> None:
    turn = submitted(database, "s1")
    Sessions(database).delete(WORKSPACE, "s1")
    assert TurnStatuses(database).of([turn.id]) == {}


def test_no_turns_have_no_statuses(database: Database) -> None:
    assert TurnStatuses(database).of([]) == {}
