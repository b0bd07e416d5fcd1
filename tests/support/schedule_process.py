"""A process that begins what is due at moments, in turn: ``python -m tests.support.schedule_process MS…``."""

import sys

from loom_worker.agents.known import KnownAgents
from loom_worker.agents.load import LiveAgents
from loom_worker.core.settings import from_env
from loom_worker.runtime.build import worker_schedules, workflows_of
from loom_worker.runtime.sweeping import Links


def main(*moments_ms: int) -> None:
    settings = from_env()
    links, workflows = Links.of(settings), workflows_of(settings)
    agents = KnownAgents(LiveAgents(settings.agents_dir), workflows)
    schedules = worker_schedules(settings, links, agents, workflows)
    for moment_ms in moments_ms:
        schedules.fire_due(moment_ms)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
