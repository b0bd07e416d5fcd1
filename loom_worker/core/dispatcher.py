"""How processes reach each other."""

from collections.abc import Sequence
from typing import Protocol

from loom_worker.core.values.calls import Call
from loom_worker.core.values.judges import Verdict


class Dispatcher(Protocol):
    """Sends to other processes, by ids alone; what cannot be sent is left to the sweep (``tasks/dispatch.py``)."""

    def wake(self, lane: str) -> None:
        """Tell workers that a lane has work."""

    def call(self, turn_id: str, call: Call) -> None:
        """Send one tool call to the tool queue."""

    def judge(self, turn_id: str, verdict: Verdict) -> None:
        """Ask for one verdict, on the judge queue."""

    def fan_out(self, lane: str, turn_id: str, calls: Sequence[Call], ticket: str) -> None:
        """Send tool calls to the tool queue; when all are done the lane is woken."""

    def deliver(self, delivery_id: str) -> None:
        """Send a webhook delivery now."""

    def summarize(self, lane: str) -> None:
        """Have a lane's memory compressed."""

    def advance(self, run_id: str) -> None:
        """Have a workflow's run go on."""

    def export_traces(self) -> None:
        """Have the traces exported that wait for it."""

    def run_isolated(self, lane: str, token: str, turn_id: str, fence: int) -> int:
        """Run a claimed turn in a process that runs nothing else; its exit status."""
