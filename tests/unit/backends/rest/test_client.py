import base64
import gzip
import json
import socket
import threading
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from urllib3 import HTTPHeaderDict

from loom_worker.backends.rest.client import (
    MAX_ANSWER_BYTES,
    MAX_SHOWN_CHARS,
    RestClient,
    SecretMask,
    auth_headers,
    failure_text,
    read_answer,
    retry_advice,
    secret_mask,
)
from loom_worker.core.errors import BadSettings, ToolFailed
from loom_worker.core.values.agents import Auth
from loom_worker.guard.net.address import Lookup, target
from loom_worker.guard.net.http import HttpRequest, HttpResponse
from tests.support.webhook_receiver import Answer as Told
from tests.support.webhook_receiver import WebhookReceiver, unused_port

SECRET = 'k"y/with+odd=<signs>'


@pytest.mark.cases(
    ("auth", "expected"),
    [
        (Auth("bearer", "API"), {"Authorization": f"Bearer {SECRET}"}),
        (Auth("header", "API", header="X-Key"), {"X-Key": SECRET}),
        (Auth("header", "API"), {"Authorization": SECRET}),
        (
            Auth("basic", "API", user="ann"),
            {"Authorization": "Basic " + base64.b64encode(f"ann:{SECRET}".encode()).decode()},
        ),
        (None, {}),
    ],
)
def test_the_secret_stands_in_its_header(auth: Auth | None, expected: dict[str, str]) -> None:
    assert auth_headers(auth, SECRET) == expected


@pytest.mark.cases("secret", [None, "", "two\r\nlines", "tab\t", "ünicode", " edge "])
def test_a_secret_that_cannot_be_sent_is_refused_by_its_name_alone(secret: str | None) -> None:
    with pytest.raises(BadSettings, match="LOOM_SECRET_API") as refused:
        auth_headers(Auth("bearer", "API"), secret)
    assert not secret or secret not in str(refused.value)


@pytest.mark.cases("header", ["Host", "Content-Length", "X:Y", "Transfer-Encoding", ""])
def test_the_secrets_header_cannot_be_one_that_frames_the_request(header: str) -> None:
    with pytest.raises(BadSettings, match=r"auth\.header"):
        auth_headers(Auth("header", "API", header=header), SECRET)


@pytest.mark.cases(
    "echo",
    [
        SECRET,
        f"your key is {SECRET}!",
        json.dumps({"key": SECRET}),
        json.dumps({"key": SECRET}).replace("/", "\\/"),
        quote(SECRET, safe=""),
        base64.b64encode(SECRET.encode()).decode(),
        base64.b64encode(f"ann:{SECRET}".encode()).decode(),
        "k&quot;y/with+odd=&lt;signs&gt;",
    ],
)
def test_an_echoed_secret_is_hidden_in_every_spelling(echo: str) -> None:
    hidden = secret_mask(Auth("basic", "API", user="ann"), SECRET).text(echo)
    assert "***" in hidden
    assert "odd" not in hidden
    assert base64.b64encode(SECRET.encode()).decode()[:12] not in hidden


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.just("a 12345678"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("12345678"), inner),
    max_leaves=10,
)


@given(json_values, st.sampled_from([12345678, "12345678", "x12345678x"]))
def test_a_value_holds_the_secret_nowhere(value: Any, echo: Any) -> None:
    hidden = SecretMask(("12345678",)).value({"12345678": [value, echo], "n": echo})
    assert "12345678" not in json.dumps(hidden)


@given(json_values)
def test_without_a_secret_values_stay_as_they_are(value: Any) -> None:
    assert secret_mask(None, None).value(value) == value
    assert SecretMask(("never in there",)).value(value) == value


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


SHORT_S = 0.15
"""A deadline that tests wait for."""


def a_client(url: str, *, timeout_s: float = 5, lookup: Lookup = socket.getaddrinfo, **headers: str) -> RestClient:
    return RestClient(target(url, allow_private=True), headers, timeout_s, allow_private=True, lookup=lookup)


def refusal(ask: Callable[[], HttpResponse]) -> str:
    with pytest.raises(ToolFailed) as failed:
        ask()
    assert failed.value.code == "UNAVAILABLE"
    return str(failed.value)


def test_the_clients_own_headers_win_over_the_models(receiver: WebhookReceiver) -> None:
    client = a_client(receiver.url, Authorization="Bearer s3cret")
    client.ask(HttpRequest("GET", "/a?b=1", {"Authorization": "Bearer mine", "X-Own": "1"}))
    (request,) = receiver.received
    assert (request.path, request.headers["x-own"]) == ("/a?b=1", "1")
    assert request.headers["authorization"] == "Bearer s3cret"
    assert request.headers["accept-encoding"] == "gzip"
    assert request.headers["accept"].startswith("application/json")


def test_the_secret_is_not_in_the_clients_own_words() -> None:
    assert "s3cret" not in repr(a_client("http://127.0.0.1/", Authorization="Bearer s3cret"))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_within_the_origin_is_followed(receiver: WebhookReceiver, status: int) -> None:
    absolute = f"http://127.0.0.1:{receiver.port}/c?d=%20"
    receiver.answer_with(Told(status, {"Location": "../b"}), Told(status, {"Location": absolute}), Told(200))
    assert a_client(receiver.url, Authorization="x").ask(HttpRequest("GET", "/a/a")).status == 200
    assert [request.path for request in receiver.received] == ["/a/a", "/b", "/c?d=%20"]
    assert {request.headers["authorization"] for request in receiver.received} == {"x"}


def test_three_redirects_are_followed_and_no_fourth(receiver: WebhookReceiver) -> None:
    receiver.answer_with(Told(302, {"Location": "/again"}))
    assert refusal(lambda: a_client(receiver.url).ask(HttpRequest("GET", "/"))) == "more than 3 redirects"
    assert len(receiver.received) == 4


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("http://other.example/a?token=1#x", "http://other.example/a, which is not followed"),
        ("//other.example/a", "http://other.example/a, which"),
        ("http://127.0.0.1:1/", "http://127.0.0.1:1/, which"),
        ("https://127.0.0.1:{port}/", "https://127.0.0.1:{port}/, which"),
        ("http://localhost:{port}/", "http://localhost:{port}/, which"),
        ("http://169.254.169.254/latest", "may not be called"),
        ("http://u:p@127.0.0.1:{port}/", "may not be called"),
        ("file:///etc/passwd", "may not be called"),
        ("gopher://127.0.0.1:{port}/_x", "may not be called"),
        ("http://[::1", "may not be called"),
    ],
)
def test_a_redirect_to_elsewhere_is_told_and_not_followed(receiver: WebhookReceiver, location: str, told: str) -> None:
    receiver.answer_with(Told(302, {"Location": location.format(port=receiver.port)}))
    assert told.format(port=receiver.port) in refusal(lambda: a_client(receiver.url).ask(HttpRequest("GET", "/")))
    assert len(receiver.received) == 1


def test_a_redirect_of_what_changes_something_is_not_followed(receiver: WebhookReceiver) -> None:
    receiver.answer_with(Told(307, {"Location": "/b"}))
    question = HttpRequest("POST", "/a", body=b"x")
    assert "which is not followed" in refusal(lambda: a_client(receiver.url).ask(question))
    assert len(receiver.received) == 1


@pytest.mark.parametrize("told", [Told(drip="headers"), Told(drip="body"), Told(hold=threading.Event())])
def test_a_slow_answer_ends_at_the_deadline(receiver: WebhookReceiver, told: Told) -> None:
    receiver.answer_with(told)
    text = refusal(lambda: a_client(receiver.url, timeout_s=SHORT_S).ask(HttpRequest("GET", "/")))
    assert f"no answer within {SHORT_S} s" in text
    assert "unknown" not in text


def test_all_redirects_share_one_deadline(receiver: WebhookReceiver) -> None:
    receiver.answer_with(Told(302, {"Location": "/b"}), Told(hold=threading.Event()))
    text = refusal(lambda: a_client(receiver.url, timeout_s=SHORT_S).ask(HttpRequest("GET", "/")))
    assert f"no answer within {SHORT_S} s" in text


def test_a_change_that_was_not_answered_is_told_as_unknown(receiver: WebhookReceiver) -> None:
    receiver.answer_with(Told(raw=b""))
    question = HttpRequest("POST", "/", body=b"x")
    text = refusal(lambda: a_client(receiver.url).ask(question))
    assert text == "closed without an answer; whether this POST was done is unknown"
    text = refusal(lambda: a_client(f"http://127.0.0.1:{unused_port()}").ask(question))
    assert text == "connection refused"


def test_a_body_that_is_cut_off_is_a_failure(receiver: WebhookReceiver) -> None:
    receiver.answer_with(Told(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}"))
    assert "the body is not whole" in refusal(lambda: a_client(receiver.url).ask(HttpRequest("GET", "/")))


def test_no_more_than_the_limit_is_read(receiver: WebhookReceiver) -> None:
    receiver.answer_with(Told(body=b"x" * (MAX_ANSWER_BYTES + 5_000_000)))
    answer = a_client(receiver.url).ask(HttpRequest("GET", "/"))
    assert (len(answer.body), answer.is_longer) == (MAX_ANSWER_BYTES, True)


def test_proxies_of_the_environment_are_not_used(receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{unused_port()}")
    assert a_client(receiver.url).ask(HttpRequest("GET", "/")).status == 200


@pytest.mark.cases(("header", "words"), [("120", " (asks to wait 120 s)"), (None, ""), ("soon", ""), ("9" * 99, "")])
def test_the_wish_to_be_left_alone_is_put_in_words(header: str | None, words: str) -> None:
    headers: dict[str, Any] = {} if header is None else {"Retry-After": header}
    assert retry_advice(HttpResponse(429, headers, b"")) == words
