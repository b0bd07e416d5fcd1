"""What a provider with another tokenizer counts, and what its figures make of Loom's counting."""

from functools import partial

import pytest

from bench.kinds import texts
from bench.tokens import count_request
from loom_worker.core.errors import PromptTooLong
from loom_worker.core.values.chat import ChatMessage, Request, ToolOutcome, ToolSpec, ToolUse
from loom_worker.llm import tokens
from loom_worker.llm.anthropic import Anthropic
from loom_worker.llm.anthropic_request import request_body
from loom_worker.memory.layers import corrected, correction
from tests.support.messages_rules import blocks
from tests.support.messages_server import MessagesServer, Say

pytestmark = [pytest.mark.heavy, pytest.mark.integration]

MODEL = "claude-sonnet-4-5"
TOOLS = (ToolSpec("find", "Finds things.", {"type": "object", "properties": {"q": {"type": "string"}}}),)
RATIOS = {kind: 0.95 + 0.03 * n for n, kind in enumerate(texts())}
"""The provider's tokens to cl100k's: 0.95 to 1.16, by kind of text."""
OTHER = 1.10
KINDS = {text[:2_000]: kind for kind, text in texts().items()}


def provider_tokens(body):
    """A count of its own: each text by the ratio of its kind, and a frame."""
    found = [block["text"] for block in body.get("system", [])]
    for message in body["messages"]:
        found += [block.get("text") or block.get("content") or "" for block in blocks(message["content"])]
    plain = sum(tokens.cl100k_tokens(text) * RATIOS.get(KINDS.get(text), OTHER) for text in found)
    return round(plain) + 350 + 4 * len(body["messages"]) + 30 * str(body["messages"]).count("'tool_use'")


def conversation():
    """A growing one: every second turn has a call whose result is a text of some kind."""
    said = []
    for n, text in enumerate(KINDS):
        said.append(ChatMessage("user", f"question {n}", context=text if n % 2 else ""))
        if n % 2 == 0:
            said.append(ChatMessage("assistant", tool_uses=(ToolUse(f"t{n}", "find", {"q": str(n)}),)))
            said.append(ChatMessage("tool", outcomes=(ToolOutcome(f"t{n}", "find", text),)))
        yield tuple(said)
        said.append(ChatMessage("assistant", f"answer {n}"))


def asked(messages):
    return Request("You help. " * 700, messages, memory="Known: Ann.", tools=TOOLS)


def sent_tokens(server, request):
    *_, reply = Anthropic(model=MODEL, base_url=server.url).reply(request)
    return reply.usage.sent_tokens


def test_after_the_first_reply_every_estimate_is_within_5_percent():
    off = []
    with MessagesServer(script=lambda body: Say("fine"), count=provider_tokens) as server:
        ratio = None
        for request in map(asked, conversation()):
            counted, usual = count_request(request_body(request, MODEL), MODEL)
            actual = sent_tokens(server, request)
            if ratio is not None:
                off.append(corrected(usual, ratio) / actual - 1)
            ratio = correction(actual, usual)
            assert actual <= counted
    assert len(off) == len(RATIOS) - 1
    assert max(map(abs, off)) < 0.05


def test_a_request_above_the_window_is_refused_with_the_figures_that_make_it_fit():
    *_, longest = map(asked, conversation())
    needed = provider_tokens(request_body(longest, MODEL))
    with MessagesServer(script=lambda body: Say("fine"), count=provider_tokens, window_tokens=needed - 1) as server:
        ask = partial(sent_tokens, server)
        with pytest.raises(PromptTooLong) as caught:
            ask(longest)
        shorter = next(map(asked, conversation()))
        assert ask(shorter) == provider_tokens(request_body(shorter, MODEL))
    assert (caught.value.tokens, caught.value.limit) == (needed, needed - 1)
