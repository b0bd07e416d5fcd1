import re
from collections.abc import Iterable

import pytest
from sqlalchemy import delete

from loom_worker.core.errors import Invalid, NotFound, Unavailable
from loom_worker.core.values.sessions import NewSession
from loom_worker.core.values.tools import ErrorFilter, StoredError
from loom_worker.store.agent_errors import TRIES, AgentErrors, NewAgentError, error_id_of
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.schema import agent_errors
from loom_worker.store.sessions import Sessions
from tests.support.at_once import at_once
from tests.unit.store.made import NOW_MS, WORKSPACE, counts

EVERY = ErrorFilter()


@pytest.fixture
def errors(database: Database) -> AgentErrors:
    return AgentErrors(database)


def lane(database: Database, session: str = "s1", workspace: str = WORKSPACE) -> str:
    """Of a new session."""
    return Sessions(database).create(workspace, NewSession(id=session), now_ms=NOW_MS).lane


def new(where: str, tool: str = "look", summary: str = "no") -> NewAgentError:
    return NewAgentError(where, "turn_1", tool, summary, {"message": f"{summary}\nat line 1", "code": "DATABASE_ERROR"})


def ids(found: Iterable[StoredError]) -> list[str]:
    return [error.id for error in found]


def listed(errors: AgentErrors, limit: int = 50, **wanted: object) -> list[str]:
    return ids(errors.page(WORKSPACE, ErrorFilter(**wanted), limit=limit, after=None).items)  # type: ignore[arg-type]


def test_an_error_comes_back_whole(database: Database, errors: AgentErrors) -> None:
    where = lane(database)
    error_id = errors.store(new(where, summary="né\u2028x"), now_ms=NOW_MS)
    kept = errors.get(WORKSPACE, error_id)
    assert kept == errors.get_in_lane(where, error_id)
    raw = {"message": "né\u2028x\nat line 1", "code": "DATABASE_ERROR"}
    assert kept == StoredError(error_id, WORKSPACE, "s1", "turn_1", "look", NOW_MS, "né\u2028x", raw)


def test_an_id_tells_the_second_in_utc_and_has_26_characters(database: Database, errors: AgentErrors) -> None:
    error_id = errors.store(new(lane(database)), now_ms=1_732_230_214_999)
    assert re.fullmatch(r"err_20241121_230334_[0-9a-f]{6}", error_id)
    assert len(error_id) == len(error_id_of(NOW_MS, "abc123")) == 26


def test_an_id_that_is_taken_is_not_given_again(database: Database) -> None:
    where, suffixes = lane(database), iter(["aaaaaa", "aaaaaa", "aaaaaa", "bbbbbb"])
    errors = AgentErrors(database, suffix=lambda: next(suffixes))
    first, second = (errors.store(new(where, summary=text), now_ms=NOW_MS) for text in ("one", "two"))
    assert (first[-6:], second[-6:]) == ("aaaaaa", "bbbbbb")
    assert errors.get(WORKSPACE, first).short_summary == "one"


def test_the_search_for_an_id_ends(database: Database) -> None:
    asked: list[str] = []
    errors = AgentErrors(database, suffix=lambda: asked.append("x") or "aaaaaa")  # type: ignore[func-returns-value]
    where = lane(database)
    errors.store(new(where), now_ms=NOW_MS)
    with pytest.raises(Unavailable):
        errors.store(new(where), now_ms=NOW_MS)
    assert len(asked) == 1 + TRIES


@pytest.mark.parametrize("limit", [1, 3, 7, 8])
def test_errors_of_one_moment_are_listed_once_each(database: Database, errors: AgentErrors, limit: int) -> None:
    where = lane(database)
    made = {errors.store(new(where), now_ms=NOW_MS + number // 4) for number in range(7)}
    found: list[str] = []
    after = None
    for _ in range(9):
        page = errors.page(WORKSPACE, EVERY, limit=limit, after=after)
        found += ids(page.items)
        after = page.next
        if after is None:
            break
    assert after is None
    assert (len(found), set(found)) == (7, made)


def test_a_page_goes_on_though_the_last_error_seen_is_gone(database: Database, errors: AgentErrors) -> None:
    where = lane(database)
    made = [errors.store(new(where), now_ms=NOW_MS + number) for number in range(3)]
    page = errors.page(WORKSPACE, EVERY, limit=1, after=None)
    with database.write(lock=WHOLE) as tx:
        tx.execute(delete(agent_errors).where(agent_errors.c.id == made[2]))
    assert ids(errors.page(WORKSPACE, EVERY, limit=9, after=page.next).items) == [made[1], made[0]]


@pytest.mark.parametrize(
    "after", ["err_20241121_230334_abc123", "x", "1:turn_1", ":err_1", "²:err_1", f"{10**16}:err_"]
)
def test_what_is_no_cursor_is_refused(errors: AgentErrors, after: str) -> None:
    with pytest.raises(Invalid, match="no cursor"):
        errors.page(WORKSPACE, EVERY, limit=9, after=after)


def test_only_what_is_older_expires_and_no_more_than_asked_for(database: Database, errors: AgentErrors) -> None:
    where = lane(database)
    made = [errors.store(new(where), now_ms=NOW_MS + number) for number in range(5)]
    assert [errors.expire(before_ms=NOW_MS + 3, limit=2) for _ in range(3)] == [2, 1, 0]
    assert listed(errors) == [made[4], made[3]]


def test_a_deleted_session_has_no_errors_and_gets_none(database: Database, errors: AgentErrors) -> None:
    where = lane(database)
    error_id = errors.store(new(where), now_ms=NOW_MS)
    Sessions(database).delete(WORKSPACE, "s1")
    again = lane(database)
    for ask in (
        lambda: errors.get(WORKSPACE, error_id),
        lambda: errors.get_in_lane(where, error_id),
        lambda: errors.get_in_lane(again, error_id),
        lambda: errors.store(new(where), now_ms=NOW_MS),
    ):
        with pytest.raises(NotFound):
            ask()
    assert listed(errors) == listed(errors, session_id="s1") == []
    assert counts(database)["agent_errors"] == 1


def test_errors_stored_side_by_side_are_all_kept(database: Database, errors: AgentErrors) -> None:
    where = lane(database)

    at_once(lambda _: [errors.store(new(where), now_ms=NOW_MS) for _ in range(20)], range(4))
    assert len(set(listed(errors, limit=100))) == 80
