"""One attempt at a delivery: take it from the outbox, send it, store what came of it."""

import random
from dataclasses import dataclass

from loom_worker.core import crash_points
from loom_worker.core.monitor import UNMONITORED, Monitor, Work
from loom_worker.core.settings import WebhookSettings
from loom_worker.core.values.ids import now_ms, now_us
from loom_worker.core.values.notifications import Delivery
from loom_worker.core.values.traces import Interval
from loom_worker.store.outbox import Outbox
from loom_worker.trace.later import of_attempt
from loom_worker.webhook.schedule import Attempt, after
from loom_worker.webhook.send import send

SAVE_MS = 15_000
"""How much longer than an attempt may last the outbox keeps the delivery from others: time to store the result."""


@dataclass(frozen=True, slots=True)
class Deliverer:
    """Sends deliveries of the outbox, one attempt at a time."""

    outbox: Outbox
    settings: WebhookSettings
    monitor: Monitor = UNMONITORED

    def deliver(self, delivery_id: str) -> None:
        """Make one attempt if it is due; the outbox says when the next one is, and the sweep sends that.

        Raises:
            Unavailable: the database did not answer.
        """
        hold_ms = int(self.settings.timeout_s * 1000) + SAVE_MS
        delivery = self.outbox.take(delivery_id, now_ms=now_ms(), hold_ms=hold_ms)
        if delivery is None:
            return
        work, began_us = _work(delivery, began_ms=now_ms()), now_us()
        self.monitor.started(work)
        attempt = send(
            delivery,
            secret=self.settings.secret or "",
            timeout_s=self.settings.timeout_s,
            allow_private=self.settings.allow_private,
            now_us=began_us,
        )
        crash_points.reached("webhook.sent")
        tried = after(attempt, delivery, now_ms=now_ms(), chance=random.random())  # noqa: S311  # jitter
        self.outbox.save(tried, of_attempt(tried, Interval(began_us, now_us()), error=attempt.error))
        self._tell(work, attempt, tried)

    def _tell(self, work: Work, attempt: Attempt, tried: Delivery) -> None:
        """Report the attempt. Its error may quote the URL, which a client wrote: that is for its own lists."""
        run_ms = now_ms() - work.entry
        answer = f"HTTP {attempt.status}" if attempt.status else "no response"
        if attempt.is_delivered:
            self.monitor.succeeded(work, answer, run_ms=run_ms)
        else:
            then = "tried again later" if tried.status == "pending" else tried.status
            self.monitor.failed(work, f"{answer}; {then}", run_ms=run_ms)


def _work(delivery: Delivery, *, began_ms: int) -> Work:
    """One attempt: each of them has an outcome of its own; their number begins anew when a delivery is replayed."""
    return Work(
        id=f"{delivery.id}:{began_ms}",
        kind="webhook",
        ids=(delivery.id, delivery.turn_id),
        entry=began_ms,
        accepted_ms=began_ms if delivery.attempts else delivery.created_ms,
        started_ms=began_ms,
        part_of=delivery.turn_id,
        names={"attempt": str(delivery.attempts + 1)},
    )
