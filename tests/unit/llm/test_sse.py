"""Cutting a body into events."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.errors import StreamBroken
from loom_worker.llm.sse import events


def wire(*each, end="\n\n"):
    line = end[: len(end) // 2]
    return "".join(f"event: x{line}data: {json.dumps(one, ensure_ascii=False)}{end}" for one in each).encode()


@given(st.lists(st.integers(1, 9)), st.sampled_from(["\n\n", "\r\n\r\n", "\r\r"]))
def test_where_the_network_cuts_the_body_does_not_matter(sizes, end):
    sent = [{"text": "é\u2028\x85 😀"}, {"n": 2}]
    body, chunks = wire(*sent, end=end), []
    for size in sizes:
        chunks, body = [*chunks, body[:size]], body[size:]
    assert list(events([*chunks, body])) == sent


def test_an_event_that_is_not_ended_is_left_out():
    assert list(events([wire({"n": 1}) + b'data: {"n": 2}\n'])) == [{"n": 1}]


def test_comments_and_other_fields_are_passed_over():
    assert list(events([b": hello\nid: 3\nretry: 5\n\n\n" + wire({"n": 1})])) == [{"n": 1}]


def test_data_over_several_lines_is_one_event():
    assert list(events([b'data: {"n":\ndata: 1}\n\n'])) == [{"n": 1}]


@pytest.mark.cases("data", [b"{", b'{"n": 1'])
def test_data_that_is_half_an_object_breaks_the_stream(data):
    with pytest.raises(StreamBroken):
        list(events([b"data: " + data + b"\n\n"]))


@pytest.mark.cases("data", [b"", b"ping", b"null", b"\xff", b"[" * 100_000])
def test_what_only_keeps_the_connection_alive_is_passed_over(data):
    alive = b"event: ping\ndata: " + data + b"\n\ndata:" + data + b"\n\ndata\n\n"
    assert list(events([alive + wire({"n": 1}) + alive])) == [{"n": 1}]


@pytest.mark.cases("name", ["content_block_delta", "message_start"])
def test_an_event_of_a_reply_is_not_passed_over(name):
    with pytest.raises(StreamBroken):
        list(events([f"event: {name}\ndata: words\n\n".encode()]))
    assert list(events([f"event: {name}\n\n".encode() + wire({"n": 1})])) == [{"n": 1}]


def test_an_event_without_a_type_has_that_of_its_name():
    assert list(events([b'event: message_stop\ndata: {"n": 1}\n\n'])) == [{"type": "message_stop", "n": 1}]


@pytest.mark.cases(
    ("data", "error"),
    [
        ('{"error": {"message": "no"}}', {"message": "no"}),
        ('{"type": "error", "error": {"type": "x"}}', {"type": "x"}),
        ('{"message": "no", "code": 401}', {"message": "no", "code": 401}),
        ("plain words", "plain words"),
    ],
)
def test_an_error_event_is_one_whatever_it_holds(data, error):
    assert list(events([f"event: error\ndata: {data}\n\n".encode()])) == [{"type": "error", "error": error}]


@pytest.mark.cases("text", ['{"n": 1}', '\n{"n":\n\n 1}\n', '\ufeff{"n": 1}\n\ndata: ping\n\n'])
@pytest.mark.cases("size", [1, 1000])
def test_a_body_that_is_bare_json_is_an_event(text, size):
    body = text.encode()
    assert list(events([body[n : n + size] for n in range(0, len(body), size)])) == [{"n": 1}]


def test_bare_json_after_events_is_one_too():
    assert list(events([wire({"n": 1}) + b'{"error": "no"}\n' + wire({"n": 2})])) == [
        {"n": 1},
        {"error": "no"},
        {"n": 2},
    ]


def test_html_holds_no_events():
    assert list(events([b"<html>\n\n<body>data: no</body>\n\n</html>\n"])) == []


def test_the_word_that_ends_a_stream_of_openais_form_is_an_event():
    assert list(events([b'data: {"n": 1}\n\ndata: [DONE]\n\n'])) == [{"n": 1}, {"type": "done"}]
