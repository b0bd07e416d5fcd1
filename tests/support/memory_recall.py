"""What the service in memory remembers of a session beside its messages; small, and as strict as the real one."""

from collections.abc import Callable, Sequence

from loom_worker.core.errors import Flaw, Invalid
from loom_worker.core.values.json import Json
from loom_worker.core.values.memory import Snapshot
from loom_worker.core.values.pages import Page
from loom_worker.core.values.sessions import Message, Session
from tests.support.memory_parts import page_of

BUDGET_TOKENS = 1000
RECALL_TOKENS = 100


class Recollections:
    """Recalled messages and snapshots, by the session's lane."""

    def __init__(self, said: Callable[[Session], Sequence[Message]]) -> None:
        self._said = said
        self._recalled: dict[str, tuple[str, ...]] = {}
        self.kept: dict[str, list[Snapshot]] = {}
        """Snapshots, the newest first."""

    def recall(self, session: Session, message_ids: Sequence[str]) -> int:
        known = {message.id: message for message in self._said(session)}
        flaws = tuple(
            Flaw(f"/message_ids/{place}", f"the session has no message {name}")
            for place, name in enumerate(message_ids)
            if name not in known
        )
        if flaws:
            raise Invalid("The session has no such message.", flaws)
        wanted = tuple(dict.fromkeys((*self._recalled.get(session.lane, ()), *message_ids)))
        tokens = sum(known[name].token_count for name in wanted)
        if tokens > RECALL_TOKENS:
            raise Invalid(f"{tokens} tokens, {RECALL_TOKENS} may be recalled", (), "recall-budget-exceeded")
        self._recalled[session.lane] = wanted
        return tokens

    def clear(self, session: Session) -> None:
        self._recalled.pop(session.lane, None)

    def snapshots(self, session: Session, *, limit: int, after: str | None) -> Page[Snapshot]:
        return page_of(self.kept.get(session.lane, []), limit=limit, after=after, id_of=lambda item: item.id)

    def context(self, session: Session) -> Json:
        said = {message.id: message for message in self._said(session)}
        recalled = self._recalled.get(session.lane, ())
        tokens = {
            "tools": 200,
            "rom": 50,
            "kernel": 0,
            "l2": 0,
            "l1": sum(message.token_count for message in said.values()),
            "recalled": sum(said[name].token_count for name in recalled),
            "patterns": 10,
        }
        layers: Json = {name: {"tokens": n, "share": n / BUDGET_TOKENS} for name, n in tokens.items()}
        layers["l1"]["messages"], layers["recalled"]["messages"] = len(said), len(recalled)
        return {
            "object": "context",
            "session_id": session.id,
            "layers": layers,
            "input_budget_tokens": BUDGET_TOKENS,
            "used_tokens": sum(tokens.values()),
            "model": session.model or "scripted",
            "rom_digest": "0123456789abcdef",
            "agent_version": session.agent_version,
            "memory_version": len(self.kept.get(session.lane, [])),
        }
