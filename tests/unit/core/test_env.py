from typing import Any

import pytest

from loom_worker.core.env import KNOWN, misnamed
from loom_worker.core.settings import from_env


def found(env: dict[str, str]) -> dict[str, tuple[str, bool]]:
    """Variable to what it is told, and whether that is a warning only."""
    return {problem.field: (problem.fix, problem.is_warning) for problem in misnamed(env)}


@pytest.mark.cases(
    ("name", "meant"),
    [
        ("LOOM_MODLE", "LOOM_MODEL"),
        ("LOOM_AGENT_DIR", "LOOM_AGENTS_DIR"),
        ("LOOM_AGENTS", "LOOM_AGENTS_DIR"),
        ("LOOM_REDIS", "LOOM_REDIS_URL"),
        ("LOOM_API_KEY", "LOOM_API_KEYS"),
        ("LOOMMODEL", "LOOM_MODEL"),
        ("loom_model", "LOOM_MODEL"),
        ("LOOM-PORT", "LOOM_PORT"),
        ("LOOM_WEBHOOKSECRET", "LOOM_WEBHOOK_SECRET"),
        ("LOOM_SECERT_CRM", "LOOM_SECRET_CRM"),
        ("LOOM_SECRETS_CRM", "LOOM_SECRET_CRM"),
        ("ANTHROPIC_APIKEY", "ANTHROPIC_API_KEY"),
        ("ANTROPIC_API_KEY", "ANTHROPIC_API_KEY"),
        ("ANTHROPIC_KEY", "ANTHROPIC_API_KEY"),
        ("anthropic_api_key", "ANTHROPIC_API_KEY"),
        ("OLAMA_HOST", "OLLAMA_HOST"),
    ],
)
def test_a_name_that_is_nearly_a_settings_is_told_with_the_one_that_is_meant(name: str, meant: str) -> None:
    assert found({name: "s3cret"}) == {name: (f"did you mean {meant}? rename it, or take it away", False)}
    assert "s3cret" not in "".join(map(str, misnamed({name: "s3cret"})))


@pytest.mark.cases(
    "name",
    [*KNOWN, "LOOM_URL", "LOOM_SECRET_MODLE", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_MODEL", "OPENAI_API_KEY", "PATH"],
)
def test_a_name_that_is_known_or_anothers_is_not_told(name: str) -> None:
    assert found({name: "x"}) == {}


def test_a_name_of_looms_that_resembles_none_is_a_warning() -> None:
    assert found({"LOOM_SERVICE_HOST": "x"}) == {"LOOM_SERVICE_HOST": ("docs/settings.md lists them all", True)}


def test_a_setting_of_an_earlier_version_is_a_warning() -> None:
    assert found({"LOOM_PATTERNS_LEARN": "0"}) == {"LOOM_PATTERNS_LEARN": ("take it out", True)}


def test_a_slip_beside_the_right_name_is_a_warning_and_one_without_value_is_nothing() -> None:
    assert found({"LOOM_MODLE": "x", "LOOM_MODEL": "y"})["LOOM_MODLE"][1]
    assert found({"ANTHROPIC_KEY": "x", "ANTHROPIC_API_KEY": "y"}) == {}
    assert found({"LOOM_MODLE": " "}) == {}


@pytest.mark.parametrize(
    ("env", "told", "is_warning"),
    [
        ({"LOOM_MODEL": "claude-sonnet-5-5"}, "is named without a key", False),
        ({"LOOM_MODEL": "m", "LOOM_PROVIDER": "scripted"}, "LOOM_PROVIDER is scripted", True),
        ({"LOOM_MODEL": "scripted-demo", "ANTHROPIC_API_KEY": "k"}, "is the demo's name", False),
    ],
)
def test_a_model_that_another_answers_for_is_told(env: dict[str, str], told: str, is_warning: bool) -> None:
    (problem,) = from_env(env).problems
    assert (problem.field, problem.is_warning) == ("LOOM_MODEL", is_warning)
    assert told in problem.text


@pytest.mark.cases(
    "env",
    [
        {},
        {"LOOM_MODEL": "scripted-demo+5ms"},
        {"LOOM_MODEL": "m", "ANTHROPIC_API_KEY": "k"},
        {"LOOM_MODEL": "m", "ANTHROPIC_BASE_URL": "http://h"},
        {"LOOM_MODEL": "m", "LOOM_PROVIDER": "ollama"},
        {"LOOM_MODEL": "m", "LOOM_PROVIDER": "anthropic"},
    ],
)
def test_a_model_that_answers_is_not_told(env: dict[str, Any]) -> None:
    assert from_env(env).problems == ()
