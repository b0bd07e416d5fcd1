"""All that a client can ask, on a real database; what goes out is kept in lists."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loom_worker.agents import load as agent_files
from loom_worker.core import redis_client
from loom_worker.core.errors import Fenced, Invalid, NotFound, ProviderFailed
from loom_worker.core.settings_tree import WebhookSettings
from loom_worker.core.values.sessions import NewSession, SessionPatch
from loom_worker.core.values.turns import NewTurn, Retry, Turn
from loom_worker.core.values.webhooks import Webhook
from loom_worker.lanes.lanes import Lanes
from loom_worker.service.service import Service
from loom_worker.store.trace_outbox import TraceOutbox
from tests.support.models import says, wants
from tests.support.out import Out
from tests.support.stage import WORKSPACE, Stage
from tests.support.system import PLAIN


@pytest.fixture
def service(stage: Stage, out: Out) -> Iterator[Service]:
    made = out.service(stage)
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
    service = out.service(stage, agent_files.load(tmp_path))
    turn = submit(service)
    with pytest.raises(Invalid) as caught:
        service.submit(WORKSPACE, "s1", NewTurn("?"), agent="careful")
    assert (caught.value.slug, out.announced) == ("agent-mismatch", [turn])
    service.create_session(WORKSPACE, NewSession(id="s2"))
    assert service.submit(WORKSPACE, "s2", NewTurn("?"), agent="careful")[0].agent == "careful"
    assert service.sessions.get(WORKSPACE, "s2").agent == "careful"


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
    service = out.service(stage, lanes=Lanes(client, stage.settings.lanes))
    stage.submit()
    service.delete_session(WORKSPACE, "s1")
    with pytest.raises(NotFound):
        service.sessions.get(WORKSPACE, "s1")


@pytest.mark.parametrize("webhook", [Webhook("http://127.0.0.1/x"), Webhook("ftp://example.org"), Webhook("no url")])
def test_a_webhook_that_would_never_be_served_is_refused(service: Service, webhook: Webhook) -> None:
    with pytest.raises(Invalid) as caught:
        service.check_webhook(webhook)
    assert caught.value.slug == "webhook-url-refused"


def test_a_webhook_secret_that_is_none_is_refused(stage: Stage, out: Out) -> None:
    stage.settings = replace(stage.settings, webhook=WebhookSettings(allow_private=True))
    service = out.service(stage)
    service.check_webhook(Webhook("http://127.0.0.1/x"))
    with pytest.raises(Invalid):
        service.check_webhook(Webhook("http://127.0.0.1/x", "not a secret"))


def test_a_closed_service_has_closed_what_it_holds(service: Service, out: Out) -> None:
    service.close()
    assert out.closed == 2  # the announcer and the components


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
    service = out.service(stage)
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
