import pytest

from loom_worker.store.counters import HOUR_MS, figures
from loom_worker.store.database import Database
from loom_worker.store.errors import Errors, NewError
from tests.unit.store import made


def status(database: Database, turn_id: str, new: str) -> None:
    with database.write() as tx:
        tx.exec_driver_sql("UPDATE turns SET status = ? WHERE id = ?", (new, turn_id))


def test_nothing_is_counted_where_nothing_is(database: Database) -> None:
    nothing = {"awaiting_approval": 0, "errors_last_hour": 0, "large_results": 0}
    assert figures(database, now_ms=made.NOW_MS) == nothing


def test_only_turns_that_ask_a_person_wait_for_one_whatever_their_workspace(database: Database) -> None:
    for workspace in ("one", "two"):
        status(database, made.submitted(database, workspace=workspace).id, "requires_action")
    made.submitted(database, "waits")
    status(database, made.submitted(database, "gone").id, "failed")
    assert figures(database, now_ms=made.NOW_MS)["awaiting_approval"] == 2


@pytest.mark.parametrize(("age_ms", "counted"), [(0, 1), (HOUR_MS - 1, 1), (HOUR_MS, 0)])
def test_an_error_counts_for_an_hour(database: Database, age_ms: int, counted: int) -> None:
    lane = made.submitted(database).lane
    Errors(database).store(NewError(lane, "turn_1", "look", "no", {"message": "no"}), now_ms=made.NOW_MS)
    assert figures(database, now_ms=made.NOW_MS + age_ms)["errors_last_hour"] == counted
