"""What leaves a front: kept in lists, answered with little."""

import json
from dataclasses import dataclass, field
from functools import partial

from loom_worker.core.errors import LoomError, NotFound
from loom_worker.core.values.blobs import DataReference
from loom_worker.core.values.tools import Tool
from loom_worker.core.values.turns import Turn
from loom_worker.service.outward import Outward
from tests.support.callers import a_tool
from tests.support.memory_patterns import MemoryPatterns


@dataclass
class Out:
    """What left the front."""

    announced: list[Turn] = field(default_factory=list)
    woken: list[str] = field(default_factory=list)
    alerted: list[str] = field(default_factory=list)
    ended: list[Turn] = field(default_factory=list)
    delivered: list[str] = field(default_factory=list)
    closed: int = 0
    asked: list[tuple[object, ...]] = field(default_factory=list)
    """What was asked of memory and agent runtimes."""
    refusal: LoomError | None = None
    """Raised by whatever is asked."""

    def close(self) -> None:
        self.closed += 1

    def ask(self, *question: object) -> None:
        self.asked.append(question)
        if self.refusal is not None:
            raise self.refusal

    def context(self, *question: object) -> dict[str, object]:
        self.ask("context", *question)
        return {"object": "context"}

    def recall(self, *question: object) -> int:
        self.ask("recall", *question)
        return 7

    def open(self, workspace: str, ref: str) -> tuple[DataReference, bytes]:
        self.ask("open", workspace, ref)
        raise NotFound("There is no such result, or it has expired.")

    def tools(self, agent: str) -> tuple[Tool, ...]:
        self.ask("tools", agent)
        return (a_tool("add", "Adds.", {"type": "object"}), a_tool("note", "Notes.", {"type": "object"}))

    def outward(self) -> Outward:
        return Outward(
            announce=self.announced.append,
            wake_lane=self.woken.append,
            alert=self.alerted.append,
            ended=self.ended.append,
            webhook_body=lambda turn: json.dumps(turn.as_json()),
            deliver=self.delivered.append,
            problems=lambda: ("workers: none is alive",),
            workers=lambda: 2,
            tools=self.tools,
            open_blob=self.open,
            prepared=lambda agent, use: (use.arguments, None if "b" in use.arguments else "/: 'b' is missing"),
            context=self.context,
            recall=self.recall,
            clear_recalled=partial(self.ask, "clear"),
            check_kernel=partial(self.ask, "kernel"),
            check_fits=partial(self.ask, "fits"),
            patterns=MemoryPatterns().desk(),
            metrics=lambda: {"lanes": 3},
            close=self.close,
        )
