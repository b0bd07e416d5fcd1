"""A deletion that Redis or a death broke off is finished by the sweep."""

from typing import Any

from loom_worker.core.errors import Unavailable
from loom_worker.core.settings_tree import LaneSettings
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.sessions import NewSession
from loom_worker.core.values.tenants import Actor, WorkspaceUser
from loom_worker.events.log import EventLog
from loom_worker.lanes.lanes import Lanes
from loom_worker.service.users import GRACE_MS, UserDeletions
from loom_worker.store.database import Database
from loom_worker.store.sessions import Sessions
from loom_worker.store.users import Users

MARIA = WorkspaceUser("acme", "maria")


class Away:
    """Lanes in a Redis that does not answer."""

    def forget(self, _lane: str) -> None:
        raise Unavailable("Redis does not answer")


def test_while_redis_is_away_the_data_goes_and_the_rest_follows_later(database: Database, valkey: Any) -> None:
    events = EventLog(valkey)
    Sessions(database).create(MARIA, NewSession(id="s1"), now_ms=now_ms())
    away: Any = Away()
    done = UserDeletions(database, away, events).delete(MARIA, by=Actor())
    assert done.sessions == 1
    assert Sessions(database).page("acme", limit=9, after=None).items == ()
    assert Users(database).progress(MARIA) is not None
    later = UserDeletions(database, Lanes(valkey, LaneSettings()), events)
    later.resume(now_ms())
    assert Users(database).progress(MARIA) is not None
    later.resume(now_ms() + GRACE_MS + 1_000)
    assert Users(database).progress(MARIA) is None


def test_a_user_is_deleted_to_the_end_when_nothing_fails(database: Database, valkey: Any) -> None:
    Sessions(database).create(MARIA, NewSession(id="s1"), now_ms=now_ms())
    done = UserDeletions(database, Lanes(valkey, LaneSettings()), EventLog(valkey)).delete(MARIA, by=Actor())
    assert (done.as_json()["sessions"], Users(database).progress(MARIA)) == (1, None)
