"""All of one user is deleted; the sweep goes on with what a process that died has begun."""

import logging
import time

from loom_worker.core.errors import Unavailable
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.tenants import Actor, WorkspaceUser
from loom_worker.events.log import EventLog
from loom_worker.lanes.lanes import Lanes
from loom_worker.store.database import Database
from loom_worker.store.purge import REST_S
from loom_worker.store.sessions import Sessions
from loom_worker.store.users import UserDeletion, Users

log = logging.getLogger(__name__)

SETTLE_S = 0.1
"""As after the deletion of a session: whoever checked the database before it has begun to send by then."""
GRACE_MS = 60_000
"""The process that was asked is given so long, before the sweep takes the deletion up."""
RESUMED = 5
"""Users that one sweep goes on with."""


class UserDeletions:
    """Deletes users, a workspace's at a time."""

    def __init__(self, database: Database, lanes: Lanes, events: EventLog) -> None:
        self._users = Users(database)
        self._database, self._sessions = database, Sessions(database)
        self._lanes = lanes
        self._events = events

    def delete(self, who: WorkspaceUser, *, by: Actor) -> UserDeletion:
        """Delete a user's sessions with all in them, and revoke the user's keys; running turns are stopped.

        Returns:
            How much there was. Nobody finds any of it from now on; its rows go by and by.

        Raises:
            NotFound: the workspace has nothing of such a user.
            Unavailable: the database did not answer; a deletion that has begun goes on with the next sweeps.
        """
        begun = self._users.begin(who, by, now_ms=now_ms())
        done = self._go_on(who) or begun
        log.info("user deleted", extra={"workspace": who.workspace, "sessions": done.sessions, "keys": done.keys})
        return done

    def resume(self, moment_ms: int) -> None:
        """Go on with deletions that were broken off; once no row is left, empty the files that only grow."""
        for who in self._users.unfinished(asked_before_ms=moment_ms - GRACE_MS, limit=RESUMED):
            self._go_on(who)
        if not self._sessions.has_deleted() and self._events.compact() and not self._database.empty_log():
            self._events.note_removed()  # so that the next sweep tries again

    def _go_on(self, who: WorkspaceUser) -> UserDeletion | None:
        lanes: list[str] = []
        while some := self._users.delete_some(who, now_ms=now_ms()):
            lanes += [each.lane for each in some]
            time.sleep(REST_S)
        time.sleep(SETTLE_S)
        done = self._users.progress(who)
        try:
            for lane in lanes:
                self._lanes.forget(lane)
            # Those of turns that had ended the sweep removes, from the rows that are left.
            self._events.forget(dict.fromkeys(self._users.stopped_turns(who), True))
            self._events.note_removed()
        except Unavailable:
            return done  # not finished, so that the sweep comes back to it
        self._users.finish(who, now_ms=now_ms())
        return done
