import pytest

from loom_worker.cli import setting_checks
from loom_worker.core.errors import BadSettings
from loom_worker.core.settings import SettingCheck, from_env

SECRET = "whsec_" + "A" * 32
SOUND = {
    "LOOM_MODEL": ("scripted-demo", "scripted-demo+0ms", "scripted-demo+99999ms", "any-name+xx"),
    "OLLAMA_HOST": ("box", "box:1", ":1", "https://box", "::1"),
    "LOOM_REDIS_URL": ("redis://h", "redis://h?socket_timeout=5", "rediss://h?ssl_cert_reqs=none", "unix:///s?db=1"),
    "LOOM_WEBHOOK_SECRET": (SECRET,),
    "LOOM_BACKEND_URL": ("sqlite:////srv/x.db", "postgresql://h/d"),
}
WRONG = {
    "LOOM_MODEL": ("scripted-demo+xx", "scripted-demo+", "scripted-demo+1s", "scripted-demo+100000ms"),
    "OLLAMA_HOST": ("a b", "ftp://h", "h:99999"),
    "LOOM_REDIS_URL": ("redis://h?foo=bar", "redis://h?socket_timeout=soon", "redis://h?ssl_cert_reqs=none"),
    "LOOM_WEBHOOK_SECRET": ("plain", "whsec_short"),
    "LOOM_BACKEND_URL": ("no url at all", "mssql://h/d"),
}


@pytest.mark.cases(("name", "raw"), [(name, raw) for name, values in SOUND.items() for raw in values])
def test_what_its_package_can_use_is_accepted(name: str, raw: str) -> None:
    assert from_env({name: raw}, checks=setting_checks.ALL) == from_env({name: raw})


@pytest.mark.cases(("name", "raw"), [(name, raw) for name, values in WRONG.items() for raw in values])
def test_what_its_package_cannot_use_is_refused_and_its_variable_named(name: str, raw: str) -> None:
    with pytest.raises(BadSettings) as refused:
        from_env({name: raw}, checks=setting_checks.ALL)
    assert str(refused.value).startswith(name)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("checks", [setting_checks.START, setting_checks.WITH_MODEL])
def test_what_calls_the_model_needs_a_key_or_another_server_and_nothing_else_does(
    checks: tuple[SettingCheck, ...],
) -> None:
    without = {"LOOM_PROVIDER": "anthropic"}
    with pytest.raises(BadSettings, match=r"^LOOM_PROVIDER=anthropic needs ANTHROPIC_API_KEY"):
        from_env(without, checks=checks)
    for name, value in (("ANTHROPIC_API_KEY", "k"), ("ANTHROPIC_BASE_URL", "http://h")):
        assert from_env(without | {name: value}, checks=checks).llm.provider == "anthropic"
    assert from_env(without, checks=setting_checks.ALL).llm.provider == "anthropic"


def test_the_name_of_another_provider_s_model_is_that_provider_s_to_check() -> None:
    environ = {"LOOM_MODEL": "scripted-demo+xx", "LOOM_PROVIDER": "ollama"}
    assert from_env(environ, checks=setting_checks.ALL).llm.model == "scripted-demo+xx"


@pytest.mark.parametrize("letter", ["h", "é"])
def test_a_home_too_long_for_a_socket_starts_nothing_unless_another_server_is_named(letter: str) -> None:
    home = "/" + letter * 60 + "/" + letter * 60
    with pytest.raises(BadSettings) as refused:
        from_env({"LOOM_HOME": home}, checks=setting_checks.START)
    for told in (f"LOOM_HOME={home}: ", f"has {len(home.encode())} bytes", "at most 95 fit", "LOOM_REDIS_URL"):
        assert told in str(refused.value)
    with pytest.raises(BadSettings):
        from_env({"LOOM_HOME": home, "LOOM_REDIS_URL": f"unix://{home}/valkey.sock"}, checks=setting_checks.ALL)
    assert from_env({"LOOM_HOME": home, "LOOM_REDIS_URL": "redis://h"}).redis_url == "redis://h"
    assert str(from_env({"LOOM_HOME": home}).home) == home  # a command that asks a Loom elsewhere goes on
