"""How the front reaches what is built elsewhere."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loom_worker.core.values.blobs import DataReference
from loom_worker.core.values.chat import ToolUse
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Tool
from loom_worker.core.values.turns import Turn
from loom_worker.service.pattern_catalog import PatternCatalog


@dataclass(frozen=True, slots=True)
class Outward:
    """How the front reaches what is built elsewhere: workers, agents' agent runtimes, memory.

    What tells or rings returns at once; what asks may read the database.
    """

    announce: Callable[[Turn], None]
    """Put an accepted turn on its lane and ring."""
    wake_lane: Callable[[str], None]
    """Make a lane go on whose session is active again."""
    alert: Callable[[str], None]
    """Have a lane's running turn looked at anew."""
    ended: Callable[[Turn], None]
    """Tell readers of a turn that ended without a worker."""
    webhook_body: Callable[[Turn], str]
    """What a webhook says of a finished turn."""
    deliver: Callable[[str], None]
    """Send a delivery now."""
    problems: Callable[[], tuple[str, ...]]
    """What is missing before a turn could be answered."""
    workers: Callable[[], int]
    """How many are alive."""
    tools: Callable[[str], tuple[Tool, ...]]
    """An agent's, by its name, which is known; LoomError if the agent cannot work."""
    prepared: Callable[[str, ToolUse], tuple[Json, str | None]]
    """(agent's name, use) to the arguments as the tool takes them, and why it would not."""
    open_blob: Callable[[str, str], tuple[DataReference, bytes]]
    """(workspace, reference) to a large result, whole and verified; NotFound."""
    context: Callable[[str, str], Json]
    """(workspace, session id) to what the model would be sent now; NotFound."""
    recall: Callable[[str, str, Sequence[str]], int]
    """(workspace, session id, message ids): put them into the context; tokens of all recalled. NotFound, Invalid."""
    clear_recalled: Callable[[str, str], object]
    """(workspace, session id); NotFound."""
    check_kernel: Callable[[str, Json], None]
    """(agent's name, kernel): raise Invalid if it is larger than its share."""
    check_fits: Callable[[str, str, str, str], None]
    """(workspace, session id, agent's name if the session is new, message): raise Invalid if it can never be sent."""
    patterns: PatternCatalog
    metrics: Callable[[], Json]
    """Figures over all workspaces, as ``web.metrics`` names them."""
    close: Callable[[], None]
