"""Whom a question is about, when it was said, hits apart from each other, and searches over several sessions."""

from datetime import UTC, datetime

import pytest
from sqlalchemy import select, update

from loom_worker.core.errors import NotFound
from loom_worker.core.values.chat import ChatMessage, Role
from loom_worker.core.values.pages import Hit
from loom_worker.core.values.sessions import NewSession
from loom_worker.core.values.tiers import Scope
from loom_worker.store import search as searching
from loom_worker.store import search_index
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.journal import Journal
from loom_worker.store.schema import messages, sessions
from loom_worker.store.search import Search
from loom_worker.store.search_index import SearchedLanes
from loom_worker.store.sessions import Sessions
from tests.unit.store.made import WORKSPACE, final, message, running

DAY_MS = 24 * 3600 * 1000
_ids = iter(range(1_000_000))


def ms(day: str) -> int:
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() * 1000)


def say(
    database: Database, *texts: str, session: str = "s1", workspace: str = WORKSPACE, day: str = "2023-05-01"
) -> None:
    """One turn of that day, the user first."""
    claim = running(database, session, workspace=workspace)
    roles: tuple[Role, ...] = ("user", "assistant")
    said = tuple(
        message(next(_ids), claim, chat=ChatMessage(roles[n % 2], text), created_ms=ms(day))
        for n, text in enumerate(texts)
    )
    Journal(database).finish(claim, final(said=said))


def ask(database: Database, question: str, *, now: str = "2024-01-15", is_apart: bool = False) -> tuple[Hit, ...]:
    return Search(database).session(WORKSPACE, "s1", question, limit=10, is_apart=is_apart, now_ms=ms(now))


def snippets(hits: tuple[Hit, ...]) -> list[str]:
    return [hit.snippet for hit in hits]


def fill(database: Database, count: int = 12, **where: str) -> None:
    for n in range(count):
        say(database, f"filler {n} of no matter", f"more of it {n}", **where)


def test_what_somebody_says_of_themselves_comes_before_what_is_said_to_them(database: Database) -> None:
    say(database, "Ann: Ben, did that boat trip happen at last?", "Ben: I went on the boat trip in fog")
    fill(database)
    say(database, "Ann: I went on the boat trip in sun", "Ben: Ann, so this boat trip went well at last")
    assert snippets(ask(database, "How was Ben's boat trip?"))[0] == "Ben: I went on the boat trip in fog"
    assert snippets(ask(database, "How was Ann's boat trip?"))[0] == "Ann: I went on the boat trip in sun"


def of_user(database: Database, question: str) -> list[str]:
    lane = Sessions(database).get(WORKSPACE, "s1").lane
    return [each.hit.snippet for each in Search(database).scope(lane, question, scope="user", limit=10)]


def test_a_session_in_which_others_speak_comes_after_that_of_the_one_who_is_asked_about(database: Database) -> None:
    for session in ("s1", "ann", "ben"):
        Sessions(database).create(WORKSPACE, NewSession(id=session, user="U"), now_ms=1)
    say(database, "Hello", "Good day")
    say(database, "Ann: I bought a red boat for the lake", "Zoe: Fine", session="ann")
    say(database, "Ann: Bye", "Zoe: See you", session="ann")
    say(database, "Ben: The boat that I bought, a red one, is for Ann too", "Kim: A red boat is bought!", session="ben")
    say(database, "Ben: Bye", "Kim: See you", session="ben")
    assert of_user(database, "Which boat has Ann bought?")[0] == "Ann: I bought a red boat for the lake"
    assert of_user(database, "Which boat has Ben bought?")[0].startswith("Ben: The boat")


def test_dates_out_of_order_are_found_all_the_same(database: Database) -> None:
    for n, day in enumerate(("2023-09-01", "2023-01-01", "2023-05-07", "2022-03-03", "2023-11-11", "2021-01-01")):
        say(database, f"Entry {n}", f"Noted {n}", day=day)
    assert snippets(ask(database, "Entry on 7 May 2023?"))[0] == "Entry 2"
    assert snippets(ask(database, "Entry on 3 March 2022?"))[0] == "Entry 3"


def test_the_user_is_known_by_the_sessions_name_of_them(database: Database) -> None:
    Sessions(database).create(WORKSPACE, NewSession(id="s1", user="Caroline"), now_ms=1)
    say(database, "I sail on Sundays with a crew", "One can sail with a crew on Mondays")
    fill(database)
    say(database, "Nothing new here", "A crew can sail")
    found = snippets(ask(database, "With which crew does Caroline sail?"))
    assert found[0] == "I sail on Sundays with a crew"
    by_name = ask(database, "Caroline")
    assert by_name
    assert by_name[0].role == "user"


def test_a_date_finds_what_shares_no_word_with_the_question(database: Database) -> None:
    fill(database, day="2023-03-01")
    say(database, "The roof leaks", "Call a roofer", day="2023-05-07")
    fill(database, day="2023-12-20")
    for question in ("What happened on 7 May 2023?", "And last May?", "What was there on 2023-05-07?"):
        assert set(snippets(ask(database, question))[:2]) == {"The roof leaks", "Call a roofer"}, question
    assert "The roof leaks" not in snippets(ask(database, "What happened on 7 June 2023?"))


def test_what_is_told_on_the_next_days_or_names_the_date_itself_is_found(database: Database) -> None:
    fill(database, day="2023-03-01")
    say(database, "The roof leaks since yesterday", "Oh", day="2023-05-08")
    fill(database, day="2023-06-01")
    say(database, "The gutter broke on 7 May 2023", "Oh no", day="2023-08-20")
    say(database, "The gutter broke in winter", "Oh dear", day="2023-08-21")
    assert "The roof leaks since yesterday" in snippets(ask(database, "What happened on 7 May 2023?"))[:3]
    assert snippets(ask(database, "When in May 2023 was there a gutter?"))[0] == "The gutter broke on 7 May 2023"


def test_relative_dates_start_from_the_moment_of_the_question(database: Database) -> None:
    fill(database, day="2023-03-01")
    say(database, "The roof leaks", "Call a roofer", day="2023-05-07")
    fill(database, day="2023-05-20")
    assert snippets(ask(database, "What was yesterday?", now="2023-05-08"))[0] in ("The roof leaks", "Call a roofer")


def test_hits_apart_take_one_place_a_stretch_and_show_no_message_twice(database: Database) -> None:
    say(database, "the red kite rose", "a kite, red", "my kite is red", "red kites all")
    fill(database)
    say(database, "a red kite again", "Far away")
    near, apart = ask(database, "red kite"), ask(database, "red kite", is_apart=True)
    assert len([hit for hit in near if "red" in hit.snippet]) == 5
    reds = [hit for hit in apart if "red" in hit.snippet]
    assert len(reds) == 2 or (len(reds) == 3 and "red kites all" in snippets(tuple(reds)))
    shown = [each.message_id for hit in apart for each in hit.passage]
    assert len(shown) == len(set(shown))
    assert {"the red kite rose", "a kite, red", "my kite is red", "red kites all"} <= {
        each.text for hit in apart for each in hit.passage
    }
    assert all(hit.message_id in {each.message_id for each in hit.passage} for hit in apart)


def lane_of(database: Database, session: str, workspace: str = WORKSPACE) -> str:
    with database.read() as tx:
        query = select(sessions.c.lane).where(sessions.c.id == session, sessions.c.workspace == workspace)
        return tx.execute(query).scalar_one()


def in_scope(database: Database, session: str, scope: Scope, question: str = "kite") -> set[str]:
    hits = Search(database).scope(lane_of(database, session), question, scope=scope, limit=10)
    assert all(each.message.id == each.hit.message_id for each in hits)
    return {each.message.session_id for each in hits if "kite" in each.message.chat.text}


@pytest.fixture
def families(database: Database) -> Database:
    """Two sessions of Ann, one of Ben, one of nobody; and in another workspace one of another Ann."""
    for session, user in (("a1", "ann"), ("a2", "ann"), ("b1", "ben"), ("n1", None), ("n2", None)):
        Sessions(database).create(WORKSPACE, NewSession(id=session, user=user), now_ms=1)
        say(database, f"the kite of {session}", "Noted.", session=session)
    Sessions(database).create("other", NewSession(id="a1", user="ann"), now_ms=1)
    say(database, "the kite of others", "Noted.", session="a1", workspace="other")
    return database


@pytest.mark.parametrize(
    ("session", "scope", "seen"),
    [
        ("a1", "session", {"a1"}),
        ("a1", "user", {"a1", "a2"}),
        ("b1", "user", {"b1"}),
        ("n1", "user", {"n1"}),
        ("n1", "workspace", {"a1", "a2", "b1", "n1", "n2"}),
    ],
)
def test_a_scope_holds_its_own_sessions_and_no_other(
    families: Database, session: str, scope: Scope, seen: set[str]
) -> None:
    assert in_scope(families, session, scope) == seen
    hits = Search(families).scope(lane_of(families, session), "kite others", scope=scope, limit=10)
    assert "the kite of others" not in {each.message.chat.text for each in hits}


def test_deleted_sessions_are_not_searched(families: Database) -> None:
    lane = lane_of(families, "a2")
    Sessions(families).delete(WORKSPACE, "a2")
    assert in_scope(families, "a1", "user") == {"a1"}
    with pytest.raises(NotFound):
        Search(families).scope(lane, "kite", scope="user", limit=10)


def test_sessions_beyond_the_recent_messages_are_still_found(families: Database) -> None:
    found = Search(families).scope(lane_of(families, "a1"), "kite", scope="user", limit=10, recent_messages=1)
    assert {each.message.session_id for each in found if "kite" in each.message.chat.text} == {"a1", "a2"}


def test_only_the_newest_sessions_of_a_scope_are_searched(families: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    with families.write(lock=WHOLE) as tx:
        tx.execute(update(sessions).where(sessions.c.id == "b1").values(created_ms=9))
    monkeypatch.setattr(searching, "MOST_SESSIONS", 1)
    assert in_scope(families, "a1", "workspace") == {"a1", "b1"}


def test_an_offset_counts_the_messages_of_its_own_session(families: Database) -> None:
    say(families, "another kite", "Noted.", session="a2")
    hits = Search(families).scope(lane_of(families, "a1"), "kite", scope="user", limit=10, is_apart=False)
    offsets = {each.message.chat.text: each.offset for each in hits}
    assert (offsets["the kite of a1"], offsets["the kite of a2"], offsets["another kite"]) == (0, 0, 2)


def test_a_neighbour_is_one_of_the_same_session(families: Database) -> None:
    hits = Search(families).scope(lane_of(families, "a1"), "kite", scope="workspace", limit=10)
    with families.read() as tx:
        session_of = {row.id: row.session_id for row in tx.execute(select(messages.c.id, messages.c.session_id))}
    for each in hits:
        assert {session_of[excerpt.message_id] for excerpt in each.hit.passage} == {each.message.session_id}


def test_a_range_of_time_is_found_by_bisection_and_in_no_other_session(database: Database) -> None:
    for day in range(1, 29):
        say(database, f"entry {day}", day=f"2023-02-{day:02}")
        say(database, f"theirs {day}", day=f"2023-02-{day:02}", session="s2")
    lane, size = lane_of(database, "s1"), 56
    with database.read() as tx:
        for first, behind in ((1, 2), (5, 9), (28, 29), (1, 29)):
            between = (ms("2023-02-01") + (first - 1) * DAY_MS, ms("2023-02-01") + (behind - 1) * DAY_MS)
            numbers, count = search_index.dated(tx, SearchedLanes((lane,), size), between)
            texts = tx.execute(select(messages.c.content).where(messages.c.n.in_(numbers)).order_by(messages.c.n))
            assert texts.scalars().all() == [f"entry {day}" for day in range(first, behind)]
            assert count >= len(numbers)
        nothing = (ms("2024-01-01"), ms("2024-02-01"))
        assert search_index.dated(tx, SearchedLanes((lane,), size), nothing) == ([], 0)
        assert search_index.dated(tx, SearchedLanes(("nobody",), 0), nothing) == ([], 0)
