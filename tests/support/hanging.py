"""A model that answers some questions only when it is let."""

import threading
from typing import Any

from tests.support.messages_server import Behaviour, Hang, echo
from tests.support.messages_wire import answer, sse

HALF = sse(answer("cut off in the middle"))


class Hanging:
    """Echoes; an answer to ``Wait.`` stops half-way until released, and is whole from then on."""

    def __init__(self) -> None:
        self.release = threading.Event()

    def __call__(self, body: dict[str, Any]) -> Behaviour:
        if "Wait." in str(body["messages"][-1]) and not self.release.is_set():
            return Hang(self.release, HALF, after_bytes=len(HALF) // 2)
        return echo(body)
