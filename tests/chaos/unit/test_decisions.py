"""A person's decision, as the client of the harness sends it."""

from dataclasses import dataclass, field
from threading import Event
from typing import Any

from tests.chaos.decisions import decide
from tests.chaos.workload import Job


class Instant(Event):
    """Nobody waits in a test."""

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


@dataclass
class Answer:
    status: int


@dataclass
class Answers:
    """Gives answers in turn, None for a lost one; whoever asks for more is stopped."""

    statuses: list[int | None]
    asked: list[tuple[str, Any]] = field(default_factory=list)
    stop: Event = field(default_factory=Instant)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        self.asked.append((f"{method} {path}", body["decision"]))
        status = self.statuses.pop(0)
        if not self.statuses:
            self.stop.set()
        return None if status is None else Answer(status)


def job(**fields: Any) -> Job:
    return Job("T00001", "tools=refund", **fields)


def test_a_decision_is_sent_until_it_is_heard() -> None:
    clients = Answers([None, 503, 500, 429, 200, 200])
    found = decide(clients, "turn_1", "call_1", job())
    assert found is not None
    assert (found.answers, found.opposed) == ((0, 503, 500, 429, 200), None)
    assert set(clients.asked) == {("POST /v1/turns/turn_1/approvals/call_1", "approve")}


def test_the_opposite_is_sent_once_the_first_word_was_heard() -> None:
    clients = Answers([409, None, 409, 200])
    found = decide(clients, "turn_1", "call_1", job(verdict="reject", is_opposed=True))
    assert found is not None
    assert (found.verdict, found.answers, found.opposed) == ("reject", (409,), 409)
    assert [verdict for _, verdict in clients.asked] == ["reject", "approve", "approve"]


def test_a_decision_that_nobody_heard_is_none() -> None:
    assert decide(Answers([None, 503]), "turn_1", "call_1", job()) is None


def test_an_opposite_word_that_nobody_heard_is_none() -> None:
    found = decide(Answers([200, 503]), "turn_1", "call_1", job(is_opposed=True))
    assert found is not None
    assert found.opposed is None
