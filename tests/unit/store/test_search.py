"""Search in a session, over a real index."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, func, select, text, update

from loom_worker.core.errors import NotFound
from loom_worker.core.values.chat import ChatMessage, Role, ToolOutcome, ToolUse
from loom_worker.core.values.pages import Hit
from loom_worker.store import search_index, search_passages
from loom_worker.store.database import Database
from loom_worker.store.dialect import is_postgresql
from loom_worker.store.engines import postgresql_search, sqlite_search
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.journal import Journal
from loom_worker.store.schema import messages
from loom_worker.store.search import TOOLS_OF_MEMORY, Search
from loom_worker.store.search_index import SearchedLanes
from loom_worker.store.search_words import terms
from loom_worker.store.sessions import Sessions
from tests.unit.store.made import WORKSPACE, final, message, purged, running

_ids = iter(range(1_000_000))


def say(database: Database, *texts: str, session: str = "s1", workspace: str = WORKSPACE) -> None:
    """One turn in which these were said, the user first."""
    roles: tuple[Role, ...] = ("user", "assistant")
    chats = [ChatMessage(roles[n % 2], said) for n, said in enumerate(texts)]
    tell(database, *chats, session=session, workspace=workspace)


def tell(database: Database, *chats: ChatMessage, session: str = "s1", workspace: str = WORKSPACE) -> None:
    claim = running(database, session, workspace=workspace)
    said = tuple(message(next(_ids), claim, chat=chat) for chat in chats)
    Journal(database).finish(claim, final(said=said))


def ask(database: Database, question: str, *, session: str = "s1", limit: int = 10) -> tuple[Hit, ...]:
    return Search(database).session(WORKSPACE, session, question, limit=limit)


def found(database: Database, question: str, **where: Any) -> list[str]:
    return [hit.snippet for hit in ask(database, question, **where)]


def index_rows(database: Database) -> int:
    with database.read() as tx:
        index = "messages" if is_postgresql(tx) else "messages_fts5_docsize"  # there a column of the messages
        return tx.execute(text(f"SELECT count(*) FROM {index}")).scalar_one()


def check_index(database: Database) -> None:
    with database.write(lock=WHOLE) as tx:
        if not is_postgresql(tx):
            tx.exec_driver_sql("INSERT INTO messages_fts5 (messages_fts5) VALUES ('integrity-check')")


def test_a_hit_names_its_message_and_turn(database: Database) -> None:
    say(database, "Where did we put the keys?", "They are under the mat.")
    hit = ask(database, "mats")[0]
    with database.read() as tx:
        row = tx.execute(select(messages).where(messages.c.id == hit.message_id)).mappings().one()
    assert (row["content"], row["turn_id"], hit.role) == ("They are under the mat.", hit.turn_id, "assistant")
    assert hit.as_json().keys() == {"message_id", "turn_id", "role", "snippet", "score", "passage", "created_at"}


@pytest.mark.cases(
    ("said", "question"),
    [
        ("We bought a boat", "What are they buying?"),
        ("Maria's plan", "plans of Maria"),
        ("see ERR-1234 in the log", "ERR-1234?"),
        ("write to me@example.com", "me@example.com"),
        ("the file is a/b/c.txt", "a/b/c.txt"),
        ("C'est un café", "cafe"),
        ("He said: NOT (now) OR never*", 'NOT "now" OR (never*'),
        ("我下个月去北京旅行", "我们什么时候去北京？"),
        ("我养了一只猫", "猫"),
        ("買ったiPhoneケース", "iPhone"),
        ("내일 서울에 갑니다", "서울"),
        ("party 🎉 at nine", "🎉 party!"),
    ],
)
def test_an_ordinary_question_finds_what_was_said(database: Database, said: str, question: str) -> None:
    say(database, "nothing of the sort", "完全に別の話", "more of it", said, "and on", "and on again", "to the end")
    assert found(database, question)[0] == said


@pytest.mark.parametrize("question", ["", " ", "?", "🎉", "'", '"', "\x00"])
def test_a_question_without_words_finds_nothing_in_a_session_that_is_there(database: Database, question: str) -> None:
    say(database, "🎉 ' \" ?")
    assert ask(database, question) == ()
    with pytest.raises(NotFound):
        ask(database, question, session="s2")


def test_an_answer_is_found_beside_its_question(database: Database) -> None:
    for n in range(10):
        say(database, f"filler {n}", f"more filler {n}")
    say(database, "Which team did you sign with?", "The Wolves!")
    assert found(database, "team signed")[:2] == ["Which team did you sign with?", "The Wolves!"]


def test_an_answer_that_repeats_the_question_takes_no_place_of_its_own(database: Database) -> None:
    say(database, "The key hangs behind the blue clock.", "You said: The key hangs behind the blue clock.")
    assert found(database, "blue clock") == ["The key hangs behind the blue clock."]


@pytest.mark.cases("tool", sorted(TOOLS_OF_MEMORY))
def test_what_the_tools_of_memory_find_is_not_found_again(database: Database, tool: str) -> None:
    say(database, "The code of the locker is 4711.", "Noted.")
    before = ask(database, "code of the locker")
    for n in range(3):
        use = ToolUse(f"t{n}", tool, {"query": "code of the locker"})
        result = ToolOutcome(f"t{n}", tool, "The code of the locker is 4711.")
        searched = (ChatMessage("assistant", tool_uses=(use,)), ChatMessage("tool", outcomes=(result,)))
        tell(database, ChatMessage("user", f"Matter {n}?"), *searched, ChatMessage("assistant", "Done."))
    assert ask(database, "code of the locker")[0].message_id == before[0].message_id
    assert [hit.role for hit in ask(database, "code of the locker", limit=50) if hit.role == "tool"] == []


def test_neither_another_session_nor_another_workspace_is_searched(database: Database) -> None:
    say(database, "mine is red", "red it is")
    say(database, "yours is red", session="s2")
    say(database, "theirs is red", workspace="other")
    assert set(found(database, "red yours theirs")) == {"mine is red", "red it is"}
    with pytest.raises(NotFound):
        Search(database).session("other", "s2", "red", limit=9)


def test_scores_do_not_tell_what_others_said(database: Database) -> None:
    say(database, "a rare gemstone", "indeed")
    before = ask(database, "gemstone")
    for _ in range(5):
        say(database, "gemstone", "gemstone", session="s2")
    assert ask(database, "gemstone") == before


def test_the_limit_holds_and_what_was_said_twice_comes_once(database: Database) -> None:
    for n in range(8):
        say(database, f"apple number {n}", "Noted.")
    assert len(ask(database, "apple", limit=3)) == 3
    assert found(database, "apple", limit=50).count("Noted.") == 1
    assert len(found(database, "apple", limit=50)) == 9


def test_tools_are_found_by_name_arguments_and_the_head_of_what_they_gave(database: Database) -> None:
    use = ToolUse("toolu_1", "execute_sql", {"sql": "SELECT revenue FROM orders"})
    outcome = ToolOutcome("toolu_1", "execute_sql", '{"country": "Norway"}' + "x" * 3000 + " Iceland")
    answer = ChatMessage("assistant", "Most of it came from abroad.")
    tell(database, ChatMessage("user", "Go on"), ChatMessage("assistant", tool_uses=(use,)))
    tell(database, ChatMessage("tool", outcomes=(outcome,)), answer)
    assert ask(database, "Which orders?")[0].snippet == "execute_sql sql: SELECT revenue FROM orders"
    assert ask(database, "Norway")[0].role == "tool"
    assert all(hit.role != "tool" for hit in ask(database, "Iceland"))


def test_what_somebody_said_comes_before_a_tool_that_gave_the_same(database: Database) -> None:
    tell(database, ChatMessage("user", "Norway leads"), ChatMessage("assistant", "So it is."))
    tell(database, ChatMessage("tool", outcomes=(ToolOutcome("t", "look", "Norway leads"),)))
    assert ask(database, "Norway")[0].role == "user"


def test_arguments_that_are_no_json_for_sqlite_do_not_stop_a_turn_from_ending(database: Database) -> None:
    use = ToolUse("toolu_1", "plot", {"value": float("nan")})
    tell(database, ChatMessage("user", "Plot it"), ChatMessage("assistant", "Plotting.", tool_uses=(use,)))
    assert "Plot it" in found(database, "plot")


def test_the_index_follows_changes_and_deletions_of_messages(database: Database) -> None:
    say(database, "red 猫咪", "blue")
    with database.write(lock=WHOLE) as tx:
        tx.execute(update(messages).where(messages.c.content == "blue").values(content="green"))
    assert found(database, "blue") == []
    assert found(database, "green")[0] == "green"
    with database.write(lock=WHOLE) as tx:
        tx.execute(delete(messages).where(messages.c.content == "red 猫咪"))
    assert found(database, "red 猫咪") == []
    check_index(database)


def test_a_deleted_session_leaves_nothing_in_the_index(database: Database) -> None:
    say(database, "red 猫咪", "blue")
    say(database, "red", "blue", session="s2")
    Sessions(database).delete(WORKSPACE, "s1")
    purged(database)
    assert index_rows(database) == 2
    check_index(database)
    holds = "search @@ CAST('red | 猫咪' AS tsquery)"
    with database.read() as tx:
        index = "messages_fts5 WHERE messages_fts5 MATCH 'red OR 猫咪'"
        index = f"messages WHERE {holds}" if is_postgresql(tx) else index
        rows = tx.execute(text(f"SELECT count(*) FROM {index}")).scalar_one()
    assert rows == 1


def lane_and_terms(database: Database, question: str) -> tuple[str, Any]:
    with database.read() as tx:
        return tx.execute(select(messages.c.lane).order_by(messages.c.n).limit(1)).scalar_one(), terms(question)


def held(database: Database, question: str, *, size: int) -> list[int]:
    lane, wanted = lane_and_terms(database, question)
    with database.read() as tx:
        return search_index.holding(tx, SearchedLanes((lane,), size), wanted)[0]


def test_in_a_long_session_the_newest_messages_with_a_common_word_are_looked_at(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(4):
        say(database, f"common {n}", f"common, too {n}")
    monkeypatch.setattr(search_index, "MOST_ROWS", 3)
    short, long = (held(database, "common", size=size) for size in (8, search_index.LONG + 1))
    assert len(short) == 8
    assert long == sorted(short, reverse=True)[:3]


@pytest.mark.parametrize("dense", [0, 1_000_000], ids=["by the lane's words", "by the lane's index"])
def test_however_a_long_session_is_searched_only_its_own_messages_are_found(
    database: Database, monkeypatch: pytest.MonkeyPatch, dense: int
) -> None:
    for n in range(5):
        say(database, f"common ours {n}", "ours common", session="s1")
        say(database, f"common theirs {n}", "theirs common", session="s2")
    whole = held(database, "common", size=10)
    monkeypatch.setattr(sqlite_search, "DENSE", dense)
    assert len(whole) == 10
    for size in (search_index.LONG, postgresql_search.SHORT):
        assert held(database, "common", size=size + 1) == sorted(whole, reverse=True)
        assert held(database, "theirs", size=size + 1) == []


def passages(database: Database, question: str) -> list[list[str]]:
    return [[each.text for each in hit.passage] for hit in ask(database, question)]


def test_a_hit_comes_with_two_messages_on_each_side_in_the_order_of_the_conversation(database: Database) -> None:
    say(database, *(f"matter {n}" for n in range(5)), "the red kite", *(f"matter {n}" for n in range(6, 10)))
    assert passages(database, "kite")[0] == ["matter 3", "matter 4", "the red kite", "matter 6", "matter 7"]
    hit = ask(database, "kite")[0]
    assert [each.role for each in hit.passage] == ["assistant", "user", "assistant", "user", "assistant"]
    assert {each.turn_id for each in hit.passage} == {hit.turn_id}
    assert hit.passage[2].message_id == hit.message_id


def test_at_the_end_of_a_session_a_passage_is_shorter(database: Database) -> None:
    say(database, "the red kite", "flies")
    assert passages(database, "kite")[0] == ["the red kite", "flies"]


def test_a_passage_says_nothing_twice_and_looks_a_little_farther_instead(database: Database) -> None:
    said = ["Rain today", "the red kite", "It flew over the hill", "Home now"]
    for text_ in said:
        say(database, text_, "Noted.")
    assert passages(database, "kite")[0] == [
        "Rain today", "the red kite", "Noted.", "It flew over the hill",
    ]  # fmt: skip
    say(database, "a grey heron stood there", "You said: a grey heron stood there", "by the pond")
    assert passages(database, "heron")[0][-2:] == ["a grey heron stood there", "by the pond"]


def test_tools_messages_are_in_no_passage_and_what_is_said_around_them_is(database: Database) -> None:
    use = ToolUse("toolu_1", "look", {"at": "map"})
    gave = ToolOutcome("toolu_1", "look", "a map of the coast")
    tell(
        database, ChatMessage("user", "Where does the kite fly?"), ChatMessage("assistant", tool_uses=(use,)),
        ChatMessage("tool", outcomes=(gave,)), ChatMessage("assistant", "Along the cliffs."),
    )  # fmt: skip
    assert passages(database, "kite")[0] == ["Where does the kite fly?", "Along the cliffs."]


def test_a_passage_has_at_most_a_thousand_characters_on_five_lines(database: Database) -> None:
    say(database, *(f"kite {n}\n" + "and so on " * 60 + str(n) for n in range(9)))
    for hit in ask(database, "kite"):
        texts = [each.text for each in hit.passage]
        assert max(map(len, texts)) <= 200
        assert len(texts) <= 5
        assert "\n" not in "".join(texts)
        assert all(each.endswith("…") for each in texts)


def test_a_session_that_counts_as_long_gives_passages_too(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    say(database, *(f"matter {n}" for n in range(5)), "the red kite", *(f"matter {n}" for n in range(6, 10)))
    monkeypatch.setattr(search_passages, "LONG", 1)
    assert passages(database, "kite")[0] == ["matter 3", "matter 4", "the red kite", "matter 6", "matter 7"]


def test_the_answer_comes_before_what_goes_before_its_question(database: Database) -> None:
    for n in range(10):
        say(database, f"filler {n}", f"more filler {n}")
    say(database, "So much for that", "Good", "Which team did you sign with?", "The Wolves!")
    shown = found(database, "team signed")
    assert shown.index("The Wolves!") < shown.index("Good")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=80))
def test_no_question_raises_or_finds_what_another_session_said(database: Database, question: str) -> None:
    with database.read() as tx:
        is_new = tx.execute(select(func.count()).select_from(messages)).scalar_one() == 0
    if is_new:
        say(database, "our own words, 我们的话", "yes: a b c 1 2 3")
        say(database, "their words, 他们的话", "no: a b c 1 2 3", session="s2")
    ours = {"our own words, 我们的话", "yes: a b c 1 2 3"}
    assert set(found(database, question)) <= ours


def test_a_message_that_says_it_in_another_word_is_found_behind_those_that_say_the_word(database: Database) -> None:
    say(
        database,
        "My career began in a bakery.",
        "How nice.",
        "The weather is grey.",
        "It is.",
        "My job is dull.",
        "Oh.",
    )
    assert found(database, "jobs")[:2] == ["My job is dull.", "My career began in a bakery."]
    assert found(database, "What is her profession?")[0] in ("My career began in a bakery.", "My job is dull.")


def test_the_name_of_a_speaker_has_no_synonyms(database: Database) -> None:
    say(database, "Art: I am here.", "Bea: Hello.", "Art: Good.", "Bea: That drawing is by Art.")
    assert not any("drawing" in hit for hit in found(database, "Art", limit=1))
