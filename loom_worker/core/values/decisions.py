"""What a person says to a tool call that waits for one."""

from dataclasses import dataclass
from typing import Literal

from loom_worker.core.values.json import Json
from loom_worker.core.values.tenants import LOCAL, Actor

ApprovalVerdict = Literal["approve", "reject", "edit"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person says to a call."""

    verdict: ApprovalVerdict
    arguments: Json | None = None
    """Arguments of an edited call: all of them, in place of those the model gave."""
    reason: str | None = None
    """Why it is rejected; the model reads it."""
    by: Actor = LOCAL
