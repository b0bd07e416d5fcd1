"""Answers of a form, and a file, over the whole system, while workers and the web are killed."""

import base64
from collections.abc import Iterator

import pytest
import urllib3

from tests.support.files_made import png
from tests.support.messages_server import MessagesServer, Say
from tests.support.messages_wire import WireCall
from tests.support.system import Answer, Json, System
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(20)]

FILE_STORED = "web.file_stored"
POINTS = ("turn.replied", "form.checked", "turn.ending")
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
FORM = {"type": "json_schema", "name": "count", "schema": SCHEMA}


def script(body: Json) -> Say:
    """Gives no number at first; to "How many?" it gives one once it is told what is wrong, to "Never" it never does."""
    if all(tool["name"] != "count" for tool in body["tools"]):
        return Say("A shelf.", model=body["model"])
    texts = [part["text"] for each in body["messages"] for part in each["content"] if part["type"] == "text"]
    has_form = "does not have the form" in texts[-1] and "Never" not in " ".join(texts)
    given = WireCall("toolu_answer", "count", {"n": 42 if has_form else "many"})
    return Say("Let me think.", [given], model=body["model"])


@pytest.fixture(scope="module")
def server() -> Iterator[MessagesServer]:
    with MessagesServer(script=script) as server:
        yield server


@pytest.fixture(scope="module")
def system(server: MessagesServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    environ = {"LOOM_CRASHPOINTS": ",".join((*POINTS, FILE_STORED)), "LOOM_MAX_ATTEMPTS": "9"}
    home = tmp_path_factory.mktemp("shapes") / "home"
    # A model without a mode for forms.
    environ |= {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "key", "LOOM_MODEL": "claude-sonnet-4-0"}
    with System(home, **environ) as system:
        yield system


def test_an_answer_gets_its_form_or_the_turn_fails_though_workers_die(system: System, server: MessagesServer) -> None:
    texts = ("How many?", "Never", "How many?", "Never")
    turns = [system.submit(f"s{n}", text, response_format=FORM) for n, text in enumerate(texts)]
    ended = [system.ended(turn) for turn in turns]
    assert {path.name.rpartition(".")[0] for path in (system.home / "crashes").iterdir()} >= set(POINTS)
    fine, wrong = ("completed", None, {"n": 42}, '{"n": 42}'), ("failed", "invalid-output", None, '{"n": "many"}')
    names = ("status", "reason", "output_parsed", "output_text")
    assert [tuple(turn[name] for name in names) for turn in ended] == [fine, wrong, fine, wrong]
    assert "/n: 'many' is not of type 'integer'" in ended[1]["error"]["message"]
    choices = [body["tool_choice"] for body in server.requests]
    assert {choice["type"] for choice in choices} == {"any", "tool"}
    assert {choice["name"] for choice in choices if choice["type"] == "tool"} == {"count"}


def test_a_turn_whose_file_was_stored_when_the_web_died_is_sent_again_and_has_it_once(system: System) -> None:
    image = {"type": "image", "data": base64.b64encode(png(5, 7)).decode(), "name": "shelf.png"}

    def sent() -> Answer | None:
        try:
            return system.post("/v1/sessions/shelf/turns", {"input": [image]}, {"Idempotency-Key": "once"})
        except urllib3.exceptions.HTTPError:  # it died, and is not back yet
            return None

    assert sent() is None
    assert (system.home / "crashes" / f"{FILE_STORED}.0").exists()
    turn = until(sent, 30, "the web is back").json
    assert [part["name"] for part in turn["input"]] == ["shelf.png"]
    assert system.ended(turn["id"])["status"] == "completed"
    assert [file["id"] for file in system.get("/v1/files").json["data"]] == [turn["input"][0]["file_id"]]
