"""A person who decides on a tool call, and asks again and again until somebody has heard it."""

import time
from collections.abc import Iterator, Mapping, Sequence
from threading import Event
from typing import Any, Literal, Protocol

from tests.chaos.records import Decided
from tests.chaos.workload import Job

Verdict = Literal["approve", "reject"]

THINK_S = 0.6
"""What a person takes to decide; meanwhile anything may die."""
LOOK_S = 0.15
"""Between two looks whether a turn waits for a person."""
AGAIN_S = 0.1


class Asker(Protocol):
    """Sends requests, see client.py."""

    stop: Event

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """A response, or None if there was none."""


def decide(clients: Asker, turn_id: str, call_id: str, job: Job) -> Decided | None:
    """Send the job's verdict until it is answered 200 or 4xx; None if the clients were stopped first."""
    clients.stop.wait(THINK_S)
    path, began_s = f"/v1/turns/{turn_id}/approvals/{call_id}", time.time()
    answers, opposed = until_settled(clients, path, {"decision": job.verdict}), None
    if answers and job.is_opposed:
        opposite: Verdict = "reject" if job.verdict == "approve" else "approve"
        opposed = next(reversed(until_settled(clients, path, {"decision": opposite})), None)
    return Decided(turn_id, call_id, job.verdict, began_s, answers, opposed) if answers else None


def until_settled(clients: Asker, path: str, body: Mapping[str, str]) -> tuple[int, ...]:
    """The answers up to the one that settles it, 0 for none; empty if everything was stopped first."""
    answers: list[int] = []
    while not clients.stop.is_set():
        answer = clients.ask("POST", path, body)
        answers.append(0 if answer is None else answer.status)
        if 200 <= answers[-1] < 500 and answers[-1] != 429:
            return tuple(answers)
        clients.stop.wait(AGAIN_S)
    return ()


def flaws_of(answers: Sequence[int], opposed: int | None, *, may_have_ended: bool) -> Iterator[str]:
    """What is wrong with what somebody who decided was answered."""
    *before, last = answers
    if last not in (200, 409):
        yield f"was decided on, and the answer was {last}"
    if last == 409 and not before and not may_have_ended:
        yield "was decided on for the first time, and the answer was 409"
    if opposed not in (None, 409):
        yield f"was decided on twice, and the second answer was {opposed}"
