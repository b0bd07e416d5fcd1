"""A model provider on loopback, as a process: the Messages API, with faults, and a log of every request.

Chat Completions are served, too (chat_wire.py), logged as what they are in the Messages API.

    python -m tests.chaos.model_server --port 9000 --log model.jsonl --seed 7 [--latency-s 0.02]
        [--fault-rate 0.02 --faults rate429,cut,drip]

Its first line on standard output is its URL (``--port 0``: a free port); SIGTERM ends it. ``model_log.read(path)``
gives the log as ModelCalls, also while it is being written or after a SIGKILL.

What it says is decided by the newest user message, ``T00042 <directives>``, in any order, separated by spaces:

- ``plain``: a short text (also without any directive)
- ``words=N``: a text of N words
- ``tools=a,b,c``: a reply that calls these tools at once, then, when the results are there, goes on; given several
  times, one reply for each in that order. Arguments are ``{"nonce": "<mark>-<n>-<place>"}``, unlike those of any
  other call; ``pause:2.5`` adds ``"seconds": 2.5``.
- ``ask_agent@ann``, ``delegate@ann`` and ``send_agent@ann`` among the tools tell another agent something, and
  ``receive_messages`` reads: ``ask_agent@ann:2`` waits 2 s, as does ``receive_messages:2``, and
  ``send_agent@ann:session_state`` sends that kind. A directive with ``>`` before it is for the agents that are asked,
  with ``>>`` for those that they ask; each such turn has a mark of its own, made of its call. ``passes``: what they are
  told names the references in this turn's results.
- ``slow=S``: every reply of this turn drips over S seconds; ``wait=S``: every reply begins after S seconds
- ``hang``: the first request of the turn gets no answer at all (the same as ``fault=hang``)
- ``judged=fail,pass``: the turn's first answer is failed by the judges that are asked of this server, the second
  passed, and so on; the last word holds for all that follow (``pass``). With any other word they give no score.
- ``first=W``: the answer begins with W; ``ends=L|M``: it ends with these lines, in which ``_`` is a blank
- ``bare=W``: the answer is W and its name in signs, which do not count where answers are compared
- ``yesif=W``: the answer begins with yes if W stands in the question behind its first line, and with no otherwise
- ``again=STAGE*n``: the answer ends with ``RESTART STAGE: …`` until there were n (1) such restarts
- ``fault=<name>[*n]``: the turn's first n (1) requests get this fault; given several times, one after the other

The prompts of a workflow's run are known by its id. Of these the directives stand between the id and the end of that
line, ``ada:words=3`` is for the agent ``ada`` alone, and the mark is made of agent and prompt (marks.py).

Every reply begins with ``<mark>.<n>``: the answer to the n-th request of that mark. A forbidden tool choice
(``{"type": "none"}``) or a request without tools gets text. An answer that is given anew says how many there were
before (``anew-1``). A reply that has more tokens than ``max_tokens`` is cut there. Requests that the real API refuses
are answered 400 before anything else. With ``--fault-rate`` any request may get one of ``--faults``, by (seed, mark, n)
alone.

Faults: rate429 (Retry-After: 1), rate429_absurd (Retry-After: 4294967), overloaded529, server500, unavailable503, hang
(nothing for HANG_S, then the connection is closed), closed (without a word), drip (a whole reply in small pieces over
DRIP_S), reset (RST, before or after the head), cut (closed within the stream, at a byte chosen by the seed), early_end
(ends as if whole, without a stop reason), error_event (overloaded_error after some words), garbage (200 with HTML),
bad_tool_json (arguments that are no JSON), unknown_tool (``no_such_tool``), fifty_calls (50 calls of ``note`` in one
reply).

A request for a summary (summaries.py) is known by its system text, and is of many marks: what it is logged and counted
by is the part it asks for, what it is answered says which marks that has, and of all directives and faults only those
of ``--fault-rate`` are for it; the last three change nothing in it.

A request for a verdict (panels.py) is known by its tool choice. It is logged under the mark of the turn it is of,
counted by itself, and answered with a call of that tool, as ``judged=`` of the question says; of the last three faults
the first two make it useless.
"""

import argparse
import asyncio
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.chaos.asyncio_http import Asked, Connection, Log, announce, serve
from tests.chaos.chat_wire import as_messages, chat_sse
from tests.chaos.model_faults import RESPOND, Saying, drip, refuse
from tests.chaos.model_log import ModelLog, Request
from tests.chaos.model_script import (
    SaidReply,
    Script,
    agent_of,
    chance_of,
    newest_question,
    reply_for,
    script_of,
    summary_for,
    verdict_for,
)
from tests.chaos.panels import is_judging, look_of
from tests.chaos.summaries import is_summary, part_of
from tests.support import messages_rules, openai_server
from tests.support.messages_wire import sse

Json = dict[str, Any]
MESSAGES, CHAT = "/v1/messages", "/v1/chat/completions"
DOWN_S = 2.0
"""For so long the Messages API is down at a time, if it is to be down now and then."""
DOWN = ("overloaded529", "closed", "hang", "unavailable503")
"""How, by turns."""
DOWN_RATE = 0.9
"""Share of the requests that meet it meanwhile (0-1): a provider that answers nobody is soon asked nothing any more."""
SLOW_PIECES = 20
"""Of a reply that ``slow=`` spreads out."""
SUMMARY_S = 0.3
"""Before every summary: they take longer than a short answer, and what is done to the system shall find them at it."""
VERDICT_S = 0.1
"""Before every verdict, for the same reason."""
SUMMARY_FAULTS = 5
"""Times as often a request for a summary gets a fault: Loom tries most of them again, and does without only then."""


class ModelServer:
    """Answers requests and logs them."""

    def __init__(
        self,
        log: ModelLog,
        *,
        seed: int = 0,
        latency_s: float = 0.0,
        fault_rate: float = 0.0,
        faults: tuple[str, ...] = (),
        is_down_at_times: bool = False,
    ) -> None:
        """
        Args:
            latency_s: before every reply.
            fault_rate: share (0-1) of requests that get one of the faults.
            is_down_at_times: the Messages API serves hardly anybody every other DOWN_S; Chat Completions go on.
        """
        self._log = log
        self._seed, self._latency_s = seed, latency_s
        self._fault_rate, self._faults = fault_rate, faults
        self._is_down_at_times = is_down_at_times
        self._began_s: float | None = None
        self._asked: Counter[str] = Counter()

    async def answer(self, asked: Asked, connection: Connection) -> None:
        """Serve one request. Its end is logged however it ends, the client's going away included."""
        path = asked.path.split("?")[0]
        if asked.method != "POST" or path not in (MESSAGES, CHAT):
            refuse(connection, 404, "not_found_error")
            return
        body = sent = json.loads(asked.body)
        if path == CHAT:
            body = as_messages(sent)
        mark, script = _script(body)
        self._asked[script.mark] += 1
        request = Request(self._asked.total(), mark, self._asked[script.mark])
        self._log.began(request, body, connection=connection.number, at_s=asked.at_s)
        try:
            unfit = openai_server.complaint(sent) if path == CHAT else ""
            request.complaint = messages_rules.complaint(body) or unfit or None
            await self._respond(request, script, body, connection, path)
        finally:
            self._log.ended(request, at_s=request.ended_s or connection.gone_s or time.time())

    def _down(self, request: Request) -> str:
        """How the provider is down, if it is: for the second DOWN_S since it was first asked, the fourth…"""
        self._began_s = self._began_s or time.monotonic()
        stretch, is_down = divmod(int((time.monotonic() - self._began_s) / DOWN_S), 2)
        is_met = chance_of(self._seed, f"down {request.mark}", request.nth).random() < DOWN_RATE
        return DOWN[(stretch + self._seed) % len(DOWN)] if is_down and is_met else ""

    def gone(self, connection: Connection) -> None:
        """Log the end of a connection: the death of a client shows as the end of all of its connections."""
        self._log.closed(connection.number, at_s=connection.gone_s or time.time())

    async def _respond(self, request: Request, script: Script, body: Json, connection: Connection, path: str) -> None:
        if request.complaint is not None:
            request.status = 400
            refuse(connection, 400, "invalid_request_error", message=request.complaint)
            return
        rate = self._fault_rate * (SUMMARY_FAULTS if is_summary(body) else 1)
        request.fault = script.fault(request.nth, seed=self._seed, rate=rate, among=self._faults)
        if path == MESSAGES and self._is_down_at_times:
            request.fault = self._down(request) or request.fault
        if pause_s := self._latency_s + _own_pause_s(script, body):
            await asyncio.sleep(pause_s)
        reply = _reply(request, script, body)
        request.said, request.tokens = reply.text, reply.tokens
        saying = Saying(request, reply, connection, self._seed, chat_sse if path == CHAT else sse)
        if script.slow_s and not request.fault:
            await drip(saying, over_s=script.slow_s, pieces=SLOW_PIECES)
        else:
            await RESPOND[request.fault](saying)


def _script(body: Json) -> tuple[str, Script]:
    """The mark under which a request is logged, and its script, whose mark it is counted by."""
    if is_summary(body):
        key = part_of(body).key
        return key, Script(key)
    if is_judging(body):
        look = look_of(body)
        return look.mark, Script(f"judges of {look.mark}", judged=script_of(look.question).judged)
    script = script_of(newest_question(body), agent_of(body))
    return script.mark, script


def _own_pause_s(script: Script, body: Json) -> float:
    if is_summary(body):
        return SUMMARY_S
    return VERDICT_S if is_judging(body) else script.wait_s


def _reply(request: Request, script: Script, body: Json) -> SaidReply:
    if is_summary(body):
        return summary_for(request.number, body)
    if is_judging(body):
        return verdict_for(look_of(body), script.judged, request.number, body, fault=request.fault)
    return reply_for(script, request.nth, body, fault=request.fault)


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description="A Messages API on loopback that logs and misbehaves.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--latency-s", type=float, default=0.0)
    parser.add_argument("--fault-rate", type=float, default=0.0)
    parser.add_argument("--faults", default="", help=",".join(name for name in RESPOND if name))
    parser.add_argument("--down-at-times", action="store_true")
    given = parser.parse_args()
    faults = tuple(name for name in given.faults.split(",") if name)
    if unknown := set(faults) - set(RESPOND):
        parser.error(f"no such fault: {', '.join(sorted(unknown))}")
    server = ModelServer(
        ModelLog(Log(given.log)),
        seed=given.seed,
        latency_s=given.latency_s,
        fault_rate=given.fault_rate,
        faults=faults,
        is_down_at_times=given.down_at_times,
    )
    asyncio.run(serve(server.answer, port=given.port, on_gone=server.gone, is_listening=announce))


if __name__ == "__main__":
    main()
