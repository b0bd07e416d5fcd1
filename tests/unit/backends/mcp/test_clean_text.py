from hypothesis import given
from hypothesis import strategies as st

from loom_worker.backends.mcp.clean_text import plain, short, visible


def test_what_people_write_stays() -> None:
    for text in ("Grüße, 世界 — ok?\n\ttab", "naïve café", "नमस्ते", "🧵"):
        assert visible(text) == text


def test_what_nobody_sees_goes() -> None:
    hidden = "\u200b\u200d\u2060\ufeff\u202e\u2066\u00ad\x00\x1b\x7f\ue000\U000e0061\ufe0f\U000e0100\u3164\ud800\r"
    assert visible(f"a{hidden}b") == "ab"


@given(st.text(), st.integers(1, 30))
def test_a_plain_text_is_one_short_line(text: str, limit: int) -> None:
    found = plain(text, limit)
    assert len(found) <= limit
    assert "\n" not in found
    assert visible(found) == found


def test_a_long_text_ends_in_an_ellipsis() -> None:
    assert short("abcdef", 4) == "abc…"
    assert short("abcd", 4) == "abcd"
