from dataclasses import replace
from pathlib import Path

import pytest

from loom_worker.settings import from_env
from loom_worker.supervise.home import Secret
from loom_worker.supervise.screen import QUESTION, Facts, model_line, screen, without_password

HOME = "/data/loom"
FACTS = Facts(
    settings=from_env({"LOOM_HOME": HOME, "LOOM_WEBHOOK_SECRET": "whsec_c2VjcmV0"}),
    url="http://127.0.0.1:8000",
    flower_url="http://127.0.0.1:5556",
    flower_password=Secret("tulip", Path(HOME) / "flower.password", is_new=True),
    ready_after_s=4.25,
    sqlite_version=(3, 51, 3),
    wanted_port=8000,
    port=8000,
    webhook_secret=Secret("whsec_c2VjcmV0", Path(HOME) / "webhook.secret", is_new=True),
)


def said(env: dict[str, str], **changes: object) -> str:
    return screen(replace(FACTS, settings=from_env({"LOOM_HOME": HOME, **env}), **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "words",
    [
        "ready after 4.2 s",
        "in a browser: http://127.0.0.1:8000 is a page to ask and watch",
        "http://127.0.0.1:8000/docs",
        "http://127.0.0.1:5556  (user loom, password tulip, shown this once and kept in /data/loom/flower.password)",
        HOME,
        "demo model: scripted, no LLM; set ANTHROPIC_API_KEY",
        "the sample shop",
        "only this machine is served",
        "signed with the secret whsec_c2VjcmV0, shown this once and kept in /data/loom/webhook.secret",
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


def test_a_secret_that_an_earlier_start_made_is_named_by_its_file_and_not_shown() -> None:
    secrets = (FACTS.flower_password, FACTS.webhook_secret)
    kept = [replace(secret, is_new=False) for secret in secrets if secret is not None]
    text = screen(replace(FACTS, flower_password=kept[0], webhook_secret=kept[1]))
    assert "(user loom, password in /data/loom/flower.password)" in text
    assert "signed with the secret in /data/loom/webhook.secret" in text
    assert [secret.text for secret in kept if secret.text in text] == []


def test_a_secret_of_the_environment_is_not_shown() -> None:
    text = said({"LOOM_WEBHOOK_SECRET": "whsec_aGlkZGVu"}, webhook_secret=None)
    assert "aGlkZGVu" not in text
    assert "LOOM_WEBHOOK_SECRET" in text


def test_with_api_keys_the_try_line_has_a_header_and_no_key_is_shown() -> None:
    text = said({"LOOM_API_KEYS": "shop=s3cret"})
    assert "-H 'Authorization: Bearer <key>'" in text
    assert "s3cret" not in text
    assert "only this machine" not in text


def test_a_fault_in_an_agents_file_is_warned_of_in_one_line() -> None:
    [warning] = [
        line
        for line in screen(replace(FACTS, agent_problems=("a.yaml:3: max_turns:\n\x1b[2Jten",))).splitlines()
        if line.startswith("Warning")
    ]
    assert warning == "Warning: agent file: a.yaml:3: max_turns: [2Jten"


def test_an_old_sqlite_is_warned_of_once_and_a_sound_one_is_not() -> None:
    assert screen(replace(FACTS, sqlite_version=(3, 40, 1))).count("3.40.1") == 1
    assert "Warning" not in screen(FACTS)


def test_a_backend_is_shown_without_its_password() -> None:
    text = said({"LOOM_BACKEND_URL": "postgresql://ann:s3cret@db:5432/shop"})
    assert "postgresql://ann:***@db:5432/shop" in text
    assert "s3cret" not in text


def test_a_real_model_is_named() -> None:
    settings = from_env({"ANTHROPIC_API_KEY": "k", "LOOM_MODEL": "claude-opus-4-5"})
    assert model_line(settings) == "claude-opus-4-5 (anthropic)"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:////data/shop.db", "sqlite:////data/shop.db"),
        ("redis://:p%40ss@h:6379/0", "redis://:***@h:6379/0"),
        ("mysql://u:a:b@h/x?y=1", "mysql://u:***@h/x?y=1"),
        ("https://u@h/x", "https://u@h/x"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert without_password(url) == shown
