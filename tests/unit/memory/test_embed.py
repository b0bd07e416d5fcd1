"""Messages get their vectors behind the turns: each once, charged, and whatever fails is gone on with."""

from collections.abc import Sequence

import pytest

from loom_worker.core.errors import Overloaded, ProviderFailed, Unavailable
from loom_worker.core.values.chat import ChatMessage, ToolUse
from loom_worker.core.values.sessions import Session
from loom_worker.llm.embeddings import BATCH_TEXTS, InputRefused
from loom_worker.memory.embed import AGAIN_MS, DONE, HARMLESS, STEPS, Progress
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.ledger import Ledger
from loom_worker.store.vectors import MessageVectors, Reach
from tests.unit.memory.recall.made import Talk
from tests.unit.memory.vectors import Told, embedding
from tests.unit.store.made import NOW_MS, WORKSPACE

MODEL = "scripted/hash"


@pytest.fixture
def talk(database: Database) -> Talk:
    talk = Talk(database)
    talk.say("apples", "pears")
    return talk


def left(talk: Talk) -> int:
    return MessageVectors(talk.database).left(Reach(talk.lane), MODEL)


def session(talk: Talk) -> Session:
    return talk.sessions.get(WORKSPACE, "s1")


def test_all_that_was_said_is_embedded_once(talk: Talk) -> None:
    told = Told()
    work = embedding(talk.database, told)
    assert work.embed(session(talk)) == Progress(2)
    talk.say("boats")
    assert [work.embed(session(talk)) for _ in range(2)] == [Progress(1), DONE]
    assert told.asked == [("apples", "pears"), ("boats",)]


def test_an_agent_without_embeddings_has_no_vectors(talk: Talk) -> None:
    assert embedding(talk.database, None).embed(session(talk)) == DONE
    assert left(talk) == 2


def test_a_long_session_is_embedded_in_batches_and_lets_others_go_first(talk: Talk) -> None:
    for _ in range(STEPS * BATCH_TEXTS // 8 + 1):
        talk.say(*(f"word{n}" for n in range(8)))
    told = Told()
    work = embedding(talk.database, told)
    first, second = work.embed(session(talk)), work.embed(session(talk))
    assert first == Progress(STEPS * BATCH_TEXTS, must_go_on=True)
    assert second == Progress(10)
    assert {len(texts) for texts in told.asked[:-1]} == {BATCH_TEXTS}
    assert left(talk) == 0


def test_what_was_spent_is_charged_to_the_session(talk: Talk) -> None:
    before = session(talk).usage.llm_calls
    embedding(talk.database, Told()).embed(session(talk))
    rows = {row["key"]: row for row in Ledger(talk.database).totals(WORKSPACE, group_by="kind")}
    row = rows["embedding"]
    assert (row["input_tokens"], row["llm_calls"], row["cost_usd"]) == (2, 1, 0.0)
    assert session(talk).usage.llm_calls == before + 1


def test_a_worker_that_comes_late_adds_nothing(talk: Talk) -> None:
    other = embedding(talk.database, Told())
    slow = Told(before=lambda: other.embed(session(talk)))
    assert embedding(talk.database, slow).embed(session(talk)) == DONE
    assert MessageVectors(talk.database).embedded(talk.lane, MODEL) == 2


def test_a_worker_that_dies_leaves_all_to_the_next(talk: Talk) -> None:
    class Killed(BaseException):
        pass

    def die() -> None:
        raise Killed

    with pytest.raises(Killed):
        embedding(talk.database, Told(before=die)).embed(session(talk))
    assert left(talk) == 2
    assert embedding(talk.database, Told()).embed(session(talk)) == Progress(2)


def test_a_provider_that_is_down_is_asked_again_later(talk: Talk) -> None:
    told = Told(fails=lambda _: Overloaded("busy", None))
    assert embedding(talk.database, told).embed(session(talk)) == Progress(again_ms=NOW_MS + AGAIN_MS)
    assert left(talk) == 2


def test_a_key_that_is_refused_marks_nothing_as_done(talk: Talk, caplog: pytest.LogCaptureFixture) -> None:
    told = Told(fails=lambda _: ProviderFailed("set LOOM_OPENAI_KEY"))
    assert embedding(talk.database, told).embed(session(talk)) == DONE
    assert left(talk) == 2
    assert "set LOOM_OPENAI_KEY" in caplog.text


def test_a_database_that_does_not_answer_is_the_callers_to_know(talk: Talk) -> None:
    with pytest.raises(Unavailable):
        embedding(talk.database, Told(fails=lambda _: Unavailable("locked"))).embed(session(talk))


def test_a_text_that_is_refused_keeps_no_other_from_its_vector(talk: Talk) -> None:
    def refuses(texts: Sequence[str]) -> Exception | None:
        return InputRefused("too strange") if "pears" in texts else None

    told = Told(fails=refuses)
    assert embedding(talk.database, told).embed(session(talk)) == Progress(2)
    assert told.asked == [("apples", "pears"), (HARMLESS,), ("apples",), ("pears",)]
    assert MessageVectors(talk.database).embedded(talk.lane, MODEL) == 1
    assert left(talk) == 0


def test_a_model_that_refuses_everything_gives_no_message_up(talk: Talk) -> None:
    told = Told(fails=lambda _: InputRefused("no such model"))
    assert embedding(talk.database, told).embed(session(talk)) == DONE
    assert left(talk) == 2


def test_calls_and_results_of_tools_are_not_embedded(talk: Talk) -> None:
    call = ToolUse("toolu_1", "look", {"for": "rows"})
    talk.tell(ChatMessage("user", "look"), ChatMessage("assistant", "", tool_uses=(call,)))
    told = Told()
    embedding(talk.database, told).embed(session(talk))
    assert told.asked == [("apples", "pears", "look")]


def test_nothing_of_a_deleted_session_is_sent(talk: Talk) -> None:
    gone, told = session(talk), Told()
    talk.sessions.delete(WORKSPACE, "s1")
    assert embedding(talk.database, told).embed(gone) == DONE
    assert told.asked == []


def test_a_budget_that_is_used_up_pays_for_no_vectors(talk: Talk) -> None:
    talk.database.close()
    with talk.database.write(lock=WHOLE) as tx:
        tx.exec_driver_sql("""UPDATE sessions SET budget = '{"tokens": 1}'""")
    told = Told()
    assert embedding(talk.database, told).embed(session(talk)) == DONE
    assert told.asked == []
