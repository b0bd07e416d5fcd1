"""Every setting with its value and where that came from, secrets masked."""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

from loom_worker.core.env import KNOWN, SECRET
from loom_worker.core.settings import Settings
from loom_worker.supervisor.screen import without_password


@dataclass(frozen=True, slots=True)
class Knob:
    """One variable as `loom doctor` prints it."""

    name: str
    value: str
    source: str
    """``environment``, ``.env`` or ``default``."""


VALUE_OF: Mapping[str, Callable[[Settings], object]] = {
    "LOOM_HOME": lambda s: s.home,
    "LOOM_DATABASE_URL": lambda s: without_password(s.database_url),
    "LOOM_REDIS_URL": lambda s: without_password(s.redis_url),
    "LOOM_MODEL": lambda s: s.llm.model,
    "LOOM_PROVIDER": lambda s: s.llm.provider,
    "ANTHROPIC_API_KEY": lambda s: s.llm.api_key,
    "ANTHROPIC_BASE_URL": lambda s: s.llm.base_url and without_password(s.llm.base_url),
    "OLLAMA_HOST": lambda s: s.llm.ollama_host and without_password(s.llm.ollama_host),
    "LOOM_AGENTS_DIR": lambda s: s.agents_dir,
    "LOOM_PATTERNS_DIR": lambda s: s.patterns.folder,
    "LOOM_PATTERNS_SHIPPED": lambda s: s.patterns.is_shipped_added,
    "LOOM_PATTERNS_DEBOUNCE_MS": lambda s: s.patterns.debounce_ms,
    "LOOM_PATTERNS_LEARN": lambda s: s.patterns.learns,
    "LOOM_WORKSPACES_DIR": lambda s: s.workspaces_dir,
    "LOOM_BACKEND_URL": lambda s: without_password(s.backend_url),
    "LOOM_MAX_CONTEXT_TOKENS": lambda s: s.llm.max_context_tokens,
    "LOOM_RESERVED_OUTPUT_TOKENS": lambda s: s.llm.reserved_output_tokens,
    "LOOM_L1_TOKENS": lambda s: s.llm.l1_tokens,
    "LOOM_LLM_TIMEOUT_S": lambda s: s.llm.call_timeout_s,
    "LOOM_MAX_REPLY_BYTES": lambda s: s.llm.max_reply_bytes,
    "LOOM_MAX_ATTEMPTS": lambda s: s.limits.max_attempts,
    "LOOM_LEASE_S": lambda s: s.lanes.lease_s,
    "LOOM_TOOL_TIMEOUT_S": lambda s: s.limits.tool_timeout_s,
    "LOOM_TURN_TIMEOUT_S": lambda s: s.limits.turn_timeout_s,
    "LOOM_MAX_LLM_CALLS": lambda s: s.limits.max_llm_calls,
    "LOOM_MAX_TOOL_CALLS": lambda s: s.limits.max_tool_calls,
    "LOOM_TOOL_CONCURRENCY": lambda s: s.tools.concurrency,
    "LOOM_TOOL_PROCESSES": lambda s: s.tools.processes,
    "LOOM_TOOL_ENV": lambda s: ",".join(s.tools.env),
    "LOOM_CONFINE_TOOLS": lambda s: int(s.tools.is_confined),
    "LOOM_MAX_RESULT_BYTES": lambda s: s.tools.max_result_bytes,
    "LOOM_REFERENCE_BYTES": lambda s: s.tools.reference_bytes,
    "LOOM_BLOB_DIR": lambda s: s.blobs.folder,
    "LOOM_BLOB_MEMORY_BYTES": lambda s: s.blobs.memory_bytes,
    "LOOM_BLOB_DISK_BYTES": lambda s: s.blobs.disk_bytes,
    "LOOM_BLOB_TTL_S": lambda s: s.blobs.ttl_s,
    "LOOM_EVENT_LOG_BYTES": lambda s: s.events.log_bytes,
    "LOOM_EVENT_TTL_S": lambda s: s.events.ttl_s,
    "LOOM_ERROR_DAYS": lambda s: s.tools.error_days,
    "LOOM_JOURNAL_DAYS": lambda s: s.retention.journal_days,
    "LOOM_CONVERSATION_DAYS": lambda s: s.retention.conversation_days,
    "LOOM_SQLITE_SYNC": lambda s: s.sqlite_sync,
    "LOOM_HOST": lambda s: s.web.host,
    "LOOM_PORT": lambda s: s.web.port,
    "LOOM_API_KEYS": lambda s: ", ".join(s.web.api_keys.values()),
    "LOOM_TRUSTED_PROXIES": lambda s: s.web.trusted_proxies,
    "LOOM_WEBHOOK_SECRET": lambda s: s.webhook.secret,
    "LOOM_ALLOW_PRIVATE_WEBHOOKS": lambda s: s.webhook.allow_private,
    "LOOM_WEBHOOK_TIMEOUT_S": lambda s: s.webhook.timeout_s,
    "LOOM_WORKER_CONCURRENCY": lambda s: s.worker_concurrency,
    "LOOM_DEBUGGABLE": lambda s: int(s.is_debuggable),
    "LOOM_LOG_LEVEL": lambda s: s.log.level,
    "LOOM_LOG_FORMAT": lambda s: s.log.format,
    "LOOM_CRASHPOINTS": lambda s: ",".join(f"{place}*{times}" for place, times in s.crash_points.items()),
}
"""How to read each variable's effective value back from the tree; a test holds it against KNOWN."""


def knobs(settings: Settings, environ: Mapping[str, str], *, project: Container[str] = ()) -> list[Knob]:
    """All variables in the order of KNOWN.

    Args:
        project: names of those in ``environ`` that come from the `.env` of a project.
    """
    return [Knob(name, _shown(name, settings), ".env" if name in project else _source(name, environ)) for name in KNOWN]


def _shown(name: str, settings: Settings) -> str:
    value = VALUE_OF[name](settings)
    if value is None or value == "":
        return "-"
    return "***" if name in SECRET else str(value)


def _source(name: str, environ: Mapping[str, str]) -> str:
    return "environment" if environ.get(name, "").strip() else "default"
