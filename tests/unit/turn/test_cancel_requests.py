"""Hearing how the client asks a turn to end."""

import threading
from collections.abc import Callable

import pytest

from loom_worker.core.errors import Unavailable
from loom_worker.core.values.turns import CancelAction
from loom_worker.turn.control import CancelRequests


def heard(
    read: Callable[[], CancelAction | None], known: CancelAction | None = None
) -> tuple[CancelRequests, threading.Event]:
    alerted = threading.Event()
    return CancelRequests(known, alerted=alerted, read=read, is_isolated=False), alerted


def never() -> CancelAction | None:
    raise AssertionError("the database was asked without an alert")


@pytest.mark.cases(("known", "cuts"), [(None, False), ("finish", False), ("interrupt", True), ("rollback", True)])
def test_without_an_alert_the_wish_of_the_claim_holds_and_nobody_is_asked(
    known: CancelAction | None, cuts: bool
) -> None:
    cancel_requests, _ = heard(never, known)
    assert (cancel_requests.now(), cancel_requests.must_cut()) == (known, cuts)


def test_an_alert_is_looked_after_once() -> None:
    answers: list[CancelAction] = ["interrupt"]
    cancel_requests, alerted = heard(answers.pop)
    alerted.set()
    assert [cancel_requests.now(), cancel_requests.now()] == ["interrupt", "interrupt"]
    assert not cancel_requests.is_alerted


def test_an_alert_during_the_look_is_not_lost() -> None:
    seen: list[CancelAction | None] = []

    def read() -> CancelAction | None:
        if not seen:
            alerted.set()
        seen.append("finish" if not seen else "rollback")
        return seen[-1]

    cancel_requests, alerted = heard(read)
    alerted.set()
    assert [cancel_requests.now(), cancel_requests.now()] == ["finish", "rollback"]


def test_a_database_that_does_not_answer_is_asked_again() -> None:
    answers: list[CancelAction | Unavailable] = ["rollback", Unavailable("locked")]

    def read() -> CancelAction | None:
        answer = answers.pop()
        if isinstance(answer, Unavailable):
            raise answer
        return answer

    cancel_requests, alerted = heard(read, "finish")
    alerted.set()
    assert [cancel_requests.now(), cancel_requests.now()] == ["finish", "rollback"]
