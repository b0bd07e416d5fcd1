"""What refusals mean."""

import pytest

from loom_worker.core.errors import Overloaded, PromptTooLong, ProviderFailed, StreamBroken
from loom_worker.llm.anthropic_errors import Refused, refusal, retry_after_s

KEY = "sk-ant-api03-verysecret"
NOW_S = 1_800_000_000.0


def error_of(status=200, kind="", message="", headers=None):
    return refusal(Refused(status, kind, message, headers or {}), model="claude-typo", now_s=NOW_S, secret=KEY)


@pytest.mark.cases("status", [408, 409, 425, 429, 500, 502, 503, 504, 520, 529])
def test_a_busy_provider_is_overloaded(status):
    error = error_of(status, headers={"retry-after": "3"})
    assert type(error) is Overloaded
    assert error.retry_after_s == 3.0


@pytest.mark.cases("kind", ["overloaded_error", "rate_limit_error", "api_error", "timeout_error"])
@pytest.mark.cases("status", [200, 400])
def test_a_busy_kind_is_overloaded_whatever_the_status(kind, status):
    assert type(error_of(status, kind)) is Overloaded


@pytest.mark.cases("status", [304, 400, 401, 402, 403, 404, 405, 413, 422])
def test_a_refusal_for_good_is_not_tried_again(status):
    error = error_of(status, message="because")
    assert type(error) is ProviderFailed
    assert str(status) in str(error)


@pytest.mark.cases(
    ("status", "kind", "named"),
    [
        (401, "", "ANTHROPIC_API_KEY"),
        (200, "authentication_error", "ANTHROPIC_API_KEY"),
        (403, "", "ANTHROPIC_API_KEY"),
        (404, "", "LOOM_MODEL"),
        (404, "", "claude-typo"),
        (413, "", "LOOM_MAX_CONTEXT_TOKENS"),
    ],
)
def test_the_text_names_what_to_set(status, kind, named):
    assert named in str(error_of(status, kind))


@pytest.mark.cases(("status", "kind"), [(400, "invalid_request_error"), (413, ""), (500, "api_error"), (200, "")])
def test_a_prompt_that_is_too_long_is_told_apart_with_its_figures(status, kind):
    error = error_of(status, kind, message="prompt is too long: 208310 tokens > 200000 maximum")
    assert type(error) is PromptTooLong
    assert (error.tokens, error.limit) == (208310, 200000)
    assert "208310 tokens > 200000 maximum" in str(error)


def test_a_kind_alone_tells_that_the_prompt_is_too_long():
    error = error_of(400, "exceed_context_size_error", message=f"no {KEY}")
    assert type(error) is PromptTooLong
    assert (error.tokens, error.limit) == (None, None)
    assert KEY not in str(error)


@pytest.mark.parametrize("status", [429, 529])
def test_a_limit_on_all_requests_together_is_no_matter_of_the_prompt(status):
    error = error_of(status, message="input tokens per minute: this request is too long for now")
    assert type(error) is Overloaded


def test_an_error_event_of_an_unknown_kind_is_a_broken_stream():
    assert type(error_of(200, "novel_error")) is StreamBroken


@pytest.mark.parametrize("message", [f"bad key {KEY}", "bad key sk-ant-other-key_1", "Authorization: Bearer abc.def"])
def test_no_key_is_ever_shown(message):
    shown = str(error_of(400, message=message))
    assert not any(part in shown for part in ("verysecret", "other-key", "abc.def"))


def test_the_providers_words_are_one_short_line():
    shown = str(error_of(400, message="too\n long " + "x" * 5000))
    assert "It says: too long x" in shown
    assert len(shown) < 300
    assert "\n" not in shown


@pytest.mark.cases(
    ("headers", "expected"),
    [
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": "4294967"}, 4_294_967.0),
        ({"retry-after": "1e30"}, 1e30),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Fri, 15 Jan 2027 08:00:30 GMT"}, 30.0),
        ({"retry-after": "Fri, 15 Jan 2027 08:00:30 -0000"}, 30.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "1e999"}, None),
        ({"retry-after": "--1"}, None),
        ({"retry-after": "Fri, 99 Foo 9999999 08:00:30 GMT"}, None),
        ({"retry-after-ms": "x"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_the_wish_to_wait_is_read_or_dropped(headers, expected):
    assert retry_after_s(headers, now_s=NOW_S) == expected
