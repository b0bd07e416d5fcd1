"""Which tools a request shows the model. Pure: the same session and turn give the same tools.

A large window shows all of them always, so that they stay a prefix the provider has cached. In a small one those that
can be of no use yet come when they can: the reading of references once there is one, the search once something has
left the context. A tool that is not shown can be called all the same.
"""

from collections.abc import Iterator, Sequence

from loom_worker.core.values.chat import ChatMessage, ToolOutcome, ToolSpec
from loom_worker.core.values.memory import Remembered
from loom_worker.core.values.tools import Occasion
from loom_worker.memory.results import references
from loom_worker.tools.more import asked_for
from loom_worker.turn.runtime import AgentRuntime


def offered(runtime: AgentRuntime, remembered: Remembered, current: Sequence[ChatMessage]) -> tuple[ToolSpec, ...]:
    """The tools to be shown, in the order of the agent runtime's.

    Args:
        current: the running turn; what has come up in it counts from its next call on.
    """
    if not runtime.late:
        return runtime.specs
    chats = [*(message.chat for message in remembered.history), *current]
    outcomes = [outcome for chat in chats for outcome in chat.outcomes]
    come, asked = frozenset(_come(remembered, outcomes)), asked_for(chats)
    return tuple(
        spec
        for spec in runtime.specs
        if runtime.late.get(spec.name, "always") in ("always", *come) or spec.name in asked
    )


def _come(remembered: Remembered, outcomes: Sequence[ToolOutcome]) -> Iterator[Occasion]:
    memory = remembered.state
    if memory.first_n or memory.promoted:
        yield "earlier"
    if memory.refs or any(references(outcome.content) for outcome in outcomes):
        yield "reference"
    if any(outcome.is_error and "err_" in outcome.content for outcome in outcomes):
        yield "error"
