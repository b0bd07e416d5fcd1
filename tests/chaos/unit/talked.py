"""Agents that work together, as Loom lets them, whose turns answer as the harness' model does."""

import json
from dataclasses import replace
from itertools import count

from loom_worker.core.settings import LimitSettings
from loom_worker.core.values.agent_messages import TTL_MS, AgentMessage
from loom_worker.core.values.calls import Call
from loom_worker.core.values.children import NewChild
from loom_worker.core.values.turns import Claim, Ending, Turn
from loom_worker.store.agent_messages import AgentMessages
from loom_worker.store.calls import Calls
from loom_worker.store.children import Children
from loom_worker.turn.state import TurnState
from tests.chaos.agent_plan import FRONT
from tests.chaos.unit.made import NOW_MS, TRACEPARENT, WORKSPACE, Run

_numbers = count(1)


def talked(run: Run, text: str, *, session: str = "talk") -> Turn:
    """A client's turn, whose calls other agents answer one after another, until all have ended."""
    return _served(run, run.accepted(text, session=session))


def _served(run: Run, claim: Claim) -> Turn:
    work = run.asked(TurnState.begin(claim).matched("Context.", "", ()))
    while work.open_calls:
        for call in work.open_calls:
            work = _done(run, work, call)
        work = run.asked(work)
    turn = run.ended(work, Ending("completed", output_text=work.said))
    AgentMessages(run.database).settle(now_ms=NOW_MS + 200, kept_since_ms=0)
    return turn


def _done(run: Run, work: TurnState, call: Call) -> TurnState:
    if call.awaits == "turn":
        work, content = _asked(run, work, call)
        call = next(each for each in work.calls if each.id == call.id)
    else:
        content = _received(run, work, call) if call.awaits == "messages" else _sent(run, work, call)
    done = replace(call, status="completed", content=content, finished_ms=NOW_MS + 5)
    Calls(run.database).close(work.turn.id, done)
    return work.with_calls([done])


def _asked(run: Run, work: TurnState, call: Call) -> tuple[TurnState, str]:
    question = str(call.arguments.get("message") or call.arguments.get("task"))
    agent = call.arguments["agent"]
    new = NewChild(call.position, agent, f"{agent}:{work.turn.id}.{call.position}", question, traceparent=TRACEPARENT)
    (child,), noted = Children(run.database, LimitSettings()).begin(work.claim, [new], now_ms=NOW_MS + 2)
    ended = _served(run, run.claimed(child.lane))
    return work.with_calls(noted), run.row("SELECT content FROM messages WHERE turn_id = ? ORDER BY n DESC", ended.id)[
        0
    ]


def _sent(run: Run, work: TurnState, call: Call) -> str:
    message = AgentMessage(
        id=f"amsg_{next(_numbers):024d}",
        to_agent=call.arguments["agent"],
        from_agent=FRONT,
        from_session=work.turn.session_id,
        from_turn_id=work.turn.id,
        kind="message",
        body=call.arguments["message"],
        created_ms=NOW_MS,
        expires_ms=NOW_MS + TTL_MS,
        workspace=WORKSPACE,
    )
    AgentMessages(run.database).send(message, lane=work.turn.lane)
    return json.dumps({"sent": message.id, "to": message.to_agent})


def _received(run: Run, work: TurnState, call: Call) -> str:
    taken = AgentMessages(run.database).take(work.claim, call, scope="", limit=20, now_ms=NOW_MS + 3)
    return json.dumps([message.for_agent() for message in taken]) if taken else "No messages."
