from typing import Any

import pytest

from loom_worker.agents.memory import BATCHES, policy
from loom_worker.agents.tiers import ACTIVE_WINDOW, active_window, summary_model, tiers
from loom_worker.core.fields import Fields, InvalidField
from loom_worker.core.values.agents import ModelChoice
from loom_worker.core.values.memory import MemoryPolicy
from loom_worker.core.values.tiers import MemoryTiers

USUAL = MemoryTiers()


def spec(tiers: Any = None, /, **more: Any) -> Fields:
    return Fields({"sessions": {"memory": tiers}, **more}, ("spec",))


def limited(fields: Fields) -> MemoryPolicy:
    return active_window(fields, policy(fields.under("memory")))


def test_a_file_without_the_section_has_no_tiers() -> None:
    assert tiers(Fields({}, ("spec",))) is None
    assert limited(Fields({}, ("spec",))) == MemoryPolicy()


@pytest.mark.parametrize("memory", [None, {}, {"summaries": None, "embeddings": {"enabled": False}}])
def test_an_empty_section_asks_for_the_usual_tiers(memory: Any) -> None:
    assert tiers(spec(memory)) == USUAL
    assert limited(spec(memory)).max_l1_messages == ACTIVE_WINDOW


def test_every_key_of_the_seeds_is_understood() -> None:
    given = {
        "active_window": 30,
        "compaction": {"strategy": "heuristic", "summary_model": "ollama/qwen3", "batch_size": 40},
        "recent_store": {"max_messages": 500},
        "summaries": {"enabled": True, "extract_facts": False},
        "knowledge": {"enabled": True, "scope": "workspace", "users_write": True, "inject": True},
        "embeddings": {"enabled": True, "model": "openai/text-embedding-3-small"},
    }
    fields = spec(
        given, storage={"backend": "sqlite", "memory": {"backend": "sqlite"}, "vector": {"backend": "sqlite_vec"}}
    )
    assert tiers(fields) == MemoryTiers(
        "heuristic", 40, 500, True, False, True, "workspace", True, True, "openai/text-embedding-3-small", True
    )
    assert summary_model(fields) == ModelChoice("ollama", "qwen3")
    assert (limited(fields).max_l1_messages, limited(fields).batches) == (30, BATCHES)
    assert not list(fields.unknown())


def test_a_window_below_what_is_never_compressed_lowers_that() -> None:
    assert limited(spec({"active_window": 2})).min_l1_messages == 2


def test_a_profile_keeps_its_limit_unless_the_window_is_given() -> None:
    profile = {"memory_compression": {"workload_profile": "data_intensive"}}
    assert limited(spec({}, memory=profile)).max_l1_messages == 5
    assert limited(spec({"active_window": 9}, memory=profile)).max_l1_messages == 9


@pytest.mark.parametrize(
    ("text", "provider", "model"),
    [
        ("claude-haiku-4-5", None, "claude-haiku-4-5"),
        ("anthropic/claude-haiku-4-5", "anthropic", "claude-haiku-4-5"),
        ("hf.co/org/model", None, "hf.co/org/model"),
    ],
)
def test_a_summary_model_may_name_its_provider(text: str, provider: str | None, model: str) -> None:
    assert summary_model(spec({"compaction": {"summary_model": text}})) == ModelChoice(provider, model)


def test_without_a_summary_model_the_compressor_writes() -> None:
    assert summary_model(spec({}, compressor_llm={"model": "small"})).model == "small"


@pytest.mark.cases(
    ("memory", "more", "path"),
    [
        ({"active_window": 1}, {}, "spec.sessions.memory.active_window"),
        (
            {"active_window": 9},
            {"memory": {"memory_compression": {"max_l1_messages": 8}}},
            "spec.sessions.memory.active_window",
        ),
        ({"compaction": {"strategy": "truncate"}}, {}, "spec.sessions.memory.compaction.strategy"),
        ({"compaction": {"batch_size": 0}}, {}, "spec.sessions.memory.compaction.batch_size"),
        ({"compaction": {"summary_model": "openai/"}}, {}, "spec.sessions.memory.compaction.summary_model"),
        (
            {"compaction": {"summary_model": "a"}},
            {"compressor_llm": {"model": "b"}},
            "spec.sessions.memory.compaction.summary_model",
        ),
        ({"knowledge": {"scope": "everyone"}}, {}, "spec.sessions.memory.knowledge.scope"),
        ({"knowledge": {"enabled": False, "inject": True}}, {}, "spec.sessions.memory.knowledge.inject"),
        ({"embeddings": {"enabled": True}}, {}, "spec.sessions.memory.embeddings.model"),
        *(
            ({"embeddings": {"enabled": True, "model": name}}, {}, "spec.sessions.memory.embeddings.model")
            for name in ("text-embedding-3-small", "openai/", "anthropic/claude", "openai/" + "x" * 200)
        ),
        ({}, {"storage": {"vector": {"backend": "lancedb"}}}, "spec.storage.vector.backend"),
        ({}, {"storage": {"memory": {"knowledge": {"backend": "ladybugdb"}}}}, "spec.storage.memory.knowledge.backend"),
    ],
)
def test_an_error_names_the_key(memory: Any, more: dict[str, Any], path: str) -> None:
    fields = spec(memory, **more)
    with pytest.raises(InvalidField) as raised:
        limited(fields), summary_model(fields), tiers(fields)
    assert raised.value.path == path
