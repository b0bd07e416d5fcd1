"""Which tests of a run stay together in one of its processes."""

from xdist.scheduler import LoadFileScheduling

JOURNEYS = "tests/journeys/"


class JourneysTogether(LoadFileScheduling):
    """Keeps each file in one process, and all journeys, most of which share a system that takes seconds to start."""

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        return JOURNEYS if file.startswith(JOURNEYS) else file
