"""What the loop does besides restarting: the state file, the logs, and one message when all is ready or late."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from loom_worker.core.isolation.home_secrets import Secret
from loom_worker.core.settings import Settings
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.supervisor import home, logs, ports, ready, screen
from loom_worker.supervisor.decide import Row, is_failing
from loom_worker.supervisor.doctor import Doctor, Told
from loom_worker.supervisor.processes import Processes

LATE_AFTER_S = 60.0
"""After this long without being ready, what is missing is printed."""
FINDINGS_S = 10.0
"""Once everything serves, so long is waited for what is wrong with the installation, to be said with it."""
LONGEST_SLEEP_S = 5.0
LOOK_EVERY_S = 0.1
"""Between two looks while not everything serves yet."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """What clients need to know and Loom made."""

    flower: Secret
    webhook: Secret | None
    """None if it came from LOOM_WEBHOOK_SECRET."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where web and Flower listen this time."""

    port: int
    wanted_port: int
    flower_port: int
    host: str
    flower_address: str = "127.0.0.1"

    @property
    def url(self) -> str:
        """Where a client on this machine reaches the web."""
        return ports.url_of(self.host, self.port)

    @property
    def flower_url(self) -> str:
        """Where a browser on this machine reaches Flower."""
        return ports.url_of(self.flower_address, self.flower_port)


class Watcher:
    """Keeps the state file true, rotates the logs, and says once when everything is ready or late."""

    def __init__(
        self,
        settings: Settings,
        places: Places,
        processes: Processes,
        *,
        secrets: Secrets,
        began_s: float,
        say: Callable[[str], None],
    ) -> None:
        self._settings, self._places, self._processes = settings, places, processes
        self._secrets = secrets
        self._say = say
        self._began_s = began_s
        self._started = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        self._is_ready = self._is_late = False
        self._rotated_s = self._began_s
        self._written: home.State | None = None
        self._is_unwritable = False
        self._findings: Doctor | Told = Told()
        self._serves_since_s: float | None = None
        self._owes_problems = False
        self.has_served = False
        """Whether the web has answered since the start."""

    def begin(self) -> None:
        """Say in the state file that this Loom starts, for `loom status` and `loom stop`."""
        self._write_state((), self._began_s)

    def tell(self, findings: Doctor | Told) -> None:
        """Take the findings about the installation, to be shown with the ready message."""
        self._findings = findings

    def look(self, rows: Sequence[Row], now_s: float) -> float:
        """Do what is due; returns the seconds until it wants to look again."""
        self._write_state(rows, now_s)
        if now_s >= self._rotated_s + LONGEST_SLEEP_S:
            self._rotated_s = now_s
            self._processes.rotate_logs()
        if not self._is_ready:
            self._look_whether_ready()
        elif self._owes_problems and (problems := self._findings.problems()) is not None:
            self._owes_problems = False
            self._say(f"agents and tools are looked at{screen.problem_counts(problems)}")
        return LONGEST_SLEEP_S if self._is_ready else LOOK_EVERY_S

    def _write_state(self, rows: Sequence[Row], now_s: float) -> None:
        state = home.State(
            pid=os.getpid(),
            url=self._places.url,
            flower_url=self._places.flower_url,
            started=self._started,
            children={row.spec.name: row.pid for row in rows if row.pid is not None},
            failing={row.spec.name: row.deaths for row in rows if is_failing(row, now_s)},
        )
        if state == self._written:
            return
        try:
            home.write_state(self._settings.home, state)
        except OSError as error:
            if not self._is_unwritable:
                self._say(f"{self._settings.home / home.STATE} cannot be written ({error.strerror}); still trying")
            self._is_unwritable = True
            return
        self._written, self._is_unwritable = state, False

    def _look_whether_ready(self) -> None:
        waited_s = time.monotonic() - self._began_s
        missing = self._missing()
        if not missing:
            self._serves_since_s = self._serves_since_s or time.monotonic()
            is_known = self._findings.problems() is not None
            if is_known or time.monotonic() - self._serves_since_s > FINDINGS_S:
                self._is_ready, self._owes_problems = True, not is_known
                self._processes.settle()
                self._say("\n" + screen.screen(self._facts(waited_s)) + "\n")
        elif waited_s > LATE_AFTER_S and not self._is_late:
            self._is_late = True
            self._say(self._late(missing))

    def _missing(self) -> str:
        body = ready.readiness(self._places.url)
        self.has_served = self.has_served or body is not None
        if body is None:
            return f"nothing answers at {self._places.url}"
        if not body["ready"]:
            return f"{self._places.url}/readyz says: {body.get('detail', body)}"
        flower = ports.reachable(self._places.flower_address)
        return "" if ready.listens(flower, self._places.flower_port) else "Flower does not listen"

    def _late(self, missing: str) -> str:
        ends = ((name, logs.tail(self._processes.log(name), lines=5)) for name in self._children())
        parts = [f"not ready after {LATE_AFTER_S:.0f} s: {missing}", "still trying; the ends of the logs:"]
        return "\n".join([*parts, *(f"--- {name}\n{end}" for name, end in ends if end)])

    def _children(self) -> Iterable[str]:
        return self._written.children if self._written else ()

    def _facts(self, waited_s: float) -> screen.StartReport:
        return screen.StartReport(
            settings=self._settings,
            url=self._places.url,
            flower_url=self._places.flower_url,
            flower_password=self._secrets.flower,
            ready_after_s=waited_s,
            sqlite_version=sqlite3.sqlite_version_info,
            wanted_port=self._places.wanted_port,
            port=self._places.port,
            webhook_secret=self._secrets.webhook,
            problems=self._findings.problems(),
            has_stored_keys=ready.needs_key(self._places.url),
        )
