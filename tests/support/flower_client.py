"""Flower as its reader sees it: asked over HTTP with the password of a home."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import urllib3

Json = dict[str, Any]
ENDED = frozenset({"SUCCESS", "FAILURE", "REVOKED"})


class FlowerClient:
    """The Flower at ``url``, for ``with``."""

    def __init__(self, url: str, home: Path) -> None:
        password = (home / "flower.password").read_text().strip()
        self.url = url
        # No connection is kept: one that is open would be waited for when Flower stops.
        headers = {**urllib3.make_headers(basic_auth=f"loom:{password}"), "Connection": "close"}
        self._pool = urllib3.PoolManager(retries=False, headers=headers)

    @classmethod
    @contextmanager
    def of(cls, url: str, home: Path) -> Iterator[Self]:
        client = cls(url, home)
        try:
            yield client
        finally:
            client._pool.clear()

    def ask(self, path: str, method: str = "GET") -> urllib3.BaseHTTPResponse:
        return self._pool.request(method, self.url + path)

    def page(self, path: str) -> str:
        """The text of what must be there."""
        answer = self.ask(path)
        assert answer.status == 200, (path, answer.status)
        return answer.data.decode()

    def tasks(self) -> dict[str, Json]:
        """All tasks by id."""
        found: dict[str, Json] = json.loads(self.page("/api/tasks"))
        return found

    def task(self, task_id: str, *states: str) -> Json | None:
        """A task once it is in one of these states, by default in a final one."""
        task = self.tasks().get(task_id)
        return task if task is not None and task["state"] in (states or ENDED) else None

    def parts_of(self, turn_id: str, name: str) -> list[Json]:
        """The tasks of this name that are parts of a turn."""
        return [task for task in self.tasks().values() if (task["parent"], task["name"]) == (turn_id, name)]
