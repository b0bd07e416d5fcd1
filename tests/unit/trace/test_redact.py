"""No secret and nothing of a person leaves; counts, ids and names of models do, as they are."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.values.spans import SpanEvent, TraceSpan, span_id_of
from loom_worker.trace.redact import (
    LONGEST_CHARS,
    is_credential,
    redacted_attributes,
    redacted_span,
    redacted_text,
)
from tests.unit.trace.made_spans import START_US, TRACE_ID, span

STEMS = (
    "api key", "password", "passwd", "passphrase", "secret", "client secret", "access token", "auth token", "token",
    "refresh token", "authorization", "cookie", "set cookie", "private key", "access key", "secret access key",
    "signing key", "credential", "credentials", "user password", "x api key", "db passwd", "session token",
)  # fmt: skip
SPELLINGS = {
    "snake": lambda words: "_".join(words),
    "SNAKE": lambda words: "_".join(words).upper(),
    "dotted": lambda words: "tool." + ".".join(words),
    "dashed": lambda words: "-".join(words),
    "camel": lambda words: words[0] + "".join(word.title() for word in words[1:]),
    "Pascal": lambda words: "".join(word.title() for word in words),
    "Header": lambda words: "-".join(word.title() for word in words),
}
NAMES = sorted({spell(stem.split()) for stem in STEMS for spell in SPELLINGS.values()})
GLUED = ["apikey", "APIKEY", "accesskey", "clientsecret", "authtoken", "userpassword", "pwd", "jwt", "accesstoken"]

COUNTS = (
    "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.usage.cache_read.input_tokens",
    "conversation.tokens.total", "conversation.tokens", "max_tokens", "maxTokens", "token_count", "tokenCount",
    "gen_ai.request.max_tokens", "prompt_tokens", "completionTokens", "total-tokens", "first_token_ms",
    "time_to_first_token", "tokens_per_s", "llm.token_count.total", "context.budget_tokens",
)  # fmt: skip
OTHERS = (
    "tokenizer", "keyboard", "monkey", "key", "cache_key", "author", "tool.name", "passed", "passes", "compass",
    "secretary", "account.name", "api.version", "access.count", "private", "public_key_count",
)  # fmt: skip


@pytest.mark.cases("name", [*NAMES, *GLUED])
def test_an_attribute_named_like_a_credential_is_removed(name: str) -> None:
    assert redacted_attributes({name: "hunter2", "n": 1}) == {"n": 1}
    assert redacted_attributes({name: ["hunter2", "hunter3"]}) == {}


@pytest.mark.cases("name", [*NAMES, *GLUED])
def test_so_it_is_within_a_text_that_is_json(name: str) -> None:
    inner = {"rows": [{name: "hunter2", "n": 1}]}
    for text in (json.dumps(inner), json.dumps({"text": json.dumps(inner)}), f"  {json.dumps([inner])}\n"):
        seen = redacted_text(text)
        assert "hunter2" not in seen
        assert '"n' in seen.replace("\\", "")


@pytest.mark.cases("name", COUNTS)
@pytest.mark.cases("value", [0, 1200, 3.5, "128000", "1,200"])
def test_a_count_of_tokens_is_kept(name: str, value: Any) -> None:
    assert redacted_attributes({name: value}) == {name: value}
    assert json.loads(redacted_text(json.dumps({name: value, "password": "hunter2"}))) == {name: value}


@pytest.mark.parametrize("name", ["access_token", "token", "tokens", "input_tokens"])
def test_a_token_that_is_no_number_is_removed(name: str) -> None:
    assert redacted_attributes({name: "tk_live"}) == {}


@pytest.mark.cases("name", OTHERS)
def test_a_name_that_only_looks_alike_is_kept(name: str) -> None:
    assert redacted_attributes({name: "value"}) == {name: "value"}


def test_yes_and_no_are_no_credentials() -> None:
    assert redacted_attributes({"has_password": True, "is_secret": False}) == {"has_password": True, "is_secret": False}
    assert not is_credential("password", None)


@pytest.mark.cases(
    ("name", "value"),
    [
        ("turn.id", "turn_01HZX3K7Q9A0000000000000AB"),
        ("session.id", "4111111111111111"),
        ("session_id", "555-0100-2030"),
        ("span_id", "1234567890123456"),
        ("trace.id", "12345678901234561234567890123456"),
        ("gen_ai.request.model", "claude-sonnet-4-5-20250929"),
        ("gen_ai.response.model", "anthropic.claude-3-5-sonnet-20241022-v2:0"),
        ("call.ids", ["toolu_01", "4111111111111111"]),
        ("agent.version", "2026.11.25"),
        ("rows", 4111111111111111),
        ("cost_usd", 0.1234567890123456),
    ],
)
def test_ids_models_and_numbers_stay_as_they_are(name: str, value: Any) -> None:
    assert redacted_attributes({name: value}) == {name: value}


@pytest.mark.cases("name", ["user.id", "session.id", "gen_ai.request.model"])
@pytest.mark.cases("value", ["ann@example.com", "sk-ant-api03-" + "a1B2" * 12, "ssn 123-45-6789"])
def test_an_id_that_is_an_address_or_a_key_does_not(name: str, value: str) -> None:
    assert value not in str(redacted_attributes({name: value}))


PERSONAL = {
    "email": "ann@example.com",
    "card": "4111 1111 1111 1111",
    "ssn": "123-45-6789",
    "phone": "+1 415 555 2671",
    "iban": "DE89 3704 0044 0532 0130 00",
}
SECRETS = {
    "key": "sk-ant-api03-" + "a1B2" * 12,
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "url": "postgresql://loom:hunter2pw@db/x",
    "bearer": "Authorization: Bearer abcdef0123456789abcdef",
    "named": "password=hunter2pw",
    "pem": "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0\n-----END PRIVATE KEY-----",
}
HIDDEN = [*PERSONAL.values(), "sk-ant-api03", "AKIAIOSFODNN7EXAMPLE", "hunter2pw", "abcdef0123456789", "MIIEvQIBADAN"]


@pytest.mark.cases("text", [*PERSONAL.values(), *SECRETS.values()])
def test_nothing_of_a_person_and_no_secret_leaves_in_any_place(text: str) -> None:
    said = f"Please write to {text} soon."
    whole = span(
        name=said,
        status="Error",
        status_message=said,
        attributes={"text": said, "list": ["plain", said], "json": json.dumps({"a": [said]}), said: 1},
        events=(SpanEvent(said, START_US, {"text": said, "list": [said]}),),
    )
    seen = str(redacted_span(whole))
    assert [hidden for hidden in HIDDEN if hidden in seen] == []
    assert "Please write to" in seen


def test_a_card_is_found_where_json_has_it_as_a_number() -> None:
    assert redacted_text('{"card": 4111111111111111, "n": 5551234567}') == '{"card": [redacted card], "n": 5551234567}'


def test_a_name_that_stands_twice_hides_nothing() -> None:
    seen = redacted_text('{"a": "ann@example.com", "a": 1, "password": "hunter2pw", "password": ""}')
    assert "ann@" not in seen
    assert "hunter2pw" not in seen


def test_an_address_that_json_spells_out_is_found() -> None:
    assert "example" not in redacted_text('{"mail": "ann\\u0040example.com"}')


@pytest.mark.skipif("LOOM_TEST_DATA" not in os.environ, reason="LOOM_TEST_DATA is not set")
def test_sentences_of_others_lose_what_identifies_a_person() -> None:
    """Presidio's sentences with made-up people; kinds that are not searched for, such as names, are left out."""
    sentences = json.loads(Path(os.environ["LOOM_TEST_DATA"], "pii", "sentences150.json").read_text(encoding="utf-8"))
    kinds = {"EMAIL_ADDRESS", "CREDIT_CARD", "US_SSN", "IBAN_CODE", "PHONE_NUMBER"}
    missed, n = [], 0
    for sentence in sentences:
        seen = redacted_attributes({"gen_ai.prompt": sentence["full_text"]})["gen_ai.prompt"]
        for place in sentence["spans"]:
            n += place["entity_type"] in kinds
            if place["entity_type"] in kinds and place["entity_value"] in seen:
                missed.append(place["entity_value"])
    assert n > 50
    assert len(missed) <= n * 0.05, missed


def test_a_long_text_is_searched_up_to_what_can_be_sent_and_cut_where_a_secret_could_be_torn() -> None:
    key = "sk-ant-api03-" + "a1B2" * 12
    for filler in range(LONGEST_CHARS - len(key) - 5, LONGEST_CHARS + 5):
        assert "sk-ant" not in redacted_text("x " * (filler // 2) + key + " y" * LONGEST_CHARS)


def test_json_deeper_than_can_be_read_is_searched_as_text() -> None:
    deep = "[" * 3_000 + json.dumps({"password": "hunter2pw", "mail": "ann@example.com"}) + "]" * 3_000
    seen = redacted_text(deep)
    assert "hunter2pw" not in seen
    assert "ann@" not in seen


JSON_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=20)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=8,
)


@given(JSON_VALUES, st.sampled_from([*NAMES, *GLUED]), st.integers(0, 3))
def test_a_credential_is_found_however_deep_it_lies(value: Any, name: str, depth: int) -> None:
    held: Any = {name: "correct-horse", "other": value}
    for level in range(depth):
        held = {"inner": [held]} if level % 2 else {"inner": json.dumps(held)}
    assert "correct-horse" not in str(redacted_attributes({"value": held, "text": json.dumps(held)}))


@given(st.text(alphabet=st.characters(exclude_characters="\0")), st.sampled_from([*PERSONAL.values()]))
def test_redacting_twice_is_redacting_once(text: str, personal: str) -> None:
    once = redacted_text(f"{text} {personal} {text}")
    assert redacted_text(once) == once


@given(
    st.integers(),
    st.floats(allow_nan=False),
    st.sampled_from(COUNTS),
    st.text("0123456789abcdef", min_size=32, max_size=32),
)
def test_ids_times_numbers_and_counts_of_a_span_never_change(n: int, x: float, name: str, trace_id: str) -> None:
    span_id = span_id_of(trace_id)
    given_span = TraceSpan(trace_id, span_id, trace_id[:16], "turn.reply", n, n + 1, {"n": n, "x": x, name: n})
    assert redacted_span(given_span) == given_span


def test_what_has_nothing_to_hide_is_the_same_afterwards() -> None:
    assert redacted_span(span()) == span()
    assert TRACE_ID in str(redacted_span(span()))
    text = '{ "spelled" : [1,  2.50, "so"] }'
    assert redacted_text(text) == text
