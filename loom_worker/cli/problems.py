"""The problems of an installation, looked at by a process of its own that ends afterwards."""

import contextlib
import logging
import sys

from loom_worker.core.settings import Settings
from loom_worker.core.values.problems import Problem


def problems(settings: Settings) -> tuple[Problem, ...]:
    """All of them; databases are connected to and servers started, and let go again.

    What users' files print while they are imported goes where errors go; what is logged meanwhile goes nowhere.
    """
    from loom_worker.agents.load import load
    from loom_worker.core import redis_client
    from loom_worker.core.stopping import Stopping
    from loom_worker.runtime.components import components
    from loom_worker.runtime.installation import Inspection
    from loom_worker.store.database import Database

    logging.getLogger().addHandler(logging.NullHandler())
    agents = load(settings.agents_dir)
    with contextlib.redirect_stdout(sys.stderr), contextlib.closing(Database(settings.database_url)) as database:
        client = redis_client.client(settings.redis_url, connections=4)
        stopping = Stopping(settings.lanes.drain_s)
        made = components(settings, agents, database, client, process="doctor", stopping=stopping)
        with contextlib.closing(made):
            inspection = Inspection(settings, made.registry, calls_model=True, reaches_out=True)
            return inspection.problems(agents)
