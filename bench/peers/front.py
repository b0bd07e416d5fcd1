"""A small Flask front end, as Loom has one, for the peers that bring none: submit a turn, wait for its end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.peers.peer import Http, Processes, checked, processes

THREADS = 256
"""Of waitress, as in Loom: clients that wait hold one each."""


@dataclass(frozen=True)
class Behind:
    """A peer behind such a front end."""

    name: str
    versions: str
    url: str
    _processes: Processes

    def submit(self, http: Http, session: str, text: str) -> str:
        answer = http.post(f"{self.url}/sessions/{session}/turns", json={"input": text})
        return str(checked(answer, 202)["id"])

    def wait(self, http: Http, turn_id: str) -> None:
        assert checked(http.get(f"{self.url}/turns/{turn_id}"), 200)["status"] == "completed"

    def cpu_ms(self) -> float:
        return self._processes.cpu_ms()


@contextmanager
def behind_front(
    name: str, versions: str, port: int, commands: Callable[[str], Iterator[tuple[str, ...]]]
) -> Iterator[Behind]:
    """Run what the commands say, and wait until the front end answers.

    Args:
        commands: what to start, in order, given the folder to work in.
    """
    url = f"http://127.0.0.1:{port}"
    with processes() as started:
        for command in commands(str(started.folder)):
            started.start(*command)
        started.until_answers(f"{url}/healthz")
        yield Behind(name, versions, url, started)


def serve(port: int, submit: Callable[[str, str], str], wait: Callable[[str], object]) -> None:
    """Be the front end, until the process is ended.

    Args:
        submit: session and text to the id of a new turn.
        wait: returns when the turn with this id has completed.
    """
    import waitress
    from flask import Flask, request

    app = Flask(__name__)

    @app.get("/healthz")
    def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/sessions/<session>/turns")
    def turns(session: str) -> tuple[dict[str, str], int]:
        return {"id": submit(session, request.get_json()["input"]), "status": "queued"}, 202

    @app.get("/turns/<turn_id>")
    def turn(turn_id: str) -> dict[str, object]:
        return {"id": turn_id, "status": "completed", "output": wait(turn_id)}

    waitress.serve(app, host="127.0.0.1", port=port, threads=THREADS, connection_limit=2 * THREADS)
