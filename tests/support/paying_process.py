"""A process that asks a model on the budget of a session and books the answer: ``paying_process NAME URL LANE``."""

import sys

from loom_worker.core.settings import from_env
from loom_worker.core.values.budgets import Payer, Settlement
from loom_worker.core.values.chat import ChatMessage, Request
from loom_worker.core.values.ids import now_ms
from loom_worker.llm.anthropic import Anthropic
from loom_worker.llm.meter import Metered, OnBudget
from loom_worker.llm.model import whole_reply
from loom_worker.store.budgets import Budgets
from loom_worker.store.database import Database
from loom_worker.store.ledger import Charge, Ledger


def main(name: str, url: str, lane: str) -> None:
    database = Database(from_env().database_url, sync="normal", process=name)
    payer = Payer("acme", lane, "default")
    model = Metered(Anthropic(model="claude-haiku-4-5", base_url=url))
    paid = OnBudget(model, Budgets(database), payer, len)
    reply = whole_reply(paid, Request("", (ChatMessage("user", "Is this answer good?"),)))
    settlement = Settlement(payer, reply.usage.amount(), paid.held)
    charge = Charge("acme", "s1", "default", reply.model, reply.usage, kind="judge", settlement=settlement)
    Ledger(database).charge(lane, charge, now_ms=now_ms())


if __name__ == "__main__":
    main(*sys.argv[1:])
