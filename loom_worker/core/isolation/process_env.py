"""Which variables each process of Loom is started with, what it forgets of them, and which ones tools inherit."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace

from loom_worker.core.env import KNOWN, NAMED_PREFIX, PROVIDER_PREFIXES, is_secret
from loom_worker.core.isolation import process
from loom_worker.core.settings import offered
from loom_worker.core.settings_tree import ProviderSettings, Settings, declared

PROVIDER = "provider"
"""The providers of models and of embeddings: keys, tokens, address."""
NAMED = "named"
"""LOOM_SECRET_*: what agents' files name."""
CLIENTS = "clients"
"""LOOM_API_KEYS: what clients show."""
COMMANDS = "commands"
"""LOOM_KEY: what commands show; no process that runs on needs it."""
WEBHOOKS = "webhooks"
"""LOOM_WEBHOOK_SECRET."""
TRACES = "traces"
"""LOOM_TRACE_HEADERS."""
DATA = "data"
"""LOOM_BACKEND_URL."""

_GROUPS: Mapping[str, str] = {
    "LOOM_API_KEYS": CLIENTS,
    "LOOM_OPENAI_KEY": PROVIDER,
    "LOOM_VOYAGE_KEY": PROVIDER,
    "LOOM_KEY": COMMANDS,
    "LOOM_WEBHOOK_SECRET": WEBHOOKS,
    "LOOM_TRACE_HEADERS": TRACES,
    "LOOM_BACKEND_URL": DATA,
    **{variable.name: PROVIDER for variable, _ in declared(ProviderSettings())},
}

Needs = frozenset[str]

WEB: Needs = frozenset({NAMED, CLIENTS, DATA})
"""It lists the tools of agents, for which it may have to start MCP servers."""
PREPARE: Needs = frozenset({DATA})
EVERYTHING: Needs = frozenset({PROVIDER, NAMED, CLIENTS, WEBHOOKS, TRACES, DATA})
"""`loom up`, which hands each process its own."""
NOTHING: Needs = frozenset()
"""Beat, Flower, the Redis server."""
_OF_QUEUES: Mapping[str, Needs] = {
    "turn": frozenset({PROVIDER, NAMED, DATA}),
    "tool": frozenset({PROVIDER, NAMED, DATA}),  # finding things again may ask the model
    "judge": frozenset({PROVIDER, NAMED, DATA}),
    "summary": frozenset({PROVIDER, NAMED, DATA}),
    "workflow": NOTHING,
    "webhook": frozenset({WEBHOOKS}),
    "trace": frozenset({TRACES}),
}

INHERITED = frozenset(
    "PATH HOME USER LOGNAME SHELL PWD LANG LANGUAGE TZ TMPDIR TERM HOSTNAME VIRTUAL_ENV LOOM_HOME"
    " XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_RUNTIME_DIR SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE"
    " LD_LIBRARY_PATH LD_PRELOAD DYLD_LIBRARY_PATH".split()
)
INHERITED_PREFIXES = ("LC_", "PYTHON")
"""Proxies are not among them: their URLs often hold a password."""
DRIVERS = ("PG", "KRB5")
"""Prefixes of what the drivers of databases read by themselves."""


def of_worker(queues: Iterable[str]) -> Needs:
    """What a worker of these queues needs."""
    return frozenset[str]().union(*(_OF_QUEUES[queue] for queue in queues))


def inherited(environ: Mapping[str, str], names: Iterable[str] = (), prefixes: tuple[str, ...] = ()) -> dict[str, str]:
    """What a child process may have that is no part of Loom: paths, language, certificates, and what is named."""
    wanted = INHERITED.union(names)
    begins = (*INHERITED_PREFIXES, *prefixes)
    return {name: value for name, value in environ.items() if name in wanted or name.startswith(begins)}


def of_process(environ: Mapping[str, str], needs: Needs) -> dict[str, str]:
    """The environment that a process of Loom is started with; one that needs no secret gets settings alone."""
    if needs:
        kept = {name: value for name, value in environ.items() if _is_needed(name, needs)}
    else:
        loom = (name for name in environ if name.startswith("LOOM_") and _is_needed(name, needs))
        kept = inherited(environ, (*loom, "OLLAMA_HOST"))
    if PROVIDER not in needs and (keyed := offered(environ)):
        kept["LOOM_PROVIDERS"] = ",".join(keyed)  # as it will not see the keys
    return kept


def keep_to_itself(settings: Settings, needs: Needs) -> Settings:
    """Hide this process from others of its user, clear its environment of secrets; the settings with those it needs.

    For the main thread, once the settings are read. What the packages of the model's provider read for themselves stays
    in ``os.environ`` of a process that needs it, though not in the memory that /proc shows.
    """
    if not settings.is_debuggable:
        process.hide()
    secret = [name for name in os.environ if is_secret(name)]
    kept = {name for name in secret if name.startswith(PROVIDER_PREFIXES) and name not in KNOWN and PROVIDER in needs}
    process.overwrite(kept)
    process.forget(name for name in secret if name not in kept)
    return _with(settings, needs)


def handed_on(settings: Settings) -> dict[str, str]:
    """The secrets of a process as variables, for another one of the same kind."""
    given = {
        "ANTHROPIC_API_KEY": settings.llm.api_key,
        "ANTHROPIC_BASE_URL": settings.llm.base_url,
        **{variable.name: value for variable, value in declared(settings.providers)},
        "LOOM_OPENAI_KEY": settings.embeddings.openai_key,
        "LOOM_VOYAGE_KEY": settings.embeddings.voyage_key,
        "LOOM_REDIS_URL": settings.redis_url,
        "LOOM_DATABASE_URL": settings.database_url,
        "LOOM_BACKEND_URL": settings.backend_url,
        "LOOM_WEBHOOK_SECRET": settings.webhook.secret,
        "LOOM_TRACE_ENDPOINT": settings.trace.endpoint,
        **{NAMED_PREFIX + name: value for name, value in settings.secrets.items()},
    }
    return {name: str(value) for name, value in given.items() if value}


def _with(settings: Settings, needs: Needs) -> Settings:
    if PROVIDER not in needs:
        llm = replace(settings.llm, api_key=None, base_url=None)
        embeddings = replace(settings.embeddings, openai_key=None, voyage_key=None)
        settings = replace(settings, llm=llm, embeddings=embeddings, providers=ProviderSettings())
    return replace(
        settings,
        secrets=settings.secrets if NAMED in needs else {},
        web=settings.web if CLIENTS in needs else replace(settings.web, api_keys={}),
        key=settings.key if COMMANDS in needs else None,
        webhook=settings.webhook if WEBHOOKS in needs else replace(settings.webhook, secret=None),
        trace=settings.trace if TRACES in needs else replace(settings.trace, headers={}),
    )


def _is_needed(name: str, needs: Needs) -> bool:
    if name.startswith(PROVIDER_PREFIXES):
        return PROVIDER in needs
    if name.startswith(NAMED_PREFIX):
        return NAMED in needs
    group = _GROUPS.get(name)
    return group is None or group in needs
