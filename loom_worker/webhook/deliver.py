"""One attempt at a delivery: take it from the outbox, send it, store what came of it."""

import logging
import random
from dataclasses import dataclass

from loom_worker.core import crash_points, log_context
from loom_worker.core.settings import WebhookSettings
from loom_worker.core.values.ids import now_ms, now_us
from loom_worker.core.values.traces import Interval
from loom_worker.store.outbox import Outbox
from loom_worker.trace.later import attempt_part, of_attempt
from loom_worker.webhook.schedule import after
from loom_worker.webhook.send import send

log = logging.getLogger(__name__)

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
        began_us = now_us()
        told = {"delivery": delivery.id, "turn": delivery.turn_id, "workspace": delivery.workspace}
        span = log_context.trace_ids(delivery.trace_id, delivery.turn_id, *attempt_part(delivery, began_us))
        log_context.add({**told, **span})
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
        level, why = (logging.INFO, "") if attempt.is_delivered else (logging.WARNING, f": {attempt.error}")
        extra = {"attempt": tried.attempts, "http_status": attempt.status}
        log.log(level, "webhook.%s%s", tried.status, why, extra=extra)
