import errno
import socket
from collections.abc import Iterator

import pytest

from loom_worker.core.errors import BadSettings
from loom_worker.supervisor import ports

HOST = "127.0.0.1"


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server((HOST, 0)) as server:
        yield int(server.getsockname()[1])


def free() -> int:
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])


def test_a_free_port_is_taken_as_asked_for() -> None:
    port = free()
    with ports.reserved(HOST, port, is_explicit=True) as chosen:
        assert chosen == port


def test_a_taken_port_that_was_asked_for_is_refused_by_name_and_with_the_way_out(taken: int) -> None:
    refused = pytest.raises(ports.PortTaken, match=rf"port {taken} is taken .*--port \d+.*LOOM_PORT")
    with refused, ports.reserved(HOST, taken, is_explicit=True):
        pass


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1", "a..b"])
def test_a_host_that_nobody_can_listen_on_is_no_taken_port(host: str) -> None:
    with pytest.raises(BadSettings) as refused, ports.reserved(host, free(), is_explicit=False):
        pass
    said = str(refused.value)
    assert said.startswith(f"LOOM_HOST={host!r}: cannot be listened on (")
    assert "taken" not in said


def test_a_port_reserved_for_root_is_named_with_the_reason() -> None:
    said = str(ports.unusable(HOST, 80, PermissionError(errno.EACCES, "Permission denied")))
    assert said == "LOOM_PORT=80 (or --port): may not be listened on (Permission denied); choose one above 1023"


def test_a_taken_default_port_gives_a_free_one_after_it(taken: int) -> None:
    with ports.reserved(HOST, taken, is_explicit=False) as other:
        assert taken < other <= taken + ports.TRIED_AFTER
        assert ports.is_free(HOST, other)


@pytest.mark.skipif(not ports.HAS_ABSTRACT_NAMES, reason="only Linux has names that go with their process")
def test_two_looms_that_start_at_once_do_not_choose_the_same_port() -> None:
    port = free()
    with ports.reserved(HOST, port, is_explicit=False) as first:
        with ports.reserved(HOST, port, is_explicit=False) as second:
            assert first != second
        with pytest.raises(ports.PortTaken), ports.reserved(HOST, port, is_explicit=True):
            pass
    with ports.reserved(HOST, port, is_explicit=True) as again:
        assert again == port


def test_a_port_of_a_connection_that_just_ended_is_free() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection((HOST, port)):
            accepted, _ = server.accept()
            # The side that closes first keeps the port in TIME_WAIT.
            accepted.close()
    assert ports.is_free(HOST, port)


@pytest.mark.cases(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::", "http://[::1]:8000"),
        ("::1", "http://[::1]:8000"),
        ("loom.example", "http://loom.example:8000"),
    ],
)
def test_a_url_names_a_host_that_a_client_here_can_reach(host: str, url: str) -> None:
    assert ports.url_of(host, 8000) == url
