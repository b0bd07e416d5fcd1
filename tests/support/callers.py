"""On whose behalf tools run in tests."""

from loom_worker.values.tools import Caller

CALLER = Caller(lane="ab12", session_id="s1", workspace="default", turn_id="turn_1", call_id="toolu_1")
