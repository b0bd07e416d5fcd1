from collections.abc import Sequence

import pytest

from loom_worker.core.errors import Invalid, NotFound
from loom_worker.core.values.sessions import Message
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.memory import Memories
from loom_worker.store.messages import Messages
from loom_worker.store.schema import messages
from loom_worker.store.sessions import Sessions
from tests.unit.store.made import WORKSPACE, counts, said


@pytest.fixture
def lane(database: Database) -> str:
    """A session of six messages."""
    return said(database, turns=3)


def ids(database: Database, session: str = "s1") -> list[str]:
    return [one.id for one in Messages(database).page(WORKSPACE, session, limit=99, after=None).items]


def ten_each(messages: Sequence[Message]) -> int:
    return 10 * len(messages)


def promoted(database: Database, lane: str) -> list[str]:
    remembered = Memories(database).load(lane, limit=1)
    assert tuple(message.id for message in remembered.recalled) == remembered.state.promoted
    return list(remembered.state.promoted)


def promote(database: Database, wanted: Sequence[str], budget_tokens: int = 100) -> int:
    return Memories(database).promote(WORKSPACE, "s1", wanted, budget_tokens=budget_tokens, tokens=ten_each)


def test_promoted_messages_stand_in_the_order_of_the_conversation_and_once(database: Database, lane: str) -> None:
    known = ids(database)
    assert promote(database, [known[4], known[1], known[4]]) == 20
    assert promote(database, [known[2], known[1]]) == 30
    assert promoted(database, lane) == [known[1], known[2], known[4]]
    assert promote(database, []) == 30


def test_a_tool_promotes_by_the_lane_as_a_client_by_the_name(database: Database, lane: str) -> None:
    known = ids(database)
    promote(database, [known[0]])
    assert Memories(database).promote_in_lane(lane, [known[1]], budget_tokens=99, tokens=ten_each) == 20
    assert promoted(database, lane) == known[:2]


def test_what_is_over_the_budget_changes_nothing_and_says_so(database: Database, lane: str) -> None:
    known = ids(database)
    assert promote(database, known[:2], budget_tokens=20) == 20
    with pytest.raises(Invalid, match="30 tokens of the 20") as refused:
        promote(database, known[2:3], budget_tokens=20)
    assert (refused.value.slug, refused.value.flaws[0].pointer) == ("recall-budget-exceeded", "/message_ids")
    assert promoted(database, lane) == known[:2]


def test_promoting_again_is_no_error_though_the_budget_has_shrunk(database: Database, lane: str) -> None:
    known = ids(database)
    promote(database, known[:3])
    assert promote(database, known[:2], budget_tokens=10) == 30


@pytest.mark.parametrize("whose", ["nobody's", "another session's"])
def test_messages_that_are_not_the_sessions_are_named_and_none_is_promoted(
    database: Database, lane: str, whose: str
) -> None:
    said(database, "s2", turns=1)
    alien = "msg_none" if whose == "nobody's" else ids(database, "s2")[0]
    with pytest.raises(Invalid, match=alien) as refused:
        promote(database, [ids(database)[0], alien])
    assert [flaw.pointer for flaw in refused.value.flaws] == ["/message_ids/1"]
    assert refused.value.slug is None
    assert promoted(database, lane) == []


def test_a_session_of_another_workspace_is_not_found(database: Database, lane: str) -> None:
    memories = Memories(database)
    with pytest.raises(NotFound):
        memories.promote("other", "s1", ids(database)[:1], budget_tokens=99, tokens=ten_each)
    with pytest.raises(NotFound):
        memories.clear_promoted("other", "s1")
    assert counts(database)["memory"] == 0


def test_what_is_recalled_is_cleared_at_once_and_counted(database: Database, lane: str) -> None:
    other = said(database, "s2", turns=1)
    promote(database, ids(database)[:3])
    Memories(database).promote(WORKSPACE, "s2", ids(database, "s2"), budget_tokens=99, tokens=ten_each)
    assert Memories(database).clear_promoted(WORKSPACE, "s1") == 3
    assert promoted(database, lane) == []
    assert Memories(database).clear_promoted_in_lane(lane) == 0
    assert Memories(database).clear_promoted_in_lane(other) == 2


def test_a_promotion_that_comes_between_is_counted_too(database: Database, lane: str) -> None:
    known, rounds = ids(database), []

    def tokens(messages: Sequence[Message]) -> int:
        rounds.append(len(messages))
        if len(rounds) == 1:
            promote(database, [known[5]])
        return ten_each(messages)

    with pytest.raises(Invalid, match="20 tokens of the 15"):
        Memories(database).promote_in_lane(lane, [known[0]], budget_tokens=15, tokens=tokens)
    assert rounds == [1, 2]
    assert promoted(database, lane) == [known[5]]


def test_nothing_is_promoted_in_a_deleted_session(database: Database, lane: str) -> None:
    known = ids(database)
    Sessions(database).delete(WORKSPACE, "s1")
    with pytest.raises(NotFound):
        Memories(database).promote_in_lane(lane, known[:1], budget_tokens=99, tokens=ten_each)
    assert counts(database)["memory"] == 0


def test_what_is_promoted_goes_when_its_messages_do(database: Database, lane: str) -> None:
    promote(database, ids(database)[:2])
    with database.write(lock=WHOLE) as tx:
        tx.execute(messages.delete().where(messages.c.id == ids(database)[0]))
    assert [one.id for one in Memories(database).load(lane, limit=9).recalled] == [ids(database)[0]]
