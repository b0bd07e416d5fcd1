"""Nothing of what is gone is sent: a real client and a real server, which tells what reached it."""

import threading
from collections.abc import Iterator

import pytest

from loom_worker.core.errors import Interrupted
from loom_worker.core.values.chat import ChatMessage, Request
from loom_worker.llm.anthropic import Anthropic
from loom_worker.llm.model import Revocable, whole_reply
from tests.support.messages_server import Hang, MessagesServer
from tests.support.until import until

pytestmark = [pytest.mark.heavy, pytest.mark.integration]

REQUEST = Request("", (ChatMessage("user", "a secret"),))


@pytest.fixture
def server() -> Iterator[MessagesServer]:
    with MessagesServer() as server:
        yield server


def model(server: MessagesServer) -> Anthropic:
    return Anthropic(model="claude-test", base_url=server.url, call_timeout_s=100.0)


def test_what_is_there_is_asked_about(server: MessagesServer) -> None:
    assert whole_reply(Revocable(model(server), lambda: True), REQUEST).text == "echo: a secret"


def test_nothing_is_sent_of_what_went_before_the_call(server: MessagesServer) -> None:
    with pytest.raises(Interrupted):
        whole_reply(Revocable(model(server), lambda: False), REQUEST)
    assert (server.requests, server.connections) == ([], 0)


@pytest.mark.parametrize("is_connected", [False, True])
def test_nothing_is_sent_of_what_went_while_a_connection_was_made(server: MessagesServer, is_connected: bool) -> None:
    asked = model(server)
    if is_connected:  # a connection that is kept from an earlier call
        whole_reply(asked, Request("", (ChatMessage("user", "hello"),)))
    before, looks = len(server.requests), iter([True])
    with pytest.raises(Interrupted):
        whole_reply(Revocable(asked, lambda: next(looks, False)), REQUEST)
    until(lambda: server.connections == 1, 20, "the connection was made, and nothing sent on it")
    assert len(server.requests) == before


def test_a_call_under_way_is_given_up_once_it_is_gone(server: MessagesServer) -> None:
    release, gone = threading.Event(), threading.Event()
    server.then(Hang(release))
    threading.Thread(target=lambda: until(lambda: server.requests, 20, "it is sent") and gone.set()).start()
    with pytest.raises(Interrupted):
        whole_reply(Revocable(model(server), lambda: not gone.is_set()), REQUEST)
    release.set()
