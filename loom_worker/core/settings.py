"""All knobs: one frozen tree, built once from a mapping, the only reader of the environment.

What the tree holds is in settings_tree.py, how single values are read in environ.py.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit

from loom_worker.core import crash_points, socket_folder
from loom_worker.core.env import NAMED_PREFIX, Reader, is_secret, misnamed, within
from loom_worker.core.errors import BadSettings
from loom_worker.core.settings_tree import (
    BlobSettings,
    EventSettings,
    LaneSettings,
    LimitSettings,
    LlmSettings,
    LogSettings,
    PatternSettings,
    Provider,
    RetentionSettings,
    Settings,
    ToolSettings,
    WebhookSettings,
    WebSettings,
)
from loom_worker.core.socket_folder import embedded_socket
from loom_worker.core.values.problems import Problem

__all__ = [
    "PROVIDERS",
    "BlobSettings",
    "EventSettings",
    "LaneSettings",
    "LimitSettings",
    "LlmSettings",
    "LogSettings",
    "PatternSettings",
    "RetentionSettings",
    "Settings",
    "ToolSettings",
    "WebSettings",
    "WebhookSettings",
    "embedded_socket",
    "from_env",
]

_YES_NO = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
PROVIDERS: dict[str, Provider] = {name: name for name in get_args(Provider)}


Judge = Callable[[Settings], None]
"""Raises BadSettings for a value that only the room that uses it can judge."""


def from_env(environ: Mapping[str, str] | None = None, *, judges: Iterable[Judge] = ()) -> Settings:
    """Build the settings from a mapping (default: the process environment).

    Args:
        judges: what they say is told with all other complaints; they see the default where a value is refused here.

    Raises:
        BadSettings: names every variable that is wrong, and what was expected.
    """
    environ = os.environ if environ is None else environ
    read = Reader(environ)
    home = _home(read)
    settings = Settings(
        home=home,
        database_url=_database_url(read, home),
        redis_url=_redis_url(read, home),
        sqlite_sync=read.choice("LOOM_SQLITE_SYNC", "full", {"full": "full", "normal": "normal"}),
        backend_url=read.text("LOOM_BACKEND_URL") or f"sqlite:///{home / 'shop.db'}",
        agents_dir=_existing(read, "LOOM_AGENTS_DIR"),
        workspaces_dir=read.folder("LOOM_WORKSPACES_DIR") or home / "workspaces",
        worker_concurrency=read.whole("LOOM_WORKER_CONCURRENCY", 32, most=1024),
        secrets=read.prefixed(NAMED_PREFIX),
        is_debuggable=read.choice("LOOM_DEBUGGABLE", False, _YES_NO),
        crash_points=read.parsed("LOOM_CRASHPOINTS", {}, _crash_points, _CRASH_POINTS),
        llm=_llm(read),
        limits=_limits(read),
        tools=_tools(read),
        blobs=_blobs(read, home),
        patterns=_patterns(read),
        retention=_retention(read),
        lanes=LaneSettings(lease_s=read.seconds("LOOM_LEASE_S", LaneSettings().lease_s)),
        events=_events(read),
        web=_web(read),
        webhook=_webhook(read),
        log=_log(read),
        problems=(*misnamed(environ), *_unanswered(read)),
    )
    complaints = [*read.complaints, *_judged(settings, judges)]
    if complaints:
        raise BadSettings("\n".join(complaints))
    return settings


def _judged(settings: Settings, judges: Iterable[Judge]) -> Iterator[str]:
    for judge in judges:
        try:
            judge(settings)
        except BadSettings as error:
            yield str(error)


def _home(read: Reader) -> Path:
    home = read.folder("LOOM_HOME", "~/.loom") or Path("/nowhere")
    if re.search("[?#%]", str(home)):
        read.complaints.append("LOOM_HOME: expected a path without ?, # and %, for it becomes part of URLs")
    return home


def _database_url(read: Reader, home: Path) -> str:
    url = read.text("LOOM_DATABASE_URL") or f"sqlite:///{home / 'loom.db'}"
    if not re.match("sqlite:////.", url):  # three slashes: a file in whatever folder a process was started in
        read.complaints.append("LOOM_DATABASE_URL: expected sqlite:///<absolute path> (the only database served yet)")
    return url


def _redis_url(read: Reader, home: Path) -> str:
    if not read.text("LOOM_REDIS_URL"):
        read.complaints.extend(_unsafe_socket(home))
    expected = "redis://host:port/number (port 1-65535), rediss:// likewise, or unix:///path/of.sock"
    return read.parsed("LOOM_REDIS_URL", f"unix://{embedded_socket(home)}", _redis, expected)


def _unsafe_socket(home: Path) -> Iterator[str]:
    try:
        socket_folder.check(home)
    except BadSettings as error:
        yield str(error)


def _redis(raw: str) -> str:
    url = re.sub(r"^redis\+socket://", "unix://", raw)
    parts = urlsplit(url)
    if url.startswith("unix://"):
        is_sound = parts.hostname is None and len(parts.path) > 1
    else:
        # redis-py takes what is no number for database 0 without a word, Celery refuses it with the first task.
        is_sound = url.startswith(("redis://", "rediss://")) and parts.port != 0
        is_sound = is_sound and re.fullmatch("/?[0-9]*", parts.path) is not None
    if not is_sound or re.search(r"\s", raw):
        raise ValueError(raw)
    return url


def _web_url(raw: str) -> str:
    parts = urlsplit(raw)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0 or re.search(r"[\s?#]", raw):
        raise ValueError(raw)
    return raw


def _existing(read: Reader, name: str) -> Path | None:
    folder = read.folder(name)
    if folder is not None and not folder.is_dir():
        read.complaints.append(f"{name}={str(folder)!r}: no such folder")
    return folder


def _llm(read: Reader) -> LlmSettings:
    key, base = read.text("ANTHROPIC_API_KEY"), read.text("ANTHROPIC_BASE_URL")
    # One that is refused stays, so that its complaint is the only one: a judge would miss a key beside it.
    base_url = read.parsed("ANTHROPIC_BASE_URL", base, _web_url, "http(s)://host[:port][/path]")
    provider = read.choice("LOOM_PROVIDER", "anthropic" if key or base else "scripted", PROVIDERS)
    window = read.whole("LOOM_MAX_CONTEXT_TOKENS", LlmSettings().max_context_tokens, least=2000)
    reserved = read.whole("LOOM_RESERVED_OUTPUT_TOKENS", window // 10)
    if reserved >= window:
        read.complaints.append(f"LOOM_RESERVED_OUTPUT_TOKENS={reserved}: must be below the window of {window}")
    default_model = "scripted-demo" if provider == "scripted" else "claude-sonnet-5-5"
    if provider in ("bedrock", "ollama") and not read.text("LOOM_MODEL"):
        read.complaints.append(f"LOOM_MODEL: LOOM_PROVIDER={provider} needs the name of a model")
    return LlmSettings(
        provider=provider,
        is_chosen=read.text("LOOM_PROVIDER") is not None,
        model=read.text("LOOM_MODEL") or default_model,
        api_key=key,
        base_url=base_url,
        ollama_host=read.text("OLLAMA_HOST"),
        max_context_tokens=window,
        reserved_output_tokens=reserved,
        l1_tokens=read.whole("LOOM_L1_TOKENS", LlmSettings().l1_tokens),
        call_timeout_s=read.seconds("LOOM_LLM_TIMEOUT_S", LlmSettings().call_timeout_s),
        max_reply_bytes=read.whole(
            "LOOM_MAX_REPLY_BYTES", LlmSettings().max_reply_bytes, least=1024, most=64 * 1024 * 1024
        ),
    )


def _unanswered(read: Reader) -> Iterator[Problem]:
    """A model that is named while another than its provider answers."""
    model, provider = read.text("LOOM_MODEL"), (read.text("LOOM_PROVIDER") or "").lower()
    if model is None or provider in ("bedrock", "ollama"):
        return
    has_key = bool(read.text("ANTHROPIC_API_KEY") or read.text("ANTHROPIC_BASE_URL"))
    is_script = model.startswith("scripted")
    if not is_script and provider == "scripted":
        text = f"{model!r} is named, and the demo's script answers, for LOOM_PROVIDER is scripted"
        yield Problem(text, field="LOOM_MODEL", is_warning=True)
    elif not is_script and not provider and not has_key:
        text = f"{model!r} is named without a key, so the demo's script answers"
        yield Problem(text, "set ANTHROPIC_API_KEY, or LOOM_PROVIDER to another one", field="LOOM_MODEL")
    elif is_script and (has_key or provider == "anthropic") and provider != "scripted":
        text = f"{model!r} is the demo's name, and the provider is anthropic"
        yield Problem(text, "name a model of its own, or set LOOM_PROVIDER=scripted", field="LOOM_MODEL")


def _limits(read: Reader) -> LimitSettings:
    return LimitSettings(
        max_attempts=read.whole("LOOM_MAX_ATTEMPTS", LimitSettings().max_attempts, most=100),
        tool_timeout_s=read.seconds("LOOM_TOOL_TIMEOUT_S", LimitSettings().tool_timeout_s),
        turn_timeout_s=read.seconds("LOOM_TURN_TIMEOUT_S", LimitSettings().turn_timeout_s),
        max_llm_calls=read.whole("LOOM_MAX_LLM_CALLS", LimitSettings().max_llm_calls),
        max_tool_calls=read.whole("LOOM_MAX_TOOL_CALLS", LimitSettings().max_tool_calls, least=0),
    )


def _tools(read: Reader) -> ToolSettings:
    usual = ToolSettings()
    return ToolSettings(
        concurrency=read.whole("LOOM_TOOL_CONCURRENCY", usual.concurrency, most=100),
        processes=read.whole("LOOM_TOOL_PROCESSES", usual.processes, most=1024),
        max_result_bytes=read.whole("LOOM_MAX_RESULT_BYTES", usual.max_result_bytes, least=1024, most=100_000_000),
        env=read.parsed("LOOM_TOOL_ENV", usual.env, _tool_env, "names of variables, none of them a secret of Loom's"),
        is_confined=read.choice("LOOM_CONFINE_TOOLS", usual.is_confined, _YES_NO),
        reference_bytes=read.whole("LOOM_REFERENCE_BYTES", usual.reference_bytes, least=1024, most=1_000_000),
        error_days=read.whole("LOOM_ERROR_DAYS", usual.error_days, most=3650),
    )


def _tool_env(raw: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in raw.split(",") if name.strip())
    if wrong := [name for name in names if is_secret(name) or not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)]:
        raise ValueError(wrong)
    return names


def _blobs(read: Reader, home: Path) -> BlobSettings:
    usual, most = BlobSettings(), 1 << 50
    return BlobSettings(
        folder=read.folder("LOOM_BLOB_DIR") or home / "blobs",
        memory_bytes=read.whole("LOOM_BLOB_MEMORY_BYTES", usual.memory_bytes, least=0, most=most),
        disk_bytes=read.whole("LOOM_BLOB_DISK_BYTES", usual.disk_bytes, least=0, most=most),
        ttl_s=read.seconds("LOOM_BLOB_TTL_S", usual.ttl_s),
    )


def _retention(read: Reader) -> RetentionSettings:
    usual = RetentionSettings()
    return RetentionSettings(
        journal_days=read.whole("LOOM_JOURNAL_DAYS", usual.journal_days, least=0, most=3650),
        conversation_days=read.whole("LOOM_CONVERSATION_DAYS", usual.conversation_days, least=0, most=3650),
    )


def _patterns(read: Reader) -> PatternSettings:
    return PatternSettings(
        folder=_existing(read, "LOOM_PATTERNS_DIR"),
        is_shipped_added=read.choice("LOOM_PATTERNS_SHIPPED", True, _YES_NO),
        debounce_ms=read.whole("LOOM_PATTERNS_DEBOUNCE_MS", PatternSettings().debounce_ms, least=0, most=60_000),
        learns=read.choice("LOOM_PATTERNS_LEARN", True, _YES_NO),
    )


def _events(read: Reader) -> EventSettings:
    usual = EventSettings()
    return EventSettings(
        log_bytes=read.whole("LOOM_EVENT_LOG_BYTES", usual.log_bytes, least=64 * 1024, most=1 << 30),
        ttl_s=read.whole("LOOM_EVENT_TTL_S", usual.ttl_s, most=7 * 86_400),
    )


def _web(read: Reader) -> WebSettings:
    return WebSettings(
        host=read.parsed("LOOM_HOST", WebSettings().host, _host, "an address or name of this machine"),
        port=read.whole("LOOM_PORT", WebSettings().port, most=65_535),
        api_keys=read.parsed("LOOM_API_KEYS", {}, _api_keys, "workspace=key[,workspace=key…]"),
        trusted_proxies=read.whole("LOOM_TRUSTED_PROXIES", 0, least=0, most=10),
    )


def _host(raw: str) -> str:
    # A name whose last label is a number is an address, and not a right one.
    if not re.fullmatch(r"([A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]*[A-Za-z_-][A-Za-z0-9_-]*\.?", raw):
        ip_address(raw)
    return raw


def _api_keys(raw: str) -> dict[str, str]:
    keys: dict[str, str] = {}
    for pair in raw.split(","):
        workspace, equals, key = pair.strip().partition("=")
        if not (equals and key and re.fullmatch(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,64}", workspace)) or key in keys:
            raise ValueError(pair)
        keys[key] = workspace
    return keys


def _webhook(read: Reader) -> WebhookSettings:
    return WebhookSettings(
        secret=read.text("LOOM_WEBHOOK_SECRET"),
        allow_private=read.choice("LOOM_ALLOW_PRIVATE_WEBHOOKS", False, _YES_NO),
        timeout_s=read.seconds("LOOM_WEBHOOK_TIMEOUT_S", WebhookSettings().timeout_s),
    )


_CRASH_POINTS = "name[*times][,…], the names being " + ", ".join(crash_points.POINTS)


def _crash_points(raw: str) -> dict[str, int]:
    points: dict[str, int] = {}
    for one in raw.split(","):
        name, _, times = one.strip().partition("*")
        if name not in crash_points.POINTS:
            raise ValueError(one)
        points[name] = within(int(times or 1), 1, 10_000)
    return points


def _log(read: Reader) -> LogSettings:
    levels = {name.lower(): name for name in ("DEBUG", "INFO", "WARNING", "ERROR")}
    return LogSettings(
        level=read.choice("LOOM_LOG_LEVEL", "INFO", levels),
        format=read.choice("LOOM_LOG_FORMAT", "console", {"json": "json", "console": "console"}),
    )
