"""What calls set aside on budgets: settled once, whoever dies; as much as is likely; and never far beyond a budget."""

import os
import signal
import threading
from contextlib import suppress
from multiprocessing import get_context

import pytest

from loom_worker.core.errors import BudgetSpent
from loom_worker.core.settings import Settings
from loom_worker.core.values.budgets import Account, Amount, CallCost, Payer, Reservation, Settlement
from loom_worker.core.values.chat import ChatMessage, Request, Usage
from loom_worker.core.values.ids import now_ms
from loom_worker.llm.anthropic import Anthropic
from loom_worker.llm.model import BudgetMeter, Metered, OnBudget, whole_reply
from loom_worker.store.budgets import Budgets, settle
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.ledger import Charge, Ledger
from tests.support.at_once import at_once
from tests.support.messages_server import Hang, MessagesServer
from tests.support.processes import killed_at_the_end
from tests.support.until import until
from tests.unit.store.made import NOW_MS, WORKSPACE
from tests.unit.store.test_budgets import limited, payer, used

INPUT, MOST, USUAL = 500, 8_192, 50


def pay(database_url: str, url: str, lane: str) -> None:
    """Ask a model as a judge does, and book its answer."""
    database, payer = Database(database_url, sync="normal", process="w1"), Payer(WORKSPACE, lane, "default")
    paid = OnBudget(Metered(Anthropic(model="claude-haiku-4-5", base_url=url)), Budgets(database), payer, len)
    reply = whole_reply(paid, Request("", (ChatMessage("user", "Is this answer good?"),)))
    settlement = Settlement(payer, reply.usage.amount(), paid.held)
    charge = Charge(WORKSPACE, "s1", "default", reply.model, reply.usage, kind="judge", settlement=settlement)
    Ledger(database).charge(lane, charge, now_ms=now_ms())


@pytest.mark.heavy
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP])
def test_a_call_of_a_process_that_is_silent_counts_as_sent_and_is_settled_once_should_it_come_back(
    database: Database, settings: Settings, sign: signal.Signals
) -> None:
    claim = limited(database, {"tokens": 100_000})
    budgets, account, release = Budgets(database), Account("session", claim.turn.lane), threading.Event()
    with MessagesServer() as server:
        server.then(Hang(release))
        process = get_context("spawn").Process(target=pay, args=(settings.database_url, server.url, claim.turn.lane))
        process.start()
        with killed_at_the_end(process.pid or 0):
            until(lambda: server.requests, 60, "the model is asked")
            [held] = budgets.unsettled()
            later_ms = now_ms() + 1
            budgets.settle_lost({"w1"}, before_ms=later_ms)
            assert used(database, account)["tokens"] == held.grant.amount.tokens > held.sent.tokens
            os.kill(process.pid or 0, sign)
            at_once(lambda _: budgets.settle_lost((), before_ms=later_ms), range(4))
            assert (budgets.unsettled(), used(database, account)["tokens"]) == ([], held.sent.tokens)
            os.kill(process.pid or 0, signal.SIGCONT)
            release.set()
            process.join(60)
            assert process.exitcode == (0 if sign == signal.SIGSTOP else -sign)
    if sign == signal.SIGSTOP:
        [row] = Ledger(database).totals(WORKSPACE, group_by="session")
        assert used(database, account)["tokens"] == row["input_tokens"] + row["output_tokens"]


def test_what_two_calls_set_aside_is_settled_by_the_one_charge_for_both(database: Database) -> None:
    payer = Payer(WORKSPACE, limited(database, {"tokens": 100_000}).turn.lane, "default")
    request = Request("", (ChatMessage("user", "Is this answer good?"),))
    with MessagesServer() as server:
        paid = OnBudget(
            Metered(Anthropic(model="claude-haiku-4-5", base_url=server.url)), Budgets(database), payer, len
        )
        usage = whole_reply(paid, request).usage + whole_reply(paid, request).usage
    settlement = Settlement(payer, usage.amount(), paid.take())
    charge = Charge(WORKSPACE, "s1", "default", "m", usage, kind="summary", settlement=settlement)
    Ledger(database).charge(payer.lane, charge, now_ms=now_ms())
    assert (len(settlement.held), paid.held, Budgets(database).unsettled()) == (2, (), [])


def known(database: Database, replies: int = 30) -> None:
    used = Usage(input_tokens=100, output_tokens=USUAL, llm_calls=1)
    for _ in range(replies):
        Ledger(database).charge("", Charge(WORKSPACE, "s2", "default", "m", used), now_ms=NOW_MS)


@pytest.mark.parametrize(("replies", "least", "most"), [(30, 0.9, 1.0), (19, 0.3, 0.4)])
def test_short_replies_use_a_budget_up_though_all_are_under_way_at_once(
    database: Database, replies: int, least: float, most: float
) -> None:
    known(database, replies)
    claim = limited(database, {"tokens": 60_000})
    budgets, held = Budgets(database), list[Reservation | None]()
    with suppress(BudgetSpent):
        while True:
            held.append(budgets.reserve(payer(claim), CallCost(INPUT, MOST), now_ms=NOW_MS))
    with database.write(lock=WHOLE) as tx:
        for each in filter(None, held):
            settle(tx, Settlement(payer(claim), Amount(tokens=INPUT + USUAL), (each,)), now_ms=NOW_MS)
    assert least <= used(database, Account("session", claim.turn.lane))["tokens"] / 60_000 <= most


def test_replies_that_are_longer_than_was_likely_are_stopped_where_a_budget_ends(database: Database) -> None:
    known(database)
    claim = limited(database, {"tokens": 10_000})
    meters = [BudgetMeter(Budgets(database), payer(claim), input_tokens=INPUT) for _ in range(6)]
    granted = [meter.reserve("ollama/any", MOST) for meter in meters]
    said = [0 for _ in meters]

    def speak(n: int) -> None:
        with suppress(BudgetSpent):
            while said[n] < granted[n]:  # there the provider ends a reply
                said[n] += 10
                meters[n].said("x" * 30)

    at_once(speak, range(len(meters)))
    assert 8_000 < sum(said) + len(meters) * INPUT <= 10_000 + 10 * len(meters)
    assert all(meter.narrowed for meter in meters)
    for meter in meters:
        meter.lose()
    assert used(database, Account("session", claim.turn.lane))["tokens"] == pytest.approx(sum(said) + 3_000, abs=6)
