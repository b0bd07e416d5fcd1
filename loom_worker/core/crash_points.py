"""Named places at which a process can be made to die, so that what is promised there can be tried.

``LOOM_CRASHPOINTS=turn.claimed,llm.streaming*3`` kills, with SIGKILL, the first process that reaches the one place and
the first three that reach the other; each death leaves a file in ``<home>/crashes``. Unset, ``reached`` is a look into
an empty mapping.
"""

import os
import signal
from collections.abc import Mapping
from pathlib import Path

POINTS = {
    "web.received": "a turn was checked, nothing is written",
    "web.file_stored": "the bytes of a file that came with it are stored, its row is not",
    "web.committed": "its row is committed, nothing is sent",
    "web.answering": "it is announced, the 202 is not sent",
    "turn.received": "a worker has received a wake-up",
    "turn.leased": "it holds the lane's lease",
    "turn.claimed": "the claim is committed",
    "turn.built": "the model's context is built",
    "llm.sent": "the request is under way to the model",
    "llm.streaming": "the first words of a reply are there",
    "turn.replied": "the reply is complete, the journal does not have it",
    "turn.journaled": "the journal has it",
    "turn.fanning_out": "the first of several tool calls is sent",
    "tool.claimed": "a tool call is claimed, the tool has not run",
    "tool.ran": "the tool has run, its result is not stored",
    "tool.journaled": "the result is stored, nobody is woken",
    "children.accepted": "turns of other agents are accepted for calls, they are on no lane",
    "child.ended": "a turn that another one waits for has ended, that one is not woken",
    "messages.taken": "messages for an agent are taken for a call, which does not have them",
    "judge.claimed": "a verdict is claimed, the judge has not looked",
    "judge.scored": "a judge has looked and was paid for, its verdict is not stored",
    "judge.stored": "the verdict is stored, nobody is woken",
    "form.checked": "it is known whether the answer has its form, the journal does not know it",
    "judge.concluded": "all verdicts on an answer are there, the journal does not have what they come to",
    "turn.waking": "a chord's body came, the lane is not woken",
    "turn.ending": "the turn is about to be ended",
    "turn.committing": "the transaction that ends it is open",
    "turn.ended": "it is committed, nothing is sent",
    "summary.claimed": "a session's memory is claimed, to be compressed",
    "summary.made": "a summary is written, the memory does not have it",
    "summary.applied": "the memory has it, the claim is not given back",
    "summary.embedded": "the vectors of some messages are there and paid for, nothing of them is stored",
    "run.accepting": "a run, its first turns and their sessions are written, the transaction is open",
    "run.committing": "what follows in a run is written, the transaction is open",
    "run.advanced": "it is committed, the new turns are on no lane, nobody is told",
    "schedule.claiming": "what a due time begins is written, the time is not taken, the transaction is open",
    "schedule.claimed": "both are written, the transaction is open",
    "schedule.begun": "it is committed, nobody is told",
    "webhook.sent": "a webhook is delivered, the outbox does not know",
}
"""Every point, with what is true there."""

_armed: dict[str, int] = {}
_folder = Path()


def arm(points: Mapping[str, int], folder: Path) -> None:
    """Let this process die at these points.

    Args:
        points: each with the number of processes to die there, over all that share the folder.
        folder: keeps one file a death; made if it is missing.
    """
    global _folder  # one a process, like the process that dies
    _armed.clear()
    _armed.update(points)
    _folder = folder
    if points:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def reached(point: str) -> None:
    """Say that this thread is at a point; does not return if the process is to die there."""
    if point in _armed:
        _die(point)


def is_armed(point: str) -> bool:
    """True if a process may die there, for what is worth doing only then."""
    return point in _armed


def _die(point: str) -> None:
    for n in range(_armed.get(point, 0)):  # another thread may just have found that all its deaths are used up
        try:
            handle = os.open(_folder / f"{point}.{n}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            continue
        os.write(handle, str(os.getpid()).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    _armed.pop(point, None)
