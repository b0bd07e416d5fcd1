"""A person who decides on a tool call, and asks again and again until somebody has heard it."""

import time
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
    began_s, answers = time.time(), _until_settled(clients, turn_id, call_id, job.verdict)
    if not answers or not _is_settled(answers[-1]):
        return None
    opposed = None
    if job.is_opposed:
        opposite: Verdict = "reject" if job.verdict == "approve" else "approve"
        last = next(reversed(_until_settled(clients, turn_id, call_id, opposite)), 0)
        opposed = last if _is_settled(last) else None
    return Decided(turn_id, call_id, job.verdict, began_s, answers, opposed)


def _until_settled(clients: Asker, turn_id: str, call_id: str, verdict: Verdict) -> tuple[int, ...]:
    answers: list[int] = []
    while not clients.stop.is_set():
        answer = clients.ask("POST", f"/v1/turns/{turn_id}/approvals/{call_id}", {"decision": verdict})
        answers.append(0 if answer is None else answer.status)
        if _is_settled(answers[-1]):
            break
        clients.stop.wait(AGAIN_S)
    return tuple(answers)


def _is_settled(status: int) -> bool:
    return 200 <= status < 500 and status != 429
