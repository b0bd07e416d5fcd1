from celery.worker import state

from loom_worker.tasks.worker import CeleryThreads


class Request:
    """As much of Celery's as its books look at."""

    name = "loom.turn.run"
    id = "1"


def test_a_task_is_at_work_from_its_start_to_its_end_and_not_while_it_is_only_fetched() -> None:
    threads, request = CeleryThreads(4), Request()
    before = threads.busy()
    state.task_reserved(request)
    assert threads.busy() == before
    state.task_accepted(request)
    assert threads.busy() == before + 1
    state.task_ready(request)
    assert threads.busy() == before
