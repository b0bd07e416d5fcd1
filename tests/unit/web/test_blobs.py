import hashlib
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from flask import Flask, g
from flask.testing import FlaskClient

from loom_worker.core.errors import NotFound
from loom_worker.core.values.api_keys import ALL_SCOPES, KeyHolder
from loom_worker.core.values.tools import DataReference
from tests.unit.blobs.made import reference
from web import problems
from web.caller import ApiCaller
from web.connection_limits import ConnectionLimiter
from web.results import CHUNK_BYTES, BlobViews

REF = f"ref_{'ab' * 16}"
DATA = bytes(range(256)) * 1_000


@dataclass
class KeptResults:
    """Large results of one workspace; stands for the service, too, of which the view asks nothing else."""

    kept: dict[str, tuple[DataReference, bytes]] = field(default_factory=dict)

    @property
    def references(self) -> "KeptResults":
        return self

    def open(self, workspace: str, ref: str) -> tuple[DataReference, bytes]:
        if workspace != "acme" or ref not in self.kept:
            raise NotFound("There is no such result, or it has expired.")
        return self.kept[ref]


@pytest.fixture
def results() -> KeptResults:
    return KeptResults({REF: (reference(REF, DATA, content_type="text/csv"), DATA)})


def client_of(results: Any, workspace: str = "acme") -> FlaskClient:
    app = Flask("web")
    BlobViews(results, ConnectionLimiter(slots=1)).mount(app)
    app.register_error_handler(Exception, problems.answer)

    @app.before_request
    def admit() -> None:
        g.caller = ApiCaller(KeyHolder(workspace, ALL_SCOPES), "req_1", "")

    return app.test_client()


@pytest.fixture
def client(results: KeptResults) -> FlaskClient:
    return client_of(results)


def test_the_whole_is_sent_with_its_length_and_checksum(client: FlaskClient) -> None:
    answer = client.get(f"/v1/blobs/{REF}")
    assert (answer.status_code, answer.data) == (200, DATA)
    assert answer.headers["Content-Length"] == str(len(DATA))
    assert answer.headers["ETag"] == f'"{hashlib.sha256(DATA).hexdigest()}"'
    assert answer.headers["Accept-Ranges"] == "bytes"


def test_it_is_streamed_in_pieces(client: FlaskClient) -> None:
    answer = client.get(f"/v1/blobs/{REF}", buffered=False)
    sizes = [len(piece) for piece in answer.response]  # type: ignore[union-attr]
    assert sizes == [CHUNK_BYTES] * (len(DATA) // CHUNK_BYTES) + [len(DATA) % CHUNK_BYTES]


def test_head_tells_the_same_and_sends_nothing(client: FlaskClient) -> None:
    head, get = client.head(f"/v1/blobs/{REF}"), client.get(f"/v1/blobs/{REF}")
    assert head.data == b""
    assert dict(head.headers) == dict(get.headers)


@pytest.mark.parametrize(
    ("kind", "shown", "name"),
    [
        ("text/csv", "text/csv; charset=utf-8", "csv"),
        ("application/json", "application/json", "json"),
        ("text/html", "text/html; charset=utf-8", "bin"),
    ],
)
def test_no_browser_runs_it(results: KeptResults, client: FlaskClient, kind: str, shown: str, name: str) -> None:
    results.kept[REF] = (replace(results.kept[REF][0], content_type=kind), DATA)
    answer = client.get(f"/v1/blobs/{REF}")
    assert answer.headers["Content-Type"] == shown
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{REF}.{name}"'
    assert answer.headers["Content-Security-Policy"] == "default-src 'none'; sandbox"


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=10-19", 10, 20),
        ("bytes=255990-", 255_990, 256_000),
        ("bytes=-7", 255_993, 256_000),
        ("bytes=-999999999", 0, 256_000),
        ("bytes=0-999999999", 0, 256_000),
        ("Bytes = 5 - 6", 5, 7),
    ],
)
def test_a_range_is_sent_as_such(client: FlaskClient, asked: str, start: int, end: int) -> None:
    answer = client.get(f"/v1/blobs/{REF}", headers={"Range": asked})
    assert (answer.status_code, answer.data) == (206, DATA[start:end])
    assert answer.headers["Content-Range"] == f"bytes {start}-{end - 1}/256000"
    assert answer.headers["Content-Length"] == str(end - start)


@pytest.mark.parametrize("asked", ["bytes=256000-", "bytes=256000-256001", "bytes=-0"])
def test_a_range_behind_the_end_is_refused(client: FlaskClient, asked: str) -> None:
    answer = client.get(f"/v1/blobs/{REF}", headers={"Range": asked})
    assert (answer.status_code, answer.headers["Content-Range"]) == (416, "bytes */256000")
    assert answer.get_json()["type"] == "/problems/range-not-satisfiable"


@pytest.mark.cases(
    "asked", ["bytes=5-4", "bytes=-", "bytes=a-b", "bytes=0-1,4-5", "rows=0-9", "", f"bytes={'9' * 99}-", "bytes=١-٢"]
)
def test_what_is_no_single_range_gets_the_whole(client: FlaskClient, asked: str) -> None:
    answer = client.get(f"/v1/blobs/{REF}", headers={"Range": asked})
    assert (answer.status_code, len(answer.data)) == (200, len(DATA))


def test_a_range_of_another_version_gets_the_whole(client: FlaskClient) -> None:
    tag = client.head(f"/v1/blobs/{REF}").headers["ETag"]
    ways = [(tag, 206), ('"another"', 200), (f"W/{tag}", 200), ("Wed, 21 Oct 2026 07:28:00 GMT", 200)]
    for given, status in ways:
        answer = client.get(f"/v1/blobs/{REF}", headers={"Range": "bytes=0-9", "If-Range": given})
        assert answer.status_code == status, given


def test_who_has_it_is_not_sent_it_again(client: FlaskClient) -> None:
    tag = client.head(f"/v1/blobs/{REF}").headers["ETag"]
    for given in (tag, f"W/{tag}", f'"another", W/{tag}', "*"):
        answer = client.get(f"/v1/blobs/{REF}", headers={"If-None-Match": given})
        assert (answer.status_code, answer.data, answer.headers["ETag"]) == (304, b"", tag), given
    assert client.get(f"/v1/blobs/{REF}", headers={"If-None-Match": '"another"'}).status_code == 200


def test_an_empty_result_is_sent_and_has_no_ranges(results: KeptResults, client: FlaskClient) -> None:
    results.kept[REF] = (reference(REF, b""), b"")
    answer = client.get(f"/v1/blobs/{REF}")
    assert (answer.status_code, answer.data, answer.headers["Content-Length"]) == (200, b"", "0")
    assert client.get(f"/v1/blobs/{REF}", headers={"Range": "bytes=0-"}).status_code == 416


def test_what_is_expired_or_another_workspaces_is_not_found(results: KeptResults, client: FlaskClient) -> None:
    assert client.get("/v1/blobs/ref_1").status_code == 404
    assert client_of(results, "other").get(f"/v1/blobs/{REF}").status_code == 404


def test_a_lost_or_damaged_file_is_told_as_such() -> None:
    class Damaged(KeptResults):
        def open(self, _workspace: str, ref: str) -> tuple[DataReference, bytes]:
            raise NotFound(f"The result cannot be read: the data of {ref} is damaged.", "blob-damaged")

    answer = client_of(Damaged()).get(f"/v1/blobs/{REF}")
    assert (answer.status_code, answer.get_json()["type"]) == (404, "/problems/blob-damaged")
    assert "damaged" in answer.get_json()["detail"]
