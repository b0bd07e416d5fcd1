"""Users: what is known of them, which they look at, correct and have forgotten, and the deletion of all of one."""

import logging
import time
from dataclasses import replace

from loom_worker.core.errors import Flaw, Invalid, Unavailable
from loom_worker.core.text import one_line
from loom_worker.core.values.facts import OBJECT_CHARS, RELATION_CHARS, Correction, Fact, FactFilter
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.pages import Page
from loom_worker.core.values.tenants import Actor, WorkspaceUser
from loom_worker.events.log import EventLog
from loom_worker.lanes.lanes import Lanes
from loom_worker.service.input_guard import InputGuard
from loom_worker.store.database import Database
from loom_worker.store.facts import Facts
from loom_worker.store.purge import REST_S
from loom_worker.store.sessions import Sessions
from loom_worker.store.users import UserDeletion, Users

log = logging.getLogger(__name__)


class UserFacts:
    """The facts of a workspace's users. Those of a session the store lists (``rows``)."""

    def __init__(self, facts: Facts, guard: InputGuard) -> None:
        self.rows = self._facts = facts
        self._guard = guard

    def page(self, who: WorkspaceUser, where: FactFilter, *, limit: int, after: str | None) -> Page[Fact]:
        """As ``Facts.page``; NotFound if the workspace has nothing of such a user."""
        self._facts.require_user(who)
        return self._facts.page(who, where, limit=limit, after=after)

    def correct(self, who: WorkspaceUser, fact_id: str, given: Correction, *, by: Actor) -> Fact:
        """As ``Facts.correct``; Invalid for a part that is empty, too long or blocked, and for an ``until`` to come."""
        moment_ms = now_ms()
        relation = _part(given.relation, "relation", RELATION_CHARS)
        object_ = _part(given.object, "object", OBJECT_CHARS)
        if given.until_ms is not None and given.until_ms > moment_ms:
            raise Invalid("A fact cannot have ceased to hold yet.", (Flaw("/until", "must be in the past"),))
        kept = self._guard.kept(who, {"relation": relation, "object": object_}, (None,), key_id=by.key_id)
        clean = replace(given, **kept)
        fact = self._facts.correct(who, fact_id, clean, by=by, now_ms=moment_ms)
        log.info("fact.corrected", extra={"fact": fact_id, "workspace": who.workspace})
        return fact

    def forget(self, who: WorkspaceUser, fact_id: str, *, by: Actor) -> None:
        self._facts.forget(who, fact_id, by=by, now_ms=now_ms())
        log.info("fact.forgotten", extra={"fact": fact_id, "workspace": who.workspace})

    def forget_all(self, who: WorkspaceUser, *, by: Actor) -> None:
        """As ``Facts.forget_all``; NotFound if the workspace has nothing of such a user."""
        self._facts.require_user(who)
        number = self._facts.forget_all(who, by=by, now_ms=now_ms())
        log.info("fact.forgotten", extra={"facts": number, "workspace": who.workspace})


def _part(text: str | None, name: str, most_chars: int) -> str | None:
    line = None if text is None else one_line(text, most_chars + 1)
    if line is not None and not 0 < len(line) <= most_chars:
        raise Invalid(f"The {name} cannot be used.", (Flaw(f"/{name}", f"1 to {most_chars} visible characters"),))
    return line


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
        if not self._sessions.has_deleted() and self._events.compact() and not self._database.engine.empty_log():
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
