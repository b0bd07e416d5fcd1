"""All that a Redis is told while a test runs: each command with its arguments, also those of scripts.

with RedisMonitor(url) as monitor:
    ...  # something uses that Redis
monitor.commands
"""

import re
import secrets
import threading
from typing import Any, Self

import redis

_ARGUMENT = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(x[0-9a-f]{2}|.)")
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b"}


class RedisMonitor:
    """Listens from ``with`` on."""

    def __init__(self, url: str) -> None:
        self.commands: list[list[str]] = []
        """Complete once the ``with`` has ended."""
        self._client = redis.Redis.from_url(url, socket_timeout=60)
        self._end = secrets.token_hex(16)
        self._connection: Any = None
        self._thread = threading.Thread(target=self._listen, name="redis-monitor", daemon=True)

    def __enter__(self) -> Self:
        self._connection = self._client.connection_pool.get_connection()
        self._connection.send_command("MONITOR")
        assert self._connection.read_response() in (b"OK", "OK")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.echo(self._end)
        self._thread.join()
        self._connection.disconnect()
        self._client.close()

    def _listen(self) -> None:
        while True:
            line = self._connection.read_response().decode("utf-8", "replace")
            command = [_plain(found) for found in _ARGUMENT.findall(line)]
            if self._end in command:
                return
            self.commands.append(command)


def _plain(argument: str) -> str:
    def replaced(found: re.Match[str]) -> str:
        sign = found[1]
        return chr(int(sign[1:], 16)) if len(sign) == 3 else _LETTERS.get(sign, sign)

    return _ESCAPED.sub(replaced, argument)
