"""One attempt at a delivery: take it from the outbox, send it, store what came of it."""

import logging
import random
from dataclasses import dataclass, field, replace

from loom_worker.core import crash_points, log_context, metrics
from loom_worker.core.monitor import UNMONITORED, Monitor, Work
from loom_worker.core.settings_tree import WebhookSettings
from loom_worker.core.values.ids import now_ms, now_us
from loom_worker.core.values.notifications import Delivery
from loom_worker.core.values.traces import Interval
from loom_worker.store.outbox import Outbox
from loom_worker.trace.flush import Flusher, NoTraces
from loom_worker.trace.later import attempt_part, of_attempt
from loom_worker.webhook.send import Attempt, after, send

log = logging.getLogger(__name__)

SAVE_MS = 15_000
"""How much longer than an attempt may last the outbox keeps the delivery from others: time to store the result."""


@dataclass(frozen=True, slots=True)
class Deliverer:
    """Sends deliveries of the outbox, one attempt at a time."""

    outbox: Outbox
    settings: WebhookSettings
    monitor: Monitor = UNMONITORED
    traces: Flusher | NoTraces = field(default_factory=NoTraces)
    """Is told of spans that are to be exported."""

    def deliver(self, delivery_id: str) -> None:
        """Make one attempt if it is due; the outbox says when the next one is, and the sweep sends that."""
        hold_ms = int(self.settings.timeout_s * 1000) + SAVE_MS
        delivery = self.outbox.take(delivery_id, now_ms=now_ms(), hold_ms=hold_ms)
        if delivery is None:
            return
        began_us = now_us()
        work = _work(delivery, began_ms=began_us // 1000)
        self.monitor.started(work)
        ids = {"delivery": delivery.id, "turn": delivery.turn_id, "workspace": delivery.workspace}
        span = log_context.trace_ids(delivery.trace_id, delivery.turn_id, *attempt_part(delivery, began_us))
        log_context.add({**ids, **span})
        attempt = send(
            delivery,
            secret=self.settings.secret or "",
            timeout_s=self.settings.timeout_s,
            allow_private=self.settings.allow_private,
            ports=self.settings.ports,
            now_us=began_us,
        )
        ended_us = now_us()
        metrics.WEBHOOK_DURATION.observe((ended_us - began_us) / 1e6)
        crash_points.reached("webhook.sent")
        tried = after(attempt, delivery, now_ms=now_ms(), chance=random.random())  # noqa: S311  # jitter
        told = of_attempt(tried, Interval(began_us, ended_us), error=None if attempt.is_delivered else _answer(attempt))
        self.outbox.save(tried, told and replace(told, is_exported=self.traces.exports))
        metrics.WEBHOOK_ATTEMPTS.count(tried.status)
        self.traces.added(1)
        level, why = (logging.INFO, "") if attempt.is_delivered else (logging.WARNING, f": {attempt.error}")
        extra = {"attempt": tried.attempts, "http_status": attempt.status}
        log.log(level, "webhook.%s%s", tried.status, why, extra=extra)
        self._tell(work, attempt, tried)

    def _tell(self, work: Work, attempt: Attempt, tried: Delivery) -> None:
        run_ms = now_ms() - work.entry
        answer = _answer(attempt)
        if attempt.is_delivered:
            self.monitor.succeeded(work, answer, run_ms=run_ms)
        else:
            then = "tried again later" if tried.status == "pending" else tried.status
            self.monitor.failed(work, f"{answer}; {then}", run_ms=run_ms)


def _answer(attempt: Attempt) -> str:
    """What the receiver answered. The attempt's error may quote the URL, which a client wrote."""
    return f"HTTP {attempt.status}" if attempt.status else "no response"


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
