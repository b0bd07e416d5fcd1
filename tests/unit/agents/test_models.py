from pathlib import Path

import pytest

from loom_worker.agents import check
from loom_worker.agents.load import load
from loom_worker.core.settings import from_env
from loom_worker.core.values.agents import Agent, ModelChoice
from loom_worker.core.values.chat import Sampling, Thinking
from loom_worker.core.values.tiers import MemoryTiers

HEAD = "apiVersion: loom/v1\nkind: Agent\nmetadata: {name: a}\nspec:\n"
SEEDS = """
  sessions:
    memory:
      active_window: 20
      compaction:
        strategy: summarize
        summary_model: "openai/gpt-4.1-mini"
        batch_size: 50
      recent_store:
        max_messages: 1000
      summaries:
        enabled: true
        extract_facts: true
      knowledge:
        enabled: true
        scope: workspace
      embeddings:
        enabled: true
        model: "openai/text-embedding-3-small"
  storage:
    backend: sqlite
    memory:
      knowledge:
        backend: sqlite
    vector:
      backend: sqlite_vec
"""


def agent(folder: Path, spec: str) -> Agent:
    (folder / "a.yaml").write_text(HEAD + spec, encoding="utf-8")
    found = load(folder)
    assert found.problems == ()
    return found.agents["a"]


def problems(folder: Path, spec: str, **environ: str) -> list[tuple[int, str, str]]:
    found = check.models(agent(folder, spec), check.Providers(from_env(environ), has_aws=True))
    return [(each.line, each.field, f"{each.text} {each.fix}") for each in found]


def test_the_memory_of_the_design_is_that_of_an_agent_word_for_word(tmp_path: Path) -> None:
    found = agent(tmp_path, SEEDS)
    assert found.compressor == ModelChoice("openai", "gpt-4.1-mini")
    assert found.tiers is not None
    assert found.tiers == MemoryTiers(
        strategy="summarize",
        batch_size=50,
        recent_messages=1000,
        has_summaries=True,
        extracts_facts=True,
        has_knowledge=True,
        scope="workspace",
        has_embeddings=True,
        embedding_model="openai/text-embedding-3-small",
    )
    assert problems(tmp_path, SEEDS, OPENAI_API_KEY="k") == []
    ((line, field, text),) = problems(tmp_path, SEEDS, ANTHROPIC_API_KEY="k")
    assert (line, field) == (11, "spec.sessions.memory.compaction.summary_model")
    assert "OPENAI_API_KEY" in text


def test_everything_that_a_block_says_of_its_model_arrives(tmp_path: Path) -> None:
    spec = """
  llm:
    model: qwen3
    base_url: http://gpu:8000/v1
    api_key: {secret: GPU}
    fallbacks:
    - groq/llama
    - claude-haiku-5-5
    - {model: meta-llama/Llama-3, base_url: "https://h/v1", api_key: {secret: H}}
    thinking: {budget_tokens: 2000}
    temperature: 0
    top_p: 1
    top_k: 40
    seed: 0
    stop: "###"
    extra: {service_tier: auto, nested: {x: [1]}}
    local: true
  judge_llm: {model: openai/gpt-5.2, thinking: {effort: high}, temperature: 0.5}
"""
    found = agent(tmp_path, spec)
    sampling = Sampling(0.0, 1.0, 40, 0, {"service_tier": "auto", "nested": {"x": [1]}})
    last = ModelChoice("openai", "meta-llama/Llama-3", base_url="https://h/v1", secret="H")
    assert found.llm == ModelChoice(
        "openai",
        "qwen3",
        base_url="http://gpu:8000/v1",
        secret="GPU",
        fallbacks=(ModelChoice(model="groq/llama"), ModelChoice(model="claude-haiku-5-5"), last),
        thinking=Thinking(budget_tokens=2000),
        sampling=sampling,
        is_local=True,
    )
    assert found.stop_sequences == ("###",)
    assert found.judge_model.thinking == Thinking(effort="high")
    assert agent(tmp_path, "  llm: {stop: [a, b]}").stop_sequences == ("a", "b")


@pytest.mark.cases(
    ("llm", "provider"),
    [
        ("model: m", None),
        ("base_url: http://h, model: m", "openai"),
        ("base_url: http://h, model: meta-llama/Llama-3", "openai"),
        ("base_url: http://h, model: vllm/openai/gpt-oss", "vllm"),
        ("base_url: http://h, model: m, provider: anthropic", "anthropic"),
    ],
)
def test_a_model_at_an_address_of_its_own_is_openais_unless_it_says_so(
    tmp_path: Path, llm: str, provider: str | None
) -> None:
    assert agent(tmp_path, f"  llm: {{{llm}}}").llm.named_provider == provider


@pytest.mark.cases(
    ("llm", "field", "advice"),
    [
        ("base_url: http://h, provider: bedrock, model: m", "base_url", "bedrock"),
        ("base_url: http://h, model: bedrock/m", "base_url", "bedrock"),
        ("api_key: {secret: X}, provider: bedrock, model: m", "api_key", "bedrock"),
        ("base_url: gpu:8000", "base_url", "http(s)://"),
        ("base_url: ftp://h", "base_url", "http(s)://"),
        ("base_url: 'https://ann:hunter2@h/v1'", "base_url", "without user name"),
        ("api_key: hunter2", "api_key", "LOOM_SECRET_"),
        ("api_key: {secret: a b}", "api_key", "LOOM_SECRET_"),
        ("api_key: {}", "api_key", "LOOM_SECRET_"),
        ("api_key: 7", "api_key", "LOOM_SECRET_"),
        ("thinking: {effort: low, budget_tokens: 9}", "thinking", "both"),
        ("thinking: {}", "thinking", "neither"),
        ("thinking: {effort: very}", "thinking.effort", "low, medium, high"),
        ("thinking: {budget_tokens: 0}", "thinking.budget_tokens", "from 1"),
        ("temperature: 2.1", "temperature", "0 to 2"),
        ("temperature: warm", "temperature", "0 to 2"),
        ("top_p: 1.5", "top_p", "0 to 1"),
        ("top_k: 0", "top_k", "from 1"),
        ("seed: -1", "seed", "from 0"),
        ("stop: x, stop_sequences: [y]", "stop", "both"),
        ("stop: 7", "stop", "list of texts"),
        ("extra: [x]", "extra", "mapping"),
        ("extra: {messages: []}", "extra", "messages"),
        ("local: maybe", "local", "true or false"),
        ("model: openai/", "model", "name of a model"),
        ("fallbacks: groq/llama", "fallbacks", "list"),
        ("fallbacks: [groq/llama, acme/llama]", "fallbacks[1].model", "groq"),
        ("fallbacks: [{provider: groq}]", "fallbacks[0].model", "missing"),
        ("fallbacks: [{provider: acme, model: m}]", "fallbacks[0].provider", "groq"),
    ],
)
def test_a_block_that_cannot_be_meant_is_refused_at_its_line_and_no_secret_is_repeated(
    tmp_path: Path, llm: str, field: str, advice: str
) -> None:
    (tmp_path / "a.yaml").write_text(f"{HEAD}  version: 1\n  llm:\n    {{{llm}}}\n", encoding="utf-8")
    found = load(tmp_path)
    (problem,) = found.problems
    assert (problem.field, problem.line in (6, 7)) == (f"spec.llm.{field}", True)
    assert advice in problem.text
    assert "hunter2" not in str(problem)
    assert "a" not in found.agents


@pytest.mark.cases(
    ("spec", "environ", "found"),
    [
        ("  llm: {model: groq/llama}", {}, (5, "spec.llm.model", "GROQ_API_KEY")),
        ("  llm: {model: groq/llama}", {"GROQ_API_KEY": "k"}, None),
        ("  llm: {provider: azure, model: m}", {"AZURE_OPENAI_API_KEY": "k"}, (5, "spec.llm.provider", "ENDPOINT")),
        ("  llm: {model: vllm/m}", {}, None),
        ("  llm: {model: m, base_url: http://h}", {}, None),
        ("  llm: {model: m, base_url: http://h, api_key: {secret: X}}", {}, (5, "spec.llm.api_key", "LOOM_SECRET_X")),
        ("  llm: {model: xai/grok, api_key: {secret: X}}", {"LOOM_SECRET_X": "k"}, None),
        ("  llm: {model: vllm/m, fallbacks: [vllm/n, xai/grok]}", {}, (5, "spec.llm.fallbacks[1]", "XAI_API_KEY")),
        ("  compressor_llm: {model: mistral/small}", {}, (5, "spec.compressor_llm.model", "MISTRAL_API_KEY")),
        ("  judge_llm: {model: gemini/m}", {}, (5, "spec.judge_llm.model", "GEMINI_API_KEY")),
        ("  judge_llm: {model: gemini/m}", {"GOOGLE_API_KEY": "k"}, None),
        (
            "  llm: {model: m, base_url: http://h}\n  judge_llm: {model: openai/gpt-5.2}",  # at the agent's own address
            {},
            None,
        ),
        (
            "  guardrails: {input: [{find: injection, action: flag, model: deepseek/m}]}",
            {},
            (5, "spec.guardrails.input[0].model", "DEEPSEEK_API_KEY"),
        ),
    ],
)
def test_a_provider_without_its_key_is_told_with_the_variable_that_it_needs(
    tmp_path: Path, spec: str, environ: dict[str, str], found: tuple[int, str, str] | None
) -> None:
    told = problems(tmp_path, spec, **environ)
    assert [each[:2] for each in told] == ([found[:2]] if found else [])
    assert found is None or found[2] in told[0][2]


def test_the_key_of_the_compressor_goes_to_no_other_provider_that_writes_summaries(tmp_path: Path) -> None:
    memory = "  sessions: {memory: {compaction: {summary_model: groq/llama}}}\n"
    key = "api_key: {secret: X}, base_url: http://h"
    found = agent(tmp_path, f"{memory}  compressor_llm: {{{key}, max_context_tokens: 9000}}").compressor
    assert found == ModelChoice("groq", "llama", 9000)


def test_a_fallback_is_asked_as_its_block_says_unless_it_says_so_itself(tmp_path: Path) -> None:
    own = "{model: gpt-6-luna, temperature: 0.5, thinking: {effort: low}}"
    block = f"thinking: {{effort: high}}, temperature: 0, seed: 7, extra: {{tier: x}}, fallbacks: [groq/m, {own}]"
    chosen = agent(tmp_path, f"  llm: {{{block}}}").answering(ModelChoice("openai", "gpt-6.1-sol"))
    asked = [(each.id, each.thinking, each.sampling) for each in chosen.fallbacks]
    assert asked == [
        ("groq/m", Thinking("high"), Sampling(temperature=0.0, seed=7)),
        ("openai/gpt-6-luna", Thinking("low"), Sampling(temperature=0.5, seed=7, extra={"tier": "x"})),
    ]


@pytest.mark.cases(
    ("judge", "model", "fallbacks"),
    [
        ("temperature: 0", "openai/m", ["groq/llama"]),
        ("model: xai/grok", "xai/grok", []),
        ("model: xai/grok, fallbacks: [mistral/small]", "xai/grok", ["mistral/small"]),
        ("fallbacks: [mistral/small]", "openai/m", ["mistral/small"]),
    ],
)
def test_judges_have_fallbacks_of_their_own_or_those_of_the_model_that_they_share(
    tmp_path: Path, judge: str, model: str, fallbacks: list[str]
) -> None:
    found = agent(tmp_path, f"  llm: {{model: openai/m, fallbacks: [groq/llama]}}\n  judge_llm: {{{judge}}}")
    usual = ModelChoice("anthropic", "claude-haiku-5-5")
    judging = found.beside(found.judge_model, usual)
    assert (judging.id, [each.id for each in judging.fallbacks]) == (model, fallbacks)
    assert {model, *fallbacks} <= {each.id for each in found.models(usual)}
