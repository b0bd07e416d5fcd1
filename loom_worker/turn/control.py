"""Whether a turn is still this worker's, and whether its client has asked it to end."""

import logging
import threading
import time
from collections.abc import Callable

from loom_worker.core.errors import Unavailable
from loom_worker.core.values.turns import CancelAction, Claim
from loom_worker.core.values.webhooks import Webhook
from loom_worker.lanes.lease_renewer import HeldLease
from loom_worker.store.claims import Claims

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.5
"""The database is asked this often while a lease is in doubt, as often as a lease is renewed otherwise."""


class RunClock:
    """Milliseconds that a turn has run, over all its owners, the pauses before it asks its model again included."""

    def __init__(self, ran_before_ms: int) -> None:
        self._began_s = time.monotonic() - ran_before_ms / 1000

    def ms(self) -> int:
        """As of now."""
        return max(0, int((time.monotonic() - self._began_s) * 1000))

    def add(self, span_ms: int) -> None:
        """Count a pause that nobody sits through; a negative one is not to count although somebody does."""
        self._began_s -= span_ms / 1000


class Ownership:
    """One owner's view of one turn. The database is asked only while the lease could not be renewed in time."""

    def __init__(self, held: HeldLease, claims: Claims, claim: Claim, *, lease_s: float) -> None:
        self._hold = held
        self._claims = claims
        self._claim = claim
        self._lease_s = lease_s
        self._look_at_s = float("-inf")

    def is_lost(self) -> bool:
        """True once another owns the turn, as far as Redis or the database can be asked."""
        if self._hold.is_in_doubt(self._lease_s) and not self._hold.lost.is_set():
            self._look()
        return self._hold.lost.is_set()

    def is_confirmed(self) -> bool:
        """Ask the database: False once another owns the turn, or its session is deleted.

        Raises:
            Unavailable: the database did not answer.
        """
        return self._claims.is_ours(self._claim)

    def _look(self) -> None:
        now_s = time.monotonic()
        if now_s < self._look_at_s:
            return
        self._look_at_s = now_s + LOOK_EVERY_S
        try:
            if self._claims.is_ours(self._claim):
                self._hold.confirmed_s = now_s
            else:
                self._hold.lost.set()
        except Unavailable as error:  # nobody can claim the turn either; each of our writes names the fence anyway
            log.warning("not known whether the turn is still ours: %s", error)


class TurnWebhook:
    """The webhook of one turn, which a client may set and take away while the turn runs."""

    def __init__(self, claims: Claims, claim: Claim) -> None:
        self.known = claim.turn.webhook
        """As it was at the last look."""
        self._claims = claims
        self._claim = claim

    def look(self) -> Webhook | None:
        """Ask the database; while it does not answer, what is known holds: an end with another one is refused."""
        try:
            self.known = self._claims.webhook(self._claim)
        except Unavailable as error:
            log.warning("the webhook cannot be read: %s", error)
        return self.known


LOOK_EVERY_S = 0.5
"""Who has no keeper to be alerted by looks into the database this often, as often as a keeper beats."""


class CancelRequests:
    """One owner's ear for one turn. The database is asked only after an alert, or, without a keeper, on the clock."""

    def __init__(
        self,
        known: CancelAction | None,
        *,
        alerted: threading.Event,
        read: Callable[[], CancelAction | None],
        is_isolated: bool,
    ) -> None:
        """Begin to listen.

        Args:
            known: the request that came with the claim.
            alerted: set by the keeper when the turn's row has changed.
            read: asks the database.
            is_alone: True where no keeper renews the lease, so that nobody sets ``alerted``.
        """
        self.known = known
        """The request as it was at the last look."""
        self._alerted = alerted
        self._read = read
        self._is_alone = is_isolated
        self._looked_s = time.monotonic()

    def now(self) -> CancelAction | None:
        """The request as far as it is known, None as long as there is none."""
        if self._alerted.is_set() or (self._is_alone and time.monotonic() - self._looked_s >= LOOK_EVERY_S):
            self._alerted.clear()  # before the look: an alert that comes meanwhile is another one
            self._looked_s = time.monotonic()
            self._look()
        return self.known

    def must_cut(self) -> bool:
        """True if the current reply of the model is to be interrupted."""
        return self.now() in ("interrupt", "rollback")

    def are_missed(self) -> None:
        """The database has a request that this worker did not know: look at once."""
        self._alerted.set()

    @property
    def is_alerted(self) -> bool:
        """True if the row has changed since the last look."""
        return self._alerted.is_set()

    def _look(self) -> None:
        try:
            self.known = self._read()
        except Unavailable as error:  # the turn goes on; should it end before the next look, its end is refused
            log.warning("the cancel requests cannot be read: %s", error)
            self._alerted.set()
