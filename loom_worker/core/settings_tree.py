"""What can be set: one frozen tree, each field with its unit, its variable and its default; settings.py builds it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from loom_worker.core.socket_folder import embedded_socket
from loom_worker.core.values.problems import Problem

Provider = Literal["anthropic", "bedrock", "ollama", "scripted"]


@dataclass(frozen=True, slots=True)
class LlmSettings:
    """Which model answers and how long it may take."""

    provider: Provider = "scripted"
    """LOOM_PROVIDER; anthropic when a key or base URL of its SDK is set, else the demo without network."""
    is_chosen: bool = False
    """True: LOOM_PROVIDER itself names the provider."""
    model: str = "scripted-demo"
    """LOOM_MODEL."""
    api_key: str | None = field(default=None, repr=False)
    """ANTHROPIC_API_KEY."""
    base_url: str | None = None
    """ANTHROPIC_BASE_URL: any server that speaks the Messages API."""
    ollama_host: str | None = None
    """OLLAMA_HOST: host, host:port or URL; its usual place on this machine unless set."""
    max_context_tokens: int = 200_000
    """LOOM_MAX_CONTEXT_TOKENS: the model's window."""
    reserved_output_tokens: int = 20_000
    """LOOM_RESERVED_OUTPUT_TOKENS: kept free for the answer; 10 % of the window unless set."""
    l1_tokens: int = 48_000
    """LOOM_L1_TOKENS: what a conversation's latest messages may take, word by word, before half of them becomes a
    summary; in a smaller window half of the input budget. All of it is sent with every call."""
    call_timeout_s: float = 120.0
    """LOOM_LLM_TIMEOUT_S: total deadline of one call; the SDK's own timeout is per read, a slow drip outlives it."""
    max_reply_bytes: int = 2 * 1024 * 1024
    """LOOM_MAX_REPLY_BYTES: of text, thinking and tool arguments in one reply, in UTF-8; four times the 128,000 tokens
    that the largest models write. 60 MB of them cost a worker 834 MB (measured)."""


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """What one turn and one lane may use."""

    max_attempts: int = 3
    """LOOM_MAX_ATTEMPTS: deaths of a turn's owner before the turn is given up."""
    tool_timeout_s: float = 30.0
    """LOOM_TOOL_TIMEOUT_S."""
    turn_timeout_s: float = 300.0
    """LOOM_TURN_TIMEOUT_S: running time only; not the queue, not what the turn waits for."""
    max_llm_calls: int = 25
    """LOOM_MAX_LLM_CALLS per turn."""
    max_tool_calls: int = 50
    """LOOM_MAX_TOOL_CALLS per turn."""
    max_calls_per_reply: int = 20
    """Tool calls of one reply; those beyond are answered with an error."""
    lane_depth: int = 100
    """Unfinished turns a session may have."""
    workspace_depth: int = 10_000
    """Unfinished turns a workspace may have."""


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """How tools run, and what becomes of what they give."""

    concurrency: int = 10
    """LOOM_TOOL_CONCURRENCY: calls of one turn that are under way at a time."""
    processes: int = 10
    """LOOM_TOOL_PROCESSES: child processes in which a worker runs tools; each takes one call at a time."""
    max_result_bytes: int = 10_000_000
    """LOOM_MAX_RESULT_BYTES: of a result in UTF-8; more is cut, and the model told so."""
    reference_bytes: int = 16 * 1024
    """LOOM_REFERENCE_BYTES: a result of so many bytes and more is kept apart, and the model is sent a reference."""
    env: tuple[str, ...] = ()
    """LOOM_TOOL_ENV: variables that tools are handed beside the harmless ones; see process_env.py."""
    is_confined: bool = True
    """LOOM_CONFINE_TOOLS: tools of Python files may not read Loom's own files; needs Landlock (Linux 5.13)."""
    error_days: int = 30
    """LOOM_ERROR_DAYS: the errors of tools are kept for so long."""


@dataclass(frozen=True, slots=True)
class BlobSettings:
    """Where large results are kept, and how much of them."""

    folder: Path = Path("~/.loom/blobs")
    """LOOM_BLOB_DIR; ``<home>/blobs`` unless set. All machines of one system must see the same folder."""
    memory_bytes: int = 256 * 1024 * 1024
    """LOOM_BLOB_MEMORY_BYTES: of Redis, for those used last."""
    disk_bytes: int = 10_000_000_000
    """LOOM_BLOB_DISK_BYTES: of the folder."""
    ttl_s: float = 3600.0
    """LOOM_BLOB_TTL_S: kept for so long after the last use, and while an unfinished turn refers to it."""


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """How long the database keeps what has ended; 0 days: for ever."""

    journal_days: int = 7
    """LOOM_JOURNAL_DAYS: the journal of a turn after its end, and deliveries that are done."""
    conversation_days: int = 0
    """LOOM_CONVERSATION_DAYS: sessions after their last turn, and old turns of those that go on."""


@dataclass(frozen=True, slots=True)
class LaneSettings:
    """Leases. A killed worker's turn goes on after about lease_s + sweep_s."""

    lease_s: float = 3.0
    """LOOM_LEASE_S: a lease that is not renewed for this long is another's."""
    renew_s: float = 0.5
    """Seconds between renewals of all leases of a process."""
    kick_s: float = 1.0
    """A wake-up not answered within this is rung again, then after 2, 4 and 8 times as long."""
    max_kick_s: float = 8.0
    """The longest pause between two rings of a lane."""
    park_check_s: float = 3.0
    """A parked turn looks after its open calls this often, should every signal be lost."""
    sweep_s: float = 1.0
    """Seconds between sweeps, cluster-wide."""
    drain_s: float = 10.0
    """On shutdown a running reply may take this long before the turn is handed over."""


@dataclass(frozen=True, slots=True)
class EventSettings:
    """The event logs of turns in Redis; what they do not hold is made from the journal."""

    log_bytes: int = 4 * 1024 * 1024
    """LOOM_EVENT_LOG_BYTES: of one turn's log; its oldest events are dropped beyond it. Twice the longest reply, so
    that a reader who keeps up is never sent to the database."""
    ttl_s: int = 120
    """LOOM_EVENT_TTL_S: a log is kept for so long after its turn has ended. An hour took 4.8 GB at 150 turns/s."""


@dataclass(frozen=True, slots=True)
class WebSettings:
    """The front end."""

    host: str = "127.0.0.1"
    """LOOM_HOST."""
    port: int = 8000
    """LOOM_PORT."""
    api_keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    """LOOM_API_KEYS: key to workspace; empty: only loopback clients are served."""
    trusted_proxies: int = 0
    """LOOM_TRUSTED_PROXIES: how many reverse proxies in front may set X-Forwarded-*."""
    threads: int = 256
    """32 threads and 200 event readers left the API dead; 256 cost 68 MB and p99 2.8 ms (measured)."""
    max_body_bytes: int = 1024 * 1024
    """Larger requests are answered 413."""
    max_wait_s: int = 60
    """Longest long poll."""


@dataclass(frozen=True, slots=True)
class PatternSettings:
    """The pattern library."""

    folder: Path | None = None
    """LOOM_PATTERNS_DIR: patterns of one's own; unless set, those in the package are the library."""
    is_shipped_added: bool = True
    """LOOM_PATTERNS_SHIPPED: the package's patterns are offered beside one's own; one's own win under the same id."""
    debounce_ms: int = 100
    """LOOM_PATTERNS_DEBOUNCE_MS: quiet time after a change of its files before they are read."""
    learns: bool = True
    """LOOM_PATTERNS_LEARN: candidates that are alike are ordered by what came of turns that used them."""


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Webhook delivery."""

    secret: str | None = field(default=None, repr=False)
    """LOOM_WEBHOOK_SECRET (``whsec_…``); ``loom up`` makes one if unset."""
    allow_private: bool = False
    """LOOM_ALLOW_PRIVATE_WEBHOOKS=1: loopback and private targets are served too."""
    timeout_s: float = 15.0
    """LOOM_WEBHOOK_TIMEOUT_S: total time for one attempt; Standard Webhooks asks for 15-30 s."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Logs."""

    level: str = "INFO"
    """LOOM_LOG_LEVEL."""
    format: Literal["json", "console"] = "console"
    """LOOM_LOG_FORMAT."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set."""

    home: Path = Path("~/.loom")
    """LOOM_HOME: the data directory, mode 0700."""
    database_url: str = ""
    """LOOM_DATABASE_URL; ``sqlite:///<home>/loom.db`` unless set."""
    redis_url: str = ""
    """LOOM_REDIS_URL; unless set, the embedded Valkey's socket in the home."""
    sqlite_sync: Literal["full", "normal"] = "full"
    """LOOM_SQLITE_SYNC: full survives power loss where the promise is given, normal the death of any process."""
    backend_url: str = ""
    """LOOM_BACKEND_URL: the data the agent works on; unless set, the sample shop in the home."""
    agents_dir: Path | None = None
    """LOOM_AGENTS_DIR."""
    workspaces_dir: Path = Path("~/.loom/workspaces")
    """LOOM_WORKSPACES_DIR: ``<workspace>/skills`` lie in it."""
    worker_concurrency: int = 32
    """LOOM_WORKER_CONCURRENCY: threads a worker process; turns wait for the network most of their time."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """LOOM_SECRET_<NAME>, by name: what agent files refer to as ``{secret: NAME}``."""
    is_debuggable: bool = False
    """LOOM_DEBUGGABLE: 1 leaves processes open to debuggers, profilers and core dumps of their own user."""
    crash_points: Mapping[str, int] = field(default_factory=dict)
    """LOOM_CRASHPOINTS: where processes shall die, and how many, to try what is promised; see crash_points.py."""
    llm: LlmSettings = LlmSettings()
    limits: LimitSettings = LimitSettings()
    tools: ToolSettings = ToolSettings()
    blobs: BlobSettings = BlobSettings()
    patterns: PatternSettings = PatternSettings()
    retention: RetentionSettings = RetentionSettings()
    lanes: LaneSettings = LaneSettings()
    events: EventSettings = EventSettings()
    web: WebSettings = WebSettings()
    webhook: WebhookSettings = WebhookSettings()
    log: LogSettings = LogSettings()
    problems: tuple[Problem, ...] = ()
    """What of the environment has no effect, or not the one that its author may think; told at the start."""

    @property
    def has_embedded_redis(self) -> bool:
        """True unless LOOM_REDIS_URL names a server of its own."""
        return self.redis_url == f"unix://{embedded_socket(self.home)}"

    @property
    def has_sample_backend(self) -> bool:
        """True while the agent works on the sample shop."""
        return self.backend_url == f"sqlite:///{self.home / 'shop.db'}"
