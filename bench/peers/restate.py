"""Restate: its server, and a virtual object for each session, whose handler is served by hypercorn.

A client submits by the ingress' ``/send``, which answers once the invocation is durable, and then attaches to it, as
Loom's client submits and then waits. An object runs one invocation at a time, in order; its state is the session. All
of Restate's settings but the ports are its defaults.

    python -m bench.peers.restate PORT
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.peers.peer import (
    HISTORY,
    Http,
    NotInstalled,
    Processes,
    checked,
    interpreter,
    post_json,
    processes,
    versions,
)

SERVER = "restate-server"
INSTALL_SERVER = "Restate's server is not installed: `npm install --ignore-scripts --prefix ~/loom-peers \
@restatedev/restate-server`, then put ~/loom-peers/node_modules/.bin on the PATH"
INSTALL_SDK = (
    "Restate's SDK is not installed: `python3 -m venv ~/loom-peers && ~/loom-peers/bin/pip install restate-sdk \
hypercorn`, then put ~/loom-peers/bin on the PATH"
)


@dataclass(frozen=True)
class Restate:
    """The server with its service."""

    name: str
    versions: str
    url: str
    """Of the ingress."""
    _processes: Processes

    def submit(self, http: Http, session: str, text: str) -> str:
        answer = http.post(f"{self.url}/session/{session}/turn/send", json=text)
        return str(checked(answer, 202)["invocationId"])

    def wait(self, http: Http, turn_id: str) -> None:
        checked(http.get(f"{self.url}/restate/invocation/{turn_id}/attach"), 200)

    def cpu_ms(self) -> float:
        return self._processes.cpu_ms()


@contextmanager
def running() -> Iterator[Restate]:
    """The server from npm, and the interpreter that has the SDK.

    Raises:
        NotInstalled: one of them is missing.
    """
    from tests.support.webhook_receiver import unused_port

    if (server := shutil.which(SERVER)) is None:
        raise NotInstalled(INSTALL_SERVER)
    python = interpreter("hypercorn", ("restate", "hypercorn"), missing=INSTALL_SDK)
    service, ingress, admin, node = (unused_port() for _ in range(4))
    with processes() as started:
        started.start(python, "-m", "bench.peers.restate", str(service))
        started.start(
            server,
            *("--base-dir", str(started.folder / "data"), "--listen-mode", "tcp", "--bind-port", str(node)),
            RESTATE_INGRESS__BIND_ADDRESS=f"127.0.0.1:{ingress}",
            RESTATE_ADMIN__BIND_ADDRESS=f"127.0.0.1:{admin}",
            DO_NOT_TRACK="1",
        )
        started.until_answers(f"http://127.0.0.1:{admin}/health")
        post_json(f"http://127.0.0.1:{admin}/deployments", json.dumps({"uri": f"http://127.0.0.1:{service}"}).encode())
        shown = subprocess.run([server, "--version"], capture_output=True, text=True, check=True).stdout.strip()
        packages = f"{shown}, {versions(python, 'restate-sdk', 'hypercorn')}"
        yield Restate("Restate", packages, f"http://127.0.0.1:{ingress}", started)


def main(port: int) -> None:
    """Serve the object."""
    import asyncio

    import restate
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    session = restate.VirtualObject("session")

    @session.handler("turn")
    async def turn(ctx: restate.ObjectContext, text: str) -> str:
        messages = await ctx.get("messages") or []
        answer = f"You said: {text}"
        said = [{"role": "user", "text": text}, {"role": "assistant", "text": answer}]
        ctx.set("messages", [*messages, *said][-HISTORY:])
        return answer

    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.loglevel = "ERROR"
    asyncio.run(serve(restate.app([session]), config))


if __name__ == "__main__":
    main(int(sys.argv[1]))
