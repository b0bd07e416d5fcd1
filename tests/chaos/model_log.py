"""The log of the model server: written a line an event, read back as ModelCalls.

Requests repeat their conversation's beginning over and over, so every distinct part (message, tool, system text) is
written once and named by its number from then on: a request costs a few bytes a message, and what is read back shares
its parts, so that each needs to be looked at only once.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.asyncio_http import Log, read_log
from tests.chaos.records import ModelCall
from tests.support.messages_rules import blocks

Json = dict[str, Any]
IN_PARTS = ("system", "tools", "messages")
STILL_OPEN = float("inf")
"""``ended_s`` of a request whose end is not in the log."""


@dataclass
class Request:
    """A request under way."""

    number: int
    mark: str
    nth: int
    status: int = 0
    """0: no answer was begun."""
    fault: str = ""
    said: str = ""
    tokens: int = 0
    complaint: str | None = None
    ended_s: float | None = None
    is_complete: bool = False

    def is_whole_at(self, at_s: float) -> None:
        """Its last byte is about to be written, so that what its reader does next comes later than this."""
        self.is_complete, self.ended_s = True, at_s


@dataclass
class ModelLog:
    """Writes."""

    log: Log
    _parts: dict[str, int] = field(default_factory=dict)

    def began(self, asked: Request, body: Json, *, connection: int, at_s: float) -> None:
        """A request is there; what it says goes to the log before it is answered."""
        packed = {name: value for name, value in body.items() if name not in IN_PARTS}
        packed["system"] = self._numbers(blocks(body.get("system", [])))
        packed["tools"] = self._numbers(body.get("tools", []))
        packed["messages"] = self._numbers(body["messages"])
        line = {"began": asked.number, "mark": asked.mark, "nth": asked.nth, "connection": connection, "at_s": at_s}
        self.log.write({**line, "body": packed})

    def ended(self, asked: Request, *, at_s: float) -> None:
        """It was answered, or its client is gone."""
        self.log.write(
            {
                "ended": asked.number,
                "at_s": at_s,
                "status": asked.status,
                "fault": asked.fault,
                "said": asked.said,
                "tokens": asked.tokens,
                "is_complete": asked.is_complete,
                "complaint": asked.complaint,
            }
        )

    def closed(self, connection: int, *, at_s: float) -> None:
        """A connection is gone."""
        self.log.write({"closed": connection, "at_s": at_s})

    def _numbers(self, parts: Iterable[Json]) -> list[int]:
        return [self._number(_bare(part)) for part in parts]

    def _number(self, part: Json) -> int:
        text = json.dumps(part, separators=(",", ":"))
        number = self._parts.get(text)
        if number is None:
            number = self._parts[text] = len(self._parts) + 1
            self.log.write({"part": number, "value": part})
        return number


def _bare(part: Json) -> Json:
    """Without the mark for the provider's cache: it wanders with the conversation's end and says nothing."""
    if "role" in part:
        return {**part, "content": [_bare(block) for block in blocks(part["content"])]}
    return {name: value for name, value in part.items() if name != "cache_control"} if "cache_control" in part else part


def read(path: Path) -> tuple[ModelCall, ...]:
    """All requests, in order of arrival; equal messages, tools and system texts are the same object.

    A request without an end in the log (the server was killed, or is still at it) has ``ended_s`` infinite, status 0.
    """
    known: dict[int, Json] = {}
    begun: dict[int, Json] = {}
    ended: dict[int, Json] = {}
    closed: dict[int, float] = {}
    for line in read_log(path):
        if "part" in line:
            known[line["part"]] = line["value"]
        elif "began" in line:
            begun[line["began"]] = line
        elif "ended" in line:
            ended[line["ended"]] = line
        else:
            closed[line["closed"]] = line["at_s"]
    return tuple(
        _call(line, ended.get(number), closed.get(line["connection"]), known) for number, line in begun.items()
    )


def _call(line: Json, end: Json | None, closed_s: float | None, known: dict[int, Json]) -> ModelCall:
    over = end or vars(Request(0, "", 0)) | {"at_s": STILL_OPEN}
    return ModelCall(
        number=line["began"],
        mark=line["mark"],
        body=_unpacked(line["body"], known),
        began_s=line["at_s"],
        ended_s=over["at_s"],
        status=over["status"],
        fault=over["fault"],
        is_complete=over["is_complete"],
        complaint=over["complaint"],
        nth=line["nth"],
        said=over["said"],
        tokens=over["tokens"],
        connection_gone_s=closed_s,
    )


def _unpacked(packed: Json, known: dict[int, Json]) -> Json:
    body = {name: value for name, value in packed.items() if name not in IN_PARTS}
    return body | {name: [known[number] for number in packed[name]] for name in IN_PARTS if packed[name]}
