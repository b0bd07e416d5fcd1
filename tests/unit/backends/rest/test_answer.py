import gzip
import json
import tracemalloc
import zlib
from typing import Any

import pytest
from urllib3 import HTTPHeaderDict

from loom_worker.backends.rest.client import MAX_SHOWN_CHARS, SecretMask, failure_text, read_answer
from loom_worker.core.errors import ToolFailed
from loom_worker.guard.net.http import HttpResponse

LIMIT = 1000


def answer(
    body: bytes, content_type: str | None = "application/json", *, status: int = 200, **more: Any
) -> HttpResponse:
    headers = HTTPHeaderDict({name.replace("_", "-"): value for name, value in more.items()})
    if content_type is not None:
        headers["Content-Type"] = content_type
    return HttpResponse(status, headers, body)


def got(given: HttpResponse, *, method: str = "GET", secret: str = "s3cret", max_bytes: int = LIMIT) -> object:
    return read_answer(given, method=method, mask=SecretMask((secret,)), max_bytes=max_bytes)


@pytest.mark.cases(
    ("body", "content_type", "expected"),
    [
        (b'{"a": [1, null]}', "application/json", {"a": [1, None]}),
        (b"[1]", "application/problem+json; charset=utf-8", [1]),
        (b"[1]", None, [1]),
        (b"[1", "application/json", "[1"),
        (b"[NaN]", "application/json", "[NaN]"),
        (b"9" * 900, "application/json", int("9" * 900)),
        (b"plain", "text/plain", "plain"),
        (b"[1]", "text/plain", "[1]"),
        ("größe".encode("latin-1"), "text/plain; charset=ISO-8859-1", "größe"),
        ("größe".encode(), "text/plain; charset=idna", "größe"),
        (b"\xff", "text/csv", "\ufffd"),
        (b"<a/>", "application/atom+xml", "<a/>"),
        (b"\x89PNG", "image/png", {"bytes": 4, "content_type": "image/png"}),
        (b"x", "Application/Octet-Stream", {"bytes": 1, "content_type": "application/octet-stream"}),
        (b"", "application/json", {"status": 200}),
        (b"key s3cret", "text/plain", "key ***"),
        (b'{"s3cret": "\\u0073\\u0033cret"}', "application/json", {"***": "***"}),
        (b"[" * 900, "application/json", "[" * 900),
    ],
)
def test_an_answer_becomes_what_it_says_it_is(body: bytes, content_type: str | None, expected: object) -> None:
    assert got(answer(body, content_type)) == expected


def test_json_nested_deeper_than_a_parser_goes_is_text() -> None:
    body = b"[" * 20_000 + b"]" * 20_000
    assert got(answer(body), max_bytes=100_000) == body.decode()


@pytest.mark.cases("depth", [300, 450, 600, 900])
def test_json_that_is_too_deep_to_be_searched_for_the_secret_is_searched_as_text(depth: int) -> None:
    body = "[" * depth + '"s3cret"' + "]" * depth
    found = got(answer(body.encode()), max_bytes=100_000)
    assert "s3cret" not in (found if isinstance(found, str) else json.dumps(found))


def test_what_is_too_long_comes_as_a_beginning_that_says_so() -> None:
    found = got(answer(b'["' + b"x" * LIMIT + b'"]'))
    assert isinstance(found, str)
    assert found.startswith("[Warning: longer than 1,000 bytes; only its beginning follows]\n[")
    assert found.endswith("x")


def test_gzip_is_unpacked() -> None:
    assert got(answer(gzip.compress(b"[1]", mtime=0), Content_Encoding="GZIP")) == [1]
    assert got(answer(b"", Content_Encoding="gzip")) == {"status": 200}


def test_a_bomb_is_unpacked_no_further_than_the_limit() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(bytes(1_000_000)) for _ in range(100)) + packer.flush()
    tracemalloc.start()
    found = got(answer(bomb, "text/plain", Content_Encoding="gzip"), max_bytes=10_000_000)
    assert tracemalloc.get_traced_memory()[1] < 60_000_000
    tracemalloc.stop()
    assert isinstance(found, str)
    assert found.startswith("[Warning: ")
    assert len(found) < 10_000_100


@pytest.mark.cases(
    ("body", "encoding"),
    [
        (b"not gzip", "gzip"),
        (gzip.compress(b"[1, 2, 3]", mtime=0)[:-9], "gzip"),
        (gzip.compress(b"[1,", mtime=0) + gzip.compress(b"2]", mtime=0), "gzip"),
        (b"x", "br"),
        (b"x", "gzip, gzip"),
        (zlib.compress(b"[1]"), "deflate"),
    ],
)
def test_what_is_packed_otherwise_or_broken_is_a_failure(body: bytes, encoding: str) -> None:
    with pytest.raises(ToolFailed) as failed:
        got(answer(body, Content_Encoding=encoding))
    assert failed.value.code == "UNAVAILABLE"
    assert failure_text(answer(body, Content_Encoding=encoding), mask=SecretMask(), max_bytes=LIMIT) == ""


def test_a_head_gives_the_headers_worth_knowing() -> None:
    given = answer(b"", "text/csv", ETag='"s3cret"', Set_Cookie="x")
    assert got(given, method="HEAD") == {"status": 200, "headers": {"content-type": "text/csv", "etag": '"***"'}}


@pytest.mark.cases(
    ("body", "content_type", "shown"),
    [
        (b'{"error":\n  "no such thing"}', "application/json", '{"error": "no such thing"}'),
        (b"the key s3cret is wrong", "text/plain", "the key *** is wrong"),
        (b" " * 9_990 + b"s3cret", "text/plain", "***"),
        (b"x" * 900, "text/plain", "x" * (MAX_SHOWN_CHARS - 1) + "…"),
        (b"\x89PNG", "image/png", ""),
        (b"", None, ""),
    ],
)
def test_a_failure_is_explained_in_a_line(body: bytes, content_type: str | None, shown: str) -> None:
    given = answer(body, content_type, status=400)
    assert failure_text(given, mask=SecretMask(("s3cret",)), max_bytes=100_000) == shown
