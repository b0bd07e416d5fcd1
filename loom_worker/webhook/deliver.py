"""One attempt at a delivery: take it from the outbox, send it, store what came of it."""

import random
import time
from dataclasses import dataclass

from loom_worker.core import crash_points, metrics
from loom_worker.core.settings import WebhookSettings
from loom_worker.core.values.ids import now_ms
from loom_worker.store.outbox import Outbox
from loom_worker.webhook.schedule import after
from loom_worker.webhook.send import send

SAVE_MS = 15_000
"""How much longer than an attempt may last the outbox keeps the delivery from others: time to store the result."""


@dataclass(frozen=True, slots=True)
class Deliverer:
    """Sends deliveries of the outbox, one attempt at a time."""

    outbox: Outbox
    settings: WebhookSettings

    def deliver(self, delivery_id: str) -> None:
        """Make one attempt if it is due; the outbox says when the next one is, and the sweep sends that.

        Raises:
            Unavailable: the database did not answer.
        """
        hold_ms = int(self.settings.timeout_s * 1000) + SAVE_MS
        delivery = self.outbox.take(delivery_id, now_ms=now_ms(), hold_ms=hold_ms)
        if delivery is None:
            return
        began_s = time.perf_counter()
        attempt = send(
            delivery,
            secret=self.settings.secret or "",
            timeout_s=self.settings.timeout_s,
            allow_private=self.settings.allow_private,
            now_s=now_ms() // 1000,
        )
        metrics.WEBHOOK_DURATION.observe(time.perf_counter() - began_s)
        crash_points.reached("webhook.sent")
        tried = after(attempt, delivery, now_ms=now_ms(), chance=random.random())  # noqa: S311  # jitter
        self.outbox.save(tried)
        metrics.WEBHOOK_ATTEMPTS.count(tried.status)
