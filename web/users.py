"""Users: who of a channel is which user, and the deletion of all that belongs to one."""

from flask import Response
from pydantic import Field

from loom_worker.core.errors import Forbidden, NotFound
from loom_worker.core.values.channels import Pairing
from loom_worker.core.values.ids import new_id, now_ms
from loom_worker.core.values.tenants import WorkspaceUser
from web.answers import json_answer, known_id, known_user, page_answer
from web.bodies import Body, Name, User
from web.caller import caller
from web.operation import NO_CONTENT, Operation, Views
from web.query import PageQuery
from web.schemas import list_of, record


class NewPairingBody(Body):
    """Who somebody of a channel is."""

    channel: Name
    identity: User = Field(description="As the channel names the person: what turns send as `user`.")
    user: User = Field(description="The user of the workspace who that is.")


PAIRING = record(
    "Pairing", "Who somebody of a channel is.", "id object=pairing channel identity user created_at", Pairing
)
DELETED_USER = record(
    "DeletedUser",
    "How many sessions and turns were deleted and how many keys revoked.",
    "user:text object=user.deleted sessions:whole turns:whole keys:whole",
)


class PairingViews(Views, tag="users"):
    """The views under ``/v1/pairings``."""

    @Operation("GET /v1/pairings", list_of(PAIRING), scope="admin")
    def list(self, page: PageQuery) -> Response:
        """List who of which channel is which user."""
        return page_answer(self.service.pairings.page(caller().tenant, limit=page.limit, after=page.after))

    @Operation("POST /v1/pairings", {201: PAIRING}, scope="admin", problems=(409,))
    def create(self, new: NewPairingBody) -> Response:
        """Say who somebody of a channel is; again, it changes nothing."""
        holder = caller().holder
        if holder.user is not None:
            # It could make anybody's messages its user's own.
            raise Forbidden("A key that acts for one user cannot say who somebody of a channel is.")
        pairing = Pairing(new_id("pair_"), holder.workspace, new.channel, new.identity, new.user, now_ms())
        return json_answer(self.service.pairings.add(pairing, by=holder.actor).as_json(), 201)

    @Operation("DELETE /v1/pairings/{pairing_id}", NO_CONTENT, scope="admin")
    def delete(self, pairing_id: str) -> Response:
        """Forget who somebody of a channel is."""
        known, by = known_id(pairing_id, "pairing"), caller().holder.actor
        self.service.pairings.remove(caller().tenant, known, by=by, now_ms=now_ms())
        return Response(status=204)


class UserViews(Views, tag="audit"):
    """The view under ``/v1/users``, but for facts."""

    @Operation("DELETE /v1/users/{user}", DELETED_USER, scope="admin")
    def delete(self, user: str) -> Response:
        """Delete a user's sessions with all in them, and revoke the user's keys; running turns are stopped."""
        holder = caller().holder
        if holder.user is not None:
            raise NotFound("no such user")
        deleted = self.service.users.delete(WorkspaceUser(holder.workspace, known_user(user)), by=holder.actor)
        self.service.keys.forget()
        return json_answer(deleted.as_json())
