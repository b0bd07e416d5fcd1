"""All that a client can ask, on a real database; what goes out is kept in lists."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loom_worker.agents import load as agent_files
from loom_worker.core import redis_client
from loom_worker.core.errors import Conflict, Fenced, Invalid, LoomError, NotFound, ProviderFailed
from loom_worker.core.settings import WebhookSettings
from loom_worker.core.values.sessions import NewSession, SessionPatch
from loom_worker.core.values.turns import NewTurn, Retry, Turn
from loom_worker.core.values.webhooks import Webhook
from loom_worker.lanes.lanes import Lanes
from loom_worker.lanes.live_waits import LiveWaits
from loom_worker.service.service import Service
from loom_worker.service.waiting.reports import WaitReports
from loom_worker.service.waiting.waiter import TurnWaiter
from loom_worker.store.trace_outbox import TraceOutbox
from loom_worker.store.turns import TurnStatuses
from tests.support.models import says, wants
from tests.support.out import Out
from tests.support.stage import WORKSPACE, Stage
from tests.support.system import PLAIN


def a_service(stage: Stage, out: Out, lanes: Lanes | None = None) -> Service:
    return Service(
        stage.settings,
        database=stage.database,
        lanes=lanes or stage.lanes,
        waiter=TurnWaiter(
            stage.turns,
            stage.events,
            WaitReports(stage.turns, LiveWaits(stage.redis), agent_files.load(None)),
            TurnStatuses(stage.database),
        ),
        agents=agent_files.load(None),
        parts=out.parts(),
    )


@pytest.fixture
def service(stage: Stage, out: Out) -> Iterator[Service]:
    made = a_service(stage, out)
    with closing(made.waiter):
        yield made


def submit(service: Service, text: str = "How many?", *, session: str = "s1", **new: Any) -> Turn:
    return service.submit(WORKSPACE, session, NewTurn(text, **new), agent=None)[0]


def test_an_accepted_turn_is_stored_and_then_announced(service: Service, out: Out) -> None:
    turn = submit(service)
    assert out.announced == [turn] == [service.turn(WORKSPACE, turn.id)]


def test_a_repeated_request_gives_the_same_turn_and_announces_nothing(service: Service, out: Out) -> None:
    new = NewTurn("How many?", idempotency_key="k", fingerprint="f")
    first, _ = service.submit(WORKSPACE, "s1", new, agent=None)
    again, is_replay = service.submit(WORKSPACE, "s1", new, agent=None)
    assert (again.id, is_replay, len(out.announced)) == (first.id, True, 1)


def test_an_idempotency_key_with_another_request_is_refused(service: Service, out: Out) -> None:
    submit(service, idempotency_key="k", fingerprint="f")
    with pytest.raises(Invalid) as caught:
        submit(service, "Other?", idempotency_key="k", fingerprint="g")
    assert (caught.value.slug, len(out.announced)) == ("idempotency-mismatch", 1)


def test_an_unknown_agent_is_refused_before_anything_is_stored(service: Service, out: Out) -> None:
    with pytest.raises(Invalid, match="no agent 'ghost'; there are: default"):
        service.submit(WORKSPACE, "s1", NewTurn("?"), agent="ghost")
    with pytest.raises(Invalid):
        service.create_session(WORKSPACE, NewSession(id="s1", agent="ghost"))
    assert out.announced == []
    with pytest.raises(NotFound):
        service.sessions.get(WORKSPACE, "s1")


def test_a_turn_for_another_agent_than_its_sessions_is_refused_and_announced_to_nobody(
    stage: Stage, out: Out, tmp_path: Path
) -> None:
    (tmp_path / "careful.yaml").write_text(PLAIN.format(name="careful"))
    service = Service(
        stage.settings,
        database=stage.database,
        lanes=stage.lanes,
        waiter=TurnWaiter(
            stage.turns,
            stage.events,
            WaitReports(stage.turns, LiveWaits(stage.redis), agent_files.load(tmp_path)),
            TurnStatuses(stage.database),
        ),
        agents=agent_files.load(tmp_path),
        parts=out.parts(),
    )
    turn = submit(service)
    with pytest.raises(Invalid) as caught:
        service.submit(WORKSPACE, "s1", NewTurn("?"), agent="careful")
    assert (caught.value.slug, out.announced) == ("agent-mismatch", [turn])
    service.create_session(WORKSPACE, NewSession(id="s2"))
    assert service.submit(WORKSPACE, "s2", NewTurn("?"), agent="careful")[0].agent == "careful"
    assert service.sessions.get(WORKSPACE, "s2").agent == "careful"


FOREIGN: dict[str, Callable[[Service, str, str], object]] = {
    "session": lambda service, turn, delivery: service.sessions.get("other", "s1"),
    "patch": lambda service, turn, delivery: service.patch_session("other", "s1", SessionPatch(title="x")),
    "delete": lambda service, turn, delivery: service.delete_session("other", "s1"),
    "turn": lambda service, turn, delivery: service.turn("other", turn),
    "wait, events": lambda service, turn, delivery: service.waiter.source.look("other", turn),
    "turns": lambda service, turn, delivery: service.turns("other", session_id="s1", limit=9, after=None),
    "messages": lambda service, turn, delivery: service.messages.page("other", "s1", limit=9, after=None),
    "search": lambda service, turn, delivery: service.search.session("other", "s1", "mine", limit=9),
    "snapshots": lambda service, turn, delivery: service.memories.snapshots("other", "s1", limit=9, after=None),
    "replay": lambda service, turn, delivery: service.replay_delivery("other", delivery),
}


@pytest.mark.parametrize("question", FOREIGN)
def test_what_belongs_to_another_workspace_is_not_found(
    stage: Stage, service: Service, out: Out, question: str
) -> None:
    turn = stage.answered(says("Mine."), webhook=Webhook("https://example.org/hook"))
    with pytest.raises(NotFound):
        FOREIGN[question](service, turn.id, stage.book.delivered[0])
    assert (out.woken, out.delivered) == ([], [])
    assert service.sessions.get(WORKSPACE, "s1").title is None


def test_what_was_said_is_found_by_what_was_asked(stage: Stage, service: Service) -> None:
    turn = stage.answered(says("The keys are under the mat."))
    [answer, question] = service.search.session(WORKSPACE, "s1", "Where's the key?", limit=9)
    assert (answer.turn_id, answer.role, answer.snippet) == (turn.id, "assistant", "The keys are under the mat.")
    assert question.role == "user"
    assert answer.score > question.score > 0


def test_lists_of_another_workspace_are_empty(stage: Stage, service: Service) -> None:
    stage.answered(says("Mine."), webhook=Webhook("https://example.org/hook"))
    assert service.turns("other", limit=9, after=None).items == ()
    assert service.sessions.page("other", limit=9, after=None).items == ()
    assert service.outbox.page("other", limit=9, after=None).items == ()
    assert service.usage("other", group_by="session") == ()
    assert service.queue_stats("other")["lanes"] == 0


def test_a_session_that_is_active_again_goes_on_with_its_queue(service: Service, out: Out) -> None:
    submit(service)
    service.patch_session(WORKSPACE, "s1", SessionPatch(status="paused"))
    assert out.woken == []
    session = service.patch_session(WORKSPACE, "s1", SessionPatch(status="active"))
    assert out.woken == [session.lane]


def test_an_idle_session_is_not_rung_for(service: Service, out: Out) -> None:
    service.create_session(WORKSPACE, NewSession(id="s1"))
    service.patch_session(WORKSPACE, "s1", SessionPatch(status="active"))
    assert out.woken == []


def test_an_archived_session_takes_no_turn(service: Service, out: Out) -> None:
    service.create_session(WORKSPACE, NewSession(id="s1"))
    service.patch_session(WORKSPACE, "s1", SessionPatch(status="archived"))
    with pytest.raises(Conflict):
        submit(service)
    assert out.announced == []


def test_a_deleted_session_leaves_nothing_in_redis(stage: Stage, service: Service, out: Out) -> None:
    ended = stage.answered(says("Hello."))
    turn = stage.submit()
    service.delete_session(WORKSPACE, "s1")
    assert stage.redis.zscore("loom:leases", turn.lane) is None
    assert stage.lane_state(turn) is None
    for deleted in (ended, turn):
        assert stage.redis.exists(f"loom:events:{deleted.id}", f"loom:end:{deleted.id}") == 0
        with pytest.raises(Fenced):
            stage.events.append(deleted.id, [("tool_call.completed", {})], least=0)
    with pytest.raises(NotFound):
        service.turn(WORKSPACE, turn.id)


def test_a_session_is_deleted_while_redis_is_down(stage: Stage, out: Out, tmp_path: Path) -> None:
    client = redis_client.client(f"unix://{tmp_path}/none", connections=4)
    service = a_service(stage, out, Lanes(client, stage.settings.lanes))
    stage.submit()
    service.delete_session(WORKSPACE, "s1")
    with pytest.raises(NotFound):
        service.sessions.get(WORKSPACE, "s1")


def test_a_replayed_delivery_is_sent_at_once(stage: Stage, service: Service, out: Out) -> None:
    stage.answered(says("Mine."), webhook=Webhook("https://example.org/hook"))
    [delivery] = service.outbox.page(WORKSPACE, limit=9, after=None).items
    assert service.replay_delivery(WORKSPACE, delivery.id).status == "pending"
    assert out.delivered == [delivery.id]


@pytest.mark.parametrize("webhook", [Webhook("http://127.0.0.1/x"), Webhook("ftp://example.org"), Webhook("no url")])
def test_a_webhook_that_would_never_be_served_is_refused(service: Service, webhook: Webhook) -> None:
    with pytest.raises(Invalid) as caught:
        service.check_webhook(webhook)
    assert caught.value.slug == "webhook-url-refused"


def test_a_webhook_secret_that_is_none_is_refused(stage: Stage, out: Out) -> None:
    stage.settings = replace(stage.settings, webhook=WebhookSettings(allow_private=True))
    service = a_service(stage, out)
    service.check_webhook(Webhook("http://127.0.0.1/x"))
    with pytest.raises(Invalid):
        service.check_webhook(Webhook("http://127.0.0.1/x", "not a secret"))


def test_usage_is_grouped_by_what_there_is(stage: Stage, service: Service) -> None:
    stage.answered(says("Mine."))
    [row] = service.usage(WORKSPACE, group_by="session")
    assert (row["key"], row["output_tokens"], row["turns"]) == ("s1", 5, 1)
    with pytest.raises(Invalid):
        service.usage(WORKSPACE, group_by="colour")


def test_turns_are_filtered_by_what_the_caller_names(service: Service) -> None:
    one, other = submit(service), submit(service, session="s2")
    page = service.turns(WORKSPACE, limit=9, after=None)
    assert [turn.id for turn in page.items] == [other.id, one.id]
    assert [t.id for t in service.turns(WORKSPACE, session_id="s1", limit=9, after=None).items] == [one.id]
    assert service.turns(WORKSPACE, status="completed", limit=9, after=None).items == ()


def test_the_queue_counts_turns_and_workers(service: Service) -> None:
    submit(service)
    submit(service)
    stats = service.queue_stats(WORKSPACE)
    assert (stats["lanes"], stats["queued"], stats["workers"]) == (1, 2, 2)


def test_agents_and_tools_are_shown(service: Service) -> None:
    assert [agent.name for agent in service.agents()] == ["default"]
    assert [tool.spec.name for tool in service.tools("acme", "default")] == ["add", "note"]


def test_a_closed_service_has_closed_what_it_holds(service: Service, out: Out) -> None:
    service.close()
    assert out.closed == 2  # the announcer and the components


def test_every_refusal_is_one_of_ours(service: Service) -> None:
    with pytest.raises(LoomError):
        service.messages.page(WORKSPACE, "nowhere", limit=1, after=None)


def failed(service: Service, stage: Stage, **new: Any) -> Turn:
    """A turn whose provider refuses it."""
    turn = submit(service, **new)
    stage.lanes.submit(turn.lane, [(turn.seq, turn.id)])
    stage.model.scenes = [[ProviderFailed("No such model.")]]
    return stage.serve(turn, stage.worker("w1"))


def test_a_cancelled_turn_that_nobody_began_is_told_of_at_once(service: Service, out: Out) -> None:
    turn = submit(service, webhook=Webhook("https://example.org/hook", "whsec_" + "x" * 32))
    ended = service.cancel(WORKSPACE, turn.id, "interrupt")
    assert (ended.status, out.finished, out.alerted) == ("cancelled", [ended], [])
    assert len(out.delivered) == 1
    assert service.cancel(WORKSPACE, turn.id, "rollback") == ended
    assert (len(out.finished), len(out.delivered)) == (1, 1)


@pytest.mark.parametrize(("endpoint", "waiting"), [("http://127.0.0.1:4318", 1), (None, 0)])
def test_the_trace_of_a_cancelled_turn_that_nobody_began_waits_where_traces_are_exported(
    stage: Stage, out: Out, endpoint: str | None, waiting: int
) -> None:
    stage.settings = replace(stage.settings, trace=replace(stage.settings.trace, endpoint=endpoint))
    service = a_service(stage, out)
    service.cancel(WORKSPACE, submit(service).id, "interrupt")
    assert TraceOutbox(stage.database).waiting() == waiting


def test_a_cancelled_turn_that_runs_is_alerted_once(service: Service, stage: Stage, out: Out) -> None:
    turn = submit(service)
    stage.lanes.submit(turn.lane, [(turn.seq, turn.id)])
    stage.model.scenes = [wants(("add", {"a": 1, "b": 2}))]
    stage.serve(turn, stage.worker("w1"))
    assert [service.cancel(WORKSPACE, turn.id, "interrupt").status for _ in range(2)] == ["in_progress"] * 2
    assert (out.alerted, out.finished) == ([turn.lane], [])


@pytest.mark.parametrize(("wish", "alerts"), [("enqueue", 0), ("interrupt", 1), ("rollback", 1)])
def test_only_a_message_that_overrules_alerts_the_busy_lane(service: Service, out: Out, wish: Any, alerts: int) -> None:
    submit(service)
    submit(service, "Another.", double_texting=wish)
    assert len(out.alerted) == alerts


def test_a_failed_turn_is_retried_as_a_new_one_at_the_tail(service: Service, stage: Stage, out: Out) -> None:
    hook = Webhook("https://example.org/hook", "whsec_" + "x" * 32)
    turn = failed(service, stage, webhook=hook, metadata={"a": 1}, max_attempts=2, deadline_s=1e8)
    again, is_replay = service.retry(WORKSPACE, turn.id, Retry(request_id="req_1"))
    assert (again.retry_of, again.seq, again.status, is_replay) == (turn.id, 2, "queued", False)
    assert (again.input, again.webhook, again.metadata, again.max_attempts) == (turn.input, hook, {"a": 1}, 2)
    assert again.deadline_ms == again.created_ms + 10**11
    assert out.announced[-1] == again
    assert service.turn(WORKSPACE, turn.id).status == "failed"


def test_a_retry_with_the_same_key_is_the_same_turn(service: Service, stage: Stage, out: Out) -> None:
    turn = failed(service, stage)
    wish = Retry(idempotency_key="k", fingerprint="f")
    first, second = service.retry(WORKSPACE, turn.id, wish), service.retry(WORKSPACE, turn.id, wish)
    assert (first[0].id, second[1]) == (second[0].id, True)
    assert len(out.announced) == 2
    with pytest.raises(Invalid):
        service.retry(WORKSPACE, turn.id, replace(wish, fingerprint="g"))


def test_only_a_failed_turn_can_be_retried(service: Service) -> None:
    turn = submit(service)
    with pytest.raises(Conflict) as caught:
        service.retry(WORKSPACE, turn.id, Retry())
    assert caught.value.slug == "not-retryable"


@pytest.mark.parametrize("ask", ["cancel", "retry"])
def test_a_turn_of_another_workspace_is_neither_cancelled_nor_retried(service: Service, ask: str) -> None:
    turn = submit(service)
    with pytest.raises(NotFound):
        service.cancel("other", turn.id, "interrupt") if ask == "cancel" else service.retry("other", turn.id, Retry())
    assert service.turn(WORKSPACE, turn.id).cancel is None
