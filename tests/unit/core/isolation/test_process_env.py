import pytest

from loom_worker.core.env import KNOWN, is_secret
from loom_worker.core.isolation import process_env
from loom_worker.core.isolation.process_env import handed_on, inherited, of_process, of_worker
from loom_worker.core.settings import from_env

WHOLE = {
    "PATH": "/bin",
    "PYTHONPATH": "/x",
    "MY_OWN": "mine",
    "LOOM_LOG_LEVEL": "INFO",
    "LOOM_REDIS_URL": "redis://:p@h/0",
    "ANTHROPIC_API_KEY": "k",
    "LOOM_OPENAI_KEY": "k",
    "LOOM_VOYAGE_KEY": "k",
    "GROQ_API_KEY": "k",
    "OPENAI_BASE_URL": "http://u:p@h",
    "OPENAI_ORG_ID": "k",
    "ANTHROPIC_AUTH_TOKEN": "k",
    "AWS_SECRET_ACCESS_KEY": "k",
    "LOOM_SECRET_CRM": "k",
    "LOOM_API_KEYS": "team=k",
    "LOOM_KEY": "k",
    "LOOM_WEBHOOK_SECRET": "k",
    "LOOM_TRACE_ENDPOINT": "http://h:4318",
    "LOOM_TRACE_HEADERS": "x-key=k",
    "LOOM_BACKEND_URL": "postgresql://u:p@h/d",
}
PROVIDER = {"LOOM_OPENAI_KEY", "LOOM_VOYAGE_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "AWS_SECRET_ACCESS_KEY"}
PROVIDER |= {"GROQ_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID"}
SHARED = {"PATH", "PYTHONPATH", "LOOM_LOG_LEVEL", "LOOM_REDIS_URL", "LOOM_TRACE_ENDPOINT"}


@pytest.mark.cases(
    ("needs", "given"),
    [
        (of_worker(["turn"]), {"MY_OWN", "LOOM_SECRET_CRM", "LOOM_BACKEND_URL", *PROVIDER}),
        (of_worker(["webhook"]), {"MY_OWN", "LOOM_WEBHOOK_SECRET", "LOOM_PROVIDERS"}),
        (of_worker(["trace"]), {"MY_OWN", "LOOM_TRACE_HEADERS", "LOOM_PROVIDERS"}),
        (process_env.WEB, {"MY_OWN", "LOOM_SECRET_CRM", "LOOM_API_KEYS", "LOOM_BACKEND_URL", "LOOM_PROVIDERS"}),
        (process_env.PREPARE, {"MY_OWN", "LOOM_BACKEND_URL", "LOOM_PROVIDERS"}),
        (process_env.NOTHING, {"LOOM_PROVIDERS"}),
    ],
)
def test_a_process_is_given_what_it_needs_and_no_other_secret(needs: frozenset[str], given: set[str]) -> None:
    assert set(of_process(WHOLE, needs)) == SHARED | given


def test_who_does_not_see_the_keys_is_told_which_providers_have_some() -> None:
    assert of_process(WHOLE, process_env.WEB)["LOOM_PROVIDERS"] == "anthropic,groq"
    assert "LOOM_PROVIDER" not in of_process(WHOLE, process_env.WEB)
    assert "LOOM_PROVIDERS" not in of_process({"PATH": "/bin"}, process_env.WEB)
    assert from_env(of_process(WHOLE, process_env.WEB)).llm.offered == from_env(WHOLE).llm.offered


def test_a_child_inherits_no_secret_whatever_is_known() -> None:
    environ = {**WHOLE, **dict.fromkeys(KNOWN, "x"), "HTTPS_PROXY": "http://u:p@h", "PGPASSWORD": "p"}
    assert [name for name in inherited(environ) if is_secret(name)] == []
    assert set(inherited(environ)) == {"PATH", "PYTHONPATH", "LOOM_HOME"}
    assert set(inherited(environ, ["MY_OWN"], process_env.DRIVERS)) == {*inherited(environ), "MY_OWN", "PGPASSWORD"}


def test_a_process_of_the_same_kind_gets_the_same_settings_from_what_is_handed_on() -> None:
    environ = {
        "ANTHROPIC_API_KEY": "k",
        "LOOM_OPENAI_KEY": "k",
        "LOOM_VOYAGE_KEY": "k",
        "OPENAI_API_KEY": "k",
        "AZURE_OPENAI_ENDPOINT": "http://u:p@h",
        "ANTHROPIC_BASE_URL": "http://u:p@h",
        "LOOM_SECRET_CRM": " s ",
        "LOOM_REDIS_URL": "unix:///srv/r.sock",
        "LOOM_BACKEND_URL": "postgresql://u:p@h/d",
        "LOOM_WEBHOOK_SECRET": "whsec_x",
        "LOOM_TRACE_ENDPOINT": "http://h:4318",
    }
    settings = from_env(environ)
    assert from_env(handed_on(settings)) == settings
