from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from loom_worker.core.crash_points import POINTS
from loom_worker.core.env import KNOWN, SECRET
from loom_worker.core.errors import BadSettings
from loom_worker.core.isolation import process_env
from loom_worker.core.isolation.process_env import of_process
from loom_worker.core.settings import from_env
from loom_worker.core.settings_tree import ProviderSettings, Settings, declared

KEY = "sk-" + "a" * 20


def at(settings: Settings, dotted: str) -> Any:
    found: Any = settings
    for name in dotted.split("."):
        found = getattr(found, name)
    return found


SET: dict[str, tuple[str, str, object]] = {
    "LOOM_HOME": ("/srv/loom", "home", Path("/srv/loom")),
    "LOOM_DATABASE_URL": ("sqlite:////srv/x.db", "database_url", "sqlite:////srv/x.db"),
    "LOOM_REDIS_URL": ("redis://h:1/2", "redis_url", "redis://h:1/2"),
    "LOOM_MODEL": ("m1", "llm.model", "m1"),
    "LOOM_PROVIDER": ("Scripted", "llm.provider", "scripted"),
    "LOOM_PROVIDERS": ("groq, xai", "llm.offered", ("groq", "xai")),
    "OPENAI_API_KEY": ("k-1", "providers.openai_key", "k-1"),
    "AZURE_OPENAI_API_KEY": ("k-1", "providers.azure_key", "k-1"),
    "MISTRAL_API_KEY": ("k-1", "providers.mistral_key", "k-1"),
    "GEMINI_API_KEY": ("k-1", "providers.gemini_key", "k-1"),
    "GOOGLE_API_KEY": ("k-1", "providers.google_key", "k-1"),
    "GROQ_API_KEY": ("k-1", "providers.groq_key", "k-1"),
    "TOGETHER_API_KEY": ("k-1", "providers.together_key", "k-1"),
    "OPENROUTER_API_KEY": ("k-1", "providers.openrouter_key", "k-1"),
    "XAI_API_KEY": ("k-1", "providers.xai_key", "k-1"),
    "DEEPSEEK_API_KEY": ("k-1", "providers.deepseek_key", "k-1"),
    "VLLM_API_KEY": ("k-1", "providers.vllm_key", "k-1"),
    "OPENAI_BASE_URL": ("http://gpu:1/v1", "providers.openai_url", "http://gpu:1/v1"),
    "AZURE_OPENAI_ENDPOINT": ("http://gpu:1/v1", "providers.azure_url", "http://gpu:1/v1"),
    "VLLM_BASE_URL": ("http://gpu:1/v1", "providers.vllm_url", "http://gpu:1/v1"),
    "LMSTUDIO_BASE_URL": ("http://gpu:1/v1", "providers.lmstudio_url", "http://gpu:1/v1"),
    "ANTHROPIC_API_KEY": (KEY, "llm.api_key", KEY),
    "ANTHROPIC_BASE_URL": ("http://h", "llm.base_url", "http://h"),
    "LOOM_PRICES": ("/srv/prices.yaml", "llm.prices", "/srv/prices.yaml"),
    "OLLAMA_HOST": ("box:1", "llm.ollama_host", "box:1"),
    "LOOM_OPENAI_KEY": ("sk-1", "embeddings.openai_key", "sk-1"),
    "LOOM_OPENAI_URL": ("http://gpu:8080/v1", "embeddings.openai_url", "http://gpu:8080/v1"),
    "LOOM_VOYAGE_KEY": ("pa-1", "embeddings.voyage_key", "pa-1"),
    "LOOM_VOYAGE_URL": ("https://proxy/v1", "embeddings.voyage_url", "https://proxy/v1"),
    "LOOM_EMBEDDINGS_DIR": ("/", "embeddings.folder", Path("/")),
    "LOOM_EMBEDDING_TIMEOUT_S": ("60", "embeddings.timeout_s", 60.0),
    "LOOM_EMBEDDING_QUERY_TIMEOUT_S": ("0.5", "embeddings.query_timeout_s", 0.5),
    "LOOM_AGENTS_DIR": ("/", "agents_dir", Path("/")),
    "LOOM_WORKFLOWS_DIR": ("/", "workflows_dir", Path("/")),
    "LOOM_PATTERNS_DIR": ("/", "patterns.folder", Path("/")),
    "LOOM_PATTERNS_SHIPPED": ("0", "patterns.is_shipped_added", False),
    "LOOM_PATTERNS_DEBOUNCE_MS": ("0", "patterns.debounce_ms", 0),
    "LOOM_WORKSPACES_DIR": ("/srv/ws", "workspaces_dir", Path("/srv/ws")),
    "LOOM_BACKEND_URL": ("postgresql://h/d", "backend_url", "postgresql://h/d"),
    "LOOM_MAX_CONTEXT_TOKENS": ("2000", "llm.max_context_tokens", 2000),
    "LOOM_L1_TOKENS": ("9000", "llm.l1_tokens", 9000),
    "LOOM_RESERVED_OUTPUT_TOKENS": ("7", "llm.reserved_output_tokens", 7),
    "LOOM_CACHE_CONTROL": ("0", "llm.cache_marks", False),
    "LOOM_LLM_TIMEOUT_S": ("0.5", "llm.call_timeout_s", 0.5),
    "LOOM_MAX_REPLY_BYTES": ("1024", "llm.max_reply_bytes", 1024),
    "LOOM_MAX_ATTEMPTS": ("100", "limits.max_attempts", 100),
    "LOOM_LEASE_S": ("2.5", "lanes.lease_s", 2.5),
    "LOOM_TOOL_TIMEOUT_S": ("1", "limits.tool_timeout_s", 1.0),
    "LOOM_TURN_TIMEOUT_S": (" 86400 ", "limits.turn_timeout_s", 86400.0),
    "LOOM_MAX_LLM_CALLS": ("1", "limits.max_llm_calls", 1),
    "LOOM_MAX_TOOL_CALLS": ("0", "limits.max_tool_calls", 0),
    "LOOM_TOOL_CONCURRENCY": ("3", "tools.concurrency", 3),
    "LOOM_TOOL_PROCESSES": ("1024", "tools.processes", 1024),
    "LOOM_TOOL_ENV": (" A_1, B,", "tools.env", ("A_1", "B")),
    "LOOM_CONFINE_TOOLS": ("0", "tools.is_confined", False),
    "LOOM_MAX_RESULT_BYTES": ("1024", "tools.max_result_bytes", 1024),
    "LOOM_REFERENCE_BYTES": ("1024", "tools.reference_bytes", 1024),
    "LOOM_BLOB_DIR": ("/srv/blobs", "blobs.folder", Path("/srv/blobs")),
    "LOOM_BLOB_MEMORY_BYTES": ("0", "blobs.memory_bytes", 0),
    "LOOM_BLOB_DISK_BYTES": ("5", "blobs.disk_bytes", 5),
    "LOOM_BLOB_TTL_S": ("9.5", "blobs.ttl_s", 9.5),
    "LOOM_FILE_BYTES": ("2048", "files.most_bytes", 2048),
    "LOOM_WORKSPACE_FILE_BYTES": ("0", "limits.workspace_file_bytes", 0),
    "LOOM_ALLOW_PRIVATE_FILES": ("Yes", "files.allow_private", True),
    "LOOM_EVENT_LOG_BYTES": ("65536", "events.log_bytes", 65536),
    "LOOM_EVENT_TOTAL_BYTES": ("1099511627776", "events.total_bytes", 1 << 40),
    "LOOM_EVENT_TTL_S": ("1", "events.ttl_s", 1),
    "LOOM_ERROR_DAYS": ("1", "tools.error_days", 1),
    "LOOM_AGENT_REFERENCE_BYTES": ("2048", "tools.agent_reference_bytes", 2048),
    "LOOM_MAX_CHILDREN": ("5", "limits.max_children", 5),
    "LOOM_AGENT_PIN": ("none", "agent_pin", "none"),
    "LOOM_SCHEDULE_MISSED": ("skip", "schedules.missed", "skip"),
    "LOOM_JOURNAL_DAYS": ("0", "retention.journal_days", 0),
    "LOOM_AUDIT_DAYS": ("400", "retention.audit_days", 400),
    "LOOM_CONVERSATION_DAYS": ("90", "retention.conversation_days", 90),
    "LOOM_DATABASE_POOL": ("20", "server.pool", 20),
    "LOOM_DATABASE_POOLER": ("1", "server.has_pooler", True),
    "LOOM_SQLITE_SYNC": ("NORMAL", "sqlite_sync", "normal"),
    "LOOM_HOST": ("::1", "web.host", "::1"),
    "LOOM_PORT": ("65535", "web.port", 65535),
    "LOOM_API_KEYS": ("a=k1, b-2.x=k=2", "web.api_keys", {"k1": "a", "k=2": "b-2.x"}),
    "LOOM_KEY": ("loom_x", "key", "loom_x"),
    "LOOM_KEY_REQUESTS_PER_MINUTE": ("60000", "web.key_requests_per_minute", 60_000),
    "LOOM_KEY_TOKENS_PER_MINUTE": ("1", "web.key_tokens_per_minute", 1),
    "LOOM_TRUSTED_PROXIES": ("10", "web.trusted_proxies", 10),
    "LOOM_CORS_ORIGINS": (
        "https://a.example, http://localhost:3000",
        "web.cors_origins",
        ("https://a.example", "http://localhost:3000"),
    ),
    "LOOM_WEBHOOK_SECRET": ("whsec_x", "webhook.secret", "whsec_x"),
    "LOOM_METRICS_OPEN": ("1", "web.metrics_are_open", True),
    "LOOM_ALLOW_PRIVATE_WEBHOOKS": ("Yes", "webhook.allow_private", True),
    "LOOM_TARGET_PORTS": ("25, 1023", "webhook.ports", (25, 1023)),
    "LOOM_WEBHOOK_TIMEOUT_S": ("0.1", "webhook.timeout_s", 0.1),
    "LOOM_TRACE_ENDPOINT": ("https://c.example/otlp", "trace.endpoint", "https://c.example/otlp"),
    "LOOM_TRACE_CONTENT": ("1", "trace.shows_content", True),
    "LOOM_TRACE_PROTOCOL": ("JSON", "trace.protocol", "json"),
    "LOOM_TRACE_HEADERS": (
        "authorization=Basic%20eA==, x-team = a%2Cb,",
        "trace.headers",
        {"authorization": "Basic eA==", "x-team": "a,b"},
    ),
    "LOOM_WORKER_CONCURRENCY": ("1024", "worker_concurrency", 1024),
    "LOOM_DEBUGGABLE": ("1", "is_debuggable", True),
    "LOOM_FLOWER_PORT": ("5600", "flower.port", 5600),
    "LOOM_FLOWER_ADDRESS": ("0.0.0.0", "flower.address", "0.0.0.0"),
    "LOOM_FLOWER_CONTROL": ("1", "flower.may_control", True),
    "LOOM_LOG_LEVEL": ("warning", "log.level", "WARNING"),
    "LOOM_LOG_FORMAT": ("JSON", "log.format", "json"),
    "LOOM_CRASHPOINTS": ("tool.ran, llm.sent*2", "crash_points", {"tool.ran": 1, "llm.sent": 2}),
}
"""Variable: a value, where it lands, and as what."""

PROVIDER_URLS = ("OPENAI_BASE_URL", "AZURE_OPENAI_ENDPOINT", "VLLM_BASE_URL", "LMSTUDIO_BASE_URL")
PROVIDER_KEYS = tuple(variable.name for variable, _ in declared(ProviderSettings()) if variable.is_secret)
WRONG: dict[str, tuple[str, ...]] = {
    "LOOM_HOME": ("/srv/a?b", "/srv/100%", "/srv/a#b", "/etc/passwd", "/etc/passwd/x", "~no-such-user/x"),
    "LOOM_DATABASE_URL": ("mysql://h/d", "postgresql://h", "sqlite:///relative.db", "sqlite://", "sqlite:///", "sqlite:///:memory:"),
    "LOOM_REDIS_URL": (
        "localhost:6379", "amqp://h", "http://h", "redis://h:99999/0", "redis://h:0", "redis://h:http", "redis://[::1",
        "redis://h/abc", "redis://h:1/2/3", "redis://h :1", "unix://", "unix:///", "unix://relative.sock", "rediss://h:x",
    ),
    "LOOM_PROVIDER": ("acme", "openai/gpt-6.1-sol"),
    "LOOM_PROVIDERS": ("groq;xai", "1a"),
    **dict.fromkeys(PROVIDER_URLS, ("foo", "ftp://h", "http://")),
    "ANTHROPIC_BASE_URL": (
        "foo", "localhost:8080", "ftp://h", "http://", "http:///v1", "http://h:99999", "http://h:0", "http://a b",
        "http://[::1", "http://h?a=b",
    ),
    "LOOM_AGENTS_DIR": ("/no/such/folder", "/etc/passwd"),
    "LOOM_OPENAI_URL": ("api.openai.com", "https://sk-1@h", "ftp://h"),
    "LOOM_VOYAGE_URL": ("api.voyageai.com", "https://h?key=x"),
    "LOOM_EMBEDDINGS_DIR": ("/no/such/folder", "/etc/passwd"),
    "LOOM_EMBEDDING_TIMEOUT_S": ("0", "-1"),
    "LOOM_EMBEDDING_QUERY_TIMEOUT_S": ("0", "1s"),
    "LOOM_WORKFLOWS_DIR": ("/no/such/folder", "/etc/passwd"),
    "LOOM_CORS_ORIGINS": ("*", "localhost:3000", "https://a.example/", "https://A.example", "ftp://h", "http://[::1"),
    "LOOM_TRACE_ENDPOINT": (
        "localhost:4318", "grpc://h:4317", "http://", "http://h?key=x", "http://user:pw@h", "http://h#x", "http://h:0",
    ),
    "LOOM_TRACE_PROTOCOL": ("grpc", "http/json"),
    "LOOM_TRACE_CONTENT": ("2",),
    "LOOM_TRACE_HEADERS": (
        "key", "=x", "a b=c", "é=x", "x-key=a%0d%0aEvil: 1", "Host=h", "content-type=text/plain", "x=é",
    ),
    "LOOM_PATTERNS_DIR": ("/no/such/folder", "/etc/passwd"),
    "LOOM_WORKSPACES_DIR": ("/etc/passwd", "/etc/passwd/ws"),
    "LOOM_PATTERNS_DEBOUNCE_MS": ("-1", "60001", "fast"),
    "LOOM_PATTERNS_SHIPPED": ("perhaps",),
    "LOOM_MAX_CONTEXT_TOKENS": ("1999", "x", "1e6"),
    "LOOM_L1_TOKENS": ("0", "-1"),
    "LOOM_RESERVED_OUTPUT_TOKENS": ("0", "-1", "200000"),
    "LOOM_CACHE_CONTROL": ("2", "maybe"),
    "LOOM_LLM_TIMEOUT_S": ("0", "nan", "inf", "-1", "1s"),
    "LOOM_EVENT_LOG_BYTES": ("65535", "1073741825", "4MB"),
    "LOOM_EVENT_TOTAL_BYTES": ("1048575", "1099511627777", "1GB"),
    "LOOM_EVENT_TTL_S": ("0", "604801", "0.5"),
    "LOOM_MAX_REPLY_BYTES": ("1023", "67108865", "2MB"),
    "LOOM_MAX_ATTEMPTS": ("0", "101", "1.5"),
    "LOOM_LEASE_S": ("0.09", "86401", "nan"),
    "LOOM_TOOL_TIMEOUT_S": ("0",),
    "LOOM_TURN_TIMEOUT_S": ("never",),
    "LOOM_MAX_LLM_CALLS": ("0",),
    "LOOM_MAX_TOOL_CALLS": ("-1",),
    "LOOM_TOOL_CONCURRENCY": ("0", "101"),
    "LOOM_TOOL_PROCESSES": ("0", "1025"),
    "LOOM_TOOL_ENV": ("A B", "1A", "A-B", "ANTHROPIC_API_KEY", "LOOM_SECRET_CRM", "AWS_PROFILE", "LOOM_REDIS_URL", "é"),
    "LOOM_CONFINE_TOOLS": ("2",),
    "LOOM_DEBUGGABLE": ("maybe",),
    "LOOM_FLOWER_PORT": ("0", "65536", "flower"),
    "LOOM_FLOWER_ADDRESS": ("not a host", "1.2.3"),
    "LOOM_FLOWER_CONTROL": ("maybe",),
    "LOOM_MAX_RESULT_BYTES": ("1023", "100000001"),
    "LOOM_REFERENCE_BYTES": ("1023", "1000001"),
    "LOOM_BLOB_DIR": ("/etc/passwd", "/etc/passwd/blobs", "~no-such-user"),
    "LOOM_BLOB_MEMORY_BYTES": ("-1", "1 GB"),
    "LOOM_BLOB_DISK_BYTES": ("-1",),
    "LOOM_BLOB_TTL_S": ("0",),
    "LOOM_FILE_BYTES": ("1023", "1073741825"),
    "LOOM_WORKSPACE_FILE_BYTES": ("-1",),
    "LOOM_ALLOW_PRIVATE_FILES": ("maybe", "2"),
    "LOOM_ERROR_DAYS": ("0", "3651"),
    "LOOM_AGENT_REFERENCE_BYTES": ("1023", "1000001"),
    "LOOM_MAX_CHILDREN": ("-1", "1001"),
    "LOOM_AGENT_PIN": ("turn", "1"),
    "LOOM_SCHEDULE_MISSED": ("twice", "1"),
    "LOOM_JOURNAL_DAYS": ("-1", "3651"),
    "LOOM_AUDIT_DAYS": ("-1", "3651"),
    "LOOM_CONVERSATION_DAYS": ("-1", "3651"),
    "LOOM_DATABASE_POOL": ("0", "1001", "all"),
    "LOOM_DATABASE_POOLER": ("2", "session"),
    "LOOM_SQLITE_SYNC": ("off",),
    "LOOM_HOST": ("not a host", "256.1.1.1", "127.0.0.1:8000", "[::1]", "http://h", "a..b", "1.2.3"),
    "LOOM_PORT": ("0", "65536", "http"),
    "LOOM_API_KEYS": ("k1", "a=", "=k", "a=k1,b=k1", "a b=k", "a=k1,", "é=k", ".=k", "..=k"),
    "LOOM_KEY_REQUESTS_PER_MINUTE": ("-1", "60001", "many"),
    "LOOM_KEY_TOKENS_PER_MINUTE": ("-1", "1000000001"),
    "LOOM_TRUSTED_PROXIES": ("-1", "11", "yes"),
    "LOOM_METRICS_OPEN": ("maybe",),
    "LOOM_ALLOW_PRIVATE_WEBHOOKS": ("maybe", "2"),
    "LOOM_TARGET_PORTS": ("0", "65536", "http", "25,", "25;80"),
    "LOOM_WEBHOOK_TIMEOUT_S": ("0",),
    "LOOM_WORKER_CONCURRENCY": ("0", "1025"),
    "LOOM_LOG_LEVEL": ("loud",),
    "LOOM_LOG_FORMAT": ("xml",),
    "LOOM_CRASHPOINTS": ("turn.nowhere", "tool.ran*0", "tool.ran*x", "*2", ",", "tool.ran,"),
}  # fmt: skip


def test_the_tables_here_know_every_variable() -> None:
    assert set(SET) == set(KNOWN)
    assert set(KNOWN) - set(WRONG) == {
        "LOOM_MODEL", "LOOM_BACKEND_URL", "ANTHROPIC_API_KEY", "LOOM_WEBHOOK_SECRET", "OLLAMA_HOST",
        "LOOM_KEY", "LOOM_OPENAI_KEY", "LOOM_VOYAGE_KEY", "LOOM_PRICES", *PROVIDER_KEYS,
    }  # fmt: skip


@pytest.mark.cases("name", SET)
def test_a_variable_that_is_set_lands_in_its_field(name: str) -> None:
    raw, field, value = SET[name]
    assert at(from_env({name: raw}), field) == value
    assert at(from_env({}), field) != value or name == "LOOM_PROVIDER"


@pytest.mark.cases("name", KNOWN)
def test_an_empty_variable_is_as_one_that_is_not_set(name: str) -> None:
    assert from_env({name: "  "}) == from_env({})


@pytest.mark.cases(("name", "raw"), [(name, raw) for name, values in WRONG.items() for raw in values])
def test_a_wrong_value_is_refused_and_its_variable_named(name: str, raw: str) -> None:
    with pytest.raises(BadSettings) as refused:
        from_env({name: raw})
    assert str(refused.value).startswith(name)
    assert "\n" not in str(refused.value)


def test_all_wrong_values_are_told_at_once() -> None:
    with pytest.raises(BadSettings) as refused:
        from_env({name: values[0] for name, values in WRONG.items()})
    told = str(refused.value)
    assert [name for name in WRONG if name not in told] == []
    assert len(told.splitlines()) == len(WRONG)


def test_what_a_check_says_is_told_with_all_else() -> None:
    def refuse(settings: Settings) -> None:
        raise BadSettings(f"LOOM_MODEL: not {settings.llm.model} on {settings.web.port}")

    with pytest.raises(BadSettings) as refused:
        from_env({"LOOM_MODEL": "m1", "LOOM_PORT": "x", "LOOM_LEASE_S": "x"}, checks=[refuse, lambda _: None])
    told = str(refused.value).splitlines()
    assert len(told) == 3
    assert told[-1] == "LOOM_MODEL: not m1 on 8000"


@pytest.mark.cases(
    "url",
    [
        "redis://",
        "redis://h",
        "redis://h:65535/",
        "rediss://user:p%2Fw@h:1/15?socket_timeout=5",
        "redis://[::1]:6379/0",
        "unix:///run/redis.sock?db=1",
        "unix://user:pw@/run/redis.sock",
    ],
)
def test_a_redis_is_named_in_any_of_its_client_s_ways(url: str) -> None:
    assert from_env({"LOOM_REDIS_URL": url}).redis_url == url


@pytest.mark.cases("url", ["https://h", "HTTP://h/", "http://user:pw@h:65535/a/b", "http://[::1]:8080"])
def test_the_messages_api_is_served_by_any_address_of_the_web(url: str) -> None:
    assert from_env({"ANTHROPIC_BASE_URL": url}).llm.base_url == url


@pytest.mark.cases("host", ["0.0.0.0", "::", "fe80::1%eth0", "localhost", "loom.example.", "my_box", "10-0-0-1"])
def test_the_web_may_listen_on_an_address_or_a_name(host: str) -> None:
    assert from_env({"LOOM_HOST": host}).web.host == host


def test_the_names_of_all_crash_points_stand_in_the_complaint_about_a_wrong_one() -> None:
    with pytest.raises(BadSettings) as refused:
        from_env({"LOOM_CRASHPOINTS": "turn.nowhere"})
    assert [name for name in POINTS if name not in str(refused.value)] == []


def test_a_provider_without_a_usual_model_needs_the_name_of_one() -> None:
    for provider in ("bedrock", "ollama", "groq", "vllm"):
        with pytest.raises(BadSettings, match="LOOM_MODEL"):
            from_env({"LOOM_PROVIDER": provider})
        assert from_env({"LOOM_PROVIDER": provider, "LOOM_MODEL": "m"}).llm.model == "m"


def test_secrets_of_agents_are_found_by_their_names() -> None:
    settings = from_env({"LOOM_SECRET_SHOP": "k-hidden-9", "LOOM_SECRET_EMPTY": ""})
    assert settings.secrets == {"SHOP": "k-hidden-9"}
    assert "hidden" not in repr(settings)


def test_no_secret_is_ever_printed() -> None:
    secrets = {"ANTHROPIC_API_KEY": KEY, "LOOM_API_KEYS": "acme=k-hidden-1", "LOOM_WEBHOOK_SECRET": "whsec_hidden2"}
    secrets |= {"LOOM_KEY": "loom_hidden3", "LOOM_TRACE_HEADERS": "x-key=hidden4"}
    secrets |= {"LOOM_OPENAI_KEY": "sk-hidden5", "LOOM_VOYAGE_KEY": "pa-hidden6"}
    secrets |= dict.fromkeys(PROVIDER_KEYS, "sk-hidden7")
    assert set(secrets) == SECRET
    shown = repr(from_env(secrets)) + str(from_env(secrets).llm) + str(from_env(secrets).web)
    with pytest.raises(BadSettings) as refused:
        from_env({**secrets, "LOOM_API_KEYS": "acme=k-hidden-1,k-hidden-1", "LOOM_PORT": "x"})
    shown += str(refused.value) + repr(refused.value)
    assert [word for word in (KEY, "hidden") if word in shown] == []


def test_a_password_in_a_url_that_is_refused_is_not_printed() -> None:
    for name in ("LOOM_DATABASE_URL", "LOOM_REDIS_URL", "ANTHROPIC_BASE_URL", "LOOM_TRACE_ENDPOINT", *PROVIDER_URLS):
        for url in ("mysql://user:hidden@host/db", "redis://:hidden/x@host", "http:/user:hidden@host"):
            with pytest.raises(BadSettings) as refused:
                from_env({name: url})
            assert "hidden" not in str(refused.value)


@pytest.mark.cases(
    ("environ", "provider", "model"),
    [
        ({}, "scripted", "scripted-demo"),
        ({"ANTHROPIC_API_KEY": KEY}, "anthropic", "claude-sonnet-5-5"),
        ({"ANTHROPIC_BASE_URL": "http://h"}, "anthropic", "claude-sonnet-5-5"),
        ({"ANTHROPIC_API_KEY": KEY, "LOOM_PROVIDER": "scripted"}, "scripted", "scripted-demo"),
        ({"ANTHROPIC_API_KEY": KEY, "LOOM_MODEL": "m"}, "anthropic", "m"),
        ({"OPENAI_API_KEY": KEY}, "openai", "gpt-6.1-sol"),
        ({"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}, "anthropic", "claude-sonnet-5-5"),
        ({"OPENAI_BASE_URL": "http://h"}, "scripted", "scripted-demo"),
        ({"LOOM_OPENAI_KEY": KEY}, "scripted", "scripted-demo"),
        ({"GROQ_API_KEY": KEY}, "scripted", "scripted-demo"),
        ({"OPENAI_API_KEY": KEY, "LOOM_MODEL": "openai/gpt-4.1"}, "openai", "gpt-4.1"),
        ({"ANTHROPIC_API_KEY": KEY, "LOOM_MODEL": "groq/llama-3"}, "groq", "llama-3"),
        ({"LOOM_MODEL": "openrouter/meta-llama/llama-3"}, "openrouter", "meta-llama/llama-3"),
        ({"ANTHROPIC_API_KEY": KEY, "LOOM_MODEL": "meta-llama/Llama-3"}, "anthropic", "meta-llama/Llama-3"),
        ({"LOOM_PROVIDER": "openrouter", "LOOM_MODEL": "openai/gpt-4.1"}, "openrouter", "openai/gpt-4.1"),
        ({"LOOM_PROVIDER": "OpenAI", "LOOM_MODEL": "openai/gpt-4.1"}, "openai", "gpt-4.1"),
        ({"LOOM_PROVIDERS": "groq,openai"}, "openai", "gpt-6.1-sol"),
    ],
)
def test_a_key_or_the_name_of_a_model_chooses_the_provider_unless_one_is_named(
    environ: dict[str, str], provider: str, model: str
) -> None:
    for given in (environ, of_process(environ, process_env.WEB)):  # the same where no key is
        llm = from_env(given).llm
        assert (llm.provider, llm.model) == (provider, model)


@pytest.mark.cases(
    ("environ", "provider", "access", "lacks"),
    [
        ({"OPENAI_API_KEY": "k", "LOOM_OPENAI_URL": "http://gpu"}, "openai", (None, "k"), ""),
        ({"LOOM_OPENAI_KEY": "k", "LOOM_OPENAI_URL": "http://gpu"}, "openai", ("http://gpu", "k"), ""),
        ({"LOOM_OPENAI_KEY": "k", "OPENAI_BASE_URL": "http://h"}, "openai", ("http://h", None), ""),
        (
            {"OPENAI_BASE_URL": "https://api.openai.com/v1"},
            "openai",
            ("https://api.openai.com/v1", None),
            "OPENAI_API_KEY (or OPENAI_BASE_URL)",
        ),
        ({}, "anthropic", (None, None), "ANTHROPIC_API_KEY (or ANTHROPIC_BASE_URL)"),
        ({}, "azure", (None, None), "AZURE_OPENAI_API_KEY and AZURE_OPENAI_ENDPOINT"),
        ({"AZURE_OPENAI_API_KEY": "k"}, "azure", (None, "k"), "AZURE_OPENAI_ENDPOINT"),
        ({}, "gemini", (None, None), "GEMINI_API_KEY"),
        ({"GOOGLE_API_KEY": "k"}, "gemini", (None, "k"), ""),
        *(({}, name, (None, None), f"{name.upper()}_API_KEY") for name in ("groq", "together", "xai", "deepseek")),
        ({}, "vllm", ("http://127.0.0.1:8000/v1", None), ""),
        ({}, "lmstudio", ("http://127.0.0.1:1234/v1", None), ""),
        *(({}, name, (None, None), "") for name in ("ollama", "bedrock", "scripted")),
    ],
)
def test_a_provider_s_address_and_key_are_of_one_pair_and_what_it_lacks_is_named(
    environ: dict[str, str], provider: str, access: tuple[str | None, str | None], lacks: str
) -> None:
    settings = from_env(environ)
    assert (settings.access(provider), settings.lacks(provider)) == (access, lacks)


def test_the_key_of_one_server_goes_to_no_other_with_an_embedding() -> None:
    settings = from_env({"OPENAI_API_KEY": "k", "LOOM_OPENAI_URL": "http://gpu"})
    assert settings.access("openai", embeds=True) == ("http://gpu", None)
    assert from_env({"OPENAI_API_KEY": "k"}).access("openai", embeds=True) == (None, "k")


def test_a_tenth_of_the_window_is_kept_for_the_answer_unless_set() -> None:
    assert from_env({"LOOM_MAX_CONTEXT_TOKENS": "50000"}).llm.reserved_output_tokens == 5000


def test_what_is_not_set_lies_in_the_home() -> None:
    settings = from_env({"LOOM_HOME": "~/x y"})
    home = Path.home() / "x y"
    assert settings.database_url == f"sqlite:///{home}/loom.db"
    assert settings.redis_url == f"unix://{home}/valkey.sock"
    assert settings.has_embedded_redis
    assert settings.has_sample_backend
    other = from_env({"LOOM_REDIS_URL": "redis://h", "LOOM_BACKEND_URL": "sqlite:////x.db"})
    assert not other.has_embedded_redis
    assert not other.has_sample_backend


@pytest.mark.parametrize(
    ("name", "field"),
    [("LOOM_HOME", "home"), ("LOOM_BLOB_DIR", "blobs.folder"), ("LOOM_WORKSPACES_DIR", "workspaces_dir")],
)
def test_a_relative_folder_is_made_absolute_once_and_need_not_exist(name: str, field: str) -> None:
    assert at(from_env({name: "not/made/yet"}), field) == Path.cwd() / "not/made/yet"
    assert at(from_env({name: "~/not-made-yet"}), field) == Path.home() / "not-made-yet"
    long = {name: "/" + "n" * 300, "LOOM_REDIS_URL": "redis://h"}
    assert at(from_env(long), field) == Path("/" + "n" * 300)


def test_a_folder_that_is_a_dangling_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    with pytest.raises(BadSettings, match=r"LOOM_BLOB_DIR=.*it is no folder"):
        from_env({"LOOM_BLOB_DIR": str(tmp_path / "link")})


def test_kombu_s_spelling_of_a_socket_is_understood() -> None:
    assert from_env({"LOOM_REDIS_URL": "redis+socket:///run/s"}).redis_url == "unix:///run/s"


def test_the_environment_of_the_process_is_read_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_PORT", "9123")
    assert from_env().web.port == 9123
    assert from_env({}).web.port == 8000


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        from_env({}).home = Path("/")  # type: ignore[misc]
