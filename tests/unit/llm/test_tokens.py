"""Counting tokens: exact for cl100k, upwards for everything else."""

import base64
import gzip
import hashlib
import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_worker.llm import tokens
from loom_worker.llm.tokens import EXACT_BYTES, cl100k_tokens, count, factor, frame, read_ranks, typical

SCRIPTED = "scripted-demo"


@pytest.mark.cases(
    ("text", "expected"),
    [
        ("", 0),
        ("hello world", 2),
        ("tiktoken is great!", 6),
        ("antidisestablishmentarianism", 6),
        ("2 + 2 = 4", 7),
        ("お誕生日おめでとう", 9),
    ],
)
def test_counts_are_those_that_openai_publishes_for_cl100k(text, expected):
    assert count(text, SCRIPTED) == expected


def test_special_tokens_are_ordinary_text():
    assert count("<|endoftext|>", SCRIPTED) > 1


@pytest.mark.cases(
    ("model", "expected"),
    [
        ("claude-3-haiku-20240307", 1.28),
        ("claude-3-7-sonnet-latest", 1.28),
        ("claude-2.1", 1.28),
        ("claude-sonnet-4-20250514", 1.28),
        ("claude-sonnet-4-0", 1.28),
        ("claude-sonnet-4-5-20250929", 1.28),
        ("claude-haiku-4-5", 1.28),
        ("claude-opus-4-6", 1.28),
        ("claude-opus-4-7", 1.89),
        ("claude-opus-4-8-20260501", 1.89),
        ("claude-sonnet-5", 1.89),
        ("claude-haiku-5-5", 1.89),
        ("claude-novelty-9", 1.89),
        ("scripted-demo", 1.0),
        ("llama3", 1.28),
    ],
)
def test_each_family_has_its_highest_measured_ratio(model, expected):
    assert factor(model) == expected
    assert count("hello world", model) == math.ceil(2 * expected)


@given(st.text(max_size=300))
def test_no_text_makes_counting_fail_or_exceeds_its_bytes(text):
    assert 0 <= count(text, SCRIPTED) <= len(text.encode())


def test_a_lone_surrogate_is_counted():
    assert count("a\ud800b", SCRIPTED) > 0


SPOKEN = {
    "ลูกค้าสั่งซื้อกี่รายการในสัปดาห์ที่แล้วและมูลค่าเฉลี่ยเท่าไร ": 107,
    "Tuần trước khách hàng đã đặt bao nhiêu đơn hàng và giá trị trung bình là bao nhiêu? ": 54,
    "Πόσες παραγγελίες έκαναν οι πελάτες την περασμένη εβδομάδα και ποια ήταν η μέση αξία τους; ": 106,
}
"""Sentences to the tokens that the one tokenizer of the family that was published makes of them, rounded up."""


@pytest.mark.parametrize(("text", "real"), SPOKEN.items(), ids=["Thai", "Vietnamese", "Greek"])
def test_scripts_that_cl100k_knows_better_stay_within_the_bound(text, real):
    assert count(text, "claude-sonnet-4-5") >= real > cl100k_tokens(text) * factor("claude-sonnet-4-5")


@pytest.mark.cases("text", ["plain", "déjà vu", "漢字かな", "한국어", "עברית", "😀"])
def test_other_texts_count_by_the_factor_alone(text):
    assert count(text, "claude-sonnet-4-5") == math.ceil(cl100k_tokens(text) * 1.28)


@pytest.mark.cases(
    ("model", "usual"),
    [("claude-sonnet-4-5", 1.13), ("claude-3-haiku-20240307", 1.13), ("claude-opus-4-7", 1.41), ("claude-new-9", 1.41)],
)
def test_the_usual_ratio_is_the_familys_own(model, usual):
    assert typical(model) * factor(model) == pytest.approx(usual)
    assert typical(model) < 1


@pytest.mark.cases(
    ("model", "tools"),
    [
        ("claude-3-opus-20240229", 530),
        ("claude-3-haiku-20240307", 264),
        ("claude-3-5-haiku-latest", 264),
        ("claude-3-5-sonnet-20240620", 294),
        ("claude-3-5-sonnet-20241022", 346),
        ("claude-3-7-sonnet-20250219", 346),
        ("claude-sonnet-4-20250514", 346),
        ("claude-opus-4-1-20250805", 346),
        ("anthropic.claude-haiku-4-5-20251001-v1:0", 500),
        ("claude-opus-4-6", 500),
        ("claude-opus-4-8", 470),
        ("claude-sonnet-5", 470),
        ("qwen3", 150),
    ],
)
def test_the_providers_own_text_about_tools_is_that_of_the_models_generation(model, tools):
    assert frame(model).tools == tools


@pytest.mark.cases(
    ("model", "keeps"),
    [
        *((model, False) for model in ("claude-3-7-sonnet-20250219", "claude-sonnet-4-0", "claude-opus-4-1-20250805")),
        *(
            (model, False)
            for model in ("anthropic.claude-haiku-4-5-20251001-v1:0", "claude-sonnet-4-5", "claude-opus-4")
        ),
        *(
            (model, True)
            for model in ("claude-opus-4-5", "claude-sonnet-4-6", "claude-opus-5", "claude-fable-5-1", "qwen3")
        ),
    ],
)
def test_later_models_read_the_thinking_of_turns_that_have_ended(model, keeps):
    assert frame(model).keeps_thinking == keeps


@pytest.mark.parametrize("model", ["scripted-demo", "phi4", ""])
def test_where_nothing_was_measured_the_bound_is_the_estimate(model):
    assert typical(model) == 1


def patches(rng):
    """Long texts of mixed density: prose, JSON, white space, digits, Chinese, emoji, base64."""
    kinds = [
        lambda: "The quick brown fox jumps over the lazy dog. " * 20,
        lambda: json.dumps({"id": rng.randrange(10**9), "price": rng.random(), "tags": ["a", "b"]}) * 10,
        lambda: " " * 800,
        lambda: str(rng.randrange(10**300)),
        lambda: "漢字仮名交じり文" * 40,
        lambda: "😀🎉" * 100,
        lambda: base64.b64encode(hashlib.sha256(str(rng.random()).encode()).digest() * 20).decode(),
    ]
    chosen = rng.sample(kinds, k=rng.randint(1, 4))
    runs = (rng.choice(chosen)() * rng.randint(1, 30) for _ in iter(int, 1))
    text = ""
    while len(text) < EXACT_BYTES * 2:
        text += next(runs)
    return text


def exact(text):
    return len(tokens._encoding(tokens.CL100K).encode_ordinary(text))


@pytest.mark.heavy
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**9))
def test_the_estimate_of_a_long_text_is_never_below_the_count(seed):
    text = patches(random.Random(seed))
    assert exact(text) <= cl100k_tokens(text) <= len(text.encode())


def test_the_estimate_of_even_text_is_close():
    text = "The quick brown fox jumps over the lazy dog. " * 10_000
    assert cl100k_tokens(text) <= 1.05 * exact(text)


def test_a_long_text_of_few_characters_is_estimated_too():
    text = "漢" * (EXACT_BYTES // 2)
    assert exact(text) <= cl100k_tokens(text) <= len(text.encode())


LOAD = """
import sys
from loom_worker.llm.tokens import count
assert "tiktoken" not in sys.modules
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool:
    assert set(pool.map(lambda _: count("hello world", "scripted"), range(8))) == {2}
"""


def test_loading_is_late_and_leaves_nothing_in_the_temporary_folder(tmp_path):
    env = {name: text for name, text in os.environ.items() if name != "TIKTOKEN_CACHE_DIR"} | {"TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", LOAD], env=env, check=True, timeout=60)
    assert list(tmp_path.iterdir()) == []


def test_ranks_other_than_the_published_are_refused():
    with pytest.raises(RuntimeError, match="damaged"):
        read_ranks(gzip.compress(b"IQ== 0\nIg== 1\n"))


@pytest.mark.cases(
    ("model", "tokenizer"),
    [
        ("openai/gpt-4o", "o200k_base"),
        ("openai/gpt-6-luna", "o200k_base"),
        ("azure/o3-mini", "o200k_base"),
        ("groq/openai/gpt-oss-120b", "o200k_base"),
        ("openrouter/openai/gpt-5-mini", "o200k_base"),
        ("openai/gpt-4-turbo", "cl100k_base"),
        ("openai/gpt-3.5-turbo", "cl100k_base"),
    ],
)
def test_openais_models_are_counted_as_they_count(model, tokenizer):
    text = "Die längste Straße: 漢字かな, def main(): return {'a': 1}\n\n"
    assert count(text, model) == len(tokens._encoding(tokenizer).encode_ordinary(text))
    assert typical(model) == 1


@pytest.mark.cases("model", ["openai/meta-llama/Llama-3.1-8B", "openai/my-model", "vllm/gemma-3", "xai/grok-4.7"])
def test_what_another_maker_may_have_made_is_bounded(model):
    assert factor(model) == 1.28


@pytest.mark.cases(
    ("model", "same"),
    [
        ("openrouter/anthropic/claude-sonnet-4.5", "claude-sonnet-4-5"),
        ("openrouter/anthropic/claude-opus-5", "claude-opus-5"),
    ],
)
def test_claude_is_counted_alike_whoever_serves_it(model, same):
    assert (factor(model), typical(model), frame(model)) == (factor(same), typical(same), frame(same))


RECORDINGS = os.path.join(os.environ.get("LOOM_TEST_DATA", ""), "openai_recordings", "recordings.jsonl")


@pytest.mark.skipif(not os.path.exists(RECORDINGS), reason="LOOM_TEST_DATA is not set: no recordings")
def test_recorded_prompts_of_every_maker_are_no_longer_than_their_bound():
    presets = {"huggingface": "together", "cerebras": "together"}
    checked = 0
    for each in map(json.loads, Path(RECORDINGS).read_text(encoding="utf-8").splitlines()):
        messages, body = each["request"].get("messages"), each["body"]
        plain = messages and not each["request"].keys() & {"plugins", "web_search_options", "models", "preset"}
        if each["status"] != 200 or each["sse"] or not plain or not body.startswith("{") or "compound" in body:
            continue
        if any(isinstance(message.get("content"), list) for message in messages):
            continue
        if '"web_search_requests":1' in body.replace(" ", ""):
            continue
        sent = json.loads(body).get("usage", {}).get("prompt_tokens", 0)
        model = f"{presets.get(each['provider'], each['provider'])}/{each['request']['model']}"
        tools = each["request"].get("tools", [])
        texts = [*(json.dumps(message) for message in messages), *map(json.dumps, tools)]
        texts.append(json.dumps(each["request"].get("response_format", "")))
        most = sum(count(text, model) for text in texts) + 128 + 10 * len(messages) + (810 if tools else 0)
        assert sent <= most, each["id"]
        checked += 1
    assert checked > 50
