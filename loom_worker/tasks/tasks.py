"""All Celery tasks: each takes ids, calls one function, and counts on the sweep for what fails."""

import logging

from loom_worker.core import crash_points
from loom_worker.core.errors import LoomError, Unavailable
from loom_worker.tasks import worker
from loom_worker.tasks.app import app
from loom_worker.turn import entrypoints

log = logging.getLogger(__name__)

# None of them sends events: a message is but a hint. What monitors are told of is the work itself (task_events.py).


@app.task(name="loom.turn.run", send_events=False)
def run_turn(lane: str) -> None:
    """A wake-up: run the lane's next turn, or go on with a parked one; a repeated one does nothing."""
    crash_points.reached("turn.received")
    try:
        entrypoints.serve_lane(lane, worker.current().turns)
    except Unavailable as error:
        log.warning("the sweep will wake it again: %s", error, extra={"lane": lane})


@app.task(name="loom.turn.wake", send_events=False)
def wake(lane: str, ticket: str) -> None:
    """The body of a chord: all its tool calls have a result, so the turn goes on."""
    crash_points.reached("turn.waking")
    try:
        entrypoints.serve_wake(lane, ticket, worker.current().turns)
    except Unavailable as error:
        log.warning("the sweep will wake it: %s", error, extra={"lane": lane})


@app.task(name="loom.tool.call", send_events=False)
def call_tool(turn_id: str, position: int, send: int) -> None:
    """A chord's header: one tool call. It never raises, so that the chord always closes; a failure is a result."""
    try:
        entrypoints.serve_call(turn_id, position, send, worker.current().turns)
    except LoomError as error:
        # Without a stored result the turn sends the call again as soon as its lease has lapsed.
        log.warning("tool call without result: %s", error, extra={"turn": turn_id})


@app.task(name="loom.judge.score", send_events=False)
def score_answer(turn_id: str, reply_n: int, position: int, send: int) -> None:
    """One judge looks at one answer; what it says, or that it could not, is stored."""
    try:
        entrypoints.serve_verdict(turn_id, reply_n, position, send, worker.current().turns)
    except LoomError as error:
        # The turn asks again as soon as its lease has lapsed.
        log.warning("no verdict: %s", error, extra={"turn": turn_id})


@app.task(name="loom.webhook.deliver", send_events=False)
def deliver(delivery_id: str) -> None:
    """One attempt; the next one, if needed, is due by the outbox, and the sweep sends it."""
    worker.current().webhooks.deliver(delivery_id)


@app.task(name="loom.trace.export", send_events=False)
def export_traces() -> None:
    """Something waits to be exported: all of it is, unless a thread of this process is at it already."""
    worker.current().traces.serve()


@app.task(name="loom.workflow.advance", send_events=False)
def advance_run(run_id: str) -> None:
    """A run's turns have ended, and whoever ended them could not make it go on."""
    worker.current().turns.runs.go_on(run_id)


@app.task(name="loom.summary.compress", send_events=False)
def compress_memory(lane: str) -> None:
    """A session's L1 is full: its oldest messages become a summary; then those of other sessions that are due."""
    try:
        worker.current().summaries.serve(lane)
    except LoomError as error:
        log.warning("the sweep will send it again: %s", error, extra={"lane": lane})
