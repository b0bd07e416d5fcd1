"""Versions of agents: look at them, compare them, activate one."""

from typing import TYPE_CHECKING

from flask import Response

from loom_worker.core.errors import Flaw
from loom_worker.core.values.agent_versions import LATEST, ActivationRequest
from loom_worker.core.values.json import Json
from web.agent_version_schemas import AGENT_ACTIVATION
from web.answers import Route, json_answer, known_id, page_answer
from web.bodies import json_body
from web.caller import caller
from web.check import Checker
from web.problems import invalid
from web.query import page_wanted, text_argument

if TYPE_CHECKING:
    from loom_worker.service.service import Service

_ACTIVATION = Checker(AGENT_ACTIVATION)


class AgentVersionViews:
    """The views under ``/v1/agents/<name>``."""

    def __init__(self, service: "Service") -> None:
        self._versions = service.agent_versions

    def routes(self) -> tuple[Route, ...]:
        """Where the views are mounted."""
        return (
            Route("GET", "/v1/agents/<name>/versions", self.list),
            Route("GET", "/v1/agents/<name>/versions/<version>", self.get),
            Route("GET", "/v1/agents/<name>/versions/<version>/diff", self.diff),
            Route("POST", "/v1/agents/<name>/activate", self.activate),
        )

    def list(self, name: str) -> Response:
        """List an agent's versions, the newest first."""
        limit, after = page_wanted()
        return page_answer(self._versions.page(caller().tenant, known_id(name, "agent"), limit=limit, after=after))

    def get(self, name: str, version: str) -> Response:
        """Look at one version with its document."""
        return json_answer(
            self._versions.get(caller().tenant, known_id(name, "agent"), known_id(version, "version")).with_document()
        )

    def diff(self, name: str, version: str) -> Response:
        """Compare a version with ``?from``, or with the one before it."""
        before = text_argument("from")
        return json_answer(
            self._versions.diff(caller().tenant, known_id(name, "agent"), known_id(version, "version"), before=before)
        )

    def activate(self, name: str) -> Response:
        """Let new sessions of the workspace have a version, and if asked all others, too."""
        asked, by = _activation(json_body()), caller().holder.actor
        return json_answer(self._versions.activate(caller().tenant, known_id(name, "agent"), asked, by=by))


def _activation(body: Json) -> ActivationRequest:
    """What is asked for; raises Refused (422), with every flaw."""
    if flaws := _ACTIVATION.flaws(body):
        raise invalid(flaws)
    label, repins, ends = body.get("as", "production"), body.get("sessions") == "all", body["version"] == LATEST
    wrong = {
        "/share": "is needed for a canary" if label == "canary" and "share" not in body and not ends else "",
        "/as": "production takes no share" if label == "production" and "share" in body else "",
        "/sessions": "all goes with production alone" if label == "canary" and repins else "",
    }
    if found := tuple(Flaw(pointer, detail) for pointer, detail in wrong.items() if detail):
        raise invalid(found)
    return ActivationRequest(body["version"], label, float(body.get("share", 1.0)), repins)
