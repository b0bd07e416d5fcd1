from typing import Any

import pytest

from loom_worker.core.values.agents import PROVIDERS, Agent, ModelChoice, provider_and_model
from loom_worker.core.values.chat import Sampling, Thinking

USUAL = ModelChoice("anthropic", "claude-sonnet-5-5")
OWN = ModelChoice("openai", "gpt-5.2", base_url="http://own", secret="OWN")
Names = tuple[str | None, str | None]


@pytest.mark.cases(
    ("name", "parts"),
    [
        ("openrouter/meta-llama/llama-3", ("openrouter", "meta-llama/llama-3")),
        ("vllm/openai/gpt-oss-120b", ("vllm", "openai/gpt-oss-120b")),
        ("meta-llama/Llama-3", (None, "meta-llama/Llama-3")),
        ("gpt-4.1", (None, "gpt-4.1")),
        ("OpenAI/gpt-4.1", (None, "OpenAI/gpt-4.1")),
        *((f"{each}/m", (each, "m")) for each in PROVIDERS),
    ],
)
def test_only_a_known_provider_before_the_first_slash_is_a_prefix(name: str, parts: Names) -> None:
    assert provider_and_model(name) == parts


@pytest.mark.cases(
    ("above", "own", "asked"),
    [  # above: provider of the workspace, model of the session or workspace; own: provider and model of the agent
        ((None, None), (None, None), ("anthropic", "claude-sonnet-5-5")),
        ((None, None), (None, "openai/gpt-4.1"), ("openai", "gpt-4.1")),
        ((None, None), (None, "meta-llama/Llama-3"), ("anthropic", "meta-llama/Llama-3")),
        ((None, None), ("openai", "openai/gpt-4.1"), ("openai", "gpt-4.1")),
        ((None, None), ("openrouter", "openai/gpt-4.1"), ("openrouter", "openai/gpt-4.1")),
        ((None, "groq/llama"), ("openai", "gpt-4.1"), ("groq", "llama")),
        ((None, "llama"), ("groq", "gpt-oss"), ("groq", "llama")),
        ((None, "llama"), (None, "groq/gpt-oss"), ("groq", "llama")),
        (("openrouter", None), (None, "openai/gpt-4.1"), ("openrouter", "openai/gpt-4.1")),
        (("openrouter", "groq/llama"), ("openai", "gpt-4.1"), ("openrouter", "groq/llama")),
        (("bedrock", "bedrock/us.x"), ("openai", "gpt-4.1"), ("bedrock", "us.x")),
        (("bedrock", None), ("anthropic", "claude-haiku-5-5"), ("bedrock", "claude-haiku-5-5")),
    ],
)
def test_a_prefix_counts_unless_a_provider_is_named_beside_or_above_it(above: Names, own: Names, asked: Names) -> None:
    found = Agent("a", llm=ModelChoice(*own)).answering(USUAL, ModelChoice(*above))
    assert (found.provider, found.model) == asked


@pytest.mark.cases(
    ("above", "access"),
    [
        ((None, None), ("http://own", "OWN")),
        ((None, "gpt-4.1"), ("http://own", "OWN")),
        ((None, "openai/gpt-4.1"), ("http://own", "OWN")),
        (("openai", None), ("http://own", "OWN")),
        ((None, "groq/llama"), (None, None)),
        ((None, "anthropic/claude"), (None, None)),
        (("openrouter", None), (None, None)),
        (("openrouter", "openai/gpt-5.2"), (None, None)),
    ],
)
def test_whoever_switches_to_another_provider_takes_no_address_and_no_key_along(above: Names, access: Names) -> None:
    agent = Agent("a", llm=OWN, compressor=ModelChoice(max_context_tokens=9))
    chosen = ModelChoice(*above)
    for found in (agent.answering(USUAL, chosen), agent.beside(agent.compressor, USUAL, chosen)):
        assert (found.base_url, found.secret) == access


@pytest.mark.cases(
    ("block", "asked"),
    [
        (ModelChoice(), ("groq", "llama", None)),  # as the session chose
        (ModelChoice(model="gpt-5-mini"), ("openai", "gpt-5-mini", "OWN")),  # of the agent's own provider
        (ModelChoice(model="mistral/small"), ("mistral", "small", None)),
        (ModelChoice("mistral", "small", secret="M"), ("mistral", "small", "M")),
        (ModelChoice("openai", "gpt-5-mini", secret="M"), ("openai", "gpt-5-mini", "M")),
    ],
)
def test_a_model_beside_the_one_that_answers_is_of_the_agents_provider_unless_it_says_so(
    block: ModelChoice, asked: tuple[str, ...]
) -> None:
    found = Agent("a", llm=OWN).beside(block, USUAL, ModelChoice(model="groq/llama"))
    assert (found.provider, found.model, found.secret) == asked


def test_a_key_without_an_address_is_of_the_usual_provider_alone() -> None:
    agent = Agent("a", llm=ModelChoice(model="claude-haiku-5-5", secret="K"))
    assert agent.answering(USUAL).secret == "K"
    assert agent.answering(USUAL, ModelChoice(model="groq/llama")).secret is None


def test_what_a_block_adds_to_requests_goes_to_its_own_provider_and_its_sampling_to_any() -> None:
    sampling, thinking = Sampling(temperature=0.1, extra={"seed": 1}), Thinking(effort="low")
    agent = Agent("a", llm=ModelChoice(model="vllm/qwen", sampling=sampling, thinking=thinking, is_local=True))
    same, other = agent.answering(USUAL), agent.answering(USUAL, ModelChoice(model="groq/llama"))
    assert (same.sampling, same.thinking, same.is_local) == (sampling, thinking, True)
    assert (other.sampling, other.thinking, other.is_local) == (Sampling(temperature=0.1), thinking, False)
    local = {each: ModelChoice(each, "m") for each in PROVIDERS}
    assert [each for each in local if Agent("a", llm=local[each]).answering(USUAL).is_local] == [
        *("vllm", "ollama", "lmstudio")
    ]


def test_what_stands_in_is_of_the_agents_provider_and_of_no_other_than_a_workspaces() -> None:
    fallbacks = (ModelChoice(model="gpt-5-mini"), ModelChoice(model="groq/llama"), ModelChoice(model="bedrock/us.x"))
    agent = Agent("a", llm=ModelChoice("openai", "gpt-5.2", base_url="http://own", secret="OWN", fallbacks=fallbacks))

    def named(**above: Any) -> list[tuple[str, str | None]]:
        return [(each.id, each.secret) for each in agent.answering(USUAL, ModelChoice(**above)).fallbacks]

    all_three = [("openai/gpt-5-mini", "OWN"), ("groq/llama", None), ("bedrock/us.x", None)]
    assert named() == named(model="xai/grok") == all_three
    assert named(provider="bedrock") == all_three[2:]


@pytest.mark.cases(
    ("provider", "model", "name"),
    [
        ("anthropic", "claude-sonnet-5-5", "claude-sonnet-5-5"),
        ("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
        ("scripted", "scripted-demo", "scripted-demo"),
        ("ollama", "qwen3", "ollama/qwen3"),
        ("openrouter", "openai/gpt-4.1", "openrouter/openai/gpt-4.1"),
    ],
)
def test_claude_has_its_plain_name_in_loom_and_all_others_their_providers_before_it(
    provider: str, model: str, name: str
) -> None:
    assert ModelChoice(provider, model).name == name
