import pytest

from loom_worker.core.errors import Fenced
from loom_worker.core.values.sessions import Choice, SessionPatch, SessionStatus
from loom_worker.core.values.turns import Claim, Step
from loom_worker.store.claims import Claims, Idle, OpenLane
from loom_worker.store.database import Database
from loom_worker.store.journal import Entries, Journal
from loom_worker.store.sessions import Sessions
from loom_worker.store.turns import Turns
from tests.support.at_once import at_once
from tests.unit.store.made import NOW_MS, PROGRESS, WORKSPACE, call, claimed, final, running, submitted


def test_the_turn_with_the_lowest_seq_is_claimed_first(database: Database) -> None:
    turns = [submitted(database) for _ in range(3)]
    order = []
    for _ in turns:
        claim = claimed(database, turns[0].lane)
        order.append(claim.turn.id)
        Journal(database).finish(claim, final())
    assert order == [turn.id for turn in turns]
    assert Claims(database).claim(turns[0].lane, worker="w", now_ms=NOW_MS) is Idle.EMPTY


def test_an_unfinished_turn_is_claimed_again_before_the_next_one(database: Database) -> None:
    first, _ = submitted(database), submitted(database)
    claim = claimed(database, first.lane)
    Claims(database).release(claim, run_ms=1)
    assert claimed(database, first.lane).turn.id == first.id


def test_a_claim_is_in_progress_and_started_once(database: Database) -> None:
    claim = running(database)
    assert (claim.turn.status, claim.turn.started_ms, claim.turn.attempt) == ("in_progress", NOW_MS + 10, 1)
    again = Claims(database).claim(claim.turn.lane, worker="w2", now_ms=NOW_MS + 5_000)
    assert isinstance(again, Claim)
    assert again.turn.started_ms == NOW_MS + 10


def test_every_claim_raises_the_fence(database: Database) -> None:
    lane = submitted(database).lane
    assert [claimed(database, lane).turn.fence for _ in range(3)] == [1, 2, 3]


def test_an_owner_that_died_is_charged(database: Database) -> None:
    lane = submitted(database).lane
    assert [claimed(database, lane).turn.deaths for _ in range(3)] == [0, 1, 2]


def test_a_claim_is_ours_until_another_worker_claims_the_turn_or_it_ends(database: Database) -> None:
    claims, first = Claims(database), running(database)
    assert claims.is_ours(first)
    second = claimed(database, first.turn.lane)
    assert (claims.is_ours(first), claims.is_ours(second)) == (False, True)
    Journal(database).finish(second, final())
    assert not claims.is_ours(second)


@pytest.mark.parametrize("how", ["park", "release", "save"])
def test_an_owner_that_let_go_is_not_charged(database: Database, how: str) -> None:
    claim = running(database)
    if how == "park":
        Claims(database).park(claim, until_ms=NOW_MS + 1_000, run_ms=7)
    elif how == "release":
        Claims(database).release(claim, run_ms=7)
    else:
        Journal(database).save(claim, Entries(), {**PROGRESS, "run_ms": 7, "held_by": None, "parked_until_ms": NOW_MS})
    again = claimed(database, claim.turn.lane)
    assert (again.turn.deaths, again.turn.run_ms) == (0, 7)


def test_a_step_that_was_saved_forgives_the_deaths_before_it(database: Database) -> None:
    lane = submitted(database).lane
    claims = [claimed(database, lane) for _ in range(3)]
    Journal(database).save(claims[-1], Entries((Step(1, "matched", {}),)), PROGRESS)
    assert claimed(database, lane).turn.deaths == 1


@pytest.mark.parametrize("status", ["paused", "archived"])
def test_a_session_that_is_not_active_does_not_begin_a_turn(database: Database, status: SessionStatus) -> None:
    lane = submitted(database).lane
    Sessions(database).patch(WORKSPACE, "s1", SessionPatch(status=status), now_ms=NOW_MS)
    assert Claims(database).claim(lane, worker="w", now_ms=NOW_MS) is Idle.PAUSED
    assert Claims(database).open_lanes(created_before_ms=NOW_MS + 1, limit=9) == ()
    Sessions(database).patch(WORKSPACE, "s1", SessionPatch(status="active"), now_ms=NOW_MS)
    assert claimed(database, lane).turn.fence == 1


def test_a_deadline_passes_also_while_the_session_is_paused(database: Database) -> None:
    lane = submitted(database, deadline_s=1.0).lane
    Sessions(database).patch(WORKSPACE, "s1", SessionPatch(status="paused"), now_ms=NOW_MS)
    claims = Claims(database)
    assert claims.claim(lane, worker="w", now_ms=NOW_MS + 999) is Idle.PAUSED
    assert claims.open_lanes(created_before_ms=NOW_MS + 999, limit=9) == ()
    assert claims.open_lanes(created_before_ms=NOW_MS + 1000, limit=9) == (lane,)
    assert isinstance(claims.claim(lane, worker="w", now_ms=NOW_MS + 1000), Claim)


def test_a_turn_that_began_goes_on_though_its_session_is_paused(database: Database) -> None:
    claim = running(database)
    Claims(database).release(claim, run_ms=1)
    Sessions(database).patch(WORKSPACE, "s1", SessionPatch(status="paused"), now_ms=NOW_MS)
    assert Claims(database).open_lanes(created_before_ms=NOW_MS + 1, limit=9) == (claim.turn.lane,)
    assert claimed(database, claim.turn.lane).turn.id == claim.turn.id


def test_an_unknown_lane_is_empty(database: Database) -> None:
    assert Claims(database).claim("nowhere", worker="w", now_ms=NOW_MS) is Idle.EMPTY
    assert Claims(database).open_lane("nowhere") == OpenLane("nowhere", (), None)


def test_a_claim_brings_what_the_session_has(database: Database) -> None:
    lane = submitted(database).lane
    patch = SessionPatch(model="m2", kernel={"name": "Ada"}, tools=("look",), backend="b.db")
    Sessions(database).patch(WORKSPACE, "s1", patch, now_ms=NOW_MS)
    claim = claimed(database, lane)
    assert claim.choice == Choice(model="m2", tools=("look",), backend="b.db")
    assert (claim.kernel, claim.rom, claim.user) == ({"name": "Ada"}, None, None)
    assert (claim.token_correction, claim.memory_seen) == (None, 0)
    Journal(database).finish(claim, final(rom="be kind", token_correction=1.25, memory_seen=3))
    submitted(database)
    second = claimed(database, lane)
    assert (second.rom, second.token_correction, second.memory_seen) == ("be kind", 1.25, 3)
    Journal(database).finish(second, final(rom="be rude"))
    assert Sessions(database).get(WORKSPACE, "s1").rom == "be kind"


def test_a_second_owner_finds_the_journal_of_the_first(database: Database) -> None:
    claim = running(database)
    steps = (Step(1, "matched", {"a": [1]}), Step(2, "reply", {"text": "é"}))
    Journal(database).save(claim, Entries(steps, (call(0), call(1))), PROGRESS)
    again = claimed(database, claim.turn.lane)
    assert again.steps == steps
    assert again.turn.calls == (call(0), call(1))


@pytest.mark.parametrize("act", ["save", "finish", "park", "release", "send"])
def test_a_stale_claim_writes_nothing(database: Database, act: str) -> None:
    from loom_worker.store.calls import Calls

    stale = running(database)
    current = claimed(database, stale.turn.lane, "w2")
    acts = {
        "save": lambda claim: Journal(database).save(claim, Entries((Step(1, "matched", {}),)), PROGRESS),
        "finish": lambda claim: Journal(database).finish(claim, final()),
        "park": lambda claim: Claims(database).park(claim, until_ms=NOW_MS, run_ms=1),
        "release": lambda claim: Claims(database).release(claim, run_ms=1),
        "send": lambda claim: Calls(database).send(claim, (call(0),), now_ms=NOW_MS),
    }
    before = Turns(database).get(WORKSPACE, stale.turn.id)
    with pytest.raises(Fenced):
        acts[act](stale)
    assert Turns(database).get(WORKSPACE, stale.turn.id) == before
    assert Turns(database).with_journal(WORKSPACE, stale.turn.id)[1] == ()
    Journal(database).finish(current, final())
    for claim in (stale, current):
        with pytest.raises(Fenced):
            acts[act](claim)


def test_a_turn_of_a_deleted_session_is_fenced_off(database: Database) -> None:
    claim = running(database)
    Sessions(database).delete(WORKSPACE, "s1")
    with pytest.raises(Fenced):
        Journal(database).finish(claim, final())


def test_of_many_claims_at_once_each_has_a_fence_of_its_own_and_one_holds(database: Database) -> None:
    lane = submitted(database).lane
    made = sorted(at_once(lambda n: claimed(database, lane, f"w{n}"), range(8)), key=lambda claim: claim.turn.fence)
    assert [claim.turn.fence for claim in made] == list(range(1, 9))
    ended = []
    for claim in made:
        try:
            Journal(database).finish(claim, final())
            ended.append(claim.turn.fence)
        except Fenced:
            continue
    assert ended == [8]


def test_a_claim_is_resumed_by_its_fence_alone(database: Database) -> None:
    claim = running(database)
    assert Claims(database).resume(claim.turn.id, fence=1) == claim
    assert Claims(database).resume(claim.turn.id, fence=2) is None
    assert Claims(database).resume("turn_none", fence=1) is None
    Journal(database).finish(claim, final())
    assert Claims(database).resume(claim.turn.id, fence=1) is None


def test_resuming_changes_nothing(database: Database) -> None:
    claim = running(database)
    Claims(database).resume(claim.turn.id, fence=1)
    Journal(database).finish(claim, final())
    assert Turns(database).get(WORKSPACE, claim.turn.id).status == "completed"


def test_open_lanes_are_those_with_an_unfinished_turn_that_is_old_enough(database: Database) -> None:
    lanes = [submitted(database, session).lane for session in ("s1", "s2", "s3")]
    Journal(database).finish(claimed(database, lanes[0]), final())
    assert set(Claims(database).open_lanes(created_before_ms=NOW_MS + 1, limit=9)) == set(lanes[1:])
    assert Claims(database).open_lanes(created_before_ms=NOW_MS, limit=9) == ()


def test_open_lanes_come_page_by_page_without_gap_or_repeat(database: Database) -> None:
    lanes = [submitted(database, f"s{number}").lane for number in range(7)]
    submitted(database, "s0")
    seen: list[str] = []
    while page := Claims(database).open_lanes(created_before_ms=NOW_MS + 1, limit=3, after=seen[-1] if seen else ""):
        assert len(page) <= 3
        seen += page
    assert seen == sorted(lanes)


def test_an_open_lane_tells_its_turns_in_order_and_who_runs_the_first(database: Database) -> None:
    first, second = submitted(database), submitted(database)
    assert Claims(database).open_lane(first.lane) == OpenLane(first.lane, ((1, first.id), (2, second.id)), None)
    claimed(database, first.lane, "w9")
    assert Claims(database).open_lane(first.lane).held_by == "w9"
