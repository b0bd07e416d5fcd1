"""An agent: who answers, with which model, tools and data."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, get_args

from loom_worker.core.values.chat import AS_USUAL, Sampling, Thinking
from loom_worker.core.values.guardrails import NO_GUARDRAILS, Guardrails
from loom_worker.core.values.json import Json
from loom_worker.core.values.judges import Panel
from loom_worker.core.values.learned import AS_ACTIVATED, LearnedPolicy
from loom_worker.core.values.memory import MemoryPolicy
from loom_worker.core.values.problems import Problem, line_near
from loom_worker.core.values.schedules import Schedule
from loom_worker.core.values.tiers import MemoryTiers
from loom_worker.core.values.tools import Tool

Provider = Literal[
    "anthropic",
    "bedrock",
    "openai",
    "azure",
    "mistral",
    "gemini",
    "groq",
    "together",
    "openrouter",
    "xai",
    "deepseek",
    "vllm",
    "ollama",
    "lmstudio",
    "scripted",
]
"""What serves models; each can stand before a model's name and a slash."""
PROVIDERS: tuple[Provider, ...] = get_args(Provider)
LOCAL = frozenset({"vllm", "ollama", "lmstudio"})
"""Servers on the user's own machine as a rule, which need no key."""
OWN_PROTOCOL = frozenset({"anthropic", "bedrock", "scripted"})
"""All others speak OpenAI's."""


def sdk(provider: str) -> tuple[str, ...]:
    """The package that a provider's adapter uses; none for the scripted model."""
    if provider == "scripted":
        return ()
    return ("anthropic",) if provider in OWN_PROTOCOL else ("openai",)


def provider_and_model(name: str) -> tuple[Provider | None, str]:
    """The two parts of ``provider/model``; None if no known provider stands before the first slash."""
    before, slash, model = name.partition("/")
    provider = next((each for each in PROVIDERS if slash and each == before), None)
    return (provider, model) if provider else (None, name)


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model as a block of a file, a session or a setting names it; None: as what it stands above says (resolved)."""

    provider: str | None = None
    model: str | None = None
    """Perhaps with a provider and a slash before it. None, for summaries: the provider's small model, where one is
    known."""
    max_context_tokens: int | None = None
    """Its window; None: LOOM_MAX_CONTEXT_TOKENS."""
    base_url: str | None = None
    """Where it is asked, in place of the provider's usual address; the provider's usual key does not go there."""
    secret: str | None = None
    """The key is LOOM_SECRET_<secret>."""
    fallbacks: tuple["ModelChoice", ...] = ()
    """Are asked, in order, while this one cannot answer."""
    thinking: Thinking | None = None
    sampling: Sampling = AS_USUAL
    is_local: bool | None = None
    """True: it runs on a machine of the user's own, slowly; None: what serves it is one of LOCAL."""
    can_see: bool | None = None
    """Whether it takes images; None: as far as is known of the model."""

    @property
    def named_provider(self) -> str | None:
        """The provider that it names, in a word of its own or before the model."""
        return self.provider or provider_and_model(self.model or "")[0]

    @property
    def id(self) -> str:
        """A resolved model as provider/model."""
        return f"{self.provider}/{self.model}"

    @property
    def name(self) -> str:
        """A resolved model's name in the ledger, in prices and for tokens; Claude has its plain name there."""
        plain = self.provider in ("anthropic", "bedrock", "scripted")
        return f"{self.model}" if plain else self.id

    @property
    def is_in_file(self) -> bool:
        """True if an agent's file names its address or its key."""
        return (self.base_url or self.secret) is not None


NO_CHOICE = ModelChoice()
SCRIPTED = ModelChoice("scripted", "scripted-demo")


def resolved(block: ModelChoice, *below: ModelChoice, above: ModelChoice = NO_CHOICE) -> ModelChoice:
    """The block with its provider and model: those of the first, from above, that names one.

    A model's prefix counts only where no provider is named above it. An address and a key hold for their own provider
    alone, and so do a block's further members of requests.

    Args:
        below: what counts where the block says nothing; the last one names both.
        above: what a session or a workspace chose instead.
    """
    layers = (above, block, *below)
    own = [next(filter(None, (each.named_provider for each in layers[n:]))) for n in range(len(layers))]
    provider, is_own = own[0], own[0] == own[1]
    model = next(each.model for each in layers if each.model)
    at = next((each for each, its in zip(layers, own, strict=True) if its == provider and each.is_in_file), above)
    fallbacks = [_like(resolved(each, block, *below), block, provider=own[1]) for each in block.fallbacks]
    is_local = block.is_local if is_own else None
    return replace(
        block,
        provider=provider,
        model=model.removeprefix(f"{provider}/"),
        base_url=at.base_url,
        secret=at.secret,
        # Where a workspace chose the provider, nothing goes to another one.
        fallbacks=tuple(each for each in fallbacks if above.provider in (None, each.provider)),
        sampling=block.sampling if is_own else replace(block.sampling, extra={}),
        is_local=provider in LOCAL if is_local is None else is_local,
        can_see=block.can_see if is_own and above.model is None else None,
    )


def _like(fallback: ModelChoice, block: ModelChoice, *, provider: str) -> ModelChoice:
    """A fallback that is asked as its block says where it says nothing itself."""
    sampling = block.sampling if fallback.provider == provider else replace(block.sampling, extra={})
    given: Json = {
        name: value for name in Sampling.__slots__ if (value := getattr(fallback.sampling, name)) not in (None, {})
    }
    return replace(fallback, thinking=fallback.thinking or block.thinking, sampling=replace(sampling, **given))


@dataclass(frozen=True, slots=True)
class Scope:
    """What of a database an agent may see; None: all of it."""

    schemas: tuple[str, ...] | None = None
    tables: tuple[str, ...] | None = None
    """Names, or ``schema.name``."""
    columns: tuple[str, ...] | None = None
    """``table.column``, or ``schema.table.column``; a table that none of them names keeps all of its columns."""


@dataclass(frozen=True, slots=True)
class Auth:
    """How requests to a REST backend are authenticated; the secret itself is LOOM_SECRET_<secret>."""

    kind: Literal["bearer", "basic", "header"]
    secret: str
    header: str = "Authorization"
    """Where a ``header`` secret stands."""
    user: str = ""


@dataclass(frozen=True, slots=True)
class Backend:
    """The data an agent works on."""

    kind: Literal["sql", "rest", "documents"] = "sql"
    url: str | None = None
    """sql: a SQLAlchemy URL, None: LOOM_BACKEND_URL. rest: the base URL."""
    databases: tuple[str, ...] = ()
    """sql: further databases (SQLite: files) that a session may switch the agent to."""
    scope: Scope = field(default_factory=Scope)
    openapi: str | None = None
    """rest: path of the OpenAPI document (JSON or YAML)."""
    operations: tuple[str, ...] | None = None
    """rest: operationIds that become tools; None: every operation that only reads (GET, HEAD)."""
    allow_private: bool = False
    """rest: the base URL may name a loopback or private address."""
    path: str | None = None
    """documents: the folder."""
    auth: Auth | None = None


@dataclass(frozen=True, slots=True)
class RemoteAgent:
    """An agent behind a URL that speaks the Agent2Agent protocol, and answers in place of a model."""

    url: str
    """URL of the agent, below which its card is found, or of the card itself."""
    auth: Auth | None = None
    allow_private: bool = False
    """The URL may name a loopback or private address."""
    timeout_s: float | None = None
    """Time of one answer; None: LOOM_LLM_TIMEOUT_S."""


@dataclass(frozen=True, slots=True)
class CardSkill:
    """What an agent's card says that it can do."""

    id: str
    name: str
    description: str
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()

    def as_json(self) -> Json:
        """A skill as cards of the Agent2Agent protocol have it."""
        examples = {"examples": list(self.examples)} if self.examples else {}
        return {"id": self.id, "name": self.name, "description": self.description, "tags": list(self.tags), **examples}


@dataclass(frozen=True, slots=True)
class McpServer:
    """A server of the Model Context Protocol: a command to start, or a URL (streamable HTTP)."""

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """For the command; ``{secret: NAME}`` in the file stands here as ``secret:NAME``."""
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """For the URL; secrets as in ``env``."""
    tools: tuple[str, ...] | None = None
    """Those the agent may have, by the server's own names; None: all."""
    allow_private: bool = False
    """The URL may name a loopback or private address."""


@dataclass(frozen=True, slots=True)
class ApprovalPolicy:
    """Which calls need approval in addition to those whose tool asks for it, and what applies when nobody answers."""

    tools: tuple[str, ...] = ()
    """Names of tools; ``*`` stands for all."""
    timeout_s: float = 24 * 3600.0
    on_timeout: Literal["deny", "approve"] = "deny"

    def asks(self, name: str) -> bool:
        """True if a call of this tool needs a person."""
        return name in self.tools or "*" in self.tools

    def holds(self, tool: Tool) -> bool:
        """True if a call of this tool waits for a person: the tool itself asks for one, or the agent does."""
        return tool.needs_approval or self.asks(tool.spec.name)


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent as its YAML says it (API: agent YAML); None means the setting of the process holds."""

    name: str
    version: str = "1"
    description: str = ""
    system_prompt: str = ""
    llm: ModelChoice = NO_CHOICE
    """Answers."""
    max_tokens: int | None = None
    max_context_tokens: int | None = None
    reserved_output_tokens: int | None = None
    stop_sequences: tuple[str, ...] = ()
    backend: Backend | None = field(default_factory=Backend)
    """None: an agent without data."""
    mcp_servers: tuple[McpServer, ...] = ()
    remote: RemoteAgent | None = None
    """Who answers its turns; None: a model."""
    card_skills: tuple[CardSkill, ...] = ()
    """What its agent card says; empty: its description."""
    tools: tuple[str, ...] | None = None
    """Names the agent may use; None: every tool there is."""
    custom: tuple[str, ...] = ()
    """Python tools in addition to those of entry points: ``file.py``, ``file.py:name`` or ``module:name``."""
    allows_mcp: bool = False
    """True: it may use all tools of its servers, though ``tools`` does not name them."""
    is_read_only: bool = False
    """True: it may call no tool that changes anything outside of Loom."""
    approval: ApprovalPolicy = field(default_factory=ApprovalPolicy)
    max_llm_calls: int | None = None
    max_tool_calls: int | None = None
    timeout_s: float | None = None
    budget: Json | None = None
    """What all its sessions may spend together: ``{usd?, tokens?, tool_calls?, day?: {…}, month?: {…}}``."""
    guardrails: Guardrails = NO_GUARDRAILS
    patterns_enabled: bool = True
    min_confidence: float = 0.5
    """Probability (0-1) of being the right pattern below which none is added to the message; docs/patterns.md."""
    max_patterns_per_turn: int = 1
    reranks_patterns: bool = False
    """True: where the best candidates are close, an LLM is asked which of them fits."""
    skills_enabled: bool = True
    max_skills_per_turn: int = 3
    """Skills whose instructions are added to a message that calls for them."""
    may_call: tuple[str, ...] = ()
    """Agents that it may ask, give tasks, and send messages."""
    memory: MemoryPolicy = field(default_factory=MemoryPolicy)
    tiers: MemoryTiers | None = None
    """What it remembers beyond a session's context; None: what the session's own tools find."""
    learned: LearnedPolicy = AS_ACTIVATED
    """Which version of its learned layer its sessions begin with, and how much of it they are sent."""
    compressor: ModelChoice = NO_CHOICE
    """Writes summaries and ranks what a search found."""
    response_format: Json | None = None
    """The form of its answers, ``{name, schema}``; None: they are texts."""
    judges: Panel | None = None
    """Look at each answer before it is given; None: nobody does."""
    judge_model: ModelChoice = NO_CHOICE
    schedules: tuple[Schedule, ...] = ()
    """When it is asked something without a client."""
    unknown_keys: tuple[str, ...] = ()
    """Keys of the file that Loom does not know, as dotted paths; kept in ``raw`` and reported."""
    raw: Json = field(default_factory=dict)
    source: str = ""
    """The file it came from, and the line on which it begins: ``file:line``."""
    lines: Mapping[str, int] = field(default_factory=dict, repr=False)
    """Where each key and list entry of its document stands, by its dotted path (``spec.tools[2]``)."""

    @property
    def file(self) -> str:
        """The file it came from."""
        return self.source.rpartition(":")[0]

    def at(self, member: str) -> str:
        """The dotted path of a member (``llm.model``) in its file, which may hold all of them under ``agent``."""
        return f"{'agent' if 'agent' in self.lines else 'spec'}.{member}"

    def problem(self, path: str, text: str, fix: str = "", *, is_warning: bool = False) -> Problem:
        """What is wrong with a key or list entry of its file, or with one that is missing there."""
        begin = self.source.rpartition(":")[2]
        line = line_near(self.lines, path) or (int(begin) if begin.isdigit() else 0)
        return Problem(text, fix, self.file, line, self.name, path, is_warning=is_warning)

    def answering(self, usual: ModelChoice, above: ModelChoice = NO_CHOICE) -> ModelChoice:
        """The model that answers; ``usual`` is LOOM_MODEL, ``above`` what a session or workspace chose."""
        return resolved(self.llm, usual, above=above)

    def beside(self, block: ModelChoice, usual: ModelChoice, above: ModelChoice = NO_CHOICE) -> ModelChoice:
        """The model that a block beside ``llm`` names; without one of its own that which answers, and its fallbacks."""
        if block.model:
            above = replace(above, model=None)
        elif not block.fallbacks:
            block = replace(block, fallbacks=self.llm.fallbacks)
        return resolved(block, above, self.llm, usual)

    def models(self, usual: ModelChoice, above: ModelChoice = NO_CHOICE) -> Iterator[ModelChoice]:
        """All that it may ask, a model that has several uses once for each."""
        yield (answering := self.answering(usual, above))
        yield from answering.fallbacks
        checking = (ModelChoice(model=name) for name in self.guardrails.models.values())
        for block in (self.compressor, self.judge_model, *checking):
            yield (chosen := self.beside(block, usual, above))
            yield from chosen.fallbacks if block.fallbacks else ()

    @property
    def has_llm_judges(self) -> bool:
        """True if a model looks at its answers."""
        return self.judges is not None and any(member.type == "llm" for member in self.judges.members)

    @property
    def databases(self) -> tuple[str, ...]:
        """Databases that a session may switch the agent to."""
        return self.backend.databases if self.backend else ()


UNSHOWN = frozenset({"system_prompt", "raw", "source", "lines"})
"""Members of an agent that need a key with the scope ``admin``, which reads its document; all others are answered."""


class Part(Protocol):
    """Something read from files or servers that every process must have alike: agents, patterns, a file of tools."""

    def digest(self) -> str | None:
        """Digest of what this process uses, the same wherever that is the same; None if it has nothing yet. Quick.

        Equal contents read from folders of other names are the same.
        """

    def renew(self) -> None:
        """Read the source now, in this thread; bounded in time. What is wrong with it leaves things as they were.

        Raises:
            OSError: it cannot be reached.
        """


@dataclass(frozen=True, slots=True)
class ContentChange:
    """An edit of a file that a running process has noticed."""

    kind: Literal["agent", "tool", "workflow"]
    name: str
    """Name of what the file defines; for a file with an error its path and line, as far as they are known."""
    outcome: Literal["updated", "refused"]
    stamp: str
    """Size and time of the file: what many processes notice is one edit if they are the same."""
    version: str = ""
    """Beginning of the new digest, or why the edit is refused."""
    former: str = ""


class Content:
    """What all processes have accepted (``runtime/content_versions.py``); here there is only this process."""

    def tell(self, change: ContentChange) -> None:
        """Log and count an edit, once for all processes. Call it without holding a lock."""

    def follow(self, name: str, part: Part) -> None:
        """Compare a part of this process with those of the same name in others from now on."""

    def accepted(self, name: str) -> None:
        """Tell others that this process uses another version of a part. Call it without holding a lock."""

    def catch_up(self, version: str = "") -> None:
        """Take up what any process has accepted so far.

        Args:
            version: of all content, as Redis said a moment ago; empty: nobody has asked.
        """
