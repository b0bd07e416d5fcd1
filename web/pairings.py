"""Pairings: who of a channel is which user."""

from typing import TYPE_CHECKING

from flask import Response

from loom_worker.core.errors import Forbidden
from loom_worker.core.values.channels import Pairing
from loom_worker.core.values.ids import new_id, now_ms
from web.answers import Route, json_answer, known_id, page_answer
from web.bodies import json_body, new_pairing
from web.caller import caller
from web.query import page_wanted

if TYPE_CHECKING:
    from loom_worker.service.service import Service


class PairingViews:
    """The views under ``/v1/pairings``."""

    def __init__(self, service: "Service") -> None:
        self._pairings = service.pairings

    def routes(self) -> tuple[Route, ...]:
        """Where the views are mounted."""
        return (
            Route("GET", "/v1/pairings", self.list),
            Route("POST", "/v1/pairings", self.create),
            Route("DELETE", "/v1/pairings/<pairing_id>", self.delete),
        )

    def list(self) -> Response:
        """List the pairings of the workspace, or of the user whom the caller's key acts for."""
        limit, after = page_wanted()
        return page_answer(self._pairings.page(caller().tenant, limit=limit, after=after))

    def create(self) -> Response:
        """Say who somebody of a channel is."""
        holder = caller().holder
        if holder.user is not None:
            # It could make anybody's messages its user's own.
            raise Forbidden("A key that acts for one user cannot say who somebody of a channel is.")
        body = new_pairing(json_body())
        new = Pairing(new_id("pair_"), holder.workspace, **body, created_ms=now_ms())
        return json_answer(self._pairings.add(new, by=holder.actor).as_json(), 201)

    def delete(self, pairing_id: str) -> Response:
        """Forget who somebody of a channel is."""
        known = known_id(pairing_id, "pairing")
        self._pairings.remove(caller().tenant, known, by=caller().holder.actor, now_ms=now_ms())
        return Response(status=204)
