from dataclasses import replace
from pathlib import Path

import pytest

from loom_worker.core.isolation.home_secrets import Secret
from loom_worker.core.settings import from_env
from loom_worker.core.values.problems import Problem
from loom_worker.supervisor.screen import MOST_PROBLEMS, QUESTION, StartReport, model_line, screen

HOME = "/data/loom"
FACTS = StartReport(
    settings=from_env({"LOOM_HOME": HOME, "LOOM_WEBHOOK_SECRET": "whsec_c2VjcmV0"}),
    url="http://127.0.0.1:8000",
    flower_url="http://127.0.0.1:5556",
    flower_password=Secret("tulip", Path(HOME) / "flower.password"),
    ready_after_s=4.25,
    sqlite_version=(3, 51, 3),
    wanted_port=8000,
    port=8000,
    webhook_secret=Secret("whsec_c2VjcmV0", Path(HOME) / "webhook.secret"),
)


def said(env: dict[str, str], **changes: object) -> str:
    return screen(replace(FACTS, settings=from_env({"LOOM_HOME": HOME, **env}), **changes))  # type: ignore[arg-type]


@pytest.mark.cases(
    "words",
    [
        "ready after 4.2 s",
        "in a browser: http://127.0.0.1:8000 is a page to ask and watch",
        "http://127.0.0.1:8000/docs",
        "http://127.0.0.1:5556  (user loom, password in /data/loom/flower.password)",
        HOME,
        "demo model: scripted, no LLM; set ANTHROPIC_API_KEY",
        "the sample shop",
        "only this machine is served",
        "signed with the secret in /data/loom/webhook.secret",
        "curl -s -X POST http://127.0.0.1:8000/v1/sessions/demo/turns",
        QUESTION,
        "loom chat",
        "Ctrl-C",
    ],
)
def test_the_screen_says(words: str) -> None:
    assert words in screen(FACTS)


def test_the_screen_fits_one_screen() -> None:
    assert len(screen(FACTS).splitlines()) <= 24


def test_another_port_than_the_one_wanted_is_said_plainly() -> None:
    assert "port 8000 was taken" not in screen(FACTS)
    assert "port 8000 was taken" in screen(replace(FACTS, port=8001))


def test_no_secret_that_loom_made_is_shown_not_even_at_the_start_that_made_it() -> None:
    text = screen(FACTS)
    assert [word for word in ("tulip", "c2VjcmV0") if word in text] == []


def test_a_secret_of_the_environment_is_not_shown() -> None:
    text = said({"LOOM_WEBHOOK_SECRET": "whsec_aGlkZGVu"}, webhook_secret=None)
    assert "aGlkZGVu" not in text
    assert "LOOM_WEBHOOK_SECRET" in text


def test_with_api_keys_the_try_line_has_a_header_and_no_key_is_shown() -> None:
    text = said({"LOOM_API_KEYS": "shop=s3cret"})
    assert "-H 'Authorization: Bearer <key>'" in text
    assert "s3cret" not in text
    assert "only this machine" not in text


def test_keys_of_the_database_are_told_like_those_of_the_environment() -> None:
    text = said({}, has_stored_keys=True)
    assert "-H 'Authorization: Bearer <key>'" in text
    assert "those with a key that `loom keys create` made" in text
    assert "only this machine" not in text


FAULT = Problem("there is no tool 'x'", "take it out", "/a.yaml", 3, "a", "spec.tools[1]")
WARNING = Problem("unknown key:\n\x1b[2Jten", file="/a.yaml", line=5, is_warning=True)


def test_a_loom_without_fault_is_ready_and_no_more_is_said() -> None:
    assert screen(FACTS).startswith("Loom is ready after 4.2 s.\n\n  web ")


def test_problems_are_counted_and_told_with_the_ready_line_in_one_line_each() -> None:
    text = screen(replace(FACTS, problems=(FAULT, FAULT, WARNING))).splitlines()
    assert text[0] == "Loom is ready after 4.2 s, with 2 problems and 1 warning:"
    assert text[1] == "  problem  /a.yaml:3: agent a: spec.tools[1]: there is no tool 'x'; take it out"
    assert text[3:5] == ["  warning  /a.yaml:5: unknown key: [2Jten", ""]
    assert screen(replace(FACTS, problems=(WARNING,))).startswith("Loom is ready after 4.2 s, with 1 warning:\n")


def test_of_many_problems_the_first_are_told_and_the_number_of_the_others() -> None:
    text = screen(replace(FACTS, problems=(FAULT,) * (MOST_PROBLEMS + 5)))
    assert f"with {MOST_PROBLEMS + 5} problems:" in text
    assert text.count("  problem  ") == MOST_PROBLEMS
    assert "  and 5 more: `loom doctor --problems`\n" in text


def test_problems_that_are_not_known_yet_are_not_said_to_be_none() -> None:
    assert "still being looked at" in screen(replace(FACTS, problems=None)).splitlines()[0]


def test_an_old_sqlite_is_warned_of_once_and_a_sound_one_is_not() -> None:
    assert screen(replace(FACTS, sqlite_version=(3, 40, 1))).count("3.40.1") == 1
    assert "Warning" not in screen(FACTS)


def test_a_backend_is_shown_without_its_password() -> None:
    text = said({"LOOM_BACKEND_URL": "postgresql://ann:s3cret@db:5432/shop"})
    assert "postgresql://ann:***@db:5432/shop" in text
    assert "s3cret" not in text


@pytest.mark.cases(
    ("environ", "shown"),
    [
        ({"OPENAI_API_KEY": "k"}, "gpt-6.1-sol (openai) at https://api.openai.com/v1"),
        (
            {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://u:s3cret@h/v1"},
            "gpt-6.1-sol (openai) at http://u:***@h/v1",
        ),
        ({"LOOM_MODEL": "groq/llama", "GROQ_API_KEY": "k"}, "llama (groq)"),
        ({"LOOM_MODEL": "vllm/openai/gpt-oss"}, "openai/gpt-oss (vllm) at http://127.0.0.1:8000/v1"),
    ],
)
def test_the_model_of_any_maker_is_named_with_its_provider(environ: dict[str, str], shown: str) -> None:
    assert model_line(from_env(environ)) == shown


def test_a_real_model_is_named() -> None:
    settings = from_env({"ANTHROPIC_API_KEY": "k", "LOOM_MODEL": "claude-opus-4-5"})
    assert model_line(settings) == "claude-opus-4-5 (anthropic) at https://api.anthropic.com"
