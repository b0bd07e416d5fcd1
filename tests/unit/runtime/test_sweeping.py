import os
import signal
import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import create_autospec

import pytest
from celery import Celery
from celery.beat import Scheduler, Service

from loom_worker.runtime.sweeping import TIDY_PAUSE_S, ExpiringStores, stop_for_good
from loom_worker.service.users import UserDeletions
from loom_worker.store.agent_errors import AgentErrors
from loom_worker.store.agent_messages import AgentMessages
from loom_worker.store.retention import Retention
from loom_worker.tools.files import Files
from loom_worker.tools.references import References


@pytest.fixture
def stores() -> Any:
    """With as many large results to remove as ``references.tidy.return_value`` says."""
    references, files = (create_autospec(kind, instance=True) for kind in (References, Files))
    files.tidy.return_value = 0
    parts = (create_autospec(kind, instance=True) for kind in (Retention, UserDeletions))
    errors, messages = (create_autospec(kind, instance=True) for kind in (AgentErrors, AgentMessages))
    return ExpiringStores(references, files, errors, messages, 1, *parts)


def test_large_results_are_looked_through_with_each_sweep_while_some_can_go_and_seldom_otherwise(
    stores: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    stores.references.tidy.return_value = 3
    for _ in range(4):
        stores.remove_expired(1)
    assert stores.references.tidy.call_count == 4
    stores.references.tidy.return_value = 0
    for _ in range(4):
        stores.remove_expired(1)
    assert stores.references.tidy.call_count == 5
    assert stores.retention.once.call_count == 8
    now_s += TIDY_PAUSE_S
    stores.remove_expired(1)
    assert stores.references.tidy.call_count == 6


@pytest.fixture
def own_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("own_signals")
def test_beat_ends_also_where_what_its_signal_raises_is_lost() -> None:
    service = Service(Celery(set_as_current=False), scheduler_cls=Scheduler)
    stop_for_good(None, service)
    with pytest.raises(SystemExit):
        os.kill(os.getpid(), signal.SIGTERM)
    service.start()  # would sleep for minutes
    assert service._is_stopped.is_set()
