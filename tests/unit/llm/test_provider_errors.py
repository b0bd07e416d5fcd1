"""What error responses mean, and by how much a prompt is too long."""

import pytest

from loom_worker.core.errors import Overloaded, PromptTooLong, ProviderFailed, StreamBroken
from loom_worker.llm.provider_errors import ErrorResponse, Excess, excess, read_error, retry_after_s, translated

KEY = "sk-ant-api03-verysecret"
NOW_S = 1_800_000_000.0


def error_of(status=200, kind="", message="", headers=None):
    return translated(ErrorResponse(status, kind, message, headers or {}), model="claude-typo", now_s=NOW_S, secret=KEY)


@pytest.mark.cases("status", [408, 409, 425, 429, 500, 502, 503, 504, 520, 529])
def test_a_busy_provider_is_overloaded(status):
    error = error_of(status, headers={"retry-after": "3"})
    assert type(error) is Overloaded
    assert error.retry_after_s == 3.0


@pytest.mark.cases("kind", ["overloaded_error", "rate_limit_error", "timeout_error"])
@pytest.mark.cases("status", [200, 400, 500])
def test_a_busy_kind_is_overloaded_whatever_the_status(kind, status):
    assert type(error_of(status, kind)) is Overloaded


def read(status, body):
    response = read_error(status, body)
    return translated(response, model="claude-typo", now_s=NOW_S, secret=KEY)


def in_error(**error):
    return {"error": error}


@pytest.mark.cases(
    ("status", "body"),
    [
        (200, in_error(message="The model `m` is not allowed for this key", type="permission_error", code=403)),
        (200, in_error(message="?", code=401)),
        (200, in_error(message="?", code="404")),
        (200, in_error(message="No such thing", code="model_not_found")),
        (200, {"error": "Invalid API key provided"}),
        (200, {"object": "error", "message": "bad", "type": "BadRequestError", "code": 400}),
        (200, in_error(type="invalid_request_error", message="Output blocked by content filtering policy")),
        (500, in_error(type="authentication_error", message="?")),
        (500, {"detail": "Unauthorized"}),
        (500, in_error(message="The model `gpt-x` does not exist")),
        (429, in_error(type="insufficient_quota", message="You exceeded your current quota")),
        (401, in_error(type="api_error", message="?")),
        (400, in_error(type="api_error", message="?")),
        (400, "plain words"),
        (500, in_error(message="litellm.NotFoundError: AnthropicException - model: claude-x", type="None", code="500")),
        (500, in_error(code="DeploymentNotFound", message="The deployment does not exist.")),
        (200, in_error(status="PERMISSION_DENIED", message="?")),
        (200, [in_error(code=403, message="?")]),
        (200, {"success": False, "errors": [{"code": 10000, "message": "Authentication error"}]}),
        (200, {"message": "The security token included in the request is expired"}),
        (500, in_error(type="api_error", message="invalid x-api-key")),
        (500, {"error": "gemma:2b does not support tools"}),
        (422, {"detail": [{"loc": ["body", "messages", 0], "msg": "field required"}]}),
        (429, in_error(type="budget_exceeded", message="Budget has been exceeded!")),
    ],
)
def test_what_is_refused_for_good_is_not_tried_again_in_whatever_form_it_comes(status, body):
    error = read(status, body)
    assert isinstance(error, ProviderFailed)
    assert not isinstance(error, PromptTooLong)


@pytest.mark.cases(
    ("status", "body"),
    [
        (200, in_error(type="overloaded_error", message="Overloaded")),
        (500, in_error(message="Internal error")),
        (500, "<html>"),
        (503, in_error(message="authentication failed upstream")),
        (429, in_error(type="invalid_request_error", message="Rate limit reached for requests")),
        (529, {"error": "unauthorized words in a busy answer"}),
        (500, in_error(message="access denied: circuit breaker open at upstream, retry in 5s")),
        (500, in_error(message="content filter service timed out")),
        (502, in_error(message="model server pod not found")),
        (504, in_error(message="api_key pool expired entry")),
        (400, {"__type": "ThrottlingException", "message": "Too many requests"}),
        (403, in_error(code=403, status="RESOURCE_EXHAUSTED", message="Quota exceeded per minute")),
        (200, in_error(code="rate_limit_exceeded", message="Rate limit exceeded")),
        (424, {"message": "Model not ready"}),
    ],
)
def test_what_may_succeed_later_is_overloaded_in_whatever_form_it_comes(status, body):
    assert type(read(status, body)) is Overloaded


def test_the_words_of_a_gateways_provider_are_told():
    error = read(400, in_error(message="Provider returned error", code=400, metadata={"raw": "no `thinking` here"}))
    assert "no `thinking` here" in str(error)


def test_an_error_event_that_says_nothing_known_is_a_broken_stream_with_its_text():
    error = read(200, {"error": "the tape is torn"})
    assert (type(error), "the tape is torn" in str(error)) == (StreamBroken, True)


@pytest.mark.cases("status", [304, 400, 401, 402, 403, 404, 405, 422])
def test_a_refusal_for_good_is_not_tried_again(status):
    error = error_of(status, message="because")
    assert isinstance(error, ProviderFailed)
    assert not isinstance(error, PromptTooLong)
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


@pytest.mark.cases(
    "message",
    [
        "max_tokens: 200000 exceeds the maximum number of tokens that can be generated",
        "tools.0: maximum input length is 9",
    ],
)
def test_another_field_that_is_too_long_is_no_matter_of_the_prompt(message):
    assert type(error_of(400, "invalid_request_error", message=message)) is ProviderFailed


def test_a_request_that_is_too_large_is_shortened():
    assert type(error_of(413, "request_too_large")) is PromptTooLong


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


WORDS = [
    ("Input length (90000 tokens) exceeds the maximum allowed length (32768 tokens).", 90000, 32768),
    (
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        537812,
        131072,
    ),
    ("The input (90000 tokens) is longer than the model's context length (32768 tokens).", 90000, 32768),
    ("The engine prompt length 9000 exceeds the max_model_len 4096", None, 4096),
    ("number of tokens to keep from the initial prompt is greater than the context length", None, None),
    ("`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 9000 `inputs` tokens", None, None),
    ("Range of input length should be [1, 30720]", None, None),
    ("prompt is too long: 208310 tokens > 200000 maximum", 208310, 200000),
    (
        "input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000, decrease input length or "
        "`max_tokens` and try again",
        199759,
        191808,
    ),
    (
        "This model's maximum context length is 8,192 tokens. However, your messages resulted in 9,202 tokens. Please "
        "reduce the length of the messages.",
        9202,
        8192,
    ),
    (
        "This model's maximum context length is 16384 tokens. However, you requested 122946 tokens (112946 in the "
        "messages, 10000 in the completion). Please reduce the length of the messages or completion.",
        112946,
        6384,
    ),
    (
        "This model's maximum context length is 4097 tokens, however you requested 4597 tokens (4341 in your prompt; "
        "256 for the completion). Please reduce your prompt; or completion length.",
        4341,
        3841,
    ),
    (
        "'max_tokens' is too large: 1024. This model's maximum context length is 4096 tokens and your request has 3500 "
        "input tokens (1024 > 4096 - 3500).",
        3500,
        3072,
    ),
    ("The decoder prompt (length 9000) is longer than the maximum model length of 4096.", 9000, 4096),
    (
        "You passed 9001 input tokens and requested 100 output tokens. However, the model's context length is only "
        "8192 tokens, resulting in a maximum input length of 8092 tokens.",
        9001,
        8092,
    ),
    ("request (4390 tokens) exceeds the available context size (4096 tokens), try increasing it", 4390, 4096),
    ("Requested tokens (2285) exceed context window of 2048", 2285, 2048),
    (
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        1200000,
        1048576,
    ),
    (
        "Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with context "
        "length of only 4096 tokens, which is not enough",
        None,
        4096,
    ),
    ("the request exceeds the available context size. try increasing the context size", None, None),
    ("Context size has been exceeded.", None, None),
    ("the input length exceeds the context length", None, None),
    ("prompt too long; exceeded max context length by 4 tokens", None, None),
    ("Input is too long for requested model.", None, None),
    ("Prompt is too long", None, None),
    ("litellm.ContextWindowExceededError: BadRequestError", None, None),
    ("exceed_context_size_error: no", None, None),
]


@pytest.mark.cases(("message", "tokens", "limit"), WORDS)
def test_each_servers_words_are_understood(message, tokens, limit):
    assert excess(message) == Excess(tokens, limit)


@pytest.mark.parametrize(
    "message",
    [
        "",
        "max_tokens: 9000 > 8192, which is the maximum allowed number of output tokens",
        "messages: at least one message is required",
        "tools.0.name: String should have at most 128 characters",
        "Request exceeds the maximum size",
        "This request would exceed your organization's rate limit of 30,000 input tokens per minute",
        "messages.0.content: field too long",
    ],
)
def test_other_refusals_are_not_taken_for_it(message):
    assert excess(message) is None


def test_an_output_that_leaves_no_room_for_any_prompt_is_another_matter():
    message = (
        "'max_tokens' is too large: 8192. This model's maximum context length is 4096 tokens and your request has 9 "
    )
    assert excess(message + "input tokens (8192 > 4096 - 9).") is None
