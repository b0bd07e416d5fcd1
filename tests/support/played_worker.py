"""A worker that is played: turns go on step by step, through the real store and the real event log."""

from sqlalchemy import select

from loom_worker.core.values.budgets import usd
from loom_worker.core.values.calls import Call
from loom_worker.core.values.chat import ChatMessage, Reply, Usage
from loom_worker.core.values.ids import new_id, now_ms
from loom_worker.core.values.json import Json
from loom_worker.core.values.notifications import Delivery
from loom_worker.core.values.sessions import Message
from loom_worker.core.values.turns import Claim, Ending, Step, Turn
from loom_worker.events.log import EventLog
from loom_worker.store.claims import Claims
from loom_worker.store.database import Database
from loom_worker.store.journal import Entries, Final, Journal
from loom_worker.store.schema import turns
from loom_worker.store.turns import Turns
from loom_worker.turn.state import reply_payload
from loom_worker.webhook.body import WebhookBodies

NAME = "played"
SPENT = Usage(input_tokens=3, output_tokens=2, cost_usd=usd(0.001), llm_calls=1)
MESSAGE_TOKENS = 3
"""Of every message, whatever it says."""


class PlayedWorker:
    """Claims a turn when it is first told to do something with it."""

    def __init__(self, database: Database, events: EventLog) -> None:
        self._database = database
        self._events = events
        self._claims, self._journal = Claims(database), Journal(database)
        self._held: dict[str, Claim] = {}
        self._told: dict[str, list[Json]] = {}
        """By turn: the events that its journal must know."""

    def start(self, turn_id: str) -> None:
        """Take the turn, which must be the first of its lane."""
        claim = self._claims.claim(self._row(turn_id).lane, worker=NAME, now_ms=now_ms())
        assert isinstance(claim, Claim), claim
        assert claim.turn.id == turn_id, "another turn of the session comes first"
        self._held[turn_id] = claim
        self._emit(turn_id, "turn.started", {"attempt": claim.turn.attempt})

    def say(self, turn_id: str, text: str) -> None:
        """The model streams a piece of its answer."""
        self._emit(turn_id, "output_text.delta", {"text": text})

    def ask_person(self, turn_id: str, *calls: Call) -> None:
        """The turn waits for a person to decide on its tool calls."""
        claim = self._claim(turn_id)
        self._journal.save(claim, Entries([], calls), {"status": "requires_action"})
        self._claims.park(claim, until_ms=now_ms() + 3_600_000, run_ms=0)
        del self._held[turn_id]

    def finish(self, turn_id: str, output_text: str = "done") -> Turn:
        """The turn ends with an answer: messages, webhook and final event come with it."""
        return self._end(turn_id, Ending("completed", output_text=output_text))

    def heed(self, turn_id: str) -> Turn:
        """The worker sees how the running turn shall end, and ends it so."""
        action = self._claims.cancel_action(self._claim(turn_id))
        assert action is not None, "nobody cancelled it"
        return self.finish(turn_id) if action == "finish" else self._end(turn_id, Ending("cancelled", action))

    def die(self, turn_id: str, reason: str = "dead") -> Turn:
        """The turn fails for good."""
        return self._end(turn_id, Ending("failed", reason))

    def _claim(self, turn_id: str) -> Claim:
        if turn_id not in self._held:
            self.start(turn_id)
        return self._held[turn_id]

    def _end(self, turn_id: str, ending: Ending) -> Turn:
        claim = self._claim(turn_id)
        said = () if ending.output_text is None else _messages(claim.turn, ending.output_text)
        steps = [Step(1, "events", {"first": 2, "log": self._told.pop(turn_id)})]
        if ending.output_text is not None:
            steps.append(Step(2, "reply", reply_payload(Reply(ending.output_text, "end_turn", SPENT, "played"))))
        final = Final(
            ending,
            {"usage": (SPENT if said else Usage()).as_json(), "run_ms": 1, "completed_ms": now_ms()},
            entries=Entries(steps),
            open_calls=sum(call.is_open for call in claim.turn.calls),
            said=said,
            spent={"played": SPENT} if said else {},
            delivery=Delivery.of(claim.turn, WebhookBodies("http://loom").of(claim.turn), now_ms=now_ms()),
            known_cancel=self._claims.cancel_action(claim),
            trace=claim.trace,
        )
        self._journal.finish(claim, final)
        del self._held[turn_id]
        turn = Turns(self._database).get(claim.turn.workspace, turn_id)
        self._events.append(turn_id, [(f"turn.{turn.status}", turn.as_json())], least=0)
        return turn

    def _emit(self, turn_id: str, kind: str, data: Json) -> None:
        self._events.append(turn_id, [(kind, data)], least=0)
        self._told.setdefault(turn_id, []).append({"type": kind, "data": data})

    def _row(self, turn_id: str) -> Turn:
        with self._database.read() as tx:
            workspace = tx.execute(select(turns.c.workspace).where(turns.c.id == turn_id)).scalar_one()
        return Turns(self._database).get(workspace, turn_id)


def _messages(turn: Turn, answer: str) -> tuple[Message, ...]:
    said = (ChatMessage("user", turn.input), ChatMessage("assistant", answer))
    return tuple(
        Message(
            id=new_id("msg_"),
            session_id=turn.session_id,
            turn_id=turn.id,
            chat=chat,
            token_count=MESSAGE_TOKENS,
            created_ms=now_ms(),
            usage=SPENT if chat.role == "assistant" else None,
        )
        for chat in said
    )
