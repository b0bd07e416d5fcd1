"""A server that speaks as much of Loom's HTTP API as the commands use, for one turn."""

import json
from dataclasses import dataclass, field
from typing import Any

from tests.support.http_server import Exchange

TURN = "turn_1"


@dataclass
class FakeLoom:
    """Answers with what it was given, and keeps what it was asked."""

    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    turn: dict[str, Any] = field(default_factory=dict)
    pages: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, str, str | None, Any]] = field(default_factory=list)

    def __call__(self, exchange: Exchange) -> None:
        body = json.loads(exchange.body() or b"null")
        self.asked.append((exchange.command, exchange.path, exchange.headers.get("Authorization"), body))
        path = exchange.path.partition("?")[0]
        if exchange.command == "POST" and path.endswith("/turns"):
            exchange.answer(202, json.dumps({"id": TURN, "status": "queued"}).encode())
        elif path == f"/v1/turns/{TURN}/events":
            self._stream(exchange)
        elif path == f"/v1/turns/{TURN}":
            exchange.answer(200, json.dumps({"id": TURN, **self.turn}).encode())
        elif path in self.pages:
            exchange.answer(200, json.dumps(self.pages[path]).encode())
        else:
            exchange.answer(404, b'{"title": "not-found", "detail": "no such thing"}')

    def _stream(self, exchange: Exchange) -> None:
        exchange.begin_chunked()
        for number, (kind, data) in enumerate(self.events, start=1):
            comment = f": {data.get('text')}\n\n"
            event = f"id: {number}\nevent: {kind}\ndata: {json.dumps(data)}\n\n"
            exchange.chunk((comment if kind == ":" else event).encode())
        exchange.chunk(b"")
