"""What is known of users: they, and who acts for them, look at it, correct it and have it forgotten."""

import logging
from dataclasses import replace

from loom_worker.core.errors import Flaw, Invalid
from loom_worker.core.text import one_line
from loom_worker.core.values.facts import OBJECT_CHARS, RELATION_CHARS, Correction, Fact, FactFilter
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.pages import Page
from loom_worker.core.values.tenants import Actor, WorkspaceUser
from loom_worker.service.input_guard import InputGuard
from loom_worker.store.facts import Facts

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
        """As ``Facts.forget``."""
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
