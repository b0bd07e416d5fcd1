"""Sessions that state facts, for the tests of all that tells or removes them."""

from typing import Any

from sqlalchemy import insert

from loom_worker.core.values.api_keys import ApiKey
from loom_worker.core.values.facts import EndedFact, Fact, FactFilter, LearnedFacts, StatedFact, topic_words
from loom_worker.core.values.ids import new_id
from loom_worker.core.values.memory import DatedSummary
from loom_worker.core.values.sessions import NewSession
from loom_worker.core.values.tenants import WorkspaceUser
from loom_worker.core.values.tiers import Scope
from loom_worker.store.api_keys import KeyRows
from loom_worker.store.database import Database
from loom_worker.store.dated_summaries import add_dated
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.fact_changes import learn
from loom_worker.store.facts import Facts
from loom_worker.store.retention import DAY_MS
from loom_worker.store.schema import messages
from loom_worker.store.sessions import Sessions, of_lane
from tests.unit.store.made import NOW_MS, WORKSPACE, submitted

MARIA, JOHN = WorkspaceUser(WORKSPACE, "maria"), WorkspaceUser(WORKSPACE, "john")


def session_of(database: Database, who: WorkspaceUser | str, name: str) -> str:
    """A new session; its lane."""
    return Sessions(database).create(who, NewSession(id=name), now_ms=NOW_MS).lane


def states(database: Database, lane: str, triple: str, *, n: int = 1, scope: Scope = "user", at: int = 0) -> None:
    """A message of the session states ``subject|relation|object``, so many ms after NOW_MS."""
    subject, relation, object_ = triple.split("|")
    said = StatedFact(subject, relation, object_, f"msg_{n}", n=n, said_ms=NOW_MS + at)
    with database.write(lock=WHOLE) as tx:
        learn(tx, of_lane(tx, lane), LearnedFacts(scope, (said,)), now_ms=NOW_MS + at)


def says(database: Database, who: WorkspaceUser, name: str, triple: str, key_user: str | None, **more: Any) -> str:
    """A message that was sent with a key for that user, or none, states a fact of the workspace; the session's lane."""
    at, named, lane = more.pop("at", 0), more.pop("closes", ()), session_of(database, who, name)
    key = ApiKey(new_id("key_"), WORKSPACE, "k", "loom_", ("chat",), user=key_user, created_ms=NOW_MS)
    KeyRows(database).add(key, key.id)
    turn = submitted(database, name, key_id=more.pop("key_id", key.id))
    row = {"id": f"msg_{turn.id}", "lane": lane, "session_id": name, "turn_id": turn.id, "role": "user", "content": "x"}
    said = StatedFact(*triple.split("|"), row["id"], n=1, said_ms=NOW_MS + at, replaces=named)
    ended = tuple(EndedFact(each, said.said_ms, row["id"]) for each in named)
    with database.write(lock=WHOLE) as tx:
        tx.execute(insert(messages), {**row, "context": "", "token_count": 1, "created_ms": NOW_MS})
        learn(tx, of_lane(tx, lane), LearnedFacts("workspace", (said,), ended, **more), now_ms=NOW_MS + at)
    return lane


def told(database: Database, lane: str, topic: str = "", *, scope: Scope = "user", history: bool = False) -> list[str]:
    """The objects of facts that a session is told, in alphabetical order."""
    found = Facts(database).find(lane, scope, topic_words(topic), with_history=history)
    return sorted(fact.object for fact in found)


def listed(database: Database, who: WorkspaceUser = MARIA) -> tuple[Fact, ...]:
    """All facts of a user, the newest first."""
    return Facts(database).page(who, FactFilter("all"), limit=50, after=None).items


def dated(database: Database, lane: str, name: str, *, n: int, day: int) -> None:
    """A summary of five messages that were said so many days after NOW_MS."""
    first_ms = NOW_MS + day * DAY_MS
    summary = DatedSummary(f"sum_{n}", name, f"notes {n}", "heuristic", 2, 5, n, n + 4, first_ms, first_ms + 9, NOW_MS)
    with database.write(lock=WHOLE) as tx:
        add_dated(tx, of_lane(tx, lane), summary)
