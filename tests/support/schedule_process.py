"""A process that begins what is due at a moment: ``python -m tests.support.schedule_process MOMENT_MS``."""

import sys

from loom_worker.agents.known import KnownAgents
from loom_worker.agents.live import LiveAgents
from loom_worker.core.settings import from_env
from loom_worker.runtime.build import worker_schedules, workflows_of
from loom_worker.runtime.sweeping import Links


def main(moment_ms: int) -> None:
    settings = from_env()
    links, workflows = Links.of(settings), workflows_of(settings)
    agents = KnownAgents(LiveAgents(settings.agents_dir), workflows)
    worker_schedules(settings, links, agents, workflows).fire_due(moment_ms)


if __name__ == "__main__":
    main(int(sys.argv[1]))
