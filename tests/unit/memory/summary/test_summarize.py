import logging
from pathlib import Path

import pytest
import yaml

from loom_worker.core.errors import Interrupted, LoomError, Overloaded, ProviderFailed, StreamBroken, Unavailable
from loom_worker.core.values.chat import ChatMessage, StopReason
from loom_worker.memory.summarize import MOST_TOKENS, of_notes, of_part
from tests.unit.memory.summary.conversation import Says, count, means, message, talk

PART = talk(4)
TOKENS = sum(message.token_count for message in PART)


def test_the_model_writes_the_summary_and_its_cost_is_known() -> None:
    summary = of_part(PART, means(Says()), tokens=TOKENS)
    assert (summary.text, summary.by) == ("Ada sends the orders.", "claude-compressor")
    assert summary.usage.cost_usd == 0.5


@pytest.mark.parametrize("failure", [Overloaded("busy", None), StreamBroken("cut"), ProviderFailed("no key")])
def test_a_summary_is_written_without_the_model_if_that_fails(
    failure: LoomError, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        summary = of_part(PART, means(Says(lambda _: failure)), tokens=TOKENS)
    assert summary.by == "heuristic"
    assert "1000" in summary.text
    assert "Ada" in summary.text
    assert str(failure) in caplog.text


@pytest.mark.parametrize(("text", "stop_reason"), [("I cannot help with that.", "refusal"), ("  \n", "end_turn")])
def test_a_refusal_or_an_empty_reply_is_no_summary_yet_is_paid(text: str, stop_reason: StopReason) -> None:
    summary = of_part(PART, means(Says(lambda _: text, stop_reason)), tokens=TOKENS)
    assert summary.by == "heuristic"
    assert summary.usage.cost_usd == 0.5


CASES = yaml.safe_load((Path(__file__).parents[1] / "data" / "said.yaml").read_text(encoding="utf-8"))
FERRY = tuple(message(n, ChatMessage("user", text)) for n, text in enumerate(CASES["talk"]))


@pytest.mark.cases(
    "text, is_kept", [(text, kind == "summaries") for kind in ("echoes", "summaries") for text in CASES[kind]]
)
def test_what_repeats_the_prompt_or_calls_a_tool_is_no_summary(text: str, is_kept: bool) -> None:
    summary = of_part(FERRY, means(Says(lambda _: text)), tokens=100)
    assert (summary.by == "claude-compressor", summary.usage.cost_usd) == (is_kept, 0.5)


def test_without_a_model_the_summary_costs_nothing() -> None:
    summary = of_part(PART, means(None), tokens=TOKENS)
    assert (summary.by, summary.usage.llm_calls) == ("heuristic", 0)


def test_a_reply_that_is_far_too_long_is_shortened() -> None:
    long = "Order 1003 was sent by Ada on 4 March. " * 2_000
    assert count(of_part(PART, means(Says(lambda _: long)), tokens=TOKENS).text) <= MOST_TOKENS


@pytest.mark.parametrize("failure", [Interrupted("stopping"), Unavailable("The database does not answer.")])
def test_a_worker_that_stops_or_has_no_database_writes_no_summary_of_its_own(failure: LoomError) -> None:
    with pytest.raises(type(failure)):
        of_part(PART, means(Says(lambda _: failure)), tokens=TOKENS)


def test_summaries_are_a_fraction_of_what_they_are_about() -> None:
    part = talk(8, words=400)
    tokens = sum(message.token_count for message in part)
    assert count(of_part(part, means(None), tokens=tokens).text) <= tokens // 5


def test_a_digest_leaves_most_of_l2_to_what_comes() -> None:
    notes = "\n".join(f"Ada sent order {n} on 3 March." for n in range(500))
    for model in (None, Says(lambda _: notes)):
        assert count(of_notes(notes, means(model, l2_tokens=2_000)).text) <= 800
