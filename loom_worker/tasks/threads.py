"""How many of a worker's threads are at work, by Celery's own books."""


def busy() -> int:
    """Tasks that run in this process now, of all its queues; those only fetched do not count."""
    from celery.worker import state  # only workers load it: the web shares wiring, and has no use for a worker's parts

    return len(state.active_requests)
