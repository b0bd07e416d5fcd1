"""Messages between agents: sent once, received in order, given back where a turn fails, dead in the end."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from loom_worker.core.errors import Conflict, Invalid, QueueFull
from loom_worker.core.values.agent_messages import KINDS, MOST_ATTEMPTS, POLICIES, TTL_MS, AgentMessage, is_by_reference
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Caller
from loom_worker.core.values.turns import Turn
from loom_worker.store import agent_messages
from loom_worker.store.agent_messages import AgentMessages
from loom_worker.tools.agent_tools import MessageParts, Peers, agent_tools
from loom_worker.tools.registry import Registry
from loom_worker.turn.entrypoints import serve_lane
from tests.support.models import Killed, says, wants
from tests.support.stage import START_MS, WORKSPACE, Stage

RECEIVE = ("receive_messages", {})


class Woken(list[str]):
    """Lanes that were to be woken."""

    wake_waiting = list.append


@pytest.fixture
def woken() -> Woken:
    return Woken()


@pytest.fixture
def queue(stage: Stage, woken: Woken, monkeypatch: pytest.MonkeyPatch) -> AgentMessages:
    """The queues; all agents of the stage may send to its agent, whose name is default."""
    monkeypatch.setattr("loom_worker.tools.agent_tools.now_ms", lambda: stage.now_ms)
    messages = AgentMessages(stage.database)
    parts = MessageParts(messages, stage.references, woken, 10_240)
    stage.registry = Registry((*stage.tools(), *agent_tools(Peers({"default": ""}, is_called=True), parts)))
    return messages


def send(text: str = "Hello.", **more: object) -> tuple[str, Json]:
    return ("send_agent", {"agent": "default", "message": text, **more})


def sent(stage: Stage, *calls: tuple[str, Json], session: str = "sender", **new: object) -> Turn:
    """A completed turn that has sent messages, each in a reply of its own."""
    turn = stage.answered(
        *(wants(call, first_id=n) for n, call in enumerate(calls)),
        says("Sent."),
        text="Tell them.",
        session=session,
        **new,
    )
    assert [call.status for call in turn.calls] == ["completed"] * len(calls)
    return turn


def received(turn: Turn, n: int = 0) -> list[str]:
    content = turn.calls[n].content or ""
    return [] if content == "No messages." else [each["message"] for each in json.loads(content)]


def reads(stage: Stage, session: str = "reader", *, by: str = "w2", **new: object) -> Turn:
    """A turn that reads its messages and is completed."""
    stage.model.scenes = [wants(RECEIVE), says("Read.")]
    return stage.serve(stage.submit("Any news?", session=session, **new), stage.worker(by))  # type: ignore[arg-type]


def states(queue: AgentMessages) -> list[str]:
    return [each.status for each in queue.page(WORKSPACE, agent=None, status=None, limit=50, after=None).items]


def test_messages_are_read_once_and_in_the_order_they_came(stage: Stage, queue: AgentMessages) -> None:
    turn = sent(stage, send("one"), send("two", in_reply_to="amsg_x"))
    read = reads(stage)
    assert received(read) == ["one", "two"]
    assert stage.live(read) == stage.rebuilt(read)
    first, second = json.loads(read.calls[0].content or "")
    assert (first["from"], first["kind"], second["in_reply_to"]) == ("default", "message", "amsg_x")
    assert first["id"] == json.loads(turn.calls[0].content or "")["sent"]
    queue.settle(now_ms=stage.now_ms, kept_since_ms=0)
    assert states(queue) == ["done", "done"]
    assert received(reads(stage)) == []


def test_messages_whose_taker_died_before_its_call_had_them_are_read_by_the_turn_that_goes_on(
    stage: Stage, queue: AgentMessages, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = died_with_what_it_took(stage, monkeypatch)
    stage.alive.clear()
    stage.lapse(turn)
    stage.lanes.expired(limit=9)
    stage.model.scenes = [says("Read.")]
    assert received(stage.serve(turn, stage.worker("w2"))) == ["one"]


def test_a_message_whose_call_runs_again_is_sent_once(stage: Stage, queue: AgentMessages) -> None:
    turn = sent(stage, send("one"))
    tool = stage.registry.get("send_agent")
    assert tool is not None
    caller = Caller(turn.lane, turn.session_id, WORKSPACE, turn.id, turn.calls[0].id)
    assert tool.run(turn.calls[0].arguments, caller) == json.loads(turn.calls[0].content or "")
    assert len(states(queue)) == 1


def test_a_turn_waits_for_messages_without_a_worker_and_is_woken_by_the_first(
    stage: Stage, queue: AgentMessages, woken: Woken
) -> None:
    waiting = stage.answered(wants(("receive_messages", {"wait_s": 60})), session="reader", by=stage.worker("w2"))
    assert (waiting.calls[0].status, waiting.held_by) == ("running", None)
    sent(stage, send("at last"))
    assert woken == [waiting.lane]
    assert stage.claims.awaited_lanes(now_ms=stage.now_ms, limit=9) == (waiting.lane,)
    stage.lanes.alert(waiting.lane)
    stage.model.scenes = [says("Good.")]
    assert received(stage.serve(waiting, stage.worker("w2"))) == ["at last"]


def test_a_turn_waits_for_messages_as_long_as_it_said(stage: Stage, queue: AgentMessages) -> None:
    waiting = stage.answered(wants(("receive_messages", {"wait_s": 5})), session="reader", by=stage.worker("w2"))
    stage.now_ms += 5_000
    stage.lanes.alert(waiting.lane)
    stage.model.scenes = [says("Nothing came.")]
    done = stage.serve(waiting, stage.worker("w2"))
    assert (done.status, done.calls[0].content) == ("completed", "No messages.")


def test_messages_of_a_turn_that_is_not_completed_are_given_to_the_next_one_and_die_in_the_end(
    stage: Stage, queue: AgentMessages
) -> None:
    sent(stage, send("one"))
    for attempt in range(1, MOST_ATTEMPTS + 1):
        stage.model.scenes = [wants(RECEIVE), wants(("add", {"a": 1, "b": 2}), first_id=9)]
        turn = stage.serve(stage.submit(session=f"reader{attempt}"), stage.worker("w2"))
        assert received(turn) == ["one"]
        stage.cancel(turn, "interrupt")
        stage.serve(turn, stage.worker("w2"))
    queue.settle(now_ms=stage.now_ms, kept_since_ms=0)
    (dead,) = queue.page(WORKSPACE, agent="default", status="dead", limit=9, after=None).items
    assert (dead.reason, dead.attempts) == ("attempts", MOST_ATTEMPTS)
    assert received(reads(stage)) == []
    queue.replay(WORKSPACE, dead.id, now_ms=stage.now_ms)
    assert received(reads(stage)) == ["one"]
    with pytest.raises(Conflict, match="not dead"):
        queue.replay(WORKSPACE, dead.id, now_ms=stage.now_ms)


def test_a_turn_that_is_taken_up_again_has_the_messages_it_took(stage: Stage, queue: AgentMessages) -> None:
    sent(stage, send("one"))
    turn = stage.submit(session="reader")
    worker = stage.worker("w2")
    claim = stage.claims.claim(turn.lane, worker="w2", now_ms=stage.now_ms)
    stage.model.scenes = [wants(RECEIVE), says("Read.")]
    assert not isinstance(claim, agent_messages.AgentMessages)
    taken = [queue.take(claim, _call(), scope="", limit=9, now_ms=stage.now_ms) for _ in range(2)]  # type: ignore[arg-type]
    assert taken[0] == taken[1]
    assert [message.attempts for message in taken[0]] == [1]
    del worker


def _call() -> object:
    from loom_worker.core.values.calls import Call

    return Call("c1", "receive_messages", {}, 0, 0)


def test_a_message_that_nobody_takes_is_dead_after_a_day(stage: Stage, queue: AgentMessages) -> None:
    sent(stage, send("one"))
    queue.settle(now_ms=START_MS + TTL_MS - 1, kept_since_ms=0)
    assert states(queue) == ["queued"]
    queue.settle(now_ms=START_MS + TTL_MS, kept_since_ms=0)
    (dead,) = queue.page(WORKSPACE, agent=None, status="dead", limit=9, after=None).items
    assert dead.reason == "expired"
    assert queue.settle(now_ms=START_MS + TTL_MS + 1, kept_since_ms=START_MS + TTL_MS + 1) == 1
    assert states(queue) == []


def test_users_do_not_read_each_others_messages(stage: Stage, queue: AgentMessages) -> None:
    sent(stage, send("to ann's agents"), user="ann", session="a1")
    assert received(reads(stage, "b1", user="bob")) == []
    assert received(reads(stage, "n1")) == []
    assert received(reads(stage, "a2", user="ann")) == ["to ann's agents"]


def test_a_deleted_session_takes_its_messages_with_it(stage: Stage, queue: AgentMessages) -> None:
    sent(stage, send("one"))
    stage.sessions.delete(WORKSPACE, "sender")
    assert received(reads(stage)) == []


def test_an_agent_has_only_so_many_messages(
    stage: Stage, queue: AgentMessages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_messages, "MOST_QUEUED", 1)
    turn = sent(stage, send("one"))
    new = AgentMessage("amsg_2", "default", "x", "s", turn.id, "message", "two", 0, 1, workspace=WORKSPACE)
    with pytest.raises(QueueFull, match="1 messages wait for 'default'"):
        queue.send(new, lane=turn.lane)


def test_a_long_message_is_passed_on_as_a_reference_that_its_receiver_can_read(
    stage: Stage, queue: AgentMessages
) -> None:
    whole = "A long line of words.\n" * 1000
    sent(stage, send(whole))
    (message,) = queue.page(WORKSPACE, agent=None, status=None, limit=9, after=None).items
    assert message.ref is not None
    assert message.ref in message.body
    assert len(message.body) < 1000
    rows = stage.references.stores.rows
    stranger = stage.submit(session="stranger")
    assert rows.of_lane(message.ref, stranger.lane) is None
    read = reads(stage)
    assert rows.of_lane(message.ref, read.lane) is not None
    assert rows.of_lane(message.ref, stranger.lane) is None


def test_what_a_message_passes_on_is_kept_as_long_as_nobody_has_dealt_with_it(
    stage: Stage, queue: AgentMessages
) -> None:
    sent(stage, send("state", kind="session_state"))
    late = START_MS * 2
    assert stage.references.stores.rows.take_expired(unused_since_ms=late, limit=9) == ()
    reads(stage)
    queue.settle(now_ms=stage.now_ms, kept_since_ms=0)
    assert len(stage.references.stores.rows.take_expired(unused_since_ms=late, limit=9)) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_message_has_its_policy(kind: str) -> None:
    ways = {
        "value": (False, False),
        "reference": (True, True),
        "by_size": (False, True),
    }
    found = tuple(is_by_reference(kind, size, most_bytes=10) for size in (9, 10))  # type: ignore[arg-type]
    assert found == ways[POLICIES[kind]]  # type: ignore[index]


def test_a_control_message_is_never_a_reference_and_so_not_long(stage: Stage, queue: AgentMessages) -> None:
    done = stage.answered(wants(send("x" * 70_000, kind="control")), says("Too long."), session="sender")
    assert done.calls[0].status == "failed"
    assert "at most 65,536 bytes" in (done.calls[0].content or "")


def test_pages_go_on_where_they_ended(stage: Stage, queue: AgentMessages) -> None:
    sent(stage, *(send(str(n)) for n in range(3)))
    first = queue.page(WORKSPACE, agent="default", status="queued", limit=2, after=None)
    rest = queue.page(WORKSPACE, agent="default", status="queued", limit=2, after=first.next)
    assert [each.body for each in (*first.items, *rest.items)] == ["2", "1", "0"]
    assert rest.next is None
    with pytest.raises(Invalid):
        queue.page(WORKSPACE, agent=None, status=None, limit=2, after="amsg_x")
    assert queue.counts() == {"queued": 3, "taken": 0, "done": 0, "dead": 0}


def test_a_long_text_is_cut_in_lists() -> None:
    message = AgentMessage("amsg_1", "a", "b", "s", "t", "message", "x" * 100_000, 0, 1)
    assert message.brief().is_cut
    short = replace(message, body="x")
    assert short.brief() == short


def test_a_message_that_a_completed_turn_has_read_is_done_though_its_session_is_deleted(
    stage: Stage, queue: AgentMessages
) -> None:
    sent(stage, send("one"))
    assert received(reads(stage)) == ["one"]
    stage.sessions.delete(WORKSPACE, "reader")
    while stage.sessions.purge():
        pass
    queue.settle(now_ms=stage.now_ms, kept_since_ms=0)
    assert states(queue) == ["done"]


def test_what_a_dead_message_passes_on_is_kept_as_long_as_it_may_be_queued_again(
    stage: Stage, queue: AgentMessages
) -> None:
    sent(stage, send("state", kind="session_state"))
    queue.settle(now_ms=START_MS + TTL_MS, kept_since_ms=0)
    assert states(queue) == ["dead"]
    rows = stage.references.stores.rows
    assert rows.take_expired(unused_since_ms=START_MS * 2, limit=9) == ()
    queue.settle(now_ms=START_MS + TTL_MS, kept_since_ms=START_MS * 2)
    assert len(rows.take_expired(unused_since_ms=START_MS * 2, limit=9)) == 1


def test_a_message_that_its_turn_took_and_never_read_is_given_to_the_next_one(
    stage: Stage, queue: AgentMessages, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = died_with_what_it_took(stage, monkeypatch)
    stage.alive.clear()
    stage.lapse(turn)
    stage.lanes.expired(limit=9)
    stage.cancel(turn, "finish")
    stage.model.scenes = [says("Nothing was read.")]
    done = stage.serve(turn, stage.worker("w2"))
    assert (done.status, done.calls[0].status) == ("completed", "cancelled")
    queue.settle(now_ms=stage.now_ms, kept_since_ms=0)
    assert received(reads(stage, "next")) == ["one"]


def died_with_what_it_took(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Turn:
    """A turn whose owner died after it had taken a message, and before its call had it."""
    sent(stage, send("one"))
    stage.model.scenes = [wants(RECEIVE)]
    turn = stage.submit("Any news?", session="reader")
    with monkeypatch.context() as patch:
        patch.setattr("loom_worker.turn.children.crash_points.reached", killed_at("messages.taken"))
        with pytest.raises(Killed):
            serve_lane(turn.lane, stage.worker("w1"))
    return turn


def killed_at(point: str) -> Callable[[str], None]:
    """Lets a process die at a crash point."""

    def reached(other: str) -> None:
        if other == point:
            raise Killed

    return reached
