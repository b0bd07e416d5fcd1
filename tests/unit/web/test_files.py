"""Files over HTTP, and turns whose input has parts."""

import base64
import http.client
import io
import json
import resource
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from loom_worker.core.values.agents import Agent
from loom_worker.core.values.guardrails import Guardrails
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.media import new_file_id, ref_of
from loom_worker.store.files import UNUSED_MS
from tests.support.files_made import pdf, png
from tests.support.web_stage import Live, MakeStage, WebStage
from tests.unit.web.described import DescribedClient
from web.app import create_app

PNG = png(1_024, 768)


def upload(client: FlaskClient, data: bytes = PNG, name: str = "photo.png", **headers: str) -> TestResponse:
    return client.post("/v1/files", data={"file": (io.BytesIO(data), name)}, headers=headers)


def asked(client: FlaskClient, *parts: dict[str, Any], session: str = "s1", **headers: str) -> TestResponse:
    return client.post(f"/v1/sessions/{session}/turns", json={"input": [*parts]}, headers=headers)


def image(data: bytes = PNG, **more: Any) -> dict[str, Any]:
    return {"type": "image", "data": base64.b64encode(data).decode(), **more}


def slug_of(answer: TestResponse) -> str:
    return str(answer.get_json()["type"].removeprefix("/problems/"))


def test_an_uploaded_file_is_shown_listed_given_back_and_removed(stage: WebStage) -> None:
    app = create_app(stage.service)
    app.test_client_class = DescribedClient
    client = app.test_client()
    made = upload(client, b"a,b\n1,2\n", "shop.csv")
    file = made.get_json()
    assert (made.status_code, made.headers["Location"]) == (201, f"/v1/files/{file['id']}")
    assert {name: file[name] for name in ("object", "name", "content_type", "size_bytes", "session_id")} == {
        "object": "file",
        "name": "shop.csv",
        "content_type": "text/csv",
        "size_bytes": 8,
        "session_id": None,
    }
    second = upload(client).get_json()
    assert [each["id"] for each in client.get("/v1/files").get_json()["data"]] == [second["id"], file["id"]]
    assert client.get(f"/v1/files/{file['id']}").get_json() == file
    content = client.get(f"/v1/files/{file['id']}/content")
    assert (content.data, content.mimetype) == (b"a,b\n1,2\n", "text/csv")
    assert content.headers["Content-Disposition"] == "attachment; filename*=UTF-8''shop.csv"
    assert client.delete(f"/v1/files/{file['id']}").status_code == 204
    assert client.get(f"/v1/files/{file['id']}/content").status_code == 404
    assert stage.service.references.stores.disk.get(ref_of(file["id"]), most_bytes=100) is None


@pytest.mark.cases("name", ["../../etc/passwd", "..\\boot.ini", "a/b/passwd", "x\u202egnp.exe\x7f", "[image x]", ""])
def test_a_name_with_tricks_stays_a_plain_name(client: FlaskClient, name: str) -> None:
    found = upload(client, name=name or "x").get_json()["name"]
    assert found.isprintable()
    assert not set(found) & set("/\\[]<>")


@pytest.mark.cases(
    "kind, body, status",
    [
        ("application/json", b"{}", 415),
        ("multipart/form-data", b"no boundary", 400),
        ("multipart/form-data; boundary=x", b"--x--\r\n", 400),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\nb\r\n--x--", 400),
        (
            "multipart/form-data; boundary=x",
            b"--x\r\nContent-Disposition: form-data; name=f; filename=a\r\n\r\nb\r\n--x--\r\n",
            400,
        ),
    ],
)
def test_what_is_no_upload_of_one_file_is_refused(client: FlaskClient, kind: str, body: bytes, status: int) -> None:
    assert client.post("/v1/files", data=body, content_type=kind).status_code == status


def test_a_file_that_is_too_large_or_of_another_kind_is_refused_and_nothing_is_kept(make_stage: MakeStage) -> None:
    stage = make_stage()
    object.__setattr__(stage.service.settings.files, "most_bytes", 5_000)
    client = create_app(stage.service).test_client()
    assert upload(client, png(filler=5_000)).status_code == 413
    assert upload(client, png(filler=200_000)).status_code == 413
    refused = upload(client, b"PK\x03\x04\xff zip", "photo.png")
    assert (refused.status_code, slug_of(refused)) == (422, "unsupported-media-type")
    folder = stage.service.references.folder
    assert [path for path in folder.rglob("*") if path.is_file()] == []


def test_an_upload_of_30_mib_is_never_held_in_memory(live: Live, stage: WebStage) -> None:
    size = 30 * 1024 * 1024
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="long.txt"\r\n\r\n'
    tail = b"\r\n--x--\r\n"
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=60)
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    connection.putrequest("POST", "/v1/files")
    connection.putheader("Content-Type", "multipart/form-data; boundary=x")
    connection.putheader("Content-Length", str(len(head) + size + len(tail)))
    connection.endheaders(head)
    for _ in range(size // 65_536):
        connection.send(b"0123456789abcde\n" * 4_096)
    connection.send(tail)
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["size_bytes"]) == (201, size)
    connection.close()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 16 * 1024


def test_a_turn_shows_its_parts_as_given_with_ids_in_the_places_of_bytes(client: FlaskClient, stage: WebStage) -> None:
    file = upload(client, b"milk: 3\n", "list.txt").get_json()
    given = [
        {"type": "text", "text": "Compare:"},
        image(name="shelf.png"),
        {"type": "file", "file_id": file["id"]},
        {"type": "file", "data": base64.b64encode(pdf(1)).decode(), "media_type": "application/pdf", "name": "a.pdf"},
        {"type": "image", "url": "https://shop.example/a.png?token=t"},
    ]
    answer = asked(client, *given)
    assert answer.status_code == 202, answer.text
    turn = client.get(f"/v1/turns/{answer.get_json()['id']}").get_json()
    (shelf, _, report) = (turn["input"][place]["file_id"] for place in (1, 2, 3))
    assert turn["input"] == [
        given[0],
        {"type": "image", "file_id": shelf, "name": "shelf.png"},
        given[2],
        {"type": "file", "file_id": report, "name": "a.pdf"},
        given[4],
    ]
    listed = client.get("/v1/turns").get_json()["data"][0]["input"]
    assert listed == turn["input"]
    shown = stage.service.turn("default", turn["id"]).input
    assert shown == (
        f"Compare:\n\n[image shelf.png, 1024x768, {shelf}]\n\n[file list.txt, {file['id']}]\nmilk: 3\n\n"
        f"[end of list.txt]\n\n[file a.pdf, 1 page, {report}]\n\n[image https://shop.example/a.png, not fetched]"
    )
    files = client.get("/v1/files?session=s1").get_json()["data"]
    assert {each["id"]: each["session_id"] for each in files} == dict.fromkeys((shelf, file["id"], report), "s1")
    again = asked(client, *turn["input"], session="s2")
    assert again.get_json()["input"] == turn["input"]


@pytest.mark.cases(
    "part, pointer",
    [
        ({"type": "image"}, "/input/0"),
        ({"type": "image", "data": "AA==", "url": "https://a.example/"}, "/input/0"),
        ({"type": "image", "data": "not base64!"}, "/input/0/data"),
        ({"type": "image", "data": "AAA"}, "/input/0/data"),
        ({"type": "text", "text": " "}, "/input/0/text"),
        ({"type": "text", "text": "x", "url": "https://a.example/"}, "/input/0"),
        ({"type": "audio", "data": "AA=="}, "/input/0/type"),
        ({"type": "image", "data": "AA==", "colour": "red"}, "/input/0/colour"),
        ({"type": "image", "file_id": "file_" + "0" * 32}, "/input/0/file_id"),
        ({"type": "image", "file_id": "../x"}, "/input/0/file_id"),
        ({"type": "image", "url": "http://127.0.0.1/a.png"}, "/input/0"),
        ({"type": "image", "url": "http://169.254.169.254/latest/meta-data"}, "/input/0"),
        ({"type": "image", "url": "file:///etc/passwd"}, "/input/0"),
        ({"type": "image", "data": base64.b64encode(pdf()).decode()}, "/input/0"),
        ({"type": "file", "data": base64.b64encode(b"PK\x03\x04\xff").decode()}, "/input/0"),
        ({"type": "file", "data": base64.b64encode(pdf(password="x")).decode()}, "/input/0"),
    ],
)
def test_a_part_that_cannot_be_is_refused_at_its_place(client: FlaskClient, part: dict[str, Any], pointer: str) -> None:
    answer = asked(client, part)
    assert answer.status_code == 422, answer.text
    assert [flaw["pointer"] for flaw in answer.get_json()["errors"]] == [pointer]


@pytest.mark.cases("given", [[], [{"type": "text", "text": "x"}] * 101, {}, 7, None])
def test_an_input_that_is_neither_text_nor_parts_is_refused(client: FlaskClient, given: Any) -> None:
    assert client.post("/v1/sessions/s1/turns", json={"input": given}).status_code == 422


def test_only_base64_makes_a_body_large(live: Live) -> None:
    def submit(session: str, given: Any, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=60)
        body = json.dumps({"input": given})
        chunked = headers.pop("chunked", "")
        sent: Any = iter([body.encode()]) if chunked else body
        head = {"Content-Type": "application/json", **headers}
        connection.request("POST", f"/v1/sessions/{session}/turns", sent, head, encode_chunked=bool(chunked))
        answer = connection.getresponse()
        found = answer.status, json.loads(answer.read())
        connection.close()
        return found

    big = png(filler=6 * 1024 * 1024)
    status, turn = submit("s1", [{"type": "text", "text": "x" * 9_000}, image(big)])
    assert status == 202, turn
    assert submit("s2", [image(big)], chunked="yes")[0] == 202
    assert submit("s3", [{"type": "text", "text": "x" * 1_100_000}, image(big)])[0] == 413
    assert submit("s4", "x" * 1_100_000)[0] == 413
    assert submit("s5", [image(png(filler=22 * 1024 * 1024))])[0] == 413


def test_an_idempotency_key_compares_bytes_and_keeps_them_once(client: FlaskClient, stage: WebStage) -> None:
    key = {"Idempotency-Key": "k"}
    first = asked(client, image(), **key).get_json()
    again = asked(client, image(), **key)
    assert (again.get_json()["id"], again.headers["Idempotency-Replayed"]) == (first["id"], "true")
    other = asked(client, image(png(7, 7)), **key)
    assert (other.status_code, slug_of(other)) == (422, "idempotency-mismatch")
    assert len(client.get("/v1/files").get_json()["data"]) == 1
    assert len([path for path in stage.service.references.folder.rglob("*") if path.is_file()]) == 1


def test_a_workspace_that_is_full_says_what_to_do(make_stage: MakeStage) -> None:
    stage = make_stage()
    object.__setattr__(stage.service.settings.limits, "workspace_file_bytes", len(PNG) + 10)
    client = create_app(stage.service).test_client()
    assert upload(client).status_code == 201
    for answer in (upload(client), asked(client, image())):
        assert (answer.status_code, slug_of(answer)) == (409, "files-full")
        assert "LOOM_WORKSPACE_FILE_BYTES" in answer.get_json()["detail"]
    assert client.get("/v1/sessions/s1").status_code == 404
    assert len([path for path in stage.service.references.folder.rglob("*") if path.is_file()]) == 1


def test_a_file_that_no_session_uses_is_kept_for_a_day_and_one_that_is_used_as_long_as_its_session(
    client: FlaskClient, stage: WebStage
) -> None:
    unused, used = (upload(client).get_json()["id"] for _ in range(2))
    assert asked(client, {"type": "image", "file_id": used}).status_code == 202
    files, disk = stage.service.files, stage.service.references.stores.disk
    assert [files.tidy(now_ms() + UNUSED_MS + ms) for ms in (-60_000, 60_000)] == [0, 1]
    assert disk.get(ref_of(unused), most_bytes=10_000_000) is None
    assert client.get(f"/v1/files/{unused}").status_code == 404
    assert client.get(f"/v1/files/{used}/content").data == PNG


def test_bytes_of_a_file_whose_process_died_before_its_row_are_removed_and_no_others(
    client: FlaskClient, stage: WebStage
) -> None:
    kept, references = upload(client).get_json()["id"], stage.service.references
    stray = new_file_id(now_ms=now_ms(), chance=7)
    references.stores.disk.put(ref_of(stray), PNG)
    later_ms = now_ms() + 2 * int(stage.service.settings.blobs.ttl_s * 1000)
    assert sum(references.tidy(later_ms) for _ in range(256)) == 1
    assert references.stores.disk.get(ref_of(stray), most_bytes=10_000_000) is None
    assert client.get(f"/v1/files/{kept}/content").data == PNG


@pytest.mark.cases(
    "part, status",
    [
        ({"type": "text", "text": "mail maria@shop.example"}, 202),
        ({"type": "file", "data": base64.b64encode(b"maria@shop.example;3").decode(), "name": "a.csv"}, 422),
        ({"type": "file", "data": base64.b64encode(b"maria;3").decode(), "name": "a.csv"}, 202),
        (image(name="maria@shop.example.png"), 422),
        ({"type": "image", "url": "https://shop.example/maria@shop.example"}, 422),
    ],
)
def test_a_guardrail_redacts_text_parts_and_refuses_a_file_in_which_it_would(
    make_stage: MakeStage, part: dict[str, Any], status: int
) -> None:
    rules = Guardrails.of({"input": {"email": "redact"}})
    client = create_app(make_stage(agents=(Agent("default", backend=None, guardrails=rules),)).service).test_client()
    answer = asked(client, part)
    assert answer.status_code == status, answer.text
    assert "maria@" not in answer.text
    if status == 422:
        assert (slug_of(answer), answer.get_json()["errors"][0]["pointer"]) == ("guardrail-blocked", "/input/0")


def test_a_session_s_files_go_with_it_and_others_keep_theirs(client: FlaskClient, stage: WebStage) -> None:
    shared = upload(client).get_json()["id"]
    own = asked(client, image(png(5, 5)), {"type": "image", "file_id": shared}).get_json()["input"][0]["file_id"]
    assert asked(client, {"type": "image", "file_id": shared}, session="s2").status_code == 202
    client.delete("/v1/sessions/s1")
    assert client.get(f"/v1/files/{own}").status_code == 404
    assert client.get(f"/v1/files/{shared}").status_code == 200
    stage.service.files.tidy(0)
    disk = stage.service.references.stores.disk
    assert disk.get(ref_of(own), most_bytes=10_000) is None
    assert disk.get(ref_of(shared), most_bytes=10_000_000) == PNG
    client.delete("/v1/sessions/s2")
    assert client.get(f"/v1/files/{shared}/content").status_code == 404
