"""Every setting, declared once: its variable, how it is read, its default, its unit. settings.py builds the tree."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from loom_worker.core.values.agents import LOCAL, PROVIDERS, ModelChoice, Provider
from loom_worker.core.values.problems import Problem
from loom_worker.core.values.schedules import MissedTimes
from loom_worker.core.variables import (
    VARIABLE,
    ApiKeys,
    BareUrl,
    CrashPoints,
    DatabaseUrl,
    Folder,
    Host,
    HttpHeaders,
    OneOf,
    OneZero,
    Origins,
    Ports,
    RedisUrl,
    Seconds,
    Text,
    Url,
    Variable,
    VariableNames,
    WebUrl,
    Whole,
    YesNo,
    setting,
)

USUAL_MODELS: Mapping[Provider, str] = {
    "anthropic": "claude-sonnet-5-5",
    "openai": "gpt-6.1-sol",
    "scripted": "scripted-demo",
}
"""The models of providers that can do without LOOM_MODEL, the first with a key before the others."""

VALKEY_CONF = "valkey.conf"
"""In the home: the embedded server's configuration file, whose only line is ``requirepass`` and the password."""


def embedded_socket(home: Path) -> Path:
    """Where the embedded server of this home listens."""
    return home / "valkey.sock"


@dataclass(frozen=True, slots=True)
class LlmSettings:
    """Which model answers and how long it may take."""

    model: str = setting("LOOM_MODEL", Text(), "scripted-demo")
    provider: Provider = setting("LOOM_PROVIDER", OneOf(*PROVIDERS), "scripted")
    """Unless set, the prefix of LOOM_MODEL; else anthropic or openai, if there is a key, else the demo."""
    is_chosen: bool = False
    """True: LOOM_PROVIDER itself names the provider."""
    offered: tuple[str, ...] = setting("LOOM_PROVIDERS", VariableNames("names of providers"), ())
    """Providers with a key, also in processes that must not have the keys themselves."""
    api_key: str | None = setting("ANTHROPIC_API_KEY", Text(), None, is_secret=True)
    base_url: str | None = setting("ANTHROPIC_BASE_URL", WebUrl(), None, may_hold_password=True)
    """Any server that speaks the Messages API."""
    prices: str | None = setting("LOOM_PRICES", Text(), None)
    """A file of prices that come before those in the package (llm/prices.py)."""
    cache_marks: bool = setting("LOOM_CACHE_CONTROL", OneZero(), True)
    """0: requests hold no ``cache_control``, which some servers of the Messages API refuse."""
    ollama_host: str | None = setting("OLLAMA_HOST", Url(), None)
    """Host, host:port or URL; unless set, Ollama's usual address on this machine."""
    max_context_tokens: int = setting("LOOM_MAX_CONTEXT_TOKENS", Whole(least=2000), 200_000)
    """The model's window."""
    reserved_output_tokens: int = setting("LOOM_RESERVED_OUTPUT_TOKENS", Whole(), 20_000)
    """Kept free for the answer; unless set, 10 % of the window."""
    l1_tokens: int = setting("LOOM_L1_TOKENS", Whole(), 48_000)
    """What a conversation's latest messages may take, word by word, before half of them becomes a summary; in a smaller
    window half of the input budget. Every call sends all of it."""
    call_timeout_s: float = setting("LOOM_LLM_TIMEOUT_S", Seconds(), 120.0)
    """Total deadline of one call; the SDK's own timeout is per read, and a slow drip outlives it."""
    max_reply_bytes: int = setting("LOOM_MAX_REPLY_BYTES", Whole(1024, 64 * 1024 * 1024), 2 * 1024 * 1024)
    """Text, thinking and tool arguments of one reply, in UTF-8; four times the 128,000 tokens that the largest models
    write. A reply of 60 MB cost a worker 834 MB (measured)."""

    @property
    def usual(self) -> ModelChoice:
        """The model where an agent names none."""
        return ModelChoice(self.provider, self.model)


def _key(name: str) -> Any:
    return setting(name, Text(), None, is_secret=True)


def _address(name: str) -> Any:
    return setting(name, WebUrl(), None, may_hold_password=True)


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """Keys and addresses of models' providers, each in its maker's own variables; Anthropic's are in ``llm``.

    A field is named after its provider. An address is None where it is the provider's usual one.
    """

    openai_key: str | None = _key("OPENAI_API_KEY")
    openai_url: str | None = _address("OPENAI_BASE_URL")
    azure_key: str | None = _key("AZURE_OPENAI_API_KEY")
    azure_url: str | None = _address("AZURE_OPENAI_ENDPOINT")
    mistral_key: str | None = _key("MISTRAL_API_KEY")
    gemini_key: str | None = _key("GEMINI_API_KEY")
    google_key: str | None = _key("GOOGLE_API_KEY")
    """Stands in for ``gemini_key``."""
    groq_key: str | None = _key("GROQ_API_KEY")
    together_key: str | None = _key("TOGETHER_API_KEY")
    openrouter_key: str | None = _key("OPENROUTER_API_KEY")
    xai_key: str | None = _key("XAI_API_KEY")
    deepseek_key: str | None = _key("DEEPSEEK_API_KEY")
    vllm_key: str | None = _key("VLLM_API_KEY")
    vllm_url: str = setting("VLLM_BASE_URL", WebUrl(), "http://127.0.0.1:8000/v1", may_hold_password=True)
    lmstudio_url: str = setting("LMSTUDIO_BASE_URL", WebUrl(), "http://127.0.0.1:1234/v1", may_hold_password=True)


@dataclass(frozen=True, slots=True)
class EmbeddingSettings:
    """Where embedding models are; for OpenAI's, its own variables stand in where neither of these is set."""

    openai_url: str | None = setting("LOOM_OPENAI_URL", BareUrl(), None)
    """Any server with OpenAI's ``/embeddings`` below it; unless set, OpenAI's own."""
    openai_key: str | None = setting("LOOM_OPENAI_KEY", Text(), None, is_secret=True)
    voyage_url: str | None = setting("LOOM_VOYAGE_URL", BareUrl(), None)
    voyage_key: str | None = setting("LOOM_VOYAGE_KEY", Text(), None, is_secret=True)
    folder: Path | None = setting("LOOM_EMBEDDINGS_DIR", Folder(must_exist=True), None)
    """Holds a folder for each local model."""
    timeout_s: float = setting("LOOM_EMBEDDING_TIMEOUT_S", Seconds(), 30.0)
    """Time of a request for a batch of messages, its retries included."""
    query_timeout_s: float = setting("LOOM_EMBEDDING_QUERY_TIMEOUT_S", Seconds(), 2.0)
    """For the vector of what a search looks for; it goes on without one then."""


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """What one turn and one lane may use."""

    max_attempts: int = setting("LOOM_MAX_ATTEMPTS", Whole(most=100), 3)
    """Deaths of a turn's owner before the turn is given up."""
    tool_timeout_s: float = setting("LOOM_TOOL_TIMEOUT_S", Seconds(), 30.0)
    turn_timeout_s: float = setting("LOOM_TURN_TIMEOUT_S", Seconds(), 300.0)
    """Pauses before the model is asked again count; queue, tools, people, and waits that a provider named do not."""
    max_llm_calls: int = setting("LOOM_MAX_LLM_CALLS", Whole(), 25)
    """Per turn."""
    max_tool_calls: int = setting("LOOM_MAX_TOOL_CALLS", Whole(least=0), 50)
    """Per turn."""
    max_children: int = setting("LOOM_MAX_CHILDREN", Whole(least=0, most=1000), 20)
    """Turns of other agents that one turn may ask for."""
    max_calls_per_reply: int = 20
    """Tool calls of one reply; those beyond are answered with an error."""
    lane_depth: int = 100
    """Unfinished turns a session may have."""
    workspace_depth: int = 10_000
    """Unfinished turns a workspace may have."""
    workspace_file_bytes: int = setting("LOOM_WORKSPACE_FILE_BYTES", Whole(0, 1 << 50), 2_000_000_000)
    """Size of all files of a workspace together; one that does not fit is answered 409."""


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """How tools run, and what becomes of their results."""

    concurrency: int = setting("LOOM_TOOL_CONCURRENCY", Whole(most=100), 10)
    """Calls of one turn that run at a time."""
    processes: int = setting("LOOM_TOOL_PROCESSES", Whole(most=1024), 10)
    """Child processes in which a worker runs tools; each takes one call at a time."""
    env: tuple[str, ...] = setting("LOOM_TOOL_ENV", VariableNames(), ())
    """Variables that tools inherit in addition to the harmless ones; see process_env.py."""
    is_confined: bool = setting("LOOM_CONFINE_TOOLS", OneZero(), True)
    """Tools of Python files may not read Loom's own files; needs Landlock (Linux 5.13)."""
    max_result_bytes: int = setting("LOOM_MAX_RESULT_BYTES", Whole(1024, 100_000_000), 10_000_000)
    """Size of a result in UTF-8; a longer one is cut, and the model is told so."""
    reference_bytes: int = setting("LOOM_REFERENCE_BYTES", Whole(1024, 1_000_000), 16 * 1024)
    """A result of this size or more is stored separately, and the model is sent a reference."""
    agent_reference_bytes: int = setting("LOOM_AGENT_REFERENCE_BYTES", Whole(1024, 1_000_000), 10 * 1024)
    """What an agent tells another one is passed on as a reference from this size on."""
    error_days: int = setting("LOOM_ERROR_DAYS", Whole(most=3650), 30)
    """How long the errors of tools are kept."""


@dataclass(frozen=True, slots=True)
class BlobSettings:
    """Where large results are kept, and how much of them."""

    folder: Path = setting("LOOM_BLOB_DIR", Folder(), Path("~/.loom/blobs"))
    """Unless set, ``<home>/blobs``. All machines of one system must see the same folder."""
    memory_bytes: int = setting("LOOM_BLOB_MEMORY_BYTES", Whole(0, 1 << 50), 256 * 1024 * 1024)
    """Redis memory for the results used last."""
    disk_bytes: int = setting("LOOM_BLOB_DISK_BYTES", Whole(0, 1 << 50), 10_000_000_000)
    """Size of the folder."""
    ttl_s: float = setting("LOOM_BLOB_TTL_S", Seconds(), 3600.0)
    """How long a result is kept after its last use; longer while an unfinished turn refers to it."""


@dataclass(frozen=True, slots=True)
class FileSettings:
    """Files that clients send, and URLs that they name in a turn's input."""

    most_bytes: int = setting("LOOM_FILE_BYTES", Whole(1024, 1 << 30), 32 * 1024 * 1024)
    """Size of one file; larger ones are answered 413."""
    allow_private: bool = setting("LOOM_ALLOW_PRIVATE_FILES", YesNo(), False)
    """URLs of loopback and private addresses are fetched, too."""


@dataclass(frozen=True, slots=True)
class EventSettings:
    """The event logs of turns in Redis; events that they no longer hold are made from the journal."""

    log_bytes: int = setting("LOOM_EVENT_LOG_BYTES", Whole(64 * 1024, 1 << 30), 4 * 1024 * 1024)
    """Size of one turn's log, whose oldest events are dropped beyond it. Twice the longest reply, so that a reader who
    keeps up is never sent to the database."""
    total_bytes: int = setting("LOOM_EVENT_TOTAL_BYTES", Whole(1024 * 1024, 1 << 40), 256 * 1024 * 1024)
    """Size of the logs of all turns that have ended; those that ended first are dropped beyond it."""
    ttl_s: int = setting("LOOM_EVENT_TTL_S", Whole(most=7 * 86_400), 120)
    """How long a log is kept after its turn has ended. An hour took 4.8 GB at 150 turns/s."""


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """How long the database keeps what has ended; 0 days: for ever."""

    journal_days: int = setting("LOOM_JOURNAL_DAYS", Whole(0, 3650), 7)
    """The journal of a turn after its end, and deliveries that are done."""
    conversation_days: int = setting("LOOM_CONVERSATION_DAYS", Whole(0, 3650), 0)
    """Sessions after their last turn, and old turns of sessions that go on."""
    audit_days: int = setting("LOOM_AUDIT_DAYS", Whole(0, 3650), 0)
    """Rows of the audit."""


@dataclass(frozen=True, slots=True)
class ScheduleSettings:
    """Runs and turns that begin at set times."""

    missed: MissedTimes = setting("LOOM_SCHEDULE_MISSED", OneOf("once", "skip"), "once")
    """What becomes of due times that came while no worker ran: the latest is begun after all, or none is."""


@dataclass(frozen=True, slots=True)
class LaneSettings:
    """Leases. A killed worker's turn goes on after about lease_s + sweep_s."""

    lease_s: float = setting("LOOM_LEASE_S", Seconds(), 3.0)
    """Another worker may take a lease that is not renewed for this long."""
    renew_s: float = 0.5
    """Seconds between renewals of all leases of a process."""
    kick_s: float = 1.0
    """A wake-up not answered within this is sent again, then after 2, 4 and 8 times as long."""
    max_kick_s: float = 8.0
    """The longest pause between two wake-ups of a lane."""
    park_check_s: float = 3.0
    """A parked turn looks at its open calls this often, in case every signal is lost."""
    sweep_s: float = 1.0
    """Seconds between sweeps, cluster-wide."""
    drain_s: float = 10.0
    """On shutdown a running reply may take this long before the turn is handed over."""


@dataclass(frozen=True, slots=True)
class WebSettings:
    """The HTTP server."""

    host: str = setting("LOOM_HOST", Host(), "127.0.0.1")
    port: int = setting("LOOM_PORT", Whole(most=65_535), 8000)
    api_keys: Mapping[str, str] = setting("LOOM_API_KEYS", ApiKeys(), {}, is_secret=True)
    """Key to workspace; empty: only loopback clients are served."""
    key_requests_per_minute: int = setting("LOOM_KEY_REQUESTS_PER_MINUTE", Whole(0, 60_000), 0)
    """Limit of each key without one of its own; 0: no limit."""
    key_tokens_per_minute: int = setting("LOOM_KEY_TOKENS_PER_MINUTE", Whole(0, 1_000_000_000), 0)
    """Likewise, of its turns."""
    trusted_proxies: int = setting("LOOM_TRUSTED_PROXIES", Whole(0, 10), 0)
    """How many reverse proxies in front may set X-Forwarded-*."""
    cors_origins: tuple[str, ...] = setting("LOOM_CORS_ORIGINS", Origins(), ())
    """Pages of these may read answers and send changes; unless set, only Loom's own pages may."""
    metrics_are_open: bool = setting("LOOM_METRICS_OPEN", OneZero(), False)
    """``/metrics`` is shown to everybody, without a key."""
    threads: int = 256
    """256 cost 68 MB and p99 2.8 ms (measured). Event readers and long polls hold none."""
    max_waiting: int = 4096
    """Event streams and long polls at the same time; no more than half of the connections there can be."""
    max_body_bytes: int = 1024 * 1024
    """Larger requests are answered 413."""
    max_wait_s: int = 60
    """Longest long poll."""


@dataclass(frozen=True, slots=True)
class PatternSettings:
    """The pattern library."""

    folder: Path | None = setting("LOOM_PATTERNS_DIR", Folder(must_exist=True), None)
    """The user's own patterns; unless set, those in the package are the library."""
    is_shipped_added: bool = setting("LOOM_PATTERNS_SHIPPED", YesNo(), True)
    """The package's patterns are offered in addition to the user's own, which win under the same id."""
    debounce_ms: int = setting("LOOM_PATTERNS_DEBOUNCE_MS", Whole(0, 60_000), 100)
    """Quiet time after a change of its files before they are read."""


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Webhook delivery."""

    secret: str | None = setting("LOOM_WEBHOOK_SECRET", Text(), None, is_secret=True)
    """``whsec_…``; ``loom up`` makes one if unset."""
    allow_private: bool = setting("LOOM_ALLOW_PRIVATE_WEBHOOKS", YesNo(), False)
    """Loopback and private targets are served too."""
    ports: tuple[int, ...] = setting("LOOM_TARGET_PORTS", Ports(), ())
    """Served beside 80, 443 and those from 1024."""
    timeout_s: float = setting("LOOM_WEBHOOK_TIMEOUT_S", Seconds(), 15.0)
    """Total time for one attempt; Standard Webhooks asks for 15-30 s."""


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """Where traces are exported to."""

    endpoint: str | None = setting("LOOM_TRACE_ENDPOINT", BareUrl(), None, may_hold_password=True)
    """A collector that speaks OTLP over HTTP; ``/v1/traces`` is added unless it ends so. None: nothing is exported."""
    protocol: Literal["protobuf", "json"] = setting("LOOM_TRACE_PROTOCOL", OneOf("protobuf", "json"), "protobuf")
    """Both are OTLP: every receiver takes protobuf, Hawk takes JSON."""
    shows_content: bool = setting("LOOM_TRACE_CONTENT", OneZero(), False)
    """Spans hold what users, models and tools wrote, each text cut to 4,000 characters."""
    headers: Mapping[str, str] = setting("LOOM_TRACE_HEADERS", HttpHeaders(), {}, is_secret=True)
    """Sent with every request, such as the key of a hosted collector."""


@dataclass(frozen=True, slots=True)
class FlowerSettings:
    """Flower, Celery's monitor."""

    port: int = setting("LOOM_FLOWER_PORT", Whole(most=65_535), 5555)
    address: str = setting("LOOM_FLOWER_ADDRESS", Host(), "127.0.0.1")
    may_control: bool = setting("LOOM_FLOWER_CONTROL", OneZero(), False)
    """Its password also stops workers, changes their pools and queues, and sends or revokes tasks."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Logs."""

    level: str = setting("LOOM_LOG_LEVEL", OneOf("DEBUG", "INFO", "WARNING", "ERROR"), "INFO")
    format: Literal["json", "console"] = setting("LOOM_LOG_FORMAT", OneOf("json", "console"), "console")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Connections to the server of LOOM_DATABASE_URL; a file has none."""

    pool: int = setting("LOOM_DATABASE_POOL", Whole(1, 1000), 15)
    """Most connections of a process. Five processes of `loom up` then need fewer than the 100 of a server's default."""
    has_pooler: bool = setting("LOOM_DATABASE_POOLER", OneZero(), False)
    """Transactions of one connection may run in several sessions of the server: no statement is prepared in them."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set."""

    home: Path = setting("LOOM_HOME", Folder(), Path("~/.loom"))
    """The data directory, mode 0700."""
    database_url: str = setting("LOOM_DATABASE_URL", DatabaseUrl(), "", may_hold_password=True)
    """Unless set, ``sqlite:///<home>/loom.db``."""
    redis_url: str = setting("LOOM_REDIS_URL", RedisUrl(), "", may_hold_password=True)
    """Unless set, the embedded Valkey's socket in the home."""
    llm: LlmSettings = LlmSettings()
    providers: ProviderSettings = ProviderSettings()
    embeddings: EmbeddingSettings = EmbeddingSettings()
    agents_dir: Path | None = setting("LOOM_AGENTS_DIR", Folder(must_exist=True), None)
    agent_pin: Literal["session", "none"] = setting("LOOM_AGENT_PIN", OneOf("session", "none"), "session")
    """session: a session keeps the version of its agent with which it began; none: all follow the agent's file."""
    workflows_dir: Path | None = setting("LOOM_WORKFLOWS_DIR", Folder(must_exist=True), None)
    """The user's own workflows; unless set, those in the package, which work on the sample shop."""
    patterns: PatternSettings = PatternSettings()
    workspaces_dir: Path = setting("LOOM_WORKSPACES_DIR", Folder(), Path("~/.loom/workspaces"))
    """Unless set, ``<home>/workspaces``; it holds ``<workspace>/skills``."""
    backend_url: str = setting("LOOM_BACKEND_URL", Url(), "", may_hold_password=True)
    """The data the agent works on; unless set, the sample shop in the home."""
    limits: LimitSettings = LimitSettings()
    lanes: LaneSettings = LaneSettings()
    tools: ToolSettings = ToolSettings()
    blobs: BlobSettings = BlobSettings()
    files: FileSettings = FileSettings()
    events: EventSettings = EventSettings()
    retention: RetentionSettings = RetentionSettings()
    schedules: ScheduleSettings = ScheduleSettings()
    server: ServerSettings = ServerSettings()
    sqlite_sync: Literal["full", "normal"] = setting("LOOM_SQLITE_SYNC", OneOf("full", "normal"), "full")
    """full survives power loss as docs/guarantees.md says, normal only the death of a process, on PostgreSQL, too."""
    web: WebSettings = WebSettings()
    key: str | None = setting("LOOM_KEY", Text(), None, is_secret=True)
    """The API key that commands send; unless set, the first of LOOM_API_KEYS."""
    webhook: WebhookSettings = WebhookSettings()
    worker_concurrency: int = setting("LOOM_WORKER_CONCURRENCY", Whole(most=1024), 128)
    """Threads per worker process; turns wait for the network most of their time."""
    is_debuggable: bool = setting("LOOM_DEBUGGABLE", OneZero(), False)
    """Leaves processes open to debuggers, profilers and core dumps of their own user."""
    flower: FlowerSettings = FlowerSettings()
    log: LogSettings = LogSettings()
    trace: TraceSettings = TraceSettings()
    crash_points: Mapping[str, int] = setting("LOOM_CRASHPOINTS", CrashPoints(), {})
    """Where processes die, and how many, to test the guarantees; see crash_points.py."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """LOOM_SECRET_<NAME>, by name: what agent files refer to as ``{secret: NAME}``."""
    problems: tuple[Problem, ...] = ()
    """Variables that have no effect, or not the one that their author may expect; reported at the start."""

    @property
    def has_embedded_redis(self) -> bool:
        """True unless LOOM_REDIS_URL names a server of its own."""
        url = urlsplit(self.redis_url)
        return (url.scheme, url.path, url.query) == ("unix", str(embedded_socket(self.home)), "")

    @property
    def has_sample_backend(self) -> bool:
        """True while the agent works on the sample shop."""
        return self.backend_url == f"sqlite:///{self.home / 'shop.db'}"

    def access(self, provider: str, *, embeds: bool = False) -> tuple[str | None, str | None]:
        """The address and the key of a provider; None: its usual address, no key. Both are of one pair of variables.

        Args:
            embeds: for embeddings, for which LOOM_OPENAI_URL and LOOM_OPENAI_KEY come first.
        """
        if provider == "anthropic":
            return self.llm.base_url, self.llm.api_key
        given, older = self.providers, (self.embeddings.openai_url, self.embeddings.openai_key)
        key = getattr(given, f"{provider}_key", None) or (given.google_key if provider == "gemini" else None)
        found = getattr(given, f"{provider}_url", None), key
        if provider != "openai" or not any(older):
            return found
        return older if embeds or not any(found) else found

    def lacks(self, provider: str) -> str:
        """The variables that a provider needs and that are not set; empty if it can be asked."""
        if provider in LOCAL or provider in ("bedrock", "scripted"):
            return ""
        url, key = self.access(provider)
        if provider in ("anthropic", "openai"):  # a server of one's own may need no key
            is_there = key or (url and urlsplit(url).hostname != "api.openai.com")
            return "" if is_there else f"{provider.upper()}_API_KEY (or {provider.upper()}_BASE_URL)"
        found = {f"{provider}_key": key, f"{provider}_url": url}
        absent = (each for each in fields(ProviderSettings) if not found.get(each.name, True))
        return " and ".join(each.metadata[VARIABLE].name for each in absent)


def declared(settings: Any) -> Iterator[tuple[Variable, object]]:
    """Each variable with its value in these settings, or in one section of them."""
    for each in fields(settings):
        value = getattr(settings, each.name)
        if VARIABLE in each.metadata:
            yield each.metadata[VARIABLE], value
        elif is_dataclass(value):
            yield from declared(value)
