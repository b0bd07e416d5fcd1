"""The clients: each session has one of its own, which knows in what order its turns were accepted."""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import urllib3
from urllib3.exceptions import HTTPError

from tests.chaos.decisions import LOOK_S, decide
from tests.chaos.reader import read
from tests.chaos.records import Decided, Polled, Read, Submitted
from tests.chaos.workload import Job, Sessions

FINAL = frozenset({"completed", "failed", "cancelled", "incomplete"})
POLL_S = 2
"""Of a long poll."""
UNPAID = b"budget-exceeded"
"""In a 429: trying again is of no use."""
PAUSE_S = 0.1
"""Before a request is tried again."""
TIMEOUT = urllib3.Timeout(connect=2.0, read=12.0)
LONG = urllib3.Timeout(connect=2.0, read=20.0)
"""A stream of events says something every 15 s."""


@dataclass
class Log:
    """What all clients together have seen; lists only grow."""

    submitted: list[Submitted] = field(default_factory=list)
    polled: list[Polled] = field(default_factory=list)
    decided: list[Decided] = field(default_factory=list)
    read: list[Read] = field(default_factory=list)
    unpaid: int = 0
    """Turns that were not accepted, because a budget cannot pay for them."""
    unpaid_runs: int = 0
    """The same of runs of workflows."""
    retries: int = 0
    """Requests that were tried again, for whatever reason."""
    abandoned: int = 0
    """Turns without a key whose answer was lost: nobody knows whether they were accepted."""
    refused: list[str] = field(default_factory=list)
    """Answers that no well-meant request should get."""

    runs_done: int = 0
    """Runs of workflows with which their clients are through."""

    @property
    def lost(self) -> int:
        """Turns whose end nobody will see."""
        return self.abandoned + self.unpaid


class Clients:
    """All sessions' clients."""

    def __init__(self, url: str, hook_url: str, *, depth: int = 6) -> None:
        """Args: depth: unfinished turns that a session has at most."""
        self.log = Log()
        self.url, self.hook_url, self.depth = url, hook_url, depth
        self.stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._pool = urllib3.PoolManager(retries=False, maxsize=128)

    def begin(self, sessions: Sessions) -> None:
        """Start submitting."""
        for session, jobs in sessions.items():
            self.add(session, Talker(self, session, deque(jobs)).run)

    def add(self, name: str, work: Callable[[], None]) -> None:
        """One client more, in a thread of its own."""
        self._threads.append(threading.Thread(target=work, name=name, daemon=True))
        self._threads[-1].start()

    def wait(self, timeout_s: float) -> bool:
        """Until every turn is polled to its end; False if that took too long, and then they stop."""
        deadline_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        is_done = not any(thread.is_alive() for thread in self._threads)
        self.stop.set()
        for thread in self._threads:
            thread.join(30)
        self._pool.clear()
        return is_done

    def stream(self, path: str, headers: Mapping[str, str]) -> Any:
        """A response whose body is still to come, or None if there was none."""
        try:
            return self._pool.request("GET", self.url + path, headers=headers, timeout=LONG, preload_content=False)
        except HTTPError:
            return None

    def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """A response, or None if there was none."""
        try:
            return self._pool.request(method, self.url + path, json=body, headers=headers, timeout=TIMEOUT)
        except HTTPError:
            return None

    def until_answered(self, method: str, path: str, body: Any = None, headers: Any = None) -> Any:
        """The answer, once there is one that says something; None if everything was stopped first."""
        while not self.stop.is_set():
            answer = self.ask(method, path, body, headers)
            if answer is not None and (answer.status not in (429, 503) or is_unpaid(answer)):
                return answer
            self.pause()
        return None

    def refused(self, what: str, answer: Any) -> None:
        """Write down an answer that no well-meant request should get."""
        self.log.refused.append(f"{what}: {answer.status} {answer.data[:200]!r}")

    def pause(self) -> None:
        """Wait before something is tried again."""
        self.log.retries += 1
        self.stop.wait(PAUSE_S)


def is_unpaid(answer: Any) -> bool:
    """True if a budget cannot pay for what was asked."""
    return answer.status == 429 and UNPAID in answer.data


class Talker:
    """One session's client."""

    def __init__(self, clients: Clients, session: str, jobs: "deque[Job]") -> None:
        self._clients, self._log = clients, clients.log
        self._session, self._jobs = session, jobs
        self._pending: deque[str] = deque()
        self._asking: dict[str, Job] = {}
        self._to_read: set[str] = set()
        self._accepted = 0

    def run(self) -> None:
        """Submit and poll until all is done or the clients are told to stop."""
        if self._jobs:
            self._open(self._jobs[0])
        while (self._jobs or self._pending) and not self._clients.stop.is_set():
            while self._jobs and len(self._pending) < self._clients.depth and not self._clients.stop.is_set():
                self._submit(self._jobs.popleft())
            if self._pending:
                self._poll(self._pending[0])

    def _open(self, job: Job) -> None:
        """Make the session, where its first turn would not make it as it should be."""
        rules = {"agent": job.agent} if job.agent else {}
        body = {**rules, **({"budget": {"tokens": job.session_tokens}} if job.session_tokens else {})}
        if not body:
            return
        answer = self._clients.until_answered("POST", "/v1/sessions", {"id": self._session, **body})
        if answer is not None and answer.status not in (201, 409):  # 409: by a request whose answer was lost
            self._clients.refused("POST session", answer)

    def _submit(self, job: Job) -> None:
        body, key = self._body(job), f"key-{job.mark}" if job.has_key else None
        turn_id = self._post(body, key)
        if job.double_texting:
            self._replaced(job.double_texting)
        if turn_id is None:
            return
        accepted_s, answers = time.time(), [turn_id]
        if job.is_sent_twice:
            answers += filter(None, [self._post(body, key)])
        sent = Submitted(
            mark=job.mark,
            turn_id=turn_id,
            session=self._session,
            at_s=accepted_s,
            order=self._accepted,
            key=key,
            answers=tuple(answers),
            has_webhook=bool(job.hook),
            cancel_actions=self._cancelled(turn_id, job),
            may_fail=job.may_fail,
            asks_person=job.asks_person,
        )
        if job.asks_person:
            self._asking[turn_id] = job
        if job.is_read:
            self._to_read.add(turn_id)
        self._log.submitted.append(sent)
        self._accepted += 1
        self._pending.append(turn_id)

    def _body(self, job: Job) -> dict[str, Any]:
        body: dict[str, Any] = {"input": job.input}
        if job.hook:
            body["webhook"] = {"url": f"{self._clients.hook_url}/{job.hook}/{job.mark}"}
        if job.max_attempts:
            body["max_attempts"] = job.max_attempts
        if job.double_texting:
            body["double_texting"] = job.double_texting
        if job.turn_tokens:
            body["budget"] = {"tokens": job.turn_tokens}
        return body

    def _replaced(self, cancel_action: Any) -> None:
        """Any of the turns before it that had not ended may be the one that was overruled."""
        for place, sent in enumerate(self._log.submitted):
            if sent.turn_id in self._pending:
                self._log.submitted[place] = replace(sent, cancel_actions=(*sent.cancel_actions, cancel_action))

    def _post(self, body: dict[str, Any], key: str | None) -> str | None:
        """Submit until there is an answer; without a key once, save where the answer says that nothing was accepted."""
        headers = {"Idempotency-Key": key} if key else {}
        while not self._clients.stop.is_set():
            answer = self._clients.ask("POST", f"/v1/sessions/{self._session}/turns", body, headers)
            if answer is not None and answer.status in (200, 202):
                turn_id: str = json.loads(answer.data)["id"]
                return turn_id
            if answer is not None and is_unpaid(answer):
                self._log.unpaid += 1
                return None
            if answer is not None and answer.status not in (429, 503):
                self._clients.refused("POST turn", answer)
                if answer.status < 500:
                    return None
            if answer is None and key is None:
                self._log.abandoned += 1
                return None
            self._clients.pause()
        return None

    def _cancelled(self, turn_id: str, job: Job) -> tuple[Any, ...]:
        if not job.cancel_action:
            return ()
        self._clients.stop.wait(job.cancel_after_s)
        path, body = f"/v1/turns/{turn_id}/cancel", {"action": job.cancel_action}
        answer = self._clients.until_answered("POST", path, body)
        return (job.cancel_action,) if answer is not None and answer.status == 202 else ()  # or it had ended before

    def _poll(self, turn_id: str) -> None:
        if turn_id in self._to_read:
            self._to_read.remove(turn_id)
            self._log.read += filter(None, [read(self._clients, turn_id)])
        wait_s = 0 if turn_id in self._asking else POLL_S  # a long poll ends with the turn, not with a question
        answer = self._clients.ask("GET", f"/v1/turns/{turn_id}?wait={wait_s}")
        if answer is None or answer.status == 503:
            self._clients.pause()
            return
        if answer.status != 200:
            self._clients.refused(f"GET {turn_id}", answer)
            self._pending.popleft()
            return
        turn = json.loads(answer.data)
        if turn["status"] in FINAL:
            self._log.polled.append(Polled(turn_id, answer.data, time.time()))
            self._pending.popleft()
        elif turn_id in self._asking:
            self._decide(turn)

    def _decide(self, turn: dict[str, Any]) -> None:
        job = self._asking[turn["id"]]
        waiting = [call["id"] for call in turn["tool_calls"] if call["approval"] == "waiting"]
        for call_id in waiting:
            found = decide(self._clients, turn["id"], call_id, job)
            self._log.decided += filter(None, [found])
        if not waiting:
            self._clients.stop.wait(LOOK_S)
