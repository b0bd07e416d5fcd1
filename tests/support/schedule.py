"""Which tests of a run stay together in one of its processes."""

from functools import cached_property
from pathlib import Path

from xdist.scheduler import LoadFileScheduling

JOURNEYS = "tests/journeys/"
STARTS_ONE = "System("
"""In the text of a journey that does not share the system of the others."""


class JourneysTogether(LoadFileScheduling):
    """Keeps each file in one process, and in one also all journeys that share a system: it takes seconds to start."""

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        return JOURNEYS if file in self._sharing else file

    @cached_property
    def _sharing(self) -> frozenset[str]:
        root: Path = self.config.rootpath
        files = (root / JOURNEYS).glob("test_*.py")
        return frozenset(str(file.relative_to(root)) for file in files if STARTS_ONE not in file.read_text())
