"""Sessions with much behind them, and their tools called as a worker calls them."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count as numbers
from pathlib import Path
from typing import Any

from loom_worker.core.settings import Settings
from loom_worker.core.values.budgets import Reservation
from loom_worker.core.values.chat import ChatMessage, Reply, Role, ToolUse, Usage
from loom_worker.core.values.memory import MemoryState
from loom_worker.core.values.tools import Caller, Outcome, Tool
from loom_worker.llm.model import Model
from loom_worker.llm.rerank import Reranker
from loom_worker.memory.layers import Count
from loom_worker.memory.recall_tools import RecallParts, recall_tools
from loom_worker.store.database import Database
from loom_worker.store.journal import Journal
from loom_worker.store.memory import Memories, NewMemory
from loom_worker.store.search import Search
from loom_worker.store.sessions import Sessions
from loom_worker.tools.execution import call_tool
from loom_worker.tools.registry import Registry
from tests.support.models import Unpaid
from tests.unit.store.made import NOW_MS, WORKSPACE, final, held, message, running

_ids = numbers()


def words(text: str) -> int:
    """A count that tests can do in their head."""
    return len(text.split())


class Talk:
    """One session."""

    def __init__(self, database: Database, session: str = "s1", *, workspace: str = WORKSPACE) -> None:
        self.database, self.session, self.workspace = database, session, workspace
        self.memories, self.sessions = Memories(database), Sessions(database)
        self.ids: list[str] = []

    def say(self, *texts: str) -> None:
        """A turn in which these were said, the user first."""
        roles: tuple[Role, ...] = ("user", "assistant")
        self.tell(*(ChatMessage(roles[n % 2], text) for n, text in enumerate(texts)))

    def tell(self, *chats: ChatMessage) -> None:
        """A turn of these messages."""
        claim = running(self.database, self.session, workspace=self.workspace)
        said = tuple(message(next(_ids), claim, chat=chat) for chat in chats)
        Journal(self.database).finish(claim, final(said=said))
        self.ids += [each.id for each in said]

    @property
    def lane(self) -> str:
        return self.sessions.get(self.workspace, self.session).lane

    @property
    def caller(self) -> Caller:
        return Caller(self.lane, self.session, self.workspace, "turn_1", "toolu_1")

    def leave(self, most: int | None = None) -> None:
        """The oldest messages leave L1, all of them if no number is given."""
        page, _ = self.memories.page_from(self.lane, offset=0, limit=1000)
        kept = () if most is None else page[most:]
        before = held(self.database, self.lane).state
        after = replace(before, version=before.version + 1, first_n=kept[0].n if kept else page[-1].n + 1)
        assert self.memories.apply(self.lane, before, NewMemory(after), now_ms=NOW_MS)

    @property
    def state(self) -> MemoryState:
        return self.memories.load(self.lane, limit=0).state

    @property
    def kernel(self) -> dict[str, Any]:
        return self.sessions.get(self.workspace, self.session).kernel


class Till:
    """What was charged."""

    def __init__(self) -> None:
        self.charges: list[tuple[str, str, Usage]] = []

    def is_there(self, lane: str) -> bool:
        return True

    def on_budget(self, model: Model, caller: Caller) -> Unpaid:
        return Unpaid(model)

    def charge(self, caller: Caller, reply: Reply, held: Sequence[Reservation]) -> None:
        self.charges.append((caller.lane, reply.model, reply.usage))


@dataclass(frozen=True, slots=True)
class Told:
    """A session that was made once: the file of its database, and the ids of its messages."""

    file: Path
    ids: tuple[str, ...]

    @classmethod
    def told(cls, file: Path, tell: Callable[[Database], Talk]) -> "Told":
        """Made in a database that is empty so far."""
        database = Database(f"sqlite:///{file}", sync="normal")
        talk = tell(database)
        database.close()  # the last connection brings the log into the file
        return cls(file, tuple(talk.ids))

    def copied_to(self, settings: Settings, database: Database) -> Talk:
        """The same session in a database that nobody has opened so far."""
        shutil.copy(self.file, settings.home / "loom.db")
        talk = Talk(database)
        talk.ids += self.ids
        return talk


def apples(database: Database) -> Talk:
    """Forty turns about apples that have left L1."""
    talk = Talk(database)
    for n in range(40):
        talk.say(f"apple number {n}" + " and so on" * 100, f"apple answer {n}")
    talk.leave()
    return talk


def questions(database: Database) -> Talk:
    """Ten turns about apples and pears."""
    talk = Talk(database)
    for n in range(10):
        talk.say(f"question {n} about apple{n}", f"answer {n} about pear{n}")
    return talk


def parts(
    database: Database,
    *,
    rerank: Reranker | None = None,
    count: Count = words,
    recalled: int = 1000,
    kernel: int = 1000,
    answer: int = 100_000,
    has_swap: bool = True,
) -> RecallParts:
    """What the tools work with, budgets in words."""
    return RecallParts(
        memories=Memories(database),
        search=Search(database),
        sessions=Sessions(database),
        rerank=rerank,
        count=count,
        recalled_budget_tokens=recalled,
        kernel_budget_tokens=kernel,
        answer_tokens=answer,
        has_swap=has_swap,
    )


def tool(name: str, given: RecallParts) -> Tool:
    """The tool of that name."""
    return next(each for each in recall_tools(given) if each.spec.name == name)


def outcome(talk: Talk, name: str, given: RecallParts, /, **arguments: Any) -> Outcome:
    """What a call gives; its arguments are checked as a model's are."""
    flaw = Registry(recall_tools(given)).prepared(ToolUse("toolu_1", name, arguments)).error
    assert flaw is None, flaw
    return call_tool(tool(name, given), arguments, talk.caller, timeout_s=30.0, pool=None, max_bytes=1_000_000)


def answer(talk: Talk, name: str, given: RecallParts, /, **arguments: Any) -> dict[str, Any]:
    """What a call that goes well answers."""
    done = outcome(talk, name, given, **arguments)
    assert done.status == "completed", done
    read: dict[str, Any] = json.loads(done.content)
    return read
