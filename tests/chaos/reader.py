"""Reads the events of a turn or a run as they come, also from a server that is killed meanwhile."""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Protocol

from urllib3.exceptions import HTTPError

from tests.chaos.records import Read
from tests.chaos.run_records import RunEvent, RunRead

PAUSE_S = 0.2
"""Before a reader comes back."""
ENDS = ("completed", "failed", "cancelled", "incomplete")
FINAL = frozenset(f"{what}.{end}" for what in ("turn", "run") for end in ENDS)


class Streams(Protocol):
    """Where events come from."""

    @property
    def stop(self) -> Event:
        """Set once nobody wants them any more."""

    def stream(self, path: str, headers: Mapping[str, str]) -> Any:
        """A response whose body is still to come, or None if there was none."""


@dataclass
class Reader:
    """What a reader knows of a turn or a run."""

    last_id: int = 0
    text: str = ""
    """The deltas since the last ``turn.retrying`` or ``output_text.commentary``."""
    events: list[RunEvent] = field(default_factory=list)
    flaws: list[str] = field(default_factory=list)
    is_final: bool = False

    def take(self, number: int, kind: str, data: Mapping[str, Any]) -> None:
        """The next event."""
        if kind == "stream.reset":
            self.last_id, self.text = 0, ""
            return
        if number != self.last_id + 1:
            self.flaws.append(f"event {number} {kind} after event {self.last_id}")
        self.last_id = number
        self.events.append((number, kind, data))
        if kind in ("turn.retrying", "output_text.commentary"):
            self.text = ""
        self.text += data["text"] if kind == "output_text.delta" else ""
        self.is_final = kind in FINAL


def read(streams: Streams, turn_id: str) -> Read | None:
    """Read a turn until its last event; None if there was none before everything was stopped."""
    reader = Reader()
    resumed = _read(streams, f"/v1/turns/{turn_id}/events", reader)
    return Read(turn_id, reader.text, resumed, tuple(reader.flaws)) if reader.is_final else None


def read_run(streams: Streams, run_id: str) -> RunRead | None:
    """The same with a run."""
    reader = Reader()
    resumed = _read(streams, f"/v1/runs/{run_id}/events", reader)
    return RunRead(run_id, tuple(reader.events), resumed, tuple(reader.flaws)) if reader.is_final else None


def _read(streams: Streams, path: str, reader: Reader) -> int:
    """Read until the last event; how often the stream broke."""
    resumed = -1
    while not reader.is_final and not streams.stop.is_set():
        resumed += 1
        headers = {"Last-Event-ID": str(reader.last_id)} if reader.last_id else {}
        answer = streams.stream(path, headers)
        if answer is not None:
            with closing(answer):
                _follow(reader, answer)
        if not reader.is_final:
            streams.stop.wait(PAUSE_S)
    return resumed


def _follow(reader: Reader, answer: Any) -> None:
    """Take events until the stream breaks or ends."""
    if answer.status != 200:
        if answer.status not in (429, 503):
            reader.flaws.append(f"status {answer.status} after event {reader.last_id}")
        return
    try:
        for number, kind, data in _events(answer):
            reader.take(number, kind, data)
            if reader.is_final:
                return
    except (HTTPError, OSError):
        return


def _events(lines: Iterator[bytes]) -> Iterator[tuple[int, str, Any]]:
    known: dict[str, str] = {}
    for line in lines:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name:
            known[name] = value
        elif "data" in known:
            yield int(known.get("id") or 0), known["event"], json.loads(known["data"])
            known = {}
