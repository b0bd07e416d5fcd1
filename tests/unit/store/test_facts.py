"""Facts are told within their scope alone, corrected and forgotten for good, and go with what says them."""

import pytest
from sqlalchemy import func, select, update

from loom_worker.core.errors import Conflict, Forbidden, Invalid, NotFound
from loom_worker.core.settings_tree import RetentionSettings
from loom_worker.core.values.api_keys import TOKEN_PREFIX
from loom_worker.core.values.audit import AuditFilter
from loom_worker.core.values.facts import Correction, FactFilter
from loom_worker.core.values.tenants import Actor, WorkspaceUser
from loom_worker.store.audit import AuditRows
from loom_worker.store.database import Database
from loom_worker.store.dated_summaries import DatedSummaries
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.fact_changes import remove_of_messages
from loom_worker.store.facts import Facts
from loom_worker.store.retention import DAY_MS, Retention
from loom_worker.store.schema import messages, sessions
from loom_worker.store.sessions import Sessions
from loom_worker.store.tables import dated_summaries, fact_sources, facts, forgotten_facts, memory
from loom_worker.store.users import Users
from tests.unit.store.facts_made import JOHN, MARIA, dated, listed, says, session_of, states, told
from tests.unit.store.made import NOW_MS, WORKSPACE, purged, said

BY = Actor("key_admin")
BERLIN, PARIS = "user|lives in|Berlin", "user|lives in|Paris"


def rows(database: Database) -> list[int]:
    """How many rows the tables of tiers have."""
    tables = (facts, fact_sources, forgotten_facts, dated_summaries)
    with database.read() as tx:
        return [tx.execute(select(func.count()).select_from(table)).scalar_one() for table in tables]


def test_facts_of_a_user_are_told_in_all_sessions_of_that_user_and_in_no_other(database: Database) -> None:
    one, two, johns = (session_of(database, who, name) for who, name in ((MARIA, "a"), (MARIA, "b"), (JOHN, "c")))
    elsewhere = session_of(database, WorkspaceUser("other", "maria"), "a")
    states(database, one, BERLIN)
    assert [told(database, lane) for lane in (one, two, johns, elsewhere)] == [["Berlin"], ["Berlin"], [], []]
    assert [told(database, one, scope=scope) for scope in ("session", "workspace")] == [[], ["Berlin"]]
    assert told(database, johns, scope="workspace") == []


def test_a_session_without_a_user_has_itself_alone(database: Database) -> None:
    one, two = (session_of(database, WORKSPACE, name) for name in ("a", "b"))
    states(database, one, BERLIN)
    assert (told(database, one), told(database, one, scope="session"), told(database, two)) == (
        ["Berlin"],
        ["Berlin"],
        [],
    )


def test_facts_of_a_workspace_are_told_to_all_of_it_and_facts_of_a_session_to_none_other(database: Database) -> None:
    one, johns = session_of(database, MARIA, "a"), session_of(database, JOHN, "b")
    elsewhere = session_of(database, "other", "a")
    states(database, one, "Acme|sells|boats", scope="workspace")
    states(database, one, "user|is in a|hurry", scope="session")
    assert [told(database, lane, scope="workspace") for lane in (one, johns, elsewhere)] == [["boats"], ["boats"], []]
    assert [told(database, lane, scope="session") for lane in (one, johns)] == [["hurry"], []]


ACME = "Acme|is based in|Rome"


def test_in_a_workspace_no_user_closes_ends_replaces_or_silences_what_another_said(database: Database) -> None:
    says(database, MARIA, "a", ACME, None, at=1)
    [rome] = listed(database)
    for at, key_user in ((2, None), (3, "john")):
        told_to = says(database, JOHN, f"b{at}", "Acme|is based in|Oslo", key_user, at=at, closes=(rome.id,))
    assert listed(database) == (rome,)
    found = Facts(database).find(told_to, "workspace", ())
    assert sorted((fact.object, fact.user) for fact in found) == [("Oslo", None), ("Oslo", None), ("Rome", "maria")]
    for fact in listed(database, JOHN):
        Facts(database).forget(JOHN, fact.id, by=BY, now_ms=NOW_MS + 9)
    says(database, JOHN, "c", "Acme|is based in|Oslo", None, at=5)
    says(database, MARIA, "d", "Acme|is based in|Oslo", None, at=6)
    assert [[fact.object for fact in listed(database, who)] for who in (MARIA, JOHN)] == [["Oslo", "Rome"], []]
    page = AuditRows(database).page(WORKSPACE, AuditFilter(user="maria"), limit=9, after=None)
    acts = [(row.entry.action, row.entry.session_id, row.entry.subject) for row in page.items]
    oslo = listed(database)[0].id
    assert acts == [("fact.learned", "d", oslo), ("fact.closed", "d", rome.id), ("fact.learned", "a", rome.id)]


def test_what_is_typed_in_a_page_is_no_fact_of_the_workspace_though_its_token_was_made_by_a_key_without_a_user(
    database: Database,
) -> None:
    lane = says(database, MARIA, "a", ACME, None, key_id=f"{TOKEN_PREFIX}key_1")
    others = session_of(database, JOHN, "b")
    assert [told(database, each, scope="workspace") for each in (lane, others)] == [["Rome"], []]


def test_what_a_key_of_a_user_says_is_told_to_that_user_alone_unless_the_agent_allows_more(database: Database) -> None:
    johns = session_of(database, JOHN, "b")
    marias = says(database, MARIA, "a", ACME, "maria")
    assert [told(database, lane, scope="workspace") for lane in (marias, johns)] == [["Rome"], []]
    says(database, MARIA, "c", "Acme|sells|boats", "maria", users_write=True)
    assert [told(database, lane, scope="workspace") for lane in (marias, johns)] == [["Rome", "boats"], ["boats"]]


def test_a_key_of_a_user_changes_no_fact_that_the_workspace_said(database: Database) -> None:
    says(database, MARIA, "a", ACME, None)
    states(database, session_of(database, MARIA, "b"), BERLIN)
    store, own = Facts(database), Actor("key_m", "maria")
    [_, rome] = listed(database)
    with pytest.raises(Forbidden):
        store.correct(MARIA, rome.id, Correction(object="Oslo"), by=own, now_ms=NOW_MS)
    with pytest.raises(Forbidden):
        store.forget(MARIA, rome.id, by=own, now_ms=NOW_MS)
    assert [store.forget_all(MARIA, by=by, now_ms=NOW_MS) for by in (own, BY)] == [1, 1]


def test_facts_of_one_owner_close_each_other_whichever_session_says_them(database: Database) -> None:
    one, two = session_of(database, MARIA, "a"), session_of(database, MARIA, "b")
    states(database, one, BERLIN, at=1)
    states(database, two, PARIS, at=2)
    states(database, one, BERLIN, at=1)
    assert (told(database, one), told(database, one, history=True)) == (["Paris"], ["Berlin", "Paris"])
    paris, berlin = listed(database)
    assert (berlin.until_ms, berlin.superseded_by, paris.until_ms) == (NOW_MS + 2, paris.id, None)


def test_a_topic_finds_facts_by_words_and_the_status_says_which(database: Database) -> None:
    lane = session_of(database, MARIA, "a")
    for at, triple in enumerate((BERLIN, PARIS, "Ada|likes|100% tea_time", "user|owns|a red boat")):
        states(database, lane, triple, at=at)
    assert told(database, lane, "Where does the user live?") == ["Paris", "a red boat"]
    assert told(database, lane, "boats") == ["a red boat"]
    assert told(database, lane, "100%") == ["100% tea_time"]
    page = Facts(database).page(MARIA, FactFilter("closed", "live"), limit=9, after=None)
    assert [fact.object for fact in page.items] == ["Berlin"]
    assert Facts(database).open_count(lane, "user") == 3


def test_facts_are_listed_in_pages_the_newest_first_and_for_their_user_alone(database: Database) -> None:
    lane = session_of(database, MARIA, "a")
    for n in range(3):
        states(database, lane, f"user|owns|thing {n}")
    store = Facts(database)
    first = store.page(MARIA, FactFilter("open"), limit=2, after=None)
    second = store.page(MARIA, FactFilter("open"), limit=2, after=first.next)
    assert [fact.object for fact in (*first.items, *second.items)] == ["thing 2", "thing 1", "thing 0"]
    assert store.page(JOHN, FactFilter("all"), limit=2, after=None).items == ()
    of_session = store.page_of_session(MARIA, "a", FactFilter("all"), limit=9, after=None)
    assert len(of_session.items) == 3
    with pytest.raises(NotFound):
        store.page_of_session(JOHN, "a", FactFilter("all"), limit=9, after=None)
    with pytest.raises(Invalid):
        store.page(MARIA, FactFilter("all"), limit=2, after="msg_1")


def test_a_correction_closes_the_fact_and_outlives_what_was_said_before(database: Database) -> None:
    lane, store = session_of(database, MARIA, "a"), Facts(database)
    states(database, lane, BERLIN, at=1)
    [berlin] = listed(database)
    new = store.correct(MARIA, berlin.id, Correction(object="Bern"), by=BY, now_ms=NOW_MS + 50)
    assert (new.source, new.relation, new.confidence, new.since_ms) == ("user", "lives in", 1.0, berlin.since_ms)
    states(database, lane, BERLIN, at=50)
    states(database, lane, PARIS, at=20)
    assert told(database, lane) == ["Bern"]
    states(database, lane, PARIS, at=51)
    assert told(database, lane) == ["Paris"]
    with pytest.raises(Conflict, match="is closed"):
        store.correct(MARIA, berlin.id, Correction(object="Rome"), by=BY, now_ms=NOW_MS + 60)
    ended = store.correct(MARIA, listed(database)[0].id, Correction(until_ms=NOW_MS - 70), by=BY, now_ms=NOW_MS + 80)
    assert (ended.since_ms, ended.until_ms, told(database, lane)) == (NOW_MS - 70, NOW_MS - 70, [])


def test_a_forgotten_fact_is_gone_and_comes_back_only_if_it_is_said_again(database: Database) -> None:
    lane, store = session_of(database, MARIA, "a"), Facts(database)
    states(database, lane, BERLIN, at=1)
    store.forget(MARIA, listed(database)[0].id, by=BY, now_ms=NOW_MS + 5)
    states(database, lane, "User|resides in|berlin", at=5)
    assert listed(database) == ()
    states(database, lane, BERLIN, at=6)
    assert told(database, lane) == ["Berlin"]
    page = AuditRows(database).page(WORKSPACE, AuditFilter(action="fact.forgotten"), limit=9, after=None)
    assert [(row.entry.user, row.entry.key_id) for row in page.items] == [("maria", "key_admin")]


def test_nobody_changes_the_facts_of_another(database: Database) -> None:
    lane, store = session_of(database, MARIA, "a"), Facts(database)
    states(database, lane, BERLIN)
    [berlin] = listed(database)
    for who in (JOHN, WorkspaceUser("other", "maria")):
        with pytest.raises(NotFound):
            store.correct(who, berlin.id, Correction(object="Bern"), by=BY, now_ms=NOW_MS)
        with pytest.raises(NotFound):
            store.forget(who, berlin.id, by=BY, now_ms=NOW_MS)
    assert listed(database) == (berlin,)


def test_summaries_are_found_by_date_in_their_scope(database: Database) -> None:
    one, two, johns = (session_of(database, who, name) for who, name in ((MARIA, "a"), (MARIA, "b"), (JOHN, "c")))
    for n, (lane, name) in enumerate(((one, "a"), (two, "b"), (johns, "c"), (one, "a"))):
        dated(database, lane, name, n=10 * n, day=n)
    store = DatedSummaries(database)

    def found(lane: str, scope: str, *, days: tuple[int, int] = (0, 9)) -> list[str]:
        begin, end = (NOW_MS + day * DAY_MS for day in days)
        return [each.id for each in store.between(lane, scope, from_ms=begin, to_ms=end, limit=9)]  # type: ignore[arg-type]

    assert found(one, "session") == ["sum_0", "sum_30"]
    assert found(one, "user") == ["sum_0", "sum_10", "sum_30"]
    assert found(one, "workspace") == ["sum_0", "sum_10", "sum_20", "sum_30"]
    assert found(one, "workspace", days=(1, 3)) == ["sum_10", "sum_20"]
    assert store.figures(one) == (2, 10, NOW_MS + 3 * DAY_MS + 9)
    Sessions(database).delete(WORKSPACE, "b")
    assert (found(one, "user"), found(two, "user")) == (["sum_0", "sum_30"], [])


def test_a_deleted_session_takes_its_summaries_and_what_it_alone_says(database: Database) -> None:
    one, two = session_of(database, MARIA, "a"), session_of(database, MARIA, "b")
    for lane in (one, two):
        states(database, lane, "user|likes|tea")
    states(database, one, BERLIN)
    states(database, one, "user|owns|car")
    states(database, one, "user|is in a|hurry", scope="session")
    dated(database, one, "a", n=1, day=0)
    car = next(fact for fact in listed(database) if fact.object == "car")
    Facts(database).correct(MARIA, car.id, Correction(object="boat"), by=BY, now_ms=NOW_MS + 9)
    Sessions(database).delete(WORKSPACE, "a")
    assert told(database, two) == ["boat", "tea"]
    assert [fact.session_id for fact in listed(database) if fact.object == "tea"] == [None]
    purged(database)
    assert rows(database) == [2, 1, 1, 0]


def test_what_only_removed_messages_say_goes_with_them(database: Database) -> None:
    one, two = session_of(database, MARIA, "a"), session_of(database, MARIA, "b")
    states(database, one, "user|likes|tea", n=1)
    states(database, one, "user|likes|jazz", n=2)
    states(database, one, "user|likes|jazz", n=7)
    states(database, one, "user|likes|go", n=3)
    states(database, two, "user|likes|go", n=1)
    with database.write(lock=WHOLE) as tx:
        remove_of_messages(tx, one, 5)
    assert told(database, one) == ["go", "jazz"]
    assert {fact.object: fact.session_id for fact in listed(database)} == {"go": None, "jazz": "a"}


def test_retention_takes_summaries_and_facts_of_the_messages_that_it_removes(database: Database) -> None:
    said(database, turns=1)
    lane = Sessions(database).get(WORKSPACE, "s1").lane
    with database.write(lock=WHOLE) as tx:
        last_n = tx.execute(select(func.max(messages.c.n)).where(messages.c.lane == lane)).scalar_one()
        tx.execute(memory.insert(), {"lane": lane, "first_n": last_n + 1, "dated_n": last_n})
    states(database, lane, BERLIN, n=last_n)
    dated(database, lane, "s1", n=last_n - 4, day=0)
    with database.write(lock=WHOLE) as tx:
        tx.execute(update(sessions).values(updated_ms=sessions.c.updated_ms + 9 * DAY_MS))
    Retention(database, RetentionSettings(conversation_days=3)).once(NOW_MS + 5 * DAY_MS)
    assert rows(database) == [0, 0, 0, 0]


def test_a_deleted_user_takes_all_facts_and_what_was_forgotten(database: Database) -> None:
    lane, store = session_of(database, MARIA, "a"), Facts(database)
    for triple in (BERLIN, "user|likes|tea"):
        states(database, lane, triple)
    states(database, lane, "Acme|sells|boats", scope="workspace")
    store.forget(MARIA, listed(database)[1].id, by=BY, now_ms=NOW_MS)
    store.correct(MARIA, listed(database)[1].id, Correction(object="Bern"), by=BY, now_ms=NOW_MS)
    users = Users(database)
    users.begin(MARIA, BY, now_ms=NOW_MS)
    assert rows(database) == [0, 0, 0, 0]
    states(database, lane, BERLIN, at=9)  # a batch that was read meanwhile
    while users.delete_some(MARIA, now_ms=NOW_MS):
        pass
    users.finish(MARIA, now_ms=NOW_MS)
    assert rows(database) == [0, 0, 0, 0]


def test_a_user_of_whom_only_a_correction_is_left_can_be_deleted(database: Database) -> None:
    lane, store = session_of(database, MARIA, "a"), Facts(database)
    states(database, lane, BERLIN)
    store.correct(MARIA, listed(database)[0].id, Correction(object="Bern"), by=BY, now_ms=NOW_MS)
    Sessions(database).delete(WORKSPACE, "a")
    Users(database).begin(MARIA, BY, now_ms=NOW_MS)
    assert listed(database) == ()
