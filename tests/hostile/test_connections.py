"""Strangers without a key hold connections by the thousand; others are served meanwhile.

The bounds are for a machine that is busy with other things; what a quiet one does is in docs/figures.md.
"""

import http.client
import json
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.sockets import sockets
from tests.support.system import System, plain_agent
from tests.support.until import until
from web.connections import HEAD_S, MAX_BODIES, SHARE, STUCK_S

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(30)]

HEAD = b"GET /v1/sessions HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
BODY = (
    b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 90000\r\n\r\n{"
)
P95_S = 10.0


@pytest.fixture(scope="module")
def loom(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    folder: Path = tmp_path_factory.mktemp("loom")
    with System(folder / "home", LOOM_PROVIDER="scripted", LOOM_AGENTS_DIR=plain_agent(folder / "agents")) as made:
        yield made


def port_of(loom: System) -> int:
    port = urlsplit(loom.url).port
    assert port is not None
    return port


def asked(loom: System, method: str, path: str, body: object = None) -> tuple[int, float]:
    """Status and seconds of a request on a connection of its own, from 127.0.0.1."""
    connection = http.client.HTTPConnection("127.0.0.1", port_of(loom), timeout=60)
    began_s = time.monotonic()
    headers = {"Content-Type": "application/json", "Prefer": "wait=20"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status, time.monotonic() - began_s


def require_service(loom: System, name: str) -> None:
    """Another client's requests and turns are served, each on a connection of its own."""
    looks = [asked(loom, "GET", "/healthz") for _ in range(40)]
    assert {status for status, _ in looks} == {200}
    assert sorted(took_s for _, took_s in looks)[37] < P95_S
    for number in range(3):
        status, _ = asked(loom, "POST", f"/v1/sessions/{name}-{number}/turns", {"input": "hello"})
        assert status == 200, "the turn did not end within 20 s"


@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.2"])
def test_five_thousand_idle_and_dripping_sockets_of_one_address_leave_the_others_alone(
    loom: System, source: str
) -> None:
    with sockets(port_of(loom), source) as attack:
        attack.open(2500)
        attack.open(2500, HEAD)
        for number in range(3):
            attack.drip()
            require_service(loom, f"drip-{source}-{number}")


def test_a_head_that_drips_has_a_deadline(loom: System) -> None:
    with sockets(port_of(loom)) as attack:
        attack.open(20, HEAD)
        began_s = time.monotonic()

        def all_closed() -> bool:
            attack.drip()
            return attack.closed() == 20

        until(all_closed, HEAD_S + 20, "all heads were given up")
        assert time.monotonic() - began_s > HEAD_S / 2, "closed for another reason"


def test_bodies_that_drip_are_few_at_a_time_and_others_upload(loom: System) -> None:
    share = MAX_BODIES // SHARE
    with sockets(port_of(loom)) as attack:
        attack.open(3 * share, BODY)
        until(lambda: attack.closed() >= 2 * share, 10, "bodies beyond the share were given up")
        require_service(loom, "upload")


@pytest.mark.long
def test_a_client_that_takes_nothing_of_its_answers_is_dropped(loom: System) -> None:
    asking = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with sockets(port_of(loom), receive_bytes=4096) as attack:
        attack.open(50, asking * 200)
        until(lambda: attack.reset() == 50, STUCK_S + 60, "all readers were dropped")
        require_service(loom, "readers")


def test_a_web_without_file_descriptors_drops_an_idle_connection_and_goes_on(loom: System) -> None:
    pid = loom.children["web"]
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 20, before[1]))
    try:
        with sockets(port_of(loom), "127.0.0.2") as attack:
            attack.open(100)
            assert [asked(loom, "GET", "/healthz")[0] for _ in range(10)] == [200] * 10
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    require_service(loom, "descriptors")
