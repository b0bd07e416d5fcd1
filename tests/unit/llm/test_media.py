"""What images and PDFs take of a window, by the rules of their makers."""

import pytest

from loom_worker.core.values.agents import ModelChoice
from loom_worker.core.values.chat import ChatMessage, ToolOutcome
from loom_worker.core.values.media import Media
from loom_worker.llm.catalog import sees
from loom_worker.llm.media import media_tokens, within, without_media


def image(width: int, height: int) -> Media:
    return Media("file_" + "a" * 32, "image/png", "a.png", 1_000, width, height)


PAPER = Media("file_" + "b" * 32, "application/pdf", "b.pdf", 1_000, pages=3)


@pytest.mark.cases(
    ("model", "width", "height", "tokens"),
    [
        ("claude-sonnet-4-5", 200, 200, 54),
        ("claude-sonnet-4-5", 1_092, 1_092, 1_590),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", 8_000, 8_000, 1_600),
        ("openrouter/anthropic/claude-sonnet-4.5", 8_000, 8_000, 1_600),
        ("openai/gpt-4o", 1_024, 1_024, 765),
        ("openai/gpt-4o", 2_048, 4_096, 1_105),
        ("azure/gpt-4o", 1_024, 1_024, 765),
        ("openrouter/openai/gpt-4o", 1_024, 1_024, 765),
        ("openai/gpt-4o-mini", 1_024, 1_024, 25_501),
        ("openai/gpt-5", 1_024, 1_024, 630),
        ("openai/o3", 1_024, 1_024, 675),
        ("openai/gpt-4.1-mini", 1_024, 1_024, 1_659),
        ("openai/gpt-4.1-nano", 8_000, 8_000, 3_779),
        ("gemini/gemini-2.5-flash", 960, 540, 1_548),
        ("mistral/pixtral-12b", 1_024, 1_024, 4_160),
    ],
)
def test_an_image_takes_what_its_maker_says(model: str, width: int, height: int, tokens: int) -> None:
    assert media_tokens(image(width, height), model) == tokens


@pytest.mark.cases(
    ("model", "width", "height", "at_least"),
    [
        ("xai/grok-4", 448, 448, 1_792),
        ("ollama/qwen2.5-vl", 3_584, 3_584, 16_384),
        ("us.amazon.nova-lite-v1:0", 1_300, 1_300, 2_600),
        ("openai/gpt-6-luna", 1_600, 1_600, 2_500),
        ("groq/meta-llama/llama-4-scout-17b-16e-instruct", 1, 1, 1),
        ("together/meta-llama/Llama-3.2-11B-Vision", 1_120, 1_120, 1_601),
    ],
)
def test_an_image_takes_no_more_than_is_counted_for_it(model: str, width: int, height: int, at_least: int) -> None:
    assert media_tokens(image(width, height), model) >= at_least


@pytest.mark.cases("model", ["claude-sonnet-5-5", "openai/gpt-6-sol", "openrouter/openai/gpt-4o"])
def test_a_page_takes_its_text_and_its_image(model: str) -> None:
    assert media_tokens(PAPER, model) == 3 * (3_000 + media_tokens(image(1_190, 1_568), model))


ALL, IMAGES, NOTHING = frozenset({"images", "files"}), frozenset({"images"}), frozenset[str]()


@pytest.mark.cases(
    ("chosen", "address", "shown"),
    [
        (ModelChoice("anthropic", "claude-sonnet-5-5"), None, ALL),
        (ModelChoice("bedrock", "us.amazon.nova-lite-v1:0"), None, ALL),
        (ModelChoice("bedrock", "us.amazon.nova-micro-v1:0"), None, NOTHING),
        (ModelChoice("openai", "gpt-4o"), None, ALL),
        (ModelChoice("openai", "gpt-4o"), "https://gateway.example/v1", IMAGES),
        (ModelChoice("openai", "gpt-3.5-turbo"), None, NOTHING),
        (ModelChoice("azure", "gpt-4o"), None, IMAGES),
        (ModelChoice("openrouter", "anthropic/claude-sonnet-4.5"), None, ALL),
        (ModelChoice("groq", "meta-llama/llama-4-scout-17b-16e-instruct"), None, IMAGES),
        (ModelChoice("groq", "llama-3.3-70b-versatile"), None, NOTHING),
        (ModelChoice("deepseek", "deepseek-chat"), None, NOTHING),
        (ModelChoice("xai", "grok-99"), None, IMAGES),
        (ModelChoice("ollama", "llava", is_local=True), None, NOTHING),
        (ModelChoice("ollama", "llava", is_local=True, can_see=True), "http://127.0.0.1:11434", IMAGES),
        (ModelChoice("openai", "mine", is_local=True), "http://127.0.0.1:8080/v1", NOTHING),
        (ModelChoice("openai", "mine", is_local=False), "http://127.0.0.1:8080/v1", IMAGES),
        (ModelChoice("openai", "gpt-4o", can_see=False), None, NOTHING),
        (ModelChoice("scripted", "scripted-demo"), None, NOTHING),
    ],
)
def test_a_model_is_shown_what_it_is_known_to_see(
    chosen: ModelChoice, address: str | None, shown: frozenset[str]
) -> None:
    assert sees(chosen, address) == shown


def test_only_what_a_model_sees_stays_in_a_message() -> None:
    outcome = ToolOutcome("c1", "find", "x", media=(image(3, 2),))
    message = ChatMessage("user", "x", outcomes=(outcome,), media=(image(3, 2), PAPER))
    assert [each.kind for each in without_media(message, sees=IMAGES).all_media] == ["images", "images"]
    assert without_media(message).all_media == ()
    assert without_media(message, sees=ALL) is message


def test_the_oldest_media_become_lines_where_all_are_too_many_bytes() -> None:
    messages = [ChatMessage("user", "x", media=(image(3, 2),)) for _ in range(3)]
    assert [len(each.media) for each in within(messages, most_bytes=2_000)] == [0, 1, 1]
