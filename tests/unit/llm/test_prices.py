"""What calls cost."""

import json
from datetime import date
from importlib.resources import files

import pytest

from loom_worker.cli import setting_checks
from loom_worker.core.errors import BadSettings
from loom_worker.core.settings import from_env
from loom_worker.core.values.budgets import usd
from loom_worker.core.values.chat import Reply, Usage
from loom_worker.llm.prices import SMALL, cost_usd, packaged, plain_name, small_model, use, with_cost

MILLION = 1_000_000
CLAUDES = {name: price.tokens for name, price in packaged()[1].items() if name.startswith("claude-")}


@pytest.mark.cases(
    ("model", "usd_in", "usd_out"),
    [
        ("claude-3-haiku-20240307", 0.25, 1.25),
        ("claude-3-5-haiku-latest", 0.8, 4),
        ("claude-haiku-4-5-20251001", 1, 5),
        ("claude-3-5-sonnet-20240620", 3, 15),
        ("claude-3-7-sonnet-20250219", 3, 15),
        ("claude-sonnet-4-20250514", 3, 15),
        ("claude-sonnet-4-5", 3, 15),
        ("claude-sonnet-4-6", 3, 15),
        ("claude-3-opus-20240229", 15, 75),
        ("claude-opus-4-20250514", 15, 75),
        ("claude-opus-4-0", 15, 75),
        ("claude-opus-4-1-20250805", 15, 75),
        ("claude-opus-4-5@20251101", 5, 25),
        ("claude-opus-4-8", 5, 25),
        ("claude-opus-5-5", 4, 20),
        ("claude-sonnet-5-5", 2, 10),
    ],
)
def test_a_model_costs_its_list_price(model, usd_in, usd_out):
    # In hundredths of a million, as some models have other rates for longer prompts.
    assert cost_usd(model, Usage(input_tokens=MILLION // 100)) == usd(usd_in) / 100
    assert cost_usd(model, Usage(output_tokens=MILLION)) == usd(usd_out)


def test_cache_writes_and_reads_have_their_own_rates():
    usage = Usage(input_tokens=1000, output_tokens=100, cache_read_tokens=10_000, cache_write_tokens=2000)
    expected = "0.015"
    assert cost_usd("claude-sonnet-4-5", usage) == usd(expected)


def test_a_long_prompt_has_its_rates_for_the_whole_call():
    short = Usage(input_tokens=90_000, cache_read_tokens=10_000)
    long = Usage(input_tokens=90_000, cache_read_tokens=10_001, output_tokens=1000)
    assert cost_usd("claude-haiku-5-5", short) == usd("0.0091")
    assert cost_usd("claude-haiku-5-5", long) == usd("0.04800005")


@pytest.mark.cases("model", ["", "llama3", "claude", "claude-opus-4-99", "claude-sonnet-4-5-mini", "gpt-5"])
def test_an_unknown_model_has_no_price_rather_than_none_to_pay(model):
    assert cost_usd(model, Usage(input_tokens=5)) is None


@pytest.mark.cases(
    ("named", "plain"),
    [
        ("anthropic.claude-opus-4-6-v1", "claude-opus-4-6"),
        ("anthropic.claude-sonnet-4-6", "claude-sonnet-4-6"),
        ("anthropic.claude-opus-4-8", "claude-opus-4-8"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5-20250929"),
        ("global.anthropic.claude-opus-4-5-20251101-v1:0", "claude-opus-4-5-20251101"),
        ("us-gov.anthropic.claude-3-7-sonnet-20250219-v1:0", "claude-3-7-sonnet-20250219"),
        ("anthropic.claude-3-5-sonnet-20241022-v2:0", "claude-3-5-sonnet-20241022"),
        (
            "arn:aws:bedrock:eu-west-1:123456789012:inference-profile/eu.anthropic.claude-haiku-4-5-20251001-v1:0",
            "claude-haiku-4-5-20251001",
        ),
        ("arn:aws-us-gov:bedrock:us-gov-west-1::foundation-model/anthropic.claude-opus-4-6-v1", "claude-opus-4-6"),
    ],
)
def test_bedrocks_name_of_a_model_costs_what_the_model_costs(named, plain):
    assert plain_name(named) == plain
    assert cost_usd(named, Usage(input_tokens=5)) == cost_usd(plain, Usage(input_tokens=5)) is not None


@pytest.mark.cases(
    "model",
    [
        "amazon.nova-unheard-of-v1:0",
        "us.anthropic.claude-opus-4-99-v1:0",
        "anthropic.claude-opus-4-6-v1-evil",
        "arn:aws:bedrock:us-west-2:123456789012:application-inference-profile/abc",
        "ollama/gpt-oss:120b-cloud",
        "ollama/glm-4.7:cloud",
    ],
)
def test_what_is_billed_in_a_way_not_known_here_has_no_price(model):
    assert cost_usd(model, Usage(input_tokens=5)) is None


@pytest.mark.parametrize("model", ["ollama/qwen3-coder", "ollama/claude-3-5-sonnet", "ollama/me/cloudy:7b"])
def test_a_model_on_ones_own_machine_is_free(model):
    assert cost_usd(model, Usage(input_tokens=1_000_000, output_tokens=5)) == 0


def test_the_scripted_model_is_free():
    assert cost_usd("scripted-demo", Usage(input_tokens=5)) == 0


def test_a_reply_is_priced_by_the_model_that_answered():
    reply = Reply("", "end_turn", Usage(output_tokens=MILLION, cost_usd=None), "claude-haiku-4-5-20251001")
    assert with_cost(reply).usage == Usage(output_tokens=MILLION, cost_usd=usd(5.0))


def test_the_table_says_when_and_whence():
    raw = json.loads(files("loom_worker.llm").joinpath("prices.json").read_text())
    assert date.fromisoformat(raw["as_of"]) >= date(2026, 11, 1)
    assert raw["source"].startswith("https://")


@pytest.mark.cases("family", sorted(CLAUDES))
def test_reading_the_cache_costs_less_and_writing_it_more_than_plain_input(family):
    rates = CLAUDES[family]
    assert rates.cache_read <= usd("0.12") * rates.input
    assert rates.input < rates.cache_write <= usd("1.25") * rates.input
    assert rates.output == 5 * rates.input


@pytest.mark.cases(
    ("model", "small"),
    [
        ("claude-sonnet-5-5", "claude-haiku-5-5"),
        ("claude-opus-9-1-20281101", "claude-haiku-5-5"),
        ("anthropic.claude-opus-4-7", "anthropic.claude-haiku-5-5"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "us.anthropic.claude-haiku-5-5"),
        (
            "arn:aws:bedrock:us-east-1:1:inference-profile/eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
            "eu.anthropic.claude-haiku-5-5",
        ),
        ("arn:aws:bedrock:us-east-1:1:application-inference-profile/abcd", None),
        ("claude-haiku-5-5", None),
        ("ollama/qwen3", None),
        ("our-gateway-model", None),
    ],
)
def test_a_claude_has_a_small_model_beside_it_named_as_it_is(model: str, small: str | None) -> None:
    assert small_model(model) == small


def test_the_small_model_is_the_one_with_the_lowest_list_price() -> None:
    assert min(CLAUDES, key=lambda family: CLAUDES[family].input) == SMALL


def test_a_call_costs_what_the_documentation_says():
    assert cost_usd("claude-sonnet-4-5", Usage(input_tokens=1_200, output_tokens=350)) == usd("0.00885")


HEAD = "as_of: 2026-11-20\nunit: USD per million tokens\n"
RATES = "{input: 1, output: 2, cache_read: 0.5, cache_write: 3}"
LONG = "{input: 1, output: 2, long_prompt: {above_tokens: 10, input: 3, output: 4}}"
EACH = Usage(MILLION, MILLION, MILLION, MILLION)


@pytest.mark.cases(
    ("models", "model", "usage", "expected"),
    [
        (f"gpt-5.1: {RATES}", "gpt-5.1", EACH, "6.5"),
        (f"gpt-5.1: {RATES}", "gpt-5.1-mini", EACH, None),
        (f"anthropic/claude-sonnet-4-5: {RATES}", "claude-sonnet-4-5-20250929", EACH, "6.5"),
        (f"bedrock/claude-sonnet-4-5: {RATES}", "eu.anthropic.claude-sonnet-4-5-20250929-v1:0", EACH, "6.5"),
        (f"bedrock/claude-sonnet-4-5: {RATES}", "claude-sonnet-4-5", EACH, "22.05"),
        (f"ollama/qwen3: {RATES}", "ollama/qwen3", EACH, "6.5"),
        (f"m: {LONG}", "m", Usage(cache_read_tokens=9, cache_write_tokens=1), "0.00001"),
        (f"m: {LONG}", "m", Usage(cache_read_tokens=11), "0.000033"),
    ],
)
def test_prices_of_a_file_come_before_those_of_the_package(tmp_path, models, model, usage, expected):
    file = tmp_path / "prices.yaml"
    file.write_text(f"{HEAD}models:\n  {models}\n")
    use(str(file))
    try:
        assert cost_usd(model, usage) == (None if expected is None else usd(expected))
    finally:
        use(None)


@pytest.mark.cases(
    ("text", "told"),
    [
        ("", ": "),
        ("- 1", ":1: prices"),
        (HEAD, ":1: models"),
        ("models: {m: {input: 1, output: 2}}\nas_of: soon", ":2: "),
        ("as_of: 2026-11-20\nunit: EUR per token\nmodels: {m: {input: 1, output: 2}}", ":2: unit"),
        (f"{HEAD}models:\n  a.b: {{input: 1}}", ":4: models.a.b.output"),
        (f"{HEAD}models:\n  m:\n    input: -1\n    output: 2", ":5: models.m.input"),
        (f"{HEAD}models:\n  m: {{input: 1, output: 2, cach_read: 1}}", ":4: models.m.cach_read"),
        (f"{HEAD}models:\n  m: {{input: 1, output: 2, above_tokens: 9}}", ":4: models.m.above_tokens"),
        (
            f"{HEAD}models:\n  m: {{input: 1, output: 2, long_prompt: {{input: 2, output: 3}}}}",
            ":4: models.m.long_prompt",
        ),
        (f"{HEAD}models:\n  m: {{input: 1, output: 2}}\n  m: {{input: 2, output: 2}}", ":5: m has prices twice"),
        (f"{HEAD}models: {{m: {{input: 1, output: 2}}}}\n---\n{HEAD}", ":5: it must hold one"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_with_its_line_and_model_at_the_start(tmp_path, text, told):
    file = tmp_path / "prices.yaml"
    file.write_text(text)
    with pytest.raises(BadSettings) as raised:
        from_env({"LOOM_HOME": str(tmp_path), "LOOM_PRICES": str(file)}, checks=setting_checks.LIGHT)
    assert str(raised.value).startswith(f"LOOM_PRICES: {file}{told}")


@pytest.mark.cases(
    ("model", "same"),
    [
        ("openai/gpt-4o-2024-08-06", "openai/gpt-4o"),
        ("openai/gpt-6-luna-2026-10-01", "openai/gpt-6-luna"),
        ("azure/gpt-4o", "openai/gpt-4o"),
        ("gemini/gemini-2.5-pro-preview-05-06", "gemini/gemini-2.5-pro"),
        ("us.amazon.nova-pro-v1:0", "amazon.nova-pro-v1:0"),
    ],
)
def test_a_snapshot_a_region_and_azure_cost_what_the_model_does(model, same):
    used = Usage(input_tokens=1_000_000, output_tokens=1_000_000, cache_read_tokens=1_000_000)
    assert cost_usd(model, used) == cost_usd(same, used)
    assert cost_usd(model, used) is not None


@pytest.mark.cases("model", ["vllm/anything", "lmstudio/openai/gpt-oss-20b", "ollama/qwen3"])
def test_models_on_the_users_own_machines_cost_nothing(model):
    assert cost_usd(model, Usage(input_tokens=5)) == 0


@pytest.mark.cases("model", ["openai/gpt-4o-unheard-of", "openrouter/nobody/nothing", "openai/"])
def test_a_model_that_only_begins_like_another_has_no_price(model):
    assert cost_usd(model, Usage(input_tokens=5)) is None
