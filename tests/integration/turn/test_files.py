"""What a provider is sent of images, PDFs and texts that come over HTTP; real web server, real worker."""

import base64
import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from loom_worker.tools.files import MOST_TEXT_BYTES
from tests.support.engine import Engine
from tests.support.files_made import pdf, png
from tests.support.http_server import Exchange, serving
from tests.support.messages_server import MessagesServer, failure
from tests.support.valkey import Valkey
from tests.support.webhook_receiver import unused_port
from web.serve import HttpServer

pytestmark = [pytest.mark.heavy, pytest.mark.integration, pytest.mark.takes(8)]
PNG, PDF = png(1_024, 768), pdf(2)


@pytest.fixture(scope="module")
def engine(server: MessagesServer, valkey_server: Valkey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    home, address = tmp_path_factory.mktemp("files") / "home", {"ANTHROPIC_BASE_URL": server.url}
    allowed = {"LOOM_ALLOW_PRIVATE_FILES": "1", "LOOM_PORT": str(unused_port())}
    with Engine(home, valkey_server, **address, **allowed) as engine:
        engine.start_worker("first")
        yield engine


@pytest.fixture(scope="module")
def web(engine: Engine) -> Iterator[HttpServer]:
    server = HttpServer(engine.service)
    server.start()
    yield server
    server.drain(grace_s=2)
    server.stop()


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def ended(web: HttpServer, session: str, given: Any, *, path: str = "") -> dict[str, Any]:
    """A turn once it has ended; path: of a request without a body that begins it."""
    connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=60)
    body, headers = json.dumps({"input": given, "agent": "plain"}), {"Content-Type": "application/json"}
    path, body = (path, "{}") if path else (f"/v1/sessions/{session}/turns", body)
    connection.request("POST", path, body, headers | {"Prefer": "wait=60"})
    found: dict[str, Any] = json.loads(connection.getresponse().read())
    connection.close()
    return found


def users_blocks(server: MessagesServer) -> list[list[dict[str, Any]]]:
    """Of the latest request, the blocks of each of the user's messages without marks for the cache."""
    messages = [each["content"] for each in server.requests[-1]["messages"] if each["role"] == "user"]
    return [
        [{key: part for key, part in block.items() if key != "cache_control"} for block in each] for each in messages
    ]


def test_the_model_is_shown_image_pdf_and_text_in_order_and_the_same_again_in_the_next_turn(
    web: HttpServer, engine: Engine, server: MessagesServer
) -> None:
    given = [
        {"type": "text", "text": "Look at"},
        {"type": "image", "data": encoded(PNG), "name": "shelf.png"},
        {"type": "file", "data": encoded(PDF), "name": "prices.pdf"},
        {"type": "file", "data": encoded(b"milk: 3\n"), "name": "list.txt"},
        {"type": "text", "text": "and compare."},
    ]
    turn = ended(web, "look", given)
    assert turn["status"] == "completed", turn["error"]
    [*_, before, image, document, after] = users_blocks(server)[0]
    assert before == {"type": "text", "text": "Look at"}
    assert image["source"] == {"type": "base64", "media_type": "image/png", "data": encoded(PNG)}
    assert (document["type"], document["source"]["data"]) == ("document", encoded(PDF))
    text_id = turn["input"][3]["file_id"]
    assert after["text"] == f"[file list.txt, {text_id}]\nmilk: 3\n\n[end of list.txt]\n\nand compare."
    first = users_blocks(server)[0]
    assert ended(web, "look", "and now?")["status"] == "completed"
    assert users_blocks(server)[0] == first
    message = engine.messages("look")[0]
    assert [media.file_id for media in message.chat.media] == [turn["input"][1]["file_id"], turn["input"][2]["file_id"]]
    assert message.token_count > 2 * 3_000 + 1_000
    hits = engine.service.search.session("default", "look", "shelf.png", limit=5, is_apart=False)
    assert message.id in {hit.message_id for hit in hits}


def test_a_line_stands_for_a_file_that_was_removed(web: HttpServer, engine: Engine, server: MessagesServer) -> None:
    turn = ended(web, "gone", [{"type": "image", "data": encoded(PNG), "name": "a.png"}])
    file_id = turn["input"][0]["file_id"]
    engine.service.files.remove("default", file_id)
    assert ended(web, "gone", "again")["status"] == "completed"
    assert users_blocks(server)[0][-1] == {"type": "text", "text": f"[image a.png, 1024x768, {file_id}]"}


def test_an_image_that_the_provider_refuses_spoils_neither_turn_nor_session(
    web: HttpServer, server: MessagesServer
) -> None:
    for _ in range(2):
        server.then(failure(400, "invalid_request_error", "messages.0.content.0.image: Could not process image"))
        turn = ended(web, "refused", [{"type": "image", "data": encoded(PNG), "name": "a.png"}])
        assert turn["status"] == "completed", turn["error"]


def test_a_url_is_fetched_once_and_one_that_fails_fails_its_turn_until_it_is_retried(
    web: HttpServer, engine: Engine, server: MessagesServer
) -> None:
    asked: list[str] = []
    there = {
        "/a.png": PNG,
        "/c.zip": b"PK\x03\x04\xff",
        "/long.txt": b"x" * (MOST_TEXT_BYTES + 1),
        "/wide.txt": "鯨".encode() * (MOST_TEXT_BYTES // 3),
    }

    def answer(exchange: Exchange) -> None:
        asked.append(exchange.path)
        exchange.answer(200 if exchange.path in there else 404, there.get(exchange.path, b""))

    with serving(answer) as url:
        turn = ended(web, "url", [{"type": "image", "url": f"{url}/a.png"}])
        assert turn["status"] == "completed", turn["error"]
        assert users_blocks(server)[0][-1]["source"]["data"] == encoded(PNG)
        assert ended(web, "url", "again")["status"] == "completed"
        assert users_blocks(server)[0][-1]["source"]["data"] == encoded(PNG)
        assert asked == ["/a.png"]
        reasons = {"/b.png": "input", "/c.zip": "input", "/long.txt": "input", "/wide.txt": "context"}
        ends = {name: ended(web, "url", [{"type": "file", "url": url + name}]) for name in reasons}
        assert {name: turn["reason"] for name, turn in ends.items() if turn["status"] == "failed"} == reasons
        lost = ends["/b.png"]
        assert "HTTP 404" in lost["error"]["message"]
        assert lost["input"] == [{"type": "file", "url": f"{url}/b.png"}]
        there["/b.png"] = PNG
        again = ended(web, "url", None, path=f"/v1/turns/{lost['id']}/retry")
        assert (again["status"], again["input"]) == ("completed", lost["input"])
