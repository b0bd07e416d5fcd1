"""The fence of a turn: the only guard that counts.

A claim raises it, and every later write of the run names the fence it was given: a worker that slept past its lease
finds another number and writes nothing.
"""

from typing import Any

from sqlalchemy import Connection

from loom_worker.core.errors import Fenced, Overruled
from loom_worker.core.values.json import Json
from loom_worker.core.values.turns import CancelAction, Claim
from loom_worker.store import turn_statements as statements


def fenced_update(tx: Connection, claim: Claim, values: dict[str, Any]) -> None:
    """Change the row of a turn that is still ours.

    Raises:
        Fenced: another worker owns the turn, or it is finished or deleted.
    """
    if statements.fenced_update(tuple(values)).run(tx, {**ours(claim), **values}) != 1:
        raise _fenced(claim)


def final_update(tx: Connection, claim: Claim, values: dict[str, Any], *, known_cancel: CancelAction | None) -> None:
    """Change the row of a turn that is still ours, if its owner knows the client's cancel request and the webhook.

    Raises:
        Fenced: another worker owns the turn, or it is finished or deleted.
        Overruled: the client has asked for a different end, or for it to be reported elsewhere.
    """
    webhook = claim.turn.webhook
    known = {"known_cancel": known_cancel, "known_url": webhook and webhook.url, "known_form": webhook and webhook.form}
    given = {**ours(claim), **known, **values}
    if statements.final_update(tuple(values)).run(tx, given) != 1:
        check_fence(tx, claim)
        raise Overruled(f"Turn {claim.turn.id} is to end differently.")


def check_fence(tx: Connection, claim: Claim) -> None:
    """See that a turn is still ours, in the snapshot of this transaction.

    Raises:
        Fenced: another worker owns the turn, or it is finished or deleted.
    """
    if statements.STILL_OURS.first(tx, ours(claim)) is None:
        raise _fenced(claim)


def ours(claim: Claim) -> Json:
    """The parameters of statements on a turn that is still ours."""
    return {"our_id": claim.turn.id, "our_fence": claim.turn.fence, "our_claimed_us": claim.claimed_us}


def _fenced(claim: Claim) -> Fenced:
    return Fenced(f"Turn {claim.turn.id} is not ours any more (fence {claim.turn.fence}).")
