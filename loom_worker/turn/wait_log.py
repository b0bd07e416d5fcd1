"""A line in the log for a turn that leaves its worker to wait for tools or a person; the model's are ModelWatch's."""

import logging
from collections.abc import Sequence

from loom_worker.core.values.turns import Call
from loom_worker.turn.model_watch import QUIET_MS
from loom_worker.turn.runtime import Execution
from loom_worker.turn.state import TurnState

log = logging.getLogger(__name__)


def tell(work: TurnState, execution: Execution, *, now_ms: int) -> None:
    """Say once for each reply that a person is asked, and once that its tools take long.

    Args:
        work: about to be saved and parked.
    """
    asked = [call for call in work.unsaved_calls if call.is_waiting]
    if asked:
        _warn(work, f"waiting for a person to decide on {_names(asked)}")
    late = [call for call in work.open_calls if now_ms - (call.started_ms or call.sent_ms or now_ms) >= QUIET_MS]
    if late and execution.worker.waits.is_first(work.turn, late[0].reply_n):
        _warn(work, f"waiting for tools for over {QUIET_MS // 1000} s: {_names(late)}")


def _names(calls: Sequence[Call]) -> str:
    return ", ".join(sorted({call.name for call in calls}))


def _warn(work: TurnState, text: str) -> None:
    turn = work.turn
    log.warning("%s", text, extra={"session": turn.session_id, "turn": turn.id, "request": turn.request_id})
