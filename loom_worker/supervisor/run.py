"""The supervisor's loop: look, decide, do, sleep until a signal or the next thing due."""

import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FrameType, TracebackType
from typing import Self

from loom_worker.supervisor import logs
from loom_worker.supervisor.decide import (
    DEATHS_TOO_MANY,
    LONGEST_PAUSE_S,
    STEADY_S,
    Action,
    Goal,
    Row,
    Spec,
    decide,
    died,
    is_failing,
    next_look_s,
)
from loom_worker.supervisor.health_check import Rounds
from loom_worker.supervisor.processes import Processes
from loom_worker.supervisor.watcher import LONGEST_SLEEP_S, Watcher

STOPS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


class Supervisor:
    """Keeps the processes of a table running until a signal, then stops them in order."""

    def __init__(
        self,
        specs: Sequence[Spec],
        processes: Processes,
        *,
        is_open: Callable[[], bool],
        onlooker: Watcher,
        rounds: Rounds,
        say: Callable[[str], None],
    ) -> None:
        self._rows = {spec.name: Row(spec) for spec in specs}
        self._processes = processes
        self._is_open = is_open
        self._onlooker = onlooker
        self._rounds = rounds
        self._say = say
        self._goal: Goal = "up"
        self._given_up: str | None = None
        self._failing: set[str] = set()

    def run(self) -> int:
        """Return when everything has ended: 0 after a stop that was asked for, 1 if nobody could ever be served."""
        with SignalPipe() as signals:
            while True:
                now_s = time.monotonic()
                self._reap(now_s)
                self._examine(now_s)
                self._act(now_s)
                self._tell_failing(now_s)
                if self._goal != "up" and not any(row.pid for row in self._rows.values()):
                    return self._end()
                received = signals.wait(self._sleep_s(now_s))
                self._heed(received)

    def _reap(self, now_s: float) -> None:
        for name, status in self._processes.ended().items():
            row = self._rows[name]
            self._processes.note(name, f"ended ({how(status)})")
            if self._goal == "up":
                self._rows[name] = row = died(row, now_s)
                self._say(f"{name} ended ({how(status)}); restarting in {row.start_at_s - now_s:.1f} s")
            else:
                self._rows[name] = replace(row, pid=None)

    def _examine(self, now_s: float) -> None:
        if self._goal != "up":
            return
        for finding in self._rounds.make(tuple(self._rows.values()), now_s):
            self._rows[finding.name] = replace(self._rows[finding.name], remedy=finding.remedy)
            self._say(f"{finding.name} {finding.why}; restarting it")

    def _act(self, now_s: float) -> None:
        rows = tuple(self._rows.values())
        is_open = any(row.pid is None for row in rows) and self._is_open()
        has_served = self._onlooker.has_served
        for action in decide(rows, goal=self._goal, now_s=now_s, is_open=is_open, has_served=has_served):
            self._do(action, now_s)

    def _do(self, action: Action, now_s: float) -> None:
        row = self._rows[action.name]
        match action.verb:
            case "start":
                self._rows[action.name] = self._started(row, now_s)
            case "ask":
                self._processes.ask(action.name)
                self._rows[action.name] = replace(row, asked_at_s=now_s)
            case "kill":
                self._processes.kill(action.name)
                self._rows[action.name] = replace(row, is_killed=True)
            case "give_up":
                self._given_up = action.name
                self._goal = "down"
                self._act(now_s)

    def _started(self, row: Row, now_s: float) -> Row:
        name = row.spec.name
        try:
            pid = self._processes.start(row.spec)
        except OSError as error:  # no memory, no process or no descriptor is left: later, perhaps
            row = died(row, now_s)
            self._say(f"{name} cannot be started ({error.strerror}); trying again in {row.start_at_s - now_s:.1f} s")
            return row
        if name in self._processes.unlogged:
            self._say(f"{self._processes.log(name)} cannot be written; the output of {name} is lost until it restarts")
        return replace(row, pid=pid, started_at_s=now_s)

    def _tell_failing(self, now_s: float) -> None:
        failing = {name for name, row in self._rows.items() if self._goal == "up" and is_failing(row, now_s)}
        for name in sorted(failing - self._failing):
            log = self._processes.log(name)
            self._say(
                f"{name} DOES NOT STAY UP: it ended {DEATHS_TOO_MANY} times in a row. It is started again after pauses"
                f" that grow to {LONGEST_PAUSE_S:.0f} s; all else goes on. The end of {log}:\n{logs.tail(log)}"
            )
        for name in sorted(self._failing - failing):
            if self._goal == "up":
                self._say(f"{name} has stayed up for {STEADY_S:.0f} s again")
        self._failing = failing

    def _sleep_s(self, now_s: float) -> float:
        rows = tuple(self._rows.values())
        waits = [LONGEST_SLEEP_S]
        due_s = next_look_s(rows, goal=self._goal)
        if due_s is not None:
            # A start that is due but held back waits for the foundation: look for it often, without spinning.
            waits.append(max(due_s - now_s, 0.02))
        if self._goal == "up":
            waits += [self._onlooker.look(rows, now_s), self._rounds.due_s - now_s]
        return min(waits)

    def _heed(self, received: Sequence[int]) -> None:
        if not STOPS.intersection(received):
            return
        if self._goal == "up":
            self._goal = "down"
            self._say("stopping (Ctrl-C again: at once)")
        elif signal.SIGINT in received:
            self._goal = "dead"
            self._say("killing all that still runs")

    def _end(self) -> int:
        if self._given_up is None:
            self._say("stopped; nothing is left running")
            return 0
        log = self._processes.log(self._given_up)
        self._say(f"{self._given_up} ended {DEATHS_TOO_MANY} times and never served, so everything was stopped.")
        self._say(f"The end of {log}:\n{logs.tail(log)}")
        return 1


def how(status: int) -> str:
    """An exit status in words."""
    if status >= 0:
        return f"exit code {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


HEARD = (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SignalPipe:
    """Within it, the signals of HEARD do nothing but end ``wait``; only the main thread can hold it."""

    def __enter__(self) -> Self:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._reader, selectors.EVENT_READ)
        self._old_handlers = {number: signal.signal(number, _note) for number in HEARD}
        # A full socket loses a byte but not the wake-up: the loop looks at every child at each turn.
        self._old_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(self._old_fd)
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        self._selector.close()
        self._reader.close()
        self._writer.close()

    def wait(self, timeout_s: float) -> list[int]:
        """Sleep at most ``timeout_s``; the numbers of the signals that came, oldest first."""
        if not self._selector.select(max(timeout_s, 0.0)):
            return []
        return list(os.read(self._reader.fileno(), 4096))


def _note(_number: int, _frame: FrameType | None) -> None:
    """Let the wake-up descriptor speak; without a handler the signal would be ignored or deadly."""
