"""The proxy before the broker, as the process it is in a run."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.support.until import until

Proxy = tuple[Path, "subprocess.Popen[bytes]"]


@pytest.fixture
def echo(tmp_path: Path) -> Iterator[Path]:
    """A server that sends back what it gets."""
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(str(tmp_path / "echo"))
        server.listen()
        thread = threading.Thread(target=_serve, args=(server,))
        thread.start()
        yield tmp_path / "echo"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(60)


@pytest.fixture
def proxy(echo: Path, tmp_path: Path) -> Iterator[Proxy]:
    path = tmp_path / "proxy"
    process = subprocess.Popen([sys.executable, "-m", "tests.chaos.proxy", str(path), str(echo)])
    until(lambda: listens(path), 20, "the proxy listens")  # its file is there a moment earlier
    yield path, process
    process.kill()
    process.wait()


def test_bytes_pass_both_ways(proxy: Proxy) -> None:
    with connected(proxy[0]) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"


def test_what_is_sent_while_it_swallows_is_gone_and_its_connection_ends(proxy: Proxy) -> None:
    path, process = proxy
    with connected(path) as client, connected(path) as other:
        client.sendall(b"before")
        assert client.recv(100) == b"before"
        os.kill(process.pid, signal.SIGUSR1)
        until(lambda: is_swallowed(client), 10, "bytes are dropped")
        os.kill(process.pid, signal.SIGUSR2)
        assert ended(client)
        other.sendall(b"after")
        assert other.recv(100) == b"after"


def connected(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(10)
    try:
        client.connect(str(path))
    except OSError:
        client.close()
        raise
    return client


def listens(path: Path) -> bool:
    with suppress(OSError), connected(path):
        return True
    return False


def is_swallowed(client: socket.socket) -> bool:
    client.sendall(b"x")
    client.settimeout(0.2)
    try:
        return client.recv(100) == b""
    except TimeoutError:
        return True
    finally:
        client.settimeout(10)


def ended(client: socket.socket) -> bool:
    with suppress(ConnectionError):
        return client.recv(100) == b""
    return True


def _serve(server: socket.socket) -> None:
    with suppress(OSError):
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_echo, args=(connection,), daemon=True).start()


def _echo(connection: socket.socket) -> None:
    with connection, suppress(OSError):
        while data := connection.recv(4096):
            connection.sendall(data)
