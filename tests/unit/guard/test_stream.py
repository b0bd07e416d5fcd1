"""Texts that come piece by piece."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.values.guardrails import SENSITIVE
from loom_worker.guard.redact import redacted
from loom_worker.guard.stream import CONTEXT_CHARS, MOST_HELD_CHARS, StreamFilter
from tests.unit.guard.test_findings import FOUND, HARMLESS
from tests.unit.guard.test_redact import SECRETS

VALUES = [(text, secret) for text, secret, _ in SECRETS] + [(text, found) for _, text, found in FOUND]
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
