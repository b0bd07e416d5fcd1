"""What agents of a process work with, on a test's own settings."""

from loom_worker import redis_client
from loom_worker.agents.live import LiveAgents
from loom_worker.agents.load import Agents
from loom_worker.kits import Kits
from loom_worker.outfit import Outfit, outfit
from loom_worker.settings import Settings
from loom_worker.store.database import Database
from loom_worker.turn.patience import Stopping
from tests.support.shipped_patterns import index_folder


def made_outfit(settings: Settings, agents: Agents | LiveAgents, database: Database) -> Outfit:
    """Nothing is connected or watched before it is needed; close it."""
    own = settings.home / "pattern_index"
    if settings.home.is_dir() and not own.is_symlink():
        index_folder().mkdir(exist_ok=True)
        own.symlink_to(index_folder())
    client = redis_client.client(settings.redis_url, connections=4)
    return outfit(settings, agents, database, client, process="test", stopping=Stopping(1.0))


def made_kits(settings: Settings, agents: Agents, database: Database) -> Kits:
    """Its kits alone, for tests that ask for no pattern; close them."""
    return made_outfit(settings, agents, database).kits
