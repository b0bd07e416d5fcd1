import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from web.strict_json import MAX_DEPTH, parse_object


def nested(levels: int, inner: str = "1") -> bytes:
    """A body of so many levels."""
    return ('{"a":' + "[" * (levels - 1) + inner + "]" * (levels - 1) + "}").encode()


@pytest.mark.cases(
    ("raw", "told"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"a":1,}', "not JSON"),
        (b"{'a':1}", "not JSON"),
        (b'{"a":1} x', "not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b'{"a":"\x00"}', "not JSON"),
        (b'{"a":"\n"}', "not JSON"),
        (b"[]", "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b'"text"', "must be a JSON object"),
        (b"7", "must be a JSON object"),
        (b'{"a":"\xff"}', "not UTF-8"),
        (b'{"a":"\xed\xa0\x80"}', "not UTF-8"),
        ('{"a":1}'.encode("utf-16"), "not UTF-8"),
        (b'{"a":NaN}', "NaN"),
        (b'{"a":Infinity}', "Infinity"),
        (b'{"a":-Infinity}', "-Infinity"),
        (b'{"a":1e999}', "too large"),
        (b'{"a":' + b"9" * 5000 + b"}", "64 bits"),
        (b'{"a":9223372036854775808}', "64 bits"),
        (b'{"a":[{"b":-9223372036854775808}]}', "64 bits"),
        (b'{"a":1,"a":2}', "twice"),
        (b'{"b":{"a":1,"a":1}}', "twice"),
        (b'{"a":"x\\u0000y"}', "NUL"),
        (b'{"a\\u0000":1}', "NUL"),
        (b'{"a":[[{"b":["\\u0000"]}]]}', "NUL"),
        (b'{"a":"\\ud800"}', "surrogate"),
        (b'{"a":"\\udc00\\ud800"}', "surrogate"),
        (b'{"a":[{"\\udfff":1}]}', "surrogate"),
        (nested(MAX_DEPTH + 1), "deeper"),
        (nested(MAX_DEPTH, "{}"), "deeper"),
        (nested(900), "deeper"),
        (b'{"a":' + b"[" * 500_000, "deeper"),
        (b'{"a":' * 100_000, "deeper"),
    ],
)
def test_a_body_that_would_hurt_later_is_refused(raw: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_object(raw)


@pytest.mark.cases(
    ("raw", "meant"),
    [
        (b" {} ", {}),
        (b'{"a":"\\ud83d\\ude00"}', {"a": "😀"}),
        ('{"ключ":"значение"}'.encode(), {"ключ": "значение"}),
        (b'{"a":"\\\\u0000"}', {"a": "\\u0000"}),
        (b'{"a":9223372036854775807,"b":true,"c":null,"d":-1.5e3}', {"a": 2**63 - 1, "b": True, "c": None, "d": -1500}),
        (b'{"a":1e-999}', {"a": 0.0}),
    ],
)
def test_a_sound_body_comes_through_as_it_is(raw: bytes, meant: object) -> None:
    assert parse_object(raw) == meant


def test_the_deepest_allowed_body_is_read() -> None:
    assert parse_object(nested(MAX_DEPTH))["a"]


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_raise_value_error(raw: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(parse_object(raw), dict)


KEYS = st.text("abc", max_size=3)
SOUND = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(KEYS, SOUND), st.booleans())
def test_what_python_writes_is_read_back(body: dict[str, object], is_ascii: bool) -> None:
    assert parse_object(json.dumps(body, ensure_ascii=is_ascii).encode()) == body
