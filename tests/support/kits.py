"""Kits as a process has them, on a test's own settings."""

from loom_worker import redis_client
from loom_worker.agents.load import Agents
from loom_worker.kits import Kits
from loom_worker.outfit import outfit
from loom_worker.settings import Settings
from loom_worker.store.database import Database
from loom_worker.turn.patience import Stopping


def made_kits(settings: Settings, agents: Agents, database: Database) -> Kits:
    """Nothing is connected before it is needed; close them."""
    client = redis_client.client(settings.redis_url, connections=4)
    return outfit(settings, agents, database, client, stopping=Stopping(1.0)).kits
