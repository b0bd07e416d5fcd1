"""Hostile URLs, resolvers and redirects, on every way on which Loom goes out: webhooks, REST and REST's redirects."""

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from loom_worker.backends.rest.backend import RestBackend
from loom_worker.core.errors import BadSettings, ToolFailed
from loom_worker.core.values.agents import Backend
from loom_worker.core.values.ids import now_us
from loom_worker.core.values.notifications import Delivery
from loom_worker.core.values.tools import Caller
from loom_worker.webhook.send import send
from tests.integration.backends_rest.api import FILE, Api, serving
from tests.unit.guard.net.hostile import ALWAYS_REFUSED, PRIVATE

pytestmark = pytest.mark.integration

CALLER = Caller("lane", "sess_1", "default", "turn_1", "call_1")
SECRET = f"whsec_{'A' * 43}="


class Resolver:
    """A name server that answers with the next list of addresses each time, and keeps what it was asked."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        self.asked.append(host)
        addresses = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]


@pytest.fixture(scope="module")
def shared() -> Iterator[Api]:
    with serving() as started:
        yield started


@pytest.fixture
def api() -> Iterator[Api]:
    with serving() as started:
        yield started


def a_backend(url: str, *, allow_private: bool, lookup: Any, timeout_s: float = 5) -> RestBackend:
    backend = Backend(
        kind="rest", url=url, openapi=FILE.name, operations=("away", "moved", "report"), allow_private=allow_private
    )
    return RestBackend(backend, secret=None, folder=FILE.parent, timeout_s=timeout_s, lookup=lookup)


def run(backend: RestBackend, name: str) -> object:
    return next(tool for tool in backend.tools() if tool.spec.name == name).run({}, CALLER)


def delivered(url: str, *, allow_private: bool, lookup: Any) -> str | None:
    delivery = Delivery("whd_1", "default", "turn_1", url, SECRET, "{}", "pending", 0, 0)
    attempt = send(delivery, secret="", timeout_s=5, allow_private=allow_private, now_us=now_us(), lookup=lookup)
    assert attempt.is_delivered == (attempt.error is None)
    return attempt.error


def test_the_corpus_is_large_and_has_no_url_twice() -> None:
    hostile = [*ALWAYS_REFUSED, *PRIVATE]
    assert len(hostile) >= 140
    assert len(set(hostile)) == len(hostile)


@pytest.mark.cases("url", [*ALWAYS_REFUSED, *PRIVATE])
def test_no_hostile_url_is_asked_for_by_a_webhook_or_becomes_an_api(url: str) -> None:
    resolver = Resolver(["127.0.0.1"])
    for allow_private in [False] if url in PRIVATE else [False, True]:
        assert delivered(url, allow_private=allow_private, lookup=resolver)
        if url:  # without a url the document's own server is meant
            with pytest.raises(BadSettings):
                a_backend(url, allow_private=allow_private, lookup=resolver)
    assert resolver.asked == []


@pytest.mark.cases("url", [*ALWAYS_REFUSED, *PRIVATE])
def test_no_redirect_leads_to_a_hostile_url(shared: Api, url: str) -> None:
    shared.location = url.encode("utf-8", "replace").decode("latin-1").replace("\r", "").replace("\n", "")
    before = len(shared.requests)
    resolver = Resolver(["127.0.0.1"])
    base = shared.url.replace("127.0.0.1", "api.example.test")
    with pytest.raises(ToolFailed) as failed:
        run(a_backend(base, allow_private=True, lookup=resolver), "away")
    # What is only a path, or nothing, stays within the API and finds nothing there.
    assert set(resolver.asked) == {"api.example.test"}
    is_path = failed.value.args[0].startswith(("HTTP 400", "HTTP 404", "more than 3 redirects"))
    assert len(shared.requests) - before == len(resolver.asked)
    assert len(resolver.asked) == 1 or is_path


@pytest.mark.parametrize(
    "hidden", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"]
)
@pytest.mark.parametrize("first", [True, False])
def test_a_name_with_one_private_address_among_public_ones_is_not_called(api: Api, hidden: str, first: bool) -> None:
    addresses = [hidden, "93.184.216.34"] if first else ["93.184.216.34", hidden]
    url = api.url.replace("127.0.0.1", "mixed.example")
    assert "refused" in str(delivered(url, allow_private=False, lookup=Resolver(addresses)))
    with pytest.raises(ToolFailed, match="refused"):
        run(a_backend(url, allow_private=False, lookup=Resolver(addresses)), "report")
    assert api.requests == []


def test_the_address_that_was_checked_is_the_one_that_is_called_and_no_second_answer_counts() -> None:
    """The first answer is a real server, every later one is another, at the same port: only the first is called."""
    with serving(host="127.0.0.2") as checked:
        port = int(checked.url.split(":")[2].split("/")[0])
        with socket.create_server(("127.0.0.1", port)) as rebound:
            rebound.setblocking(False)
            for attempt in ("webhook", "rest"):
                resolver = Resolver(["127.0.0.2"], ["127.0.0.1"])
                url = f"http://rebinding.example:{port}/v1"
                if attempt == "webhook":
                    assert delivered(url + "/report", allow_private=True, lookup=resolver) is None
                else:
                    assert run(a_backend(url, allow_private=True, lookup=resolver), "report") == "größe,7\n"
                assert resolver.asked == ["rebinding.example"]
            with pytest.raises(BlockingIOError):
                rebound.accept()
        assert checked.requests == ["POST /v1/report", "GET /v1/report"]


@pytest.mark.parametrize("second", ["169.254.169.254", "fe80::1", "0.0.0.0", "100.100.100.200"])
def test_a_name_that_is_bound_anew_between_two_hops_is_checked_anew(api: Api, second: str) -> None:
    resolver = Resolver(["127.0.0.1"], [second])
    backend = a_backend(api.url.replace("127.0.0.1", "rebinding.example"), allow_private=True, lookup=resolver)
    with pytest.raises(ToolFailed, match=r"rebinding\.example may not be called"):
        run(backend, "moved")
    assert api.requests == ["GET /v1/moved"]
    assert resolver.asked == ["rebinding.example"] * 2


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "224.0.0.1", "0.0.0.0", "255.255.255.255", "fe80::1", "2002:7f00:1::"]
)
def test_what_is_private_may_be_opened_and_nothing_else_with_it(address: str) -> None:
    with pytest.raises(ToolFailed, match="may not be called"):
        run(a_backend("http://inside.example/", allow_private=True, lookup=Resolver([address])), "report")


def test_opening_the_operators_own_api_opens_no_other_private_host(api: Api) -> None:
    with serving() as other:
        api.location = other.url + "/report"
        with pytest.raises(ToolFailed, match="which is not followed"):
            run(a_backend(api.url, allow_private=True, lookup=socket.getaddrinfo), "away")
        assert other.requests == []


def test_a_name_server_that_hangs_ends_at_the_deadline() -> None:
    answered = threading.Event()

    def lookup(*_: Any, **__: Any) -> list[tuple[Any, ...]]:
        answered.wait()
        return []

    with pytest.raises(ToolFailed, match="the name server did not answer in time"):
        run(a_backend("https://slow.example/", allow_private=False, lookup=lookup, timeout_s=0.3), "report")
    answered.set()
