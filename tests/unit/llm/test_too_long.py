"""What servers say of a prompt that is too long."""

import pytest

from loom_worker.llm.too_long import Excess, excess

WORDS = [
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


@pytest.mark.cases(
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
