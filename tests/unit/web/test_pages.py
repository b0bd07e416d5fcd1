import re
from html.parser import HTMLParser

import pytest
from flask.testing import FlaskClient

from tests.support.web_stage import MakeStage
from tests.unit.web.described import DOCUMENT
from web import docs
from web.app import OPERATIONS, create_app
from web.openapi import document
from web.pages import content_security_policy


class Seen(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.attributes: list[tuple[str, str | None]] = []
        self.ids: set[str | None] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        self.ids |= {value for name, value in attrs if name == "id"}


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_page_loads_nothing_from_elsewhere(client: FlaskClient, path: str) -> None:
    answer = client.get(path)
    loaded = [value for name, value in Seen(answer.text).attributes if name in ("src", "href", "action")]
    assert all(value is not None and value.startswith(("/", "#")) for value in loaded)
    assert not re.search(r"https?://|//cdn|@import|url\(", answer.text)


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_page_may_run_nothing_but_its_own_script(client: FlaskClient, path: str) -> None:
    policy = client.get(path).headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


def test_the_policy_names_the_very_script_of_the_page() -> None:
    # The digest is what `printf 'alert(1)' | openssl dgst -sha256 -binary | base64` says.
    policy = content_security_policy("<script>alert(1)</script>")
    assert "script-src 'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='" in policy
    assert "style-src" not in policy


def test_no_markup_carries_code_that_the_policy_would_block(client: FlaskClient) -> None:
    for path in ("/", "/docs"):
        names = {name for name, _ in Seen(client.get(path).text).attributes}
        assert not {name for name in names if name.startswith("on") or name == "style"}


def test_the_page_never_writes_html_from_text(client: FlaskClient) -> None:
    script = re.findall(r"<script>(.*?)</script>", client.get("/").text, re.DOTALL)[0]
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\(", script)
    assert "textContent" in script


def test_every_element_the_script_looks_for_is_there(client: FlaskClient) -> None:
    html = client.get("/").text
    assert set(re.findall(r'\bat\("(\w+)"\)', html)) <= Seen(html).ids


def script_of(client: FlaskClient) -> str:
    script: str = re.findall(r"<script>(.*?)</script>", client.get("/").text, re.DOTALL)[0]
    return script


def test_enter_asks_and_shift_enter_or_an_unfinished_word_does_not(client: FlaskClient) -> None:
    [handler] = re.findall(r'at\("question"\)\.onkeydown = (.*?)\n};', script_of(client), re.DOTALL)
    skipped, asked = handler.split("return;")
    assert 'event.key !== "Enter" || event.shiftKey || event.isComposing' in skipped
    assert "event.preventDefault()" in asked
    assert 'at("ask").requestSubmit()' in asked


def test_the_page_reads_members_that_the_contract_has(client: FlaskClient) -> None:
    script = script_of(client)
    read = {"Session": ("title", "agent", "busy"), "Message": ("role", "content"), "Agent": ("name", "description")}
    schemas = document(OPERATIONS)["components"]["schemas"]
    assert [
        member for name, members in read.items() for member in members if member not in _members(schemas[name])
    ] == []
    for words in ("item.title || firstQuestions.get(item.id) || item.id", "page.data[0].content", "agent.description"):
        assert words in script
    paths = set(document(OPERATIONS)["paths"])
    assert {"/v1/agents", "/v1/sessions", "/v1/sessions/{session_id}/messages"} <= paths


def test_the_agent_that_is_chosen_goes_with_the_first_question_alone(client: FlaskClient) -> None:
    assert 'cards.size ? {} : { agent: at("agent").value || undefined }' in script_of(client)


def _members(schema: dict[str, object]) -> set[str]:
    return set(schema["properties"])  # type: ignore[call-overload]


def test_the_docs_show_every_operation_and_schema(client: FlaskClient) -> None:
    html = client.get("/docs").text
    assert all(f"<code>{operation.path}</code>" in html for operation in OPERATIONS)
    assert Seen(html).ids >= DOCUMENT["components"]["schemas"].keys()


def test_the_links_of_the_docs_lead_somewhere(client: FlaskClient) -> None:
    seen = Seen(client.get("/docs").text)
    targets = {value[1:] for name, value in seen.attributes if name == "href" and value and value.startswith("#")}
    assert targets
    assert targets <= seen.ids


def test_the_docs_escape_whatever_the_document_says() -> None:
    said = document(OPERATIONS)
    said["info"]["description"] = "<script>alert(1)</script>"
    said["paths"]["/v1/turns"]["get"]["summary"] = "<img src=x onerror=alert(1)>"
    html = docs.render(said)
    assert "<script>" not in html
    assert "<img" not in html


def test_with_keys_the_pages_are_open_and_the_api_is_not(make_stage: MakeStage) -> None:
    keyed = create_app(make_stage(api_keys={"k": "w"}).service).test_client()
    assert keyed.get("/").status_code == 200
    assert keyed.get("/v1/turns").status_code == 401
