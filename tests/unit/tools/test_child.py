import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.tools.pool import packed, unpacked

TEXT = st.text(st.characters(exclude_categories=()), max_size=12)
MESSAGES = st.dictionaries(TEXT, TEXT | st.integers() | st.none() | st.lists(TEXT, max_size=3), max_size=4)


@given(st.lists(MESSAGES, max_size=3))
def test_what_is_packed_comes_out_as_it_was_one_after_the_other(messages: list[dict[str, Any]]) -> None:
    stream = io.BytesIO(b"".join(map(packed, messages)))
    assert [unpacked(stream.read) for _ in messages] == messages
    assert unpacked(stream.read) is None


@given(MESSAGES, st.data())
def test_half_a_message_is_none(message: dict[str, Any], data: st.DataObject) -> None:
    raw = packed(message)
    assert unpacked(io.BytesIO(raw[: data.draw(st.integers(0, len(raw) - 1))]).read) is None


@pytest.mark.cases(
    ("raw", "said"),
    [
        (packed({"a": "x" * 100}), "at most 50 are read"),
        (b"\0\0\0\x02[]", "must be a JSON object"),
        (b"\0\0\0\x01{", "Expecting"),
        (b"\0\0\0\x01\xff", "invalid start byte"),
        (b"noise on the line", "at most 50"),
    ],
)
def test_what_is_no_message_is_refused(raw: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        unpacked(io.BytesIO(raw).read, most_bytes=50)
