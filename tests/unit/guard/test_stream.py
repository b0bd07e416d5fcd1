"""Texts that come piece by piece."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.values.guardrails import SENSITIVE
from loom_worker.guard.findings import redacted
from loom_worker.guard.stream import CONTEXT_CHARS, MOST_HELD_CHARS, StreamFilter
from tests.unit.guard.test_findings import FOUND, HARMLESS
from tests.unit.guard.test_redact import SECRETS

VALUES = [
    *((text, secret) for text, secret, _ in SECRETS),
    *((text, found) for _, text, found in FOUND),
    ("pay to GB82 WEST 1234 5698 7654 32 now", "WEST"),
    ("<Password>hunter2 and three</Password>", "hunter2"),
    ("phone: 1 2 3 4 5 6 7 8 9 0 1 2 3 4", "4 5 6"),
]
samples = st.sampled_from([text for text, _ in VALUES] + HARMLESS + ["It is so.\n", "Then, 42 of them came.", "\n\n"])


def passed(pieces: list[str]) -> str:
    stream = StreamFilter(SENSITIVE)
    return "".join([*(stream.feed(piece) for piece in pieces), stream.end()])


@pytest.mark.cases(("text", "secret"), VALUES)
def test_a_secret_that_is_split_anywhere_does_not_pass(text: str, secret: str) -> None:
    whole = redacted(text, SENSITIVE)
    assert passed(list(text)) == whole
    for cut in range(1, len(text)):
        assert passed([text[:cut], text[cut:]]) == whole


@given(st.lists(samples, max_size=6), st.data())
def test_however_a_text_is_cut_the_same_comes_out(texts: list[str], data: st.DataObject) -> None:
    text = "\n".join(texts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    pieces = [text[one:two] for one, two in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert passed(pieces) == redacted(text, SENSITIVE)


def test_an_ordinary_text_streams_on_word_by_word() -> None:
    stream, came = StreamFilter(SENSITIVE), 0
    words = [f"word{'s' * (n % 7)} " for n in range(500)]
    for n, word in enumerate(words):
        came += len(stream.feed(word))
        assert sum(map(len, words[: n + 1])) - came <= 2 * max(map(len, words))
    assert came + len(stream.end()) == sum(map(len, words))


@pytest.mark.cases(
    "text",
    [
        "x" * 12_000,
        "没有空格的回答很长。" * 1_000,
        '{"a":"b","c":[1,2,3]},' * 500,
        '{"token":null,"a":1},' * 500,
        "https://example.com/" + "a/b-" * 2_500,
        "-----BEGIN of it all\n" + "It goes on so. " * 700,
        "eyJ" + "a" * 10_000,
    ],
)
def test_a_long_text_without_spaces_is_neither_cut_nor_held_back_for_long(text: str) -> None:
    stream, came = StreamFilter(SENSITIVE), ""
    for begin in range(0, len(text), 101):
        came += stream.feed(text[begin : begin + 101])
        assert begin + 101 - len(came) <= MOST_HELD_CHARS + 101
    assert came + stream.end() == text


@pytest.mark.timeout(120)
@pytest.mark.cases("line", ["1732261200000\n", "|1|2|3|4|5|\n", "12.50 ", "1a2b3c4d,5e6f7a8b\n"])
def test_a_list_of_numbers_does_not_stop_the_stream(line: str) -> None:
    # To part each of these words in all ways would take longer than anyone lives.
    assert passed([line] * 60) == redacted(line * 60, SENSITIVE)


@pytest.mark.heavy
def test_a_key_file_of_any_length_becomes_one_marker_and_is_not_kept_in_memory() -> None:
    stream = StreamFilter(SENSITIVE)
    out = stream.feed("Here: -----BEGIN PRIVATE" + " KEY-----\n")
    for _ in range(2_000):
        out += stream.feed("MIIEowIBAAKCAQEAabcdefghijklmnopqrstuvwxyz\n")
        assert len(stream._text) <= CONTEXT_CHARS + MOST_HELD_CHARS + 64
    out += stream.feed("-----END PRIVATE" + " KEY-----\nThat was it.") + stream.end()
    assert out == "Here: [redacted]\nThat was it."


def test_what_was_taken_out_is_told_by_kind() -> None:
    stream = StreamFilter(("email", "ssn"))
    for piece in ("Write to jo@exa", "mple.org, 853-37", "-1694 is his, and jo@exa", "mple.org"):
        stream.feed(piece)
    stream.end()
    assert stream.found == ["email", "ssn", "email"]
