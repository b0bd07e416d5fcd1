"""Cutting a body into events."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.errors import StreamBroken
from loom_worker.llm.sse import events


def wire(*each, end="\n\n"):
    return "".join(f"event: x\ndata: {json.dumps(one, ensure_ascii=False)}{end}" for one in each).encode()


@given(st.lists(st.integers(1, 9)), st.sampled_from(["\n\n", "\r\n\r\n"]))
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


@pytest.mark.cases("data", [b"[DONE]", b"{", b"[]", b"1", b"\xff", b"[" * 100_000])
def test_data_that_is_no_object_breaks_the_stream(data):
    with pytest.raises(StreamBroken):
        list(events([b"data: " + data + b"\n\n"]))


def test_html_holds_no_events():
    assert list(events([b"<html>\n\n<body>data: no</body>\n\n</html>\n"])) == []
