"""Tasks of the queue ``webhook``."""

import random

from loom_worker import crash_points, wiring
from loom_worker.tasks.app import app
from loom_worker.values.ids import now_ms
from loom_worker.webhook.schedule import after
from loom_worker.webhook.send import send


@app.task(name="loom.webhook.deliver")
def deliver(delivery_id: str) -> None:
    """One attempt; the next one, if needed, is due by the outbox, and the sweep sends it."""
    mail = wiring.mail()
    delivery = mail.outbox.take(delivery_id, now_ms=now_ms(), hold_ms=int(mail.settings.timeout_s * 1000) + 15_000)
    if delivery is not None:
        attempt = send(
            delivery,
            secret=mail.settings.secret or "",
            timeout_s=mail.settings.timeout_s,
            allow_private=mail.settings.allow_private,
            now_s=now_ms() // 1000,
        )
        crash_points.reached("webhook.sent")
        mail.outbox.save(after(attempt, delivery, now_ms=now_ms(), chance=random.random()))  # noqa: S311  # jitter
