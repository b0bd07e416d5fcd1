"""A small run that kept every promise: a database written by Loom's own store, and what the witnesses saw of it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Literal

from loom_worker.core.settings import LimitSettings, Settings
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.core.values.budgets import CallCost, Payer, Reservation, Settlement, usd
from loom_worker.core.values.calls import Awaited
from loom_worker.core.values.chat import Reply, Request, ToolSpec
from loom_worker.core.values.decisions import Decision
from loom_worker.core.values.json import Json
from loom_worker.core.values.memory import MemoryPolicy
from loom_worker.core.values.notifications import Delivery
from loom_worker.core.values.sessions import Message, NewSession
from loom_worker.core.values.traces import CallTimes, Interval, Try, TurnTrace
from loom_worker.core.values.turns import Claim, Ending, NewTurn, Turn
from loom_worker.core.values.webhooks import Webhook
from loom_worker.llm.anthropic_request import request_body
from loom_worker.llm.anthropic_stream import Assembly
from loom_worker.memory.kernel import memory_text
from loom_worker.store.approvals import decide
from loom_worker.store.budgets import Budgets
from loom_worker.store.calls import Calls
from loom_worker.store.claims import Claims
from loom_worker.store.database import Database
from loom_worker.store.journal import Entries, Final, Journal
from loom_worker.store.memory import Memories
from loom_worker.store.outbox import Outbox
from loom_worker.store.submit import submit
from loom_worker.store.turns import Turns
from loom_worker.trace.later import of_attempt
from loom_worker.turn.ending import finished
from loom_worker.turn.state import TurnState
from loom_worker.turn.tool_plan import Checked, planned
from loom_worker.turn.transcript import conversation, said, usage_of
from loom_worker.webhook.body import completed
from tests.chaos.checker import check
from tests.chaos.marks import mark_of
from tests.chaos.model_script import reply_for, script_of
from tests.chaos.records import Decided, Effect, Evidence, Hook, Injection, ModelCall, Polled, Read, Submitted
from tests.chaos.run_client import RunLog

WORKSPACE, MODEL = "default", "claude-test"
NOW_MS = 1_800_000_000_000
SPECS = tuple(ToolSpec(name, "Does it.", {"type": "object"}) for name in ("note", "charge", "refund", "report"))
HOOK_URL = "http://127.0.0.1:9/ok"
UNCOMPRESSED = MemoryPolicy(max_l1_messages=100_000, min_l1_messages=100_000)
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
MOMENT = Interval(NOW_MS * 1000, NOW_MS * 1000 + 5000)
TIMES: Json = {"times": CallTimes(1, "anthropic", MODEL, tries=(Try(MOMENT),)).as_json()}
AWAITED: Mapping[str, Awaited] = {"ask_agent": "turn", "delegate": "turn", "receive_messages": "messages"}
MARKS = ("T00001", "T00002", "T00003", "T00004")


@dataclass
class Run:
    """Makes a run turn by turn, as Loom does it, and keeps what the witnesses would have seen.

    Every event takes a hundredth of a second, so no two moments are equal.
    """

    settings: Settings
    database: Database
    submitted: list[Submitted] = field(default_factory=list)
    polled: list[Polled] = field(default_factory=list)
    calls: list[ModelCall] = field(default_factory=list)
    hooks: list[Hook] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    decided: list[Decided] = field(default_factory=list)
    read: list[Read] = field(default_factory=list)
    agent_budgets: Mapping[str, Json] = field(default_factory=dict)
    runs: RunLog = field(default_factory=RunLog)
    _moments: Iterator[int] = field(default_factory=count)

    def now_s(self) -> float:
        """The next moment."""
        return 1000 + next(self._moments) / 100

    def turn(self, text: str, *, session: str = "s1", webhook: bool = False, ending: Ending | None = None) -> Turn:
        """A turn from its acceptance to its webhook; its directives hold.

        Args:
            ending: how it ends before the model was asked; None: with the model's answer.
        """
        claim = self.accepted(text, session=session, webhook=webhook)
        work = TurnState.begin(claim).matched("Context.", "", ())
        while ending is None:
            work = self.asked(work)
            if not work.open_calls:
                ending = Ending("completed", output_text=work.said)
            else:
                work = self.ran_tools(work)
        return self.ended(work, ending)

    def accepted(
        self, text: str, *, session: str = "s1", webhook: bool = False, budget: Json | None = None, **known: Any
    ) -> Claim:
        """A turn that was answered 202 and is claimed."""
        mark = text.split()[0]
        hook = Webhook(HOOK_URL) if webhook else None
        new = NewTurn(
            text,
            webhook=hook,
            budget=budget,
            idempotency_key=f"key-{mark}",
            fingerprint=mark,
            traceparent=TRACEPARENT,
            trace=TurnTrace(NOW_MS * 1000),
        )
        owner = (WORKSPACE, NewSession(id=session))
        turn, _ = submit(self.database, LimitSettings(), owner, new, now_ms=NOW_MS)
        order = sum(sent.session == session for sent in self.submitted)
        sent = Submitted(mark, turn.id, session, self.now_s(), order, f"key-{mark}", (turn.id,), webhook)
        self.submitted.append(replace(sent, **known))
        return self.claimed(turn.lane)

    def claimed(self, lane: str) -> Claim:
        """A session's next turn is claimed."""
        claim = Claims(self.database).claim(lane, worker="w1", now_ms=NOW_MS + 1)
        assert isinstance(claim, Claim)
        return claim

    def payer(self, claim: Claim) -> Payer:
        """On whose budgets a turn is."""
        return claim.payer(self.agent_budgets.get(claim.turn.agent))

    def reserved(self, claim: Claim) -> tuple[Reservation, ...]:
        """What is set aside for a call."""
        held = Budgets(self.database).reserve(self.payer(claim), CallCost(2_000, 1_000), now_ms=NOW_MS)
        return () if held is None else (held,)

    def asked(self, work: TurnState, **fields: Any) -> TurnState:
        """The model was asked, answered, and the journal has it."""
        held = self.reserved(work.claim)
        call = self.model_call(work, **fields)
        reply = _reply(work, call)
        new = planned(
            reply.tool_uses,
            lambda use: Checked(
                use.arguments,
                approve_by_ms=NOW_MS + 60_000 if use.name == "refund" else None,
                awaits=AWAITED.get(use.name),
            ),
            LimitSettings(),
            position=len(work.calls),
            reply_n=work.next_n,
        )
        work = work.replied(reply, new, first_token_ms=3, estimated=100, notes=TIMES)
        settlement = Settlement(self.payer(work.claim), work.unsaved_spending, held)
        Journal(self.database).save(work.claim, work.unsaved, progress(work), settlement=settlement)
        return work.saved()

    def model_call(self, work: TurnState, **fields: Any) -> ModelCall:
        """A request with what the work holds, answered whole, as the model server logs it."""
        mark, agent = mark_of(work.turn.input, work.turn.agent), _told_name(work)
        nth = 1 + sum(call.mark == mark and call.look is None for call in self.calls)
        known = Memories(self.database).load(work.turn.lane, limit=200)
        messages = (*(each.chat for each in known.history), *conversation(work))
        memory = memory_text("", known.state.l2_text, has_swap=True)
        body = request_body(
            Request(f"You are {agent or 'Loom'}.", messages, memory=memory, tools=SPECS, max_tokens=16_000), MODEL
        )
        reply = reply_for(script_of(work.turn.input, agent.lstrip("@")), nth, body)
        call = ModelCall(len(self.calls) + 1, mark, body, self.now_s(), self.now_s(), 200, "", True, None, nth=nth)
        call = replace(call, said=reply.text, tokens=reply.tokens)
        self.calls.append(replace(call, **fields))
        return self.calls[-1]

    def answered(self, work: TurnState, verdict: Literal["approve", "reject"]) -> TurnState:
        """A person decided on the calls that wait for one, and the client was told so."""
        for call in [call for call in work.open_calls if call.is_waiting]:
            began_s = self.now_s()
            turn = decide(self.database, WORKSPACE, work.turn.id, call.id, Decision(verdict), now_ms=NOW_MS)
            self.decided.append(Decided(turn.id, call.id, verdict, began_s, (200,)))
            work = work.with_calls([each for each in turn.calls if each.id == call.id])
        return work

    def ran_tools(self, work: TurnState) -> TurnState:
        """All open calls that wait for nobody ran, once each."""
        rows = Calls(self.database)
        ready = [call for call in work.open_calls if not call.is_waiting]
        for sent in rows.send(work.claim, ready, now_ms=NOW_MS):
            taken = rows.claim(work.turn.id, sent.position, sent.sends, worker="w1", now_ms=NOW_MS, durable=True)
            assert taken is not None
            self.effects.append(Effect(taken.name, taken.arguments["nonce"], self.now_s()))
            done = replace(taken, status="completed", content="Done.", finished_ms=NOW_MS + 5)
            rows.close(work.turn.id, done)
            work = work.with_calls([done])
        return work

    def ended(self, work: TurnState, ending: Ending, *, is_kept: bool = True) -> Turn:
        """The turn ended, was polled, and its webhook delivered."""
        turn = finished(work, ending, now_ms=NOW_MS + 100, run_ms=40)
        delivery = _delivery(turn) if turn.webhook else None
        messages = list(_messages(work)) if is_kept else []
        known = {**progress(work), "run_ms": 40, "completed_ms": NOW_MS + 100}
        entries, spent = Entries(work.unsaved_steps), work.usage_by_model
        final = Final(ending, known, entries, said=messages, delivery=delivery, spent=spent, verdicts=work.verdicts)
        final = replace(final, trace=work.claim.trace)
        Journal(self.database).finish(work.claim, final)
        shown = Turns(self.database).get(WORKSPACE, turn.id)
        self.polled.append(Polled(turn.id, json.dumps(shown.as_json()).encode(), self.now_s()))
        if delivery is not None:
            self.hooks.append(Hook(delivery.id, turn.id, delivery.body.encode(), self.now_s(), True, 204))
            tried = replace(delivery, status="delivered", attempts=1, next_ms=None)
            Outbox(self.database).save(tried, of_attempt(tried, MOMENT, error=None))
        return shown

    def evidence(self, **changed: Any) -> Evidence:
        """All that was seen; something harmless was done to the system meanwhile."""
        return Evidence(
            **{
                "submitted": tuple(self.submitted),
                "polled": tuple(self.polled),
                "model_calls": tuple(self.calls),
                "hooks": tuple(self.hooks),
                "effects": tuple(self.effects),
                "decided": tuple(self.decided),
                "read": tuple(self.read),
                "injections": (Injection("duplicate", "turn", 900.0, 901.0),),
                "home": self.settings.home,
                "budget_tokens": 10_000,
                "memory": UNCOMPRESSED,
                "agent_budgets": self.agent_budgets,
                "runs": self.runs.witness(),
                **changed,
            }
        )

    def sql(self, statement: str, *values: object) -> None:
        """Break the database, past Loom and its foreign keys."""
        with closing(sqlite3.connect(self.settings.home / "loom.db")) as connection:
            assert connection.execute(statement, values).rowcount > 0, f"nothing was changed: {statement}"
            connection.commit()

    def row(self, query: str, *values: object) -> Any:
        """The first row of a query."""
        with closing(sqlite3.connect(self.settings.home / "loom.db")) as connection:
            return connection.execute(query, values).fetchone()

    def columns(self, table: str) -> list[str]:
        """The names of a table's columns, as SQL takes them."""
        with closing(sqlite3.connect(self.settings.home / "loom.db")) as connection:
            return [f'"{row[1]}"' for row in connection.execute(f"PRAGMA table_info({table})")]

    def id_of(self, mark: str) -> str:
        """The turn of a mark."""
        return next(sent.turn_id for sent in self.submitted if sent.mark == mark)


def good_run(settings: Settings, database: Database) -> Run:
    """Four turns in two sessions: tools, webhooks, two questions after one another."""
    run = Run(settings, database)
    run.turn("T00001 plain")
    run.turn("T00002 tools=note,charge tools=note", webhook=True)
    run.turn("T00003 words=5", session="s2", webhook=True)
    run.turn("T00004 plain")
    return run


def changed(items: Sequence[Any], which: Mapping[str, Any], **fields: Any) -> tuple[Any, ...]:
    """The same records; those whose attributes are all as said have other fields. One must be."""
    hit = [all(getattr(item, name) == value for name, value in which.items()) for item in items]
    assert any(hit), f"there is no {which}"
    return tuple(replace(item, **fields) if is_hit else item for item, is_hit in zip(items, hit, strict=True))


def _told_name(work: TurnState) -> str:
    """What the system text of a workflow's agent calls it; other agents have no name."""
    return f"@{work.turn.agent}" if work.turn.run_id else ""


def _reply(work: TurnState, call: ModelCall) -> Reply:
    assembly = Assembly(MODEL)
    script = script_of(work.turn.input, _told_name(work).lstrip("@"))
    for event in reply_for(script, call.nth, call.body).events:
        assembly.feed(event)
    reply = assembly.reply()
    return replace(reply, usage=replace(reply.usage, cost_usd=usd(0.5)))


def progress(work: TurnState) -> dict[str, Any]:
    """The columns of a turn that go with what it has done."""
    known = {"usage": work.usage.as_json(), "run_ms": 20, "patterns": [], "first_token_ms": work.first_token_ms}
    return {**known, **({"judge": work.judge} if work.verdicts else {})}


def _messages(work: TurnState) -> Iterator[Message]:
    for place, (chat, usage) in enumerate(said(work)):
        made = Message(f"msg_{work.turn.id}_{place}", work.turn.session_id, work.turn.id, chat, 7, NOW_MS + 100)
        yield replace(made, usage=usage_of(usage))


def _delivery(turn: Turn) -> Delivery:
    body = completed(turn, now_ms=NOW_MS + 100, url=f"http://127.0.0.1/v1/turns/{turn.id}")
    made = Delivery(f"whd_{turn.id}", WORKSPACE, turn.id, HOOK_URL, None, body, "pending", 0, NOW_MS + 100)
    return replace(made, next_ms=NOW_MS + 100, trace_id=turn.trace_id)


def assert_found(evidence: Evidence, invariant: str, text: str) -> None:
    """The checker finds this."""
    found = check(evidence)
    assert any(each.invariant == invariant and text in each.text for each in found), found
