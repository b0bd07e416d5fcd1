"""A client that costs as little as it can: one connection, no library in between."""

import http.client
import json
from typing import Any


class Client:
    """One connection that is kept alive."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def get(self, path: str) -> tuple[int, Any]:
        """Status and body."""
        return self._ask("GET", path, None)

    def submit(self, session: str, text: str) -> str:
        """The id of a new turn."""
        status, turn = self._ask("POST", f"/v1/sessions/{session}/turns", {"input": text})
        assert status == 202, (status, turn)
        return str(turn["id"])

    def create(self, session: str) -> None:
        """Make a session unless it is there."""
        status, answer = self._ask("POST", "/v1/sessions", {"id": session})
        assert status in (201, 409), (status, answer)

    def patch(self, session: str, **fields: object) -> None:
        """Change a session."""
        status, answer = self._ask("PATCH", f"/v1/sessions/{session}", fields)
        assert status == 200, (status, answer)

    def wait(self, turn_id: str) -> dict[str, Any]:
        """A turn, when it has completed."""
        while True:
            _, turn = self.get(f"/v1/turns/{turn_id}?wait=60")
            if turn["completed_at"]:
                assert turn["status"] == "completed", turn
                return dict(turn)

    def run(self, workflow: str) -> str:
        """The id of a new run."""
        status, run = self._ask("POST", f"/v1/workflows/{workflow}/runs", {})
        assert status == 202, (status, run)
        return str(run["id"])

    def wait_for_run(self, run_id: str) -> None:
        """Return when a run has completed."""
        while True:
            _, run = self.get(f"/v1/runs/{run_id}?wait=60")
            if run["completed_at"]:
                assert run["status"] == "completed", run
                return

    def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, Any]:
        sent = None if body is None else json.dumps(body)
        self._http.request(method, path, sent, {"Content-Type": "application/json"} if sent else {})
        answer = self._http.getresponse()
        return answer.status, json.loads(answer.read())
