"""Races: what each docstring says holds in every round, whoever comes first."""

from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import func, insert, select

from loom_worker.core.errors import BudgetSpent, Conflict, LoomError, Overruled, QueueFull
from loom_worker.core.settings import LimitSettings
from loom_worker.core.values.agent_versions import seen
from loom_worker.core.values.budgets import Account, Amount, Grant, Payer, Reservation, Settlement, ToolCallCount
from loom_worker.core.values.calls import Call
from loom_worker.core.values.decisions import Decision
from loom_worker.core.values.learned import LearnedLayer, NewVersion, Signature
from loom_worker.core.values.notifications import Delivery
from loom_worker.core.values.sessions import NewSession
from loom_worker.core.values.turns import Claim, Ending, NewTurn, Retry, Turn
from loom_worker.store.agent_messages import AgentMessages
from loom_worker.store.agent_versions import AgentVersions
from loom_worker.store.approvals import decide
from loom_worker.store.budgets import Budgets, settle
from loom_worker.store.calls import Calls
from loom_worker.store.cancel import Cancelled, cancel
from loom_worker.store.claims import Claims
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE, Lock
from loom_worker.store.journal import Entries, Journal
from loom_worker.store.learned import AgentOf, LearnedLayers
from loom_worker.store.ledger import Charge, Ledger
from loom_worker.store.schema import sessions, turns
from loom_worker.store.sessions import Sessions
from loom_worker.store.shared_memory import KeyWrite, Namespace, SharedMemory
from loom_worker.store.submit import retry, submit
from loom_worker.store.tables import spending
from loom_worker.store.workspaces import Workspaces
from tests.races.crew import Act, Round
from tests.support.agent_messages import message_of
from tests.unit.store.made import NOW_MS, PROGRESS, SPENT, WORKSPACE, call, claimed, final, running, submitted

LIMITS = LimitSettings()


def submitting(session: str, limits: LimitSettings = LIMITS, **new: Any) -> Act:
    """Submit a turn."""
    turn = NewTurn("hello", **new)
    return lambda database: submit(database, limits, (WORKSPACE, NewSession(id=session)), turn, now_ms=NOW_MS)[0]


def refusals(results: list[Any], kind: type[LoomError]) -> int:
    """How many of the results are errors of this kind."""
    return sum(isinstance(each, kind) for each in results)


def numbers(results: list[Any], name: str) -> list[Any]:
    """This attribute of the results that are no errors, in order."""
    return sorted(getattr(each, name) for each in results if not isinstance(each, Exception))


class ClaimOfALane:
    """Two workers claim one lane: no fence is given twice."""

    def __init__(self, database: Database) -> None:
        self.lane = submitted(database).lane

    def round(self, n: int) -> Round:
        def act(database: Database) -> Turn:
            return claimed(database, self.lane).turn

        return [act, act], lambda got: numbers(got, "fence") == [2 * n + 1, 2 * n + 2]


class CloseOfCalls:
    """The last two calls of a turn end: one of them, and one alone, sees that none is left, and wakes the turn."""

    def __init__(self, database: Database) -> None:
        self.claim, self.journal = running(database), Journal(database)

    def round(self, n: int) -> Round:
        calls = [call(position, status="running", worker="w") for position in (2 * n, 2 * n + 1)]
        self.journal.save(self.claim, Entries((), calls), PROGRESS)
        return [self._closing(each) for each in calls], lambda got: numbers(got, "under_way") == [0, 1]

    def _closing(self, ended: Call) -> Act:
        done = replace(ended, status="completed", content="4", finished_ms=NOW_MS)
        return lambda database: Calls(database).close(self.claim.turn.id, done)


class CompareAndSet:
    """Three agents set a key whose version they know: one does."""

    def __init__(self, _database: Database) -> None:
        self.namespace = Namespace(WORKSPACE, "AGENT", "a")

    def round(self, n: int) -> Round:
        def act(database: Database) -> int:
            change = KeyWrite("a", NOW_MS, expected_version=n)
            return SharedMemory(database).write(self.namespace, "k", n, change)

        return [act] * 3, lambda got: refusals(got, Conflict) == 2 and n + 1 in got


class RevisionOfANamespace:
    """Three keys of a namespace change: each change has a revision of its own, so that readers miss none."""

    def __init__(self, database: Database) -> None:
        self.namespace, self.memory = Namespace(WORKSPACE, "AGENT", "a"), SharedMemory(database)

    def round(self, n: int) -> Round:
        def act(key: str) -> Act:
            return lambda database: SharedMemory(database).write(self.namespace, key, n, KeyWrite("a", NOW_MS))

        def is_right(_: object) -> bool:
            changes = self.memory.changes(self.namespace, "", since=3 * n, limit=9).entries
            return [each.revision for each in changes] == [3 * n + 1, 3 * n + 2, 3 * n + 3]

        return [act("k"), act("l"), act("m")], is_right


class SubmitToANewSession:
    """Three turns begin a session: it is made once, and they stand in it without a gap."""

    def __init__(self, _database: Database) -> None:
        pass

    def round(self, n: int) -> Round:
        return [submitting(f"s{n}")] * 3, lambda got: numbers(got, "seq") == [1, 2, 3]


class SubmitToASession:
    """Three turns come to a session: they stand in it without a gap."""

    def __init__(self, database: Database) -> None:
        self.limits = replace(LIMITS, lane_depth=10_000)
        submitted(database)

    def round(self, n: int) -> Round:
        return [
            submitting("s1", self.limits)
        ] * 3, lambda got: numbers(got, "seq") == [3 * n + each for each in (2, 3, 4)]


class DepthOfALane:
    """Three turns come to a session that has room for two."""

    def __init__(self, database: Database) -> None:
        self.limits, self.sessions = replace(LIMITS, lane_depth=2), Sessions(database)

    def round(self, n: int) -> Round:
        self.sessions.create(WORKSPACE, NewSession(f"s{n}"), now_ms=NOW_MS)
        right = lambda got: refusals(got, QueueFull) == 1 and numbers(got, "seq") == [1, 2]  # noqa: E731
        return [submitting(f"s{n}", self.limits)] * 3, right


class UsageOfASession:
    """A turn ends while a summary and a late judge are charged: the session has used all three."""

    def __init__(self, database: Database) -> None:
        self.database, self.sessions = database, Sessions(database)

    def round(self, n: int) -> Round:
        claim = running(self.database)
        late = Charge(WORKSPACE, "s1", "default", "m", SPENT, kind="judge")

        def charge(database: Database) -> None:
            Ledger(database).charge(claim.turn.lane, late, now_ms=NOW_MS)

        def is_right(_: object) -> bool:
            return self.sessions.get(WORKSPACE, "s1").usage.llm_calls == 3 * (n + 1)

        return [lambda database: Journal(database).finish(claim, final()), charge, charge], is_right


class BudgetOfASession:
    """Three calls want two thirds of what a budget leaves: one is refused, whether its account is open or not."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def round(self, n: int) -> Round:
        known, new = n % 2, NewSession(f"s{n}", budget={"tool_calls": 2 + n % 2})
        payer = Payer(WORKSPACE, Sessions(self.database).create(WORKSPACE, new, now_ms=NOW_MS).lane, "default")

        def reserve(database: Database) -> Any:
            return Budgets(database).reserve(payer, ToolCallCount(1), now_ms=NOW_MS)

        for _ in range(known):
            reserve(self.database)
        return [reserve] * 3, lambda got: refusals(got, BudgetSpent) == 1


class BudgetOverSessions:
    """Turns of three sessions spend from an account that leaves two of them something: its row is locked."""

    def __init__(self, database: Database) -> None:
        self.database = database
        made = [NewSession(f"s{n}", budget={"tool_calls": 1_000}) for n in range(3)]
        self.lanes = [Sessions(database).create(WORKSPACE, new, now_ms=NOW_MS).lane for new in made]

    def round(self, n: int) -> Round:
        def reserving(lane: str) -> Act:
            payer = Payer(WORKSPACE, lane, f"agent{n}", {"tool_calls": 3})
            return lambda database: Budgets(database).reserve(payer, ToolCallCount(1), now_ms=NOW_MS)

        acts = [reserving(lane) for lane in self.lanes]
        acts[0](self.database)
        return acts, lambda got: refusals(got, BudgetSpent) == 1


class SettlementsOfSeveralAccounts:
    """Calls of four sessions had set something aside on one of two accounts, and are settled on both."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def round(self, n: int) -> Round:
        both = (Account("agent", f"agent{n}", ""), Account("workspace", f"w{n}", ""))
        with self.database.write(lock=WHOLE) as tx:
            rows = [asdict(each) | asdict(Amount(tokens=18)) | {"changed_ms": 1} for each in both]
            tx.execute(insert(spending), rows)

        def settling(at: int) -> Act:
            payer, held = Payer(f"w{n}", f"lane{at}", f"agent{n}"), (both[at % 2],)
            settlement = Settlement(payer, Amount(tokens=1), (Reservation(held, Grant(Amount(tokens=9)), NOW_MS),))

            def act(database: Database) -> None:
                with database.write(lock=Lock.lane(payer.lane)) as tx:
                    settle(tx, settlement, now_ms=NOW_MS)

            return act

        def is_right(got: list[Any]) -> bool:
            with self.database.read() as tx:
                left = tx.execute(select(spending.c.tokens).where(spending.c.key.in_([each.key for each in both])))
                return got == [None] * 4 and left.scalars().all() == [4, 4]

        return [settling(at) for at in range(4)], is_right


class DisableBesideAClaim:
    """A workspace is disabled while a turn is claimed: it does not begin, or is asked to end."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def round(self, n: int) -> Round:
        lane = submitted(self.database, workspace=f"w{n}").lane

        def claim(database: Database) -> Any:
            return Claims(database).claim(lane, worker="w", now_ms=NOW_MS)

        def disable(database: Database) -> None:
            Workspaces(database).patch(f"w{n}", {"disabled": True}, now_ms=NOW_MS)

        def is_right(got: list[Any]) -> bool:
            return not isinstance(got[0], Claim) or Claims(self.database).cancel_action(got[0]) is not None

        return [claim, disable], is_right


class ApprovalOfACall:
    """Two persons decide on a call: the second is told that it is decided."""

    def __init__(self, database: Database) -> None:
        self.claim, self.journal = running(database), Journal(database)

    def round(self, n: int) -> Round:
        asked = call(n, approval="waiting", sends=0, sent_ms=None)
        self.journal.save(self.claim, Entries((), [asked]), PROGRESS)

        def act(verdict: Any) -> Act:
            said = Decision(verdict)
            return lambda database: decide(database, WORKSPACE, self.claim.turn.id, asked.id, said, now_ms=NOW_MS)

        return [act("approve"), act("reject")], lambda got: refusals(got, Conflict) == 1


class CancelBesideAnEnd:
    """A turn is cancelled while it ends: either the end heeds it, or it is told that the turn has ended."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def round(self, n: int) -> Round:
        claim = running(self.database, f"s{n}")

        def is_right(got: list[Any]) -> bool:
            return isinstance(got[0], Overruled) == got[1].is_new

        return [lambda database: Journal(database).finish(claim, final()), cancelling(claim.turn)], is_right


class CancelBesideAClaim:
    """A queued turn is cancelled while a worker claims it: it ends at once, or its worker is asked to end it."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def round(self, n: int) -> Round:
        turn = submitted(self.database, f"s{n}")

        def is_right(got: list[Any]) -> bool:
            return isinstance(got[0], Claim) != got[1].turn.is_finished

        def claim(database: Database) -> Any:
            return Claims(database).claim(turn.lane, worker="w", now_ms=NOW_MS)

        return [claim, cancelling(turn)], is_right


def cancelling(turn: Turn) -> Act:
    """Cancel a turn at once."""

    def act(database: Database) -> Cancelled:
        return cancel(database, (WORKSPACE, turn.id), "interrupt", now_ms=NOW_MS, deliver=_no_delivery)

    return act


def _no_delivery(_turn: Turn) -> Delivery | None:
    return None


class RetryOfATurn:
    """A failed turn is sent again three times, twice with one key: as two turns, one behind the other."""

    def __init__(self, database: Database) -> None:
        claim = running(database)
        Journal(database).finish(claim, final(ending=Ending("failed", "dead")))
        self.turn, self.limits = claim.turn, replace(LIMITS, lane_depth=10_000)

    def round(self, n: int) -> Round:
        def act(key: str | None) -> Act:
            asked, of = Retry(key, "f" if key else None), (WORKSPACE, self.turn.id)
            return lambda database: retry(database, self.limits, of, asked, now_ms=NOW_MS)[0]

        first = 2 * n + 2
        return [act(f"k{n}"), act(f"k{n}"), act(None)], lambda got: set(numbers(got, "seq")) == {first, first + 1}


class KeyOverTwoSessions:
    """Requests of one idempotency key name two sessions: they get one turn. Its unique index sees to that, no lock."""

    def __init__(self, _database: Database) -> None:
        pass

    def round(self, n: int) -> Round:
        acts = [submitting(f"{name}{n}", idempotency_key=f"k{n}", fingerprint="f") for name in "ab"]
        return acts, lambda got: len(set(numbers(got, "id"))) == 1 and not refusals(got, LoomError)


class TakersOfMessages:
    """Two turns of an agent look for messages: each message goes to one of them."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.claims = [running(database, name) for name in ("s1", "s2")]

    def round(self, n: int) -> Round:
        for body in "ab":
            sent = message_of(self.claims[0].turn, body, to="default", at_ms=NOW_MS)
            AgentMessages(self.database).send(sent, lane=self.claims[0].turn.lane)

        def act(claim: Claim) -> Act:
            asks = call(n, awaits="messages", status="running")
            return lambda database: AgentMessages(database).take(claim, asks, scope="", limit=2, now_ms=NOW_MS)

        def is_right(got: list[Any]) -> bool:
            return sorted(each.body for taken in got for each in taken) == ["a", "b"]

        return [act(claim) for claim in self.claims], is_right


class VersionsOfALearnedLayer:
    """Two layers of one agent are imported, one of them twice: their numbers follow each other."""

    def __init__(self, database: Database) -> None:
        self.layers = LearnedLayers(database)

    def round(self, n: int) -> Round:
        agent = AgentOf(WORKSPACE, "default")

        def act(text: str) -> Act:
            new = NewVersion(LearnedLayer((Signature("self", text),), ()), "dspy", source="x")
            return lambda database: LearnedLayers(database).add(agent, new, now_ms=NOW_MS)[0]

        wanted = {2 * n + 1, 2 * n + 2}
        return [act(f"a{n}"), act(f"a{n}"), act(f"b{n}")], lambda got: set(numbers(got, "version")) == wanted


class VersionsOfAnAgent:
    """Three processes see that the file of an agent has changed: one of them stores that."""

    def __init__(self, database: Database) -> None:
        self.versions = AgentVersions(database)

    def round(self, n: int) -> Round:
        known, found = self.versions.newest(), [seen("a", "1", {"agent": {"name": "a", "system_prompt": str(n)}})]

        def act(database: Database) -> Any:
            return AgentVersions(database).record(found, known, now_ms=NOW_MS)

        return [act] * 3, lambda got: [each.n for stored in got for each in stored] == [n + 1]


class DeleteBesideSubmit:
    """A session is deleted while turns come to it: no turn waits in what is deleted."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def round(self, n: int) -> Round:
        submitted(self.database, f"s{n}")

        def delete(database: Database) -> None:
            Sessions(database).delete(WORKSPACE, f"s{n}")

        def is_right(got: list[Any]) -> bool:
            of = select(func.count()).select_from(turns.join(sessions, sessions.c.lane == turns.c.lane))
            with self.database.read() as tx:
                lost = tx.execute(of.where(sessions.c.workspace != WORKSPACE, turns.c.completed_ms.is_(None))).scalar()
            return not lost and not refusals(got, LoomError)

        return [delete, submitting(f"s{n}"), submitting(f"s{n}")], is_right
