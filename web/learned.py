"""Learned layers of agents: imported, listed, looked at, activated and taken back."""

from typing import TYPE_CHECKING

from flask import Response

from loom_worker.core.errors import NotFound
from loom_worker.core.values.json import Json
from loom_worker.core.values.learned import ImportRequest
from loom_worker.core.values.pages import no_cursor
from web.answers import Route, json_answer, known_id, list_answer
from web.bodies import json_body, no_body
from web.caller import caller
from web.check import Checker
from web.learned_schemas import ACTIVATE_LEARNED, NEW_LEARNED
from web.problems import invalid
from web.query import page_wanted

if TYPE_CHECKING:
    from loom_worker.service.service import Service

_NEW, _ACTIVATE = Checker(NEW_LEARNED), Checker(ACTIVATE_LEARNED)
_MOST_LISTED = 100
"""Each of them is scored by its turns."""
_MOST_DIGITS = 9


class LearnedViews:
    """The views under ``/v1/agents/{name}/learned``."""

    def __init__(self, service: "Service") -> None:
        self._learned = service.learned

    def routes(self) -> tuple[Route, ...]:
        """Where the views are mounted."""
        path = "/v1/agents/<name>/learned"
        return (
            Route("GET", path, self.list),
            Route("POST", path, self.add),
            Route("GET", f"{path}/<version>", self.get),
            Route("DELETE", f"{path}/<version>", self.erase),
            Route("POST", f"{path}/activate", self.activate),
            Route("POST", f"{path}/rollback", self.roll_back),
        )

    def list(self, name: str) -> Response:
        """List the versions, the newest first, with what came of each."""
        limit, after = page_wanted()
        if after is not None and not _is_version(after):
            raise no_cursor(after)
        before = None if after is None else int(after)
        limit = min(limit, _MOST_LISTED)
        found, has_more = self._learned.listed(caller().tenant, known_id(name, "agent"), limit=limit, before=before)
        return list_answer(found, after=str(found[-1]["version"]) if has_more else None)

    def add(self, name: str) -> Response:
        """Import what an optimizer has saved as the next version."""
        body = _checked(json_body(), _NEW)
        asked = ImportRequest(body["content"], body.get("form"), body.get("source") or "", body.get("note") or "")
        version, is_known = self._learned.add(caller().tenant, known_id(name, "agent"), asked, by=caller().holder.actor)
        return json_answer(version, 200 if is_known else 201)

    def get(self, name: str, version: str) -> Response:
        """Look at one version and its layer."""
        return json_answer(self._learned.get(caller().tenant, known_id(name, "agent"), _number(version)))

    def erase(self, name: str, version: str) -> Response:
        """Remove what a version holds."""
        self._learned.erase(caller().tenant, known_id(name, "agent"), _number(version), by=caller().holder.actor)
        return Response(status=204)

    def activate(self, name: str) -> Response:
        """Give a version to new sessions, or to a share of them."""
        body = _checked(json_body(), _ACTIVATE)
        version, share, by = int(body["version"]), body.get("share"), caller().holder.actor
        return json_answer(
            self._learned.activate(caller().tenant, known_id(name, "agent"), version, share=share, by=by)
        )

    def roll_back(self, name: str) -> Response:
        """Take the last activation back."""
        no_body()
        return json_answer(self._learned.roll_back(caller().tenant, known_id(name, "agent"), by=caller().holder.actor))


def _checked(body: Json, checker: Checker) -> Json:
    flaws = checker.flaws(body)
    if flaws:
        raise invalid(flaws)
    return body


def _is_version(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS


def _number(version: str) -> int:
    if not _is_version(version):
        raise NotFound("no such version")
    return int(version)
