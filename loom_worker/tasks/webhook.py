"""Tasks of the queue ``webhook``."""

from loom_worker.tasks import worker
from loom_worker.tasks.app import app


@app.task(name="loom.webhook.deliver")
def deliver(delivery_id: str) -> None:
    """One attempt; the next one, if needed, is due by the outbox, and the sweep sends it."""
    worker.current().webhooks.deliver(delivery_id)
