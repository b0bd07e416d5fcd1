"""What tool calls of the service in memory leave behind and wait for: errors, large results, a person's word; and what
they know, the patterns."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from loom_worker.core.errors import Conflict, Flaw, Invalid, NotFound
from loom_worker.core.values.pages import Page
from loom_worker.core.values.tools import DataReference, ErrorFilter, StoredError
from loom_worker.core.values.turns import Call, Decision, Turn
from loom_worker.service.pattern_catalog import PatternCatalog
from tests.support.memory_parts import page_of
from tests.support.memory_patterns import MemoryPatterns


@dataclass(kw_only=True)
class Leftovers:
    """Errors, large results and patterns, as the tests put them there."""

    kept_errors: list[StoredError] = field(default_factory=list)
    kept_blobs: dict[str, tuple[DataReference, bytes]] = field(default_factory=dict)
    library: MemoryPatterns = field(default_factory=MemoryPatterns)

    @property
    def patterns(self) -> PatternCatalog:
        return self.library.catalog()

    def errors(self, workspace: str, wanted: ErrorFilter, *, limit: int, after: str | None) -> Page[StoredError]:
        mine = [error for error in reversed(self.kept_errors) if error.workspace == workspace and _fits(error, wanted)]
        return page_of(mine, limit=limit, after=after, id_of=lambda error: error.id)

    def error(self, workspace: str, error_id: str) -> StoredError:
        for error in self.kept_errors:
            if (error.workspace, error.id) == (workspace, error_id):
                return error
        raise NotFound("no such error")

    def blob(self, workspace: str, ref: str) -> tuple[DataReference, bytes]:
        found = self.kept_blobs.get(ref)
        if found is None or found[0].workspace != workspace:
            raise NotFound("no such result")
        return found


@dataclass
class Decisions:
    """Decides on calls of turns that somebody else keeps."""

    turn: Callable[[str, str], Turn]
    """(workspace, turn id) to the turn; NotFound."""
    put: Callable[[Turn], None]

    def decide(self, workspace: str, turn_id: str, call_id: str, decision: Decision) -> Turn:
        turn = self.turn(workspace, turn_id)
        call = next((call for call in turn.calls if call.id == call_id), None)
        if call is None:
            raise NotFound("no such tool call")
        if call.approval is None:
            raise Conflict(f"the call {call_id} needs no approval", "not-waiting")
        if not call.is_waiting or turn.is_finished:
            raise Conflict(f"the call {call_id} is already decided", "already-decided")
        decided = _decided(call, decision)
        self.put(replace(turn, calls=tuple(decided if each.id == call_id else each for each in turn.calls)))
        return self.turn(workspace, turn_id)


def _decided(call: Call, decision: Decision) -> Call:
    if decision.verdict == "approve":
        return replace(call, approval="approved")
    if decision.verdict == "reject":
        why = f": {decision.reason}" if decision.reason else "."
        return replace(call, approval="rejected", status="denied", content=f"Denied by a person{why}")
    given = decision.arguments or {}
    if given.keys() != call.arguments.keys():
        raise Invalid("the tool does not take these", (Flaw("/arguments", f"needed: {sorted(call.arguments)}"),))
    return replace(call, approval="edited", arguments=given)


def _fits(error: StoredError, wanted: ErrorFilter) -> bool:
    return (
        wanted.session_id in (None, error.session_id)
        and wanted.tool in (None, error.tool_name)
        and (wanted.since_ms is None or error.at_ms >= wanted.since_ms)
        and (wanted.until_ms is None or error.at_ms < wanted.until_ms)
    )
