"""What agents of a process work with, on a test's own settings."""

from loom_worker.agents.known import AgentSource
from loom_worker.agents.load import Agents
from loom_worker.core import redis_client
from loom_worker.core.settings import Settings
from loom_worker.core.stopping import Stopping
from loom_worker.runtime.agents import AgentRegistry
from loom_worker.runtime.components import Components, components
from loom_worker.store.database import Database
from tests.support.shipped_patterns import share_index


def made_components(settings: Settings, agents: AgentSource, database: Database) -> Components:
    """Nothing is connected or watched before it is needed; close it."""
    if settings.home.is_dir():
        share_index(settings.home)
    client = redis_client.client(settings.redis_url, connections=4)
    return components(settings, agents, database, client, process="test", stopping=Stopping(1.0))


def made_registry(settings: Settings, agents: Agents, database: Database) -> AgentRegistry:
    """Its agent runtimes alone, for tests that ask for no pattern; close them."""
    return made_components(settings, agents, database).registry
