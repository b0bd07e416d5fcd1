"""Hearing how the client wishes a turn to end."""

import threading
from collections.abc import Callable

import pytest

from loom_worker.errors import Unavailable
from loom_worker.turn.wishes import Wishes
from loom_worker.values.turns import CancelAction


def heard(read: Callable[[], CancelAction | None], known: CancelAction | None = None) -> tuple[Wishes, threading.Event]:
    alerted = threading.Event()
    return Wishes(known, alerted=alerted, read=read, is_alone=False), alerted


def never() -> CancelAction | None:
    raise AssertionError("the database was asked without an alert")


@pytest.mark.cases(("known", "cuts"), [(None, False), ("finish", False), ("interrupt", True), ("rollback", True)])
def test_without_an_alert_the_wish_of_the_claim_holds_and_nobody_is_asked(
    known: CancelAction | None, cuts: bool
) -> None:
    wishes, _ = heard(never, known)
    assert (wishes.now(), wishes.must_cut()) == (known, cuts)


def test_an_alert_is_looked_after_once() -> None:
    answers: list[CancelAction] = ["interrupt"]
    wishes, alerted = heard(answers.pop)
    alerted.set()
    assert [wishes.now(), wishes.now()] == ["interrupt", "interrupt"]
    assert not wishes.is_alerted


def test_an_alert_during_the_look_is_not_lost() -> None:
    seen: list[CancelAction | None] = []

    def read() -> CancelAction | None:
        if not seen:
            alerted.set()
        seen.append("finish" if not seen else "rollback")
        return seen[-1]

    wishes, alerted = heard(read)
    alerted.set()
    assert [wishes.now(), wishes.now()] == ["finish", "rollback"]


def test_a_database_that_does_not_answer_is_asked_again() -> None:
    answers: list[CancelAction | Unavailable] = ["rollback", Unavailable("locked")]

    def read() -> CancelAction | None:
        answer = answers.pop()
        if isinstance(answer, Unavailable):
            raise answer
        return answer

    wishes, alerted = heard(read, "finish")
    alerted.set()
    assert [wishes.now(), wishes.now()] == ["finish", "rollback"]
