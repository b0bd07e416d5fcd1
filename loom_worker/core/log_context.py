"""What a thread works on: its ids are on each line that it logs meanwhile, also on those of libraries.

They follow from the entry point (a request, a task, a turn that was claimed), so no call that logs need name them.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from types import MappingProxyType

from loom_worker.core.values.spans import span_id_of
from loom_worker.core.values.tools import Caller
from loom_worker.core.values.turns import Turn

Ids = Mapping[str, object]
"""Name (of ``logs.IDS``) to id; one that is None is left out."""

_IDS: ContextVar[Ids] = ContextVar("ids of log lines", default=MappingProxyType({}))


def ids() -> Ids:
    """Those of what this thread works on now."""
    return _IDS.get()


def begin(found: Ids) -> None:
    """Forget what this thread worked on before: from now on it works on this. For the first line of an entry point.

    Nothing ends it but the next one: what a server or Celery logs of a request or a task once it is over has its ids.
    """
    _IDS.set(_given(found))


def add(found: Ids) -> None:
    """The same, in addition to what it works on already: for ids that an entry point learns later."""
    _IDS.set({**_IDS.get(), **_given(found)})


@contextmanager
def about(found: Ids) -> Iterator[None]:
    """The same for as long as the block lasts."""
    token = _IDS.set({**_IDS.get(), **_given(found)})
    try:
        yield
    finally:
        _IDS.reset(token)


def turn_ids(turn: Turn, *part: str) -> dict[str, object]:
    """The ids of a line about a turn, or a part of one as ``span_id_of`` names it.

    The request is not among them: a line is about the one that is served, which need not be the one that made the turn.
    """
    owner = {"session": turn.session_id, "turn": turn.id, "lane": turn.lane}
    return {**owner, **trace_ids(turn.trace_id, turn.id, *part)}


def caller_ids(caller: Caller, *part: str) -> dict[str, object]:
    """The ids of a line about what is done on behalf of a turn, such as a tool call.

    Args:
        part: its span, see ``span_id_of``.
    """
    owner = {"session": caller.session_id, "turn": caller.turn_id, "lane": caller.lane}
    call = {"call": caller.call_id} if part[:1] == ("tool",) else {}
    return {**owner, **call, **trace_ids(caller.trace_id, caller.turn_id, *part)}


def trace_ids(trace_id: str | None, turn_id: str, *part: str) -> dict[str, object]:
    """What leads from a line to a span: 32 and 16 hexadecimal digits, as W3C Trace Context has them."""
    return _given({"trace_id": trace_id, "span_id": span_id_of(turn_id, *part)})


def inherited(action: Callable[[], object]) -> Callable[[], object]:
    """The same action, for another thread: what it logs there has the ids of this one."""
    return partial(copy_context().run, action)


def _given(found: Ids) -> dict[str, object]:
    return {name: value for name, value in found.items() if value is not None}
