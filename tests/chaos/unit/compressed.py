"""A run whose memory is compressed as Loom does it, by the harness' model or without one."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from loom_worker.core.errors import Overloaded
from loom_worker.core.settings_tree import LlmSettings
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.budgets import usd
from loom_worker.core.values.chat import Reply, ReplyEvent, Request, Usage
from loom_worker.core.values.memory import MemoryPolicy
from loom_worker.core.values.tiers import MemoryTiers
from loom_worker.llm import tokens
from loom_worker.llm.anthropic_request import request_body
from loom_worker.memory.compress import Compressor
from loom_worker.memory.pressure import l1_room
from loom_worker.memory.summarize import CompressionRules
from loom_worker.store.budgets import Budgets
from loom_worker.store.facts import Facts
from loom_worker.store.memory import Memories
from loom_worker.store.sessions import Sessions
from tests.chaos.checks_tiers import BATCH
from tests.chaos.model_script import summary_for
from tests.chaos.records import Evidence, ModelCall
from tests.chaos.summaries import part_of
from tests.chaos.unit.made import MODEL, NOW_MS, WORKSPACE, Run

BUDGET_TOKENS = 5_000
TIERS = MemoryTiers(batch_size=BATCH)
POLICY = MemoryPolicy(max_l1_messages=4, min_l1_messages=2, batches=(4, 6, 8), max_l2_tokens=240)


@dataclass
class CompressorModel:
    """The harness' model, as it answers to summaries; each request is logged as its server would."""

    run: Run
    is_busy: bool = False
    """It refuses."""
    name: str = MODEL

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        """See Model.reply."""
        body = request_body(request, MODEL)
        number = len(self.run.calls) + 1
        said = summary_for(number, body).text
        call = ModelCall(
            number, part_of(body).key, body, self.run.now_s(), self.run.now_s(), 200, "", True, None, said=said
        )
        if self.is_busy:
            self.run.calls.append(ModelCall(**{**vars(call), "status": 529, "is_complete": False, "said": ""}))
            raise Overloaded("no")
        self.run.calls.append(call)
        yield Reply(said, "end_turn", Usage(input_tokens=10, output_tokens=9, cost_usd=usd(0.5), llm_calls=1), MODEL)


def compress_session(run: Run, session: str, *, is_busy: bool = False) -> None:
    """Do what is due, as a tools worker would."""
    rules = CompressionRules(
        POLICY,
        CompressorModel(run, is_busy),
        lambda text: tokens.count(text, model=MODEL),
        l1=l1_room(BUDGET_TOKENS, policy=POLICY, most_tokens=LlmSettings().l1_tokens),
        l2_tokens=int(POLICY.shares.l2 * BUDGET_TOKENS),
        budget_tokens=BUDGET_TOKENS,
        tiers=TIERS,
    )
    memories = Memories(run.database)
    around: Any = SimpleNamespace(compression=lambda _: rules, alive=frozenset)
    budgets = Budgets(run.database)
    compressor = Compressor(
        "w1",
        memories,
        Facts(run.database),
        budgets,
        around,
        around,
        Stopping(1.0),
        threading.Semaphore(1),
        clock_ms=lambda: NOW_MS,
    )
    while compressor.compress(Sessions(run.database).get(WORKSPACE, session).lane):
        pass


def long_run(run: Run, *, turns: int = 16) -> Run:
    """More turns in the first session, each with its compression at once."""
    for number in range(5, 5 + turns):
        run.turn(f"T{number:05} plain")
        compress_session(run, "s1")
    return run


def seen(run: Run, **changed: Any) -> Evidence:
    """All that was seen of it."""
    return run.evidence(**{"budget_tokens": BUDGET_TOKENS, "memory": POLICY, **changed})
