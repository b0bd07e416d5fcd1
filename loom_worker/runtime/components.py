"""What the agents of a process work with: agent runtimes, models, tools, and where the results of tools are kept."""

import os
from dataclasses import dataclass
from typing import Any

from loom_worker.agents.known import AgentSource, KnownAgents
from loom_worker.backends.mcp.servers import McpServers
from loom_worker.core import redis_client
from loom_worker.core.isolation import private, process_env
from loom_worker.core.settings import Settings
from loom_worker.core.stopping import Stopping
from loom_worker.guard.limits import Breakers, RateLimiter
from loom_worker.judge.python_judges import PythonJudges
from loom_worker.patterns.events import LibraryEvents
from loom_worker.patterns.index_store import IndexStore
from loom_worker.patterns.library import packaged_root
from loom_worker.patterns.live import LiveLibrary
from loom_worker.runtime.agents import AgentRegistry
from loom_worker.runtime.content_versions import ContentVersions
from loom_worker.runtime.embedders import Embedders
from loom_worker.runtime.metrics_flusher import MetricsFlusher
from loom_worker.runtime.models import Models
from loom_worker.runtime.prompt_context import Knowledge
from loom_worker.runtime.sweeping import ExpiringStores
from loom_worker.runtime.tool_sets import ToolProvider
from loom_worker.runtime.workspace_rules import RuledSkills, RulesCache
from loom_worker.store.agent_messages import AgentMessages
from loom_worker.store.budgets import Budgets
from loom_worker.store.database import Database
from loom_worker.store.facts import Facts
from loom_worker.store.folding import Folding
from loom_worker.store.learned import LearnedLayers
from loom_worker.store.ledger import Ledger
from loom_worker.store.metric_values import MetricValues
from loom_worker.store.sessions import Sessions
from loom_worker.store.shared_memory import SharedMemory
from loom_worker.tools import child_main
from loom_worker.tools.agent_tools import NO_WORKERS, LaneWaker, MessageParts
from loom_worker.tools.custom import ToolFiles
from loom_worker.tools.error_channel import Failures, error_detail_tool
from loom_worker.tools.execution import ToolExecutor
from loom_worker.tools.pool import Pool, Program
from loom_worker.tools.result_tools import result_tools
from loom_worker.tools.shared_memory import SharedParts, shared_tools

MCP_REMEMBERED_S = 24 * 3600
"""For how long a server's tools are remembered; its own news of a change comes sooner."""


@dataclass(frozen=True, slots=True)
class Components:
    """All of it."""

    registry: AgentRegistry
    knowledge: Knowledge
    library_events: LibraryEvents
    expiring: ExpiringStores
    breakers: Breakers
    executor: ToolExecutor
    judges: PythonJudges
    content: ContentVersions
    metrics: MetricsFlusher

    def close(self) -> None:
        """End child processes and servers, close connections, and store what was counted."""
        self.knowledge.close()
        self.library_events.close()
        self.executor.close()
        self.registry.close()
        self.metrics.stop()


def components(
    settings: Settings,
    agents: AgentSource,
    database: Database,
    client: Any,
    *,
    process: str,
    stopping: Stopping,
    waker: LaneWaker = NO_WORKERS,
) -> Components:
    """Put it together; nothing is started or connected yet.

    Args:
        client: the process' own redis-py client, which decodes responses.
        process: its name, by which others know what it has loaded.
        waker: tells workers of messages that turns wait for.
    """
    content = ContentVersions(client, process=process)
    if isinstance(agents, KnownAgents):
        agents.share(content)
    breakers, expiring = Breakers(client), ExpiringStores.of(settings, database)
    kept = result_tools(expiring.references, reference_bytes=settings.tools.reference_bytes)
    standing = (*kept, error_detail_tool(expiring.errors))
    models = Models(settings, breakers=breakers, stopping=stopping)
    library_events = LibraryEvents(client, process=process)
    knowledge = _knowledge(settings, database, library_events, content)
    files = ToolFiles(content=content)
    registry = AgentRegistry(
        settings,
        agents,
        database,
        models=models,
        knowledge=knowledge,
        embedders=Embedders(settings, agents, database, models=models, breakers=breakers, stopping=stopping),
        messages=MessageParts(
            AgentMessages(database), expiring.references, waker, settings.tools.agent_reference_bytes
        ),
        tool_provider=ToolProvider(
            settings,
            servers=_servers(settings, client, content),
            files=files,
            standing=standing,
            common=shared_tools(SharedParts(SharedMemory(database), stopping)),
        ),
    )
    executor = ToolExecutor(
        settings=settings,
        pool=_pool(settings, database),
        breakers=breakers,
        rates=RateLimiter(client),
        files=expiring.files,
        failures=Failures(expiring.errors),
        stopping=stopping,
    )
    judges = PythonJudges(files, executor)
    metrics = MetricsFlusher(MetricValues(database), Folding(database))
    return Components(registry, knowledge, library_events, expiring, breakers, executor, judges, content, metrics)


def _servers(settings: Settings, client: Any, content: ContentVersions) -> McpServers:
    servers = McpServers(
        secrets=settings.secrets,
        remember=lambda key, text: _remember(client, key, text),
        recall=lambda key: _recall(client, key),
        timeout_s=settings.limits.tool_timeout_s,
    )
    servers.share(content)
    return servers


def _pool(settings: Settings, database: Database) -> Pool:
    users = process_env.inherited(os.environ, settings.tools.env)
    backends = process_env.inherited(os.environ, settings.tools.env, process_env.DRIVERS)
    return Pool(
        child_main.command(private.limits(settings, database.engine.files) if settings.tools.is_confined else None),
        most=settings.tools.processes,
        environ=users,
        for_backends=Program("backends", child_main.command(), backends),
    )


def _knowledge(
    settings: Settings, database: Database, library_events: LibraryEvents, content: ContentVersions
) -> Knowledge:
    own = settings.patterns
    library = LiveLibrary(
        own.folder or packaged_root(),
        listener=library_events,
        debounce_ms=own.debounce_ms,
        index=IndexStore(settings.home / "pattern_index"),
        shipped=packaged_root() if own.folder and own.is_shipped_added else None,
    )
    library.share(content)
    return Knowledge(
        library=library,
        skills=RuledSkills(settings.workspaces_dir, RulesCache(database)),
        ledger=Ledger(database),
        sessions=Sessions(database),
        facts=Facts(database),
        budgets=Budgets(database),
        layers=LearnedLayers(database),
    )


def _remember(client: Any, key: str, text: str) -> None:
    with redis_client.translate_redis_errors():
        client.set(f"loom:mcp:{key}", text, ex=MCP_REMEMBERED_S)


def _recall(client: Any, key: str) -> str | None:
    with redis_client.translate_redis_errors():
        text: str | None = client.get(f"loom:mcp:{key}")
        return text
