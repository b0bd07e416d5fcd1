import pytest

from loom_worker.core.values.agents import PROVIDERS
from loom_worker.llm import catalog

CAN = {"tools", "images", "files", "thinking", "json_schema"}
NAMES = [name for provider in PROVIDERS for name in catalog.all_of(provider)]


def test_every_known_model_has_a_provider_and_can_do_what_there_are_words_for() -> None:
    assert NAMES
    assert [name for name in NAMES if not set(catalog.known(name).can) <= CAN] == []  # type: ignore[union-attr]


@pytest.mark.cases("name", ["claude-sonnet-5-5", "us.anthropic.claude-sonnet-5-5-v1:0", "claude-sonnet-5-5-20260901"])
def test_a_claude_model_is_known_by_any_of_its_names(name: str) -> None:
    assert catalog.known(name) == catalog.known("anthropic/claude-sonnet-5-5") is not None


def test_nothing_is_known_of_a_model_that_is_not_there() -> None:
    assert catalog.known("vllm/mine") is None
    assert catalog.described("vllm/mine")["context_tokens"] is None
