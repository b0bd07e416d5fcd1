import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import pytest

from loom_worker.core.errors import Conflict, Invalid, QueueFull
from loom_worker.core.settings import LimitSettings
from loom_worker.core.values.sessions import NewSession, SessionPatch
from loom_worker.core.values.turns import NewTurn, Turn
from loom_worker.core.values.webhooks import Webhook
from loom_worker.store.database import Database
from loom_worker.store.journal import Journal
from loom_worker.store.sessions import Sessions
from loom_worker.store.submit import submit
from tests.support.at_once import at_once
from tests.unit.store.made import NOW_MS, WORKSPACE, claimed, counts, final, submitted


def test_the_first_turn_makes_its_session_and_stands_at_its_head(database: Database) -> None:
    turn = submitted(database)
    session = Sessions(database).get(WORKSPACE, "s1")
    assert (turn.seq, turn.position, turn.status, turn.lane) == (1, 0, "queued", session.lane)
    assert (session.queue_depth, session.is_busy) == (1, False)


def test_turns_of_a_session_are_numbered_and_know_their_place(database: Database) -> None:
    turns = [submitted(database) for _ in range(3)]
    assert [(turn.seq, turn.position) for turn in turns] == [(1, 0), (2, 1), (3, 2)]


def test_numbers_go_on_after_turns_have_ended(database: Database) -> None:
    first = submitted(database)
    Journal(database).finish(claimed(database, first.lane), final())
    assert (submitted(database).seq, submitted(database).position) == (2, 1)


def test_sixteen_threads_leave_no_gap_and_no_double_in_the_numbers(database: Database) -> None:
    seqs = at_once(lambda _: [submitted(database).seq for _ in range(6)], range(16))
    assert sorted(chain.from_iterable(seqs)) == list(range(1, 97))


def test_every_field_of_a_turn_comes_back_as_it_was_given(database: Database) -> None:
    new = NewTurn(
        input="Grüße 🌍",
        webhook=Webhook("https://example.com", "whsec_x"),
        deadline_s=1.5,
        max_attempts=7,
        metadata={"k": [1, None, "é"]},
        budget={"max_cost_usd": 1},
        traceparent=f"00-{'a' * 32}-{'b' * 16}-01",
        request_id="req1",
    )
    turn, _ = submit(database, LimitSettings(), (WORKSPACE, NewSession(id="s1", agent="a")), new, now_ms=NOW_MS)
    assert (turn.input, turn.webhook, turn.max_attempts) == (new.input, new.webhook, 7)
    assert (turn.metadata, turn.budget, turn.request_id) == (new.metadata, new.budget, "req1")
    assert (turn.deadline_ms, turn.trace_id, turn.agent) == (NOW_MS + 1500, "a" * 32, "a")
    assert claimed(database, turn.lane).turn.input == new.input


def by_agent(database: Database, agent: str | None, **new: Any) -> Turn:
    session = (WORKSPACE, NewSession(id="s1", agent=agent))
    return submit(database, LimitSettings(), session, NewTurn("x", **new), now_ms=NOW_MS)[0]


def test_a_session_keeps_the_agent_of_its_first_turn_and_a_turn_for_another_is_refused(database: Database) -> None:
    assert [by_agent(database, agent).agent for agent in ("first", None, "first")] == ["first"] * 3
    before = counts(database)
    with pytest.raises(Invalid, match=r"agent 'first'.*names 'second'") as refused:
        by_agent(database, "second")
    assert (refused.value.slug, refused.value.flaws[0].pointer) == ("agent-mismatch", "/agent")
    assert counts(database) == before


def test_a_turn_that_names_nobody_makes_the_session_the_default_agents(database: Database) -> None:
    assert by_agent(database, None).agent == "default"
    with pytest.raises(Invalid):
        by_agent(database, "second")


@pytest.mark.parametrize(("made_with", "taken"), [(None, "second"), ("first", "first"), ("default", "default")])
def test_a_session_that_was_made_without_an_agent_takes_that_of_its_first_turn(
    database: Database, made_with: str | None, taken: str
) -> None:
    sessions = Sessions(database)
    assert sessions.create(WORKSPACE, NewSession("s1", agent=made_with), now_ms=NOW_MS).agent == (
        made_with or "default"
    )
    if made_with is None:
        assert by_agent(database, "second").agent == taken
    else:
        with pytest.raises(Invalid):
            by_agent(database, "second")
    assert by_agent(database, None).agent == sessions.get(WORKSPACE, "s1").agent == taken


def test_tools_that_were_chosen_before_the_first_turn_are_of_the_default_agent(database: Database) -> None:
    sessions = Sessions(database)
    sessions.create(WORKSPACE, NewSession("s1"), now_ms=NOW_MS)
    sessions.patch(WORKSPACE, "s1", SessionPatch(tools=("add",)), now_ms=NOW_MS)
    with pytest.raises(Invalid):
        by_agent(database, "second")
    assert by_agent(database, "default").agent == "default"


def test_of_first_turns_for_different_agents_at_the_same_time_one_agents_win(database: Database) -> None:
    start = threading.Barrier(6)

    def race(agent: str) -> str | None:
        start.wait()
        try:
            return by_agent(database, agent).agent
        except Invalid:
            return None

    with ThreadPoolExecutor(6) as pool:
        won = list(pool.map(race, ["one", "two"] * 3))
    assert len({agent for agent in won if agent}) == 1
    assert won.count(None) == 3


def test_a_repeated_key_gives_the_earlier_turn_whatever_agent_the_session_has(database: Database) -> None:
    first = by_agent(database, "first", idempotency_key="k", fingerprint="f")
    assert by_agent(database, "second", idempotency_key="k", fingerprint="f").id == first.id


def test_a_repeated_key_gives_the_earlier_turn_and_stores_nothing(database: Database) -> None:
    first = submitted(database, idempotency_key="k", fingerprint="f")
    before = counts(database)
    again, is_replay = _keyed(database, "k", "f")
    assert (again.id, is_replay, counts(database)) == (first.id, True, before)


def test_a_repeated_key_shows_the_turn_as_it_is_by_now(database: Database) -> None:
    first = submitted(database, idempotency_key="k", fingerprint="f")
    Journal(database).finish(claimed(database, first.lane), final())
    assert _keyed(database, "k", "f")[0].status == "completed"


def test_a_key_with_another_request_is_refused(database: Database) -> None:
    submitted(database, idempotency_key="k", fingerprint="f")
    with pytest.raises(Invalid) as refused:
        _keyed(database, "k", "other")
    assert refused.value.slug == "idempotency-mismatch"


def test_two_workspaces_use_the_same_key_and_session_without_meeting(database: Database) -> None:
    first = submitted(database, idempotency_key="k", fingerprint="f")
    other = submitted(database, workspace="other", idempotency_key="k", fingerprint="f")
    assert other.id != first.id
    assert other.lane != first.lane
    assert other.seq == 1


def test_of_many_requests_with_one_key_one_makes_the_turn(database: Database) -> None:
    found = at_once(lambda _: _keyed(database, "k", "f"), range(8))
    assert len({turn.id for turn, _ in found}) == 1
    assert [is_replay for _, is_replay in found].count(False) == 1


def test_an_archived_session_takes_no_turn_but_answers_an_earlier_key(database: Database) -> None:
    first = submitted(database, idempotency_key="k", fingerprint="f")
    Sessions(database).patch(WORKSPACE, "s1", SessionPatch(status="archived"), now_ms=NOW_MS)
    with pytest.raises(Conflict) as refused:
        submitted(database)
    assert refused.value.slug == "session-archived"
    assert _keyed(database, "k", "f")[0].id == first.id


def test_a_client_that_wants_the_lane_idle_is_refused_while_it_is_busy(database: Database) -> None:
    first = submitted(database, double_texting="reject")
    with pytest.raises(Conflict) as refused:
        submitted(database, double_texting="reject")
    assert refused.value.slug == "lane-busy"
    Journal(database).finish(claimed(database, first.lane), final())
    assert submitted(database, double_texting="reject").seq == 2


def test_a_full_lane_refuses_and_a_finished_turn_makes_room(database: Database) -> None:
    limits = LimitSettings(lane_depth=2)
    first = _within(database, limits, "s1")
    _within(database, limits, "s1")
    with pytest.raises(QueueFull) as refused:
        _within(database, limits, "s1")
    assert refused.value.args[1] > 0
    Journal(database).finish(claimed(database, first.lane), final())
    assert _within(database, limits, "s1").seq == 3


def test_a_full_workspace_refuses_and_the_new_session_is_not_made(database: Database) -> None:
    limits = LimitSettings(workspace_depth=2)
    for session in ("s1", "s2"):
        _within(database, limits, session)
    before = counts(database)
    with pytest.raises(QueueFull):
        _within(database, limits, "s3")
    assert counts(database) == before
    assert submit(database, limits, ("other", NewSession(id="s3")), NewTurn("x"), now_ms=NOW_MS)[0].seq == 1


def test_a_refused_turn_uses_up_no_number(database: Database) -> None:
    limits = LimitSettings(lane_depth=1)
    first = _within(database, limits, "s1")
    with pytest.raises(QueueFull):
        _within(database, limits, "s1")
    Journal(database).finish(claimed(database, first.lane), final())
    assert _within(database, limits, "s1").seq == 2


@pytest.mark.parametrize(
    ("budget", "is_spent"), [({"tokens": 15}, True), ({"tokens": 16}, False), ({"usd": 0.25}, True)]
)
def test_a_session_that_has_spent_its_budget_takes_no_turn(
    database: Database, budget: dict[str, float], is_spent: bool
) -> None:
    Journal(database).finish(claimed(database, submitted(database).lane), final())
    Sessions(database).patch(WORKSPACE, "s1", SessionPatch(budget=budget), now_ms=NOW_MS)
    if not is_spent:
        assert submitted(database).seq == 2
        return
    before = counts(database)
    with pytest.raises(QueueFull) as refused:
        submitted(database)
    assert (refused.value.slug, counts(database)) == ("budget-exceeded", before)


def _keyed(database: Database, key: str, fingerprint: str) -> tuple[Turn, bool]:
    new = NewTurn("hello", idempotency_key=key, fingerprint=fingerprint)
    return submit(database, LimitSettings(), (WORKSPACE, NewSession(id="s1")), new, now_ms=NOW_MS)


def _within(database: Database, limits: LimitSettings, session: str) -> Turn:
    return submit(database, limits, (WORKSPACE, NewSession(id=session)), NewTurn("x"), now_ms=NOW_MS)[0]
