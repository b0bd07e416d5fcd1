"""A call that a message spells out, ``convert {"amount": 5}``: users can try a tool of theirs without a model."""

import json
import re

from loom_worker.core.values.chat import Request
from loom_worker.core.values.json import Json
from loom_worker.demo.model import unfenced
from loom_worker.demo.questions.steps import Said, current

_CALL = re.compile(r"\s*([A-Za-z0-9_-]{1,64})\s+(\{.*\})\s*", re.DOTALL)
"""A tool's name and its arguments as a JSON object."""
_SHOWN_CHARS = 2_000
"""Of what a tool gave."""


def named_step(request: Request) -> Said | None:
    """The next step of a turn whose message is a call; None for any other turn."""
    question, outcomes = current(request.messages)
    call = _call(request, question.text)
    if call is None:
        return None
    outcome = next((each for each in reversed(outcomes) if each.name == call[0]), None)
    if outcome is not None:
        return Said(f"{call[0]} {'failed' if outcome.is_error else 'gave'}: {unfenced(outcome.content)[:_SHOWN_CHARS]}")
    if not request.may_call_tools:
        return Said(f"I may call no more tools in this turn, so {call[0]} was not called.")
    return Said(f"I call {call[0]}, as you say.", (call,))


def _call(request: Request, text: str) -> tuple[str, Json] | None:
    found = _CALL.fullmatch(text)
    if found is None or all(found[1] != tool.name for tool in request.tools):
        return None
    try:
        arguments = json.loads(found[2])
    except ValueError:
        return None
    return (found[1], arguments) if isinstance(arguments, dict) else None
