"""Versions of learned layers: stored once, activated, given to sessions at their first claim, and scored."""

from dataclasses import replace
from typing import Any

import pytest

from loom_worker.core.errors import Conflict, NotFound
from loom_worker.core.values.audit import AuditFilter
from loom_worker.core.values.learned import (
    AS_ACTIVATED,
    Activation,
    Demonstration,
    LearnedLayer,
    LearnedPolicy,
    NewVersion,
    Signature,
)
from loom_worker.core.values.sessions import SessionPatch
from loom_worker.core.values.tenants import Actor
from loom_worker.core.values.turns import Claim, Ending
from loom_worker.store.audit import AuditRows
from loom_worker.store.claims import Claims
from loom_worker.store.database import Database
from loom_worker.store.journal import Journal
from loom_worker.store.learned import AgentOf, LearnedLayers
from loom_worker.store.sessions import Sessions
from loom_worker.store.turns import Turns
from tests.unit.store.made import NOW_MS, PROGRESS, SPENT, WORKSPACE, final, submitted

AGENT = AgentOf(WORKSPACE, "default")


class Says:
    """Files of agents that all say the same."""

    def __init__(self, policy: LearnedPolicy) -> None:
        self.policy = policy

    def learned(self, _name: str) -> LearnedPolicy:
        return self.policy


@pytest.fixture
def layers(database: Database) -> LearnedLayers:
    return LearnedLayers(database)


def layer(number: int) -> LearnedLayer:
    return LearnedLayer((Signature("self", f"Instructions {number}."),), (Demonstration("self", {"n": number}),))


def added(layers: LearnedLayers, *numbers: int, agent: AgentOf = AGENT) -> None:
    for number in numbers:
        layers.add(agent, NewVersion(layer(number), "dspy", source="x.json"), now_ms=NOW_MS + number)


def activate(layers: LearnedLayers, version: int, share: float | None = None) -> Activation:
    return layers.activate(AGENT, version, share=share, now_ms=NOW_MS)


def claim(database: Database, session: str = "s1", policy: LearnedPolicy = AS_ACTIVATED, worker: str = "w1") -> Claim:
    """The claim of a session's next turn, submitted if there is none."""
    lane = submitted(database, session).lane
    found = Claims(database, Says(policy)).claim(lane, worker=worker, now_ms=NOW_MS + 10)
    assert isinstance(found, Claim)
    return found


def test_versions_are_numbered_for_each_agent_of_each_workspace(layers: LearnedLayers) -> None:
    added(layers, 1, 2)
    added(layers, 3, agent=AgentOf("other", "default"))
    added(layers, 4, agent=replace(AGENT, name="sales"))
    assert [each.version for each in layers.page(AGENT, limit=9)] == [2, 1]
    assert [each.version for each in layers.page(AGENT, limit=1)] == [2]
    assert [each.version for each in layers.page(AGENT, limit=9, before=2)] == [1]
    first, content = layers.get(AGENT, 1)
    assert (content, first.sizes) == (layer(1), {"signatures": 1, "demonstrations": 1, "gradients": 0})
    assert (first.agent, first.form, first.source, first.created_ms, first.key_id) == (
        *("default", "dspy", "x.json"),
        *(NOW_MS + 1, "local"),
    )
    assert [each.version for each in layers.page(AgentOf("other", "default"), limit=9)] == [1]
    with pytest.raises(NotFound, match="no version 2"):
        layers.get(AgentOf("other", "default"), 2)


def test_the_same_layer_is_not_stored_twice(layers: LearnedLayers) -> None:
    added(layers, 1, 2)
    again, is_known = layers.add(AGENT, NewVersion(layer(1), "dspy", source="copy.json"), now_ms=NOW_MS)
    assert (again.version, again.source, is_known) == (1, "x.json", True)
    assert layers.newest(AGENT) == 2


def test_a_version_that_there_is_not_is_not_activated(layers: LearnedLayers) -> None:
    added(layers, 1, agent=AgentOf("other", "default"))
    with pytest.raises(NotFound):
        activate(layers, 1)
    assert layers.activation(AGENT) == Activation()


def test_rolling_back_ends_a_trial_then_goes_back_version_by_version(layers: LearnedLayers) -> None:
    added(layers, 1, 2, 3)
    activate(layers, 1)
    activate(layers, 2)
    activate(layers, 2)  # once more changes nothing
    trial = activate(layers, 3, 0.1)
    assert (trial.version, trial.trial_version, trial.share_of(3), trial.share_of(2)) == (2, 3, 0.1, 0.9)
    seen = [layers.roll_back(AGENT, now_ms=NOW_MS) for _ in range(3)]
    assert [(each.version, each.trial_version) for each in seen] == [(2, None), (1, None), (0, None)]
    with pytest.raises(Conflict, match="Nothing was activated"):
        layers.roll_back(AGENT, now_ms=NOW_MS)


def test_an_erased_version_holds_nothing_and_nothing_leads_back_to_it(layers: LearnedLayers) -> None:
    added(layers, 1, 2)
    activate(layers, 1)
    with pytest.raises(Conflict, match="is active"):
        layers.erase(AGENT, 1, now_ms=NOW_MS)
    activate(layers, 2)
    layers.erase(AGENT, 1, now_ms=NOW_MS)
    erased, content = layers.get(AGENT, 1)
    assert (content, erased.as_json()["digest"], erased.as_json()["demonstrations"]) == (LearnedLayer(), None, 0)
    assert layers.roll_back(AGENT, now_ms=NOW_MS).version == 0
    with pytest.raises(NotFound):
        layers.erase(AgentOf("other", "default"), 1, now_ms=NOW_MS)
    added(layers, 3)
    assert layers.newest(AGENT) == 3


def test_a_session_keeps_the_version_of_its_first_claim(database: Database, layers: LearnedLayers) -> None:
    added(layers, 1, 2)
    activate(layers, 1)
    first = claim(database)
    assert first.turn.learned_version == 1
    activate(layers, 2)
    # Its owner has died before anything was stored; another worker begins the turn anew.
    again = Claims(database).claim(first.turn.lane, worker="w2", now_ms=NOW_MS + 20)
    assert isinstance(again, Claim)
    assert (again.turn.deaths, again.turn.learned_version) == (1, 1)
    Journal(database).finish(again, final(rom="prompt", learned_part={"version": 1}))
    assert claim(database).turn.learned_version == 1
    assert claim(database, "s2").turn.learned_version == 2
    session = Sessions(database).get(WORKSPACE, "s1")
    assert (session.learned_version, session.learned_part) == (1, {"version": 1})
    assert Turns(database).get(WORKSPACE, again.turn.id).as_json()["learned_version"] == 1


def test_a_session_that_began_without_one_stays_without(database: Database, layers: LearnedLayers) -> None:
    added(layers, 1)
    first = claim(database)
    activate(layers, 1)
    Journal(database).finish(first, final())
    assert claim(database).turn.learned_version == 0
    assert Sessions(database).get(WORKSPACE, "s1").as_json()["learned_version"] is None


def test_a_session_whose_system_text_is_made_anew_is_given_what_is_active(
    database: Database, layers: LearnedLayers
) -> None:
    added(layers, 1, 2)
    activate(layers, 1)
    Journal(database).finish(claim(database), final(rom="prompt", learned_part={"version": 1}))
    activate(layers, 2)
    patched = Sessions(database).patch(WORKSPACE, "s1", SessionPatch(agent="default@latest"), now_ms=NOW_MS)
    assert (patched.learned_version, patched.learned_part) == (None, None)
    assert claim(database).turn.learned_version == 2


def test_a_change_while_the_first_turn_runs_leaves_the_session_what_was_sent(
    database: Database, layers: LearnedLayers
) -> None:
    added(layers, 1, 2)
    activate(layers, 1)
    running = claim(database)
    activate(layers, 2)
    Sessions(database).patch(WORKSPACE, "s1", SessionPatch(agent="default@latest"), now_ms=NOW_MS)
    Journal(database).finish(running, final(rom="prompt", learned_part={"version": 1}))
    session = Sessions(database).get(WORKSPACE, "s1")
    assert (session.rom, session.learned_version, session.learned_part) == ("prompt", 1, {"version": 1})


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (LearnedPolicy(is_enabled=False), 0),
        (LearnedPolicy(is_enabled=False, version=2), 0),
        (LearnedPolicy(version="none"), 0),
        (LearnedPolicy(version="latest"), 3),
        (LearnedPolicy(version=2), 2),
        (LearnedPolicy(version=9), 0),
        (AS_ACTIVATED, 1),
    ],
)
def test_an_agent_s_file_comes_before_what_is_active(
    database: Database, layers: LearnedLayers, policy: LearnedPolicy, expected: int
) -> None:
    added(layers, 1, 2, 3)
    activate(layers, 1)
    running = claim(database, policy=policy)
    assert running.turn.learned_version == expected
    known = layers.for_session(AGENT, running.turn.lane, policy, None)
    assert known == (expected, layer(expected) if expected else None)


def test_a_trial_is_given_to_its_share_of_lanes_and_to_no_other() -> None:
    lanes = [f"lane{n}" for n in range(2_000)]
    trial = Activation(1, trial_version=3, share=0.1)
    given = [trial.version_for(lane) for lane in lanes]
    assert given == [trial.version_for(lane) for lane in lanes]
    assert set(given) == {1, 3}
    assert 0.07 < given.count(3) / len(lanes) < 0.13
    wider = replace(trial, share=0.5)
    assert all(wider.version_for(lane) == 3 for lane, version in zip(lanes, given, strict=True) if version == 3)
    assert {replace(trial, share=1.0).version_for(lane) for lane in lanes} == {3}
    assert {replace(trial, share=0.0).version_for(lane) for lane in lanes} == {1}
    another = replace(trial, trial_version=4)
    assert [another.version_for(lane) == 4 for lane in lanes] != [version == 3 for version in given]


def ended(database: Database, session: str, status: str, **fields: Any) -> None:
    """A turn of a session that ended so."""
    running = claim(database, session)
    progress = {**PROGRESS, "usage": SPENT.as_json(), "completed_ms": NOW_MS + 100, **fields}
    Journal(database).finish(running, final(ending=Ending(status), progress=progress))  # type: ignore[arg-type] - of a test


def test_scores_are_those_of_the_turns_that_ran_with_a_version(database: Database, layers: LearnedLayers) -> None:
    ended(database, "s0", "completed")
    added(layers, 1, 2)
    activate(layers, 1)
    ended(database, "s1", "completed", judge={"score": 0.5, "passed": True})
    ended(database, "s1", "completed", judge={"score": 1.0, "passed": True})
    ended(database, "s2", "failed", judge={"score": None, "passed": None}, usage={**SPENT.as_json(), "cost_usd": None})
    claim(database, "s3")  # has not ended
    scores = layers.scores(AGENT, (0, 1, 2))
    assert scores[0].as_json()["turns"] == 1
    assert scores[1].as_json() == {
        "turns": 3,
        "completed": 2,
        "failed": 1,
        "incomplete": 0,
        "cancelled": 0,
        "judged": 2,
        "mean_score": 0.75,
        "mean_tokens": 15.0,
        "mean_usd": 0.25,
    }
    assert scores[2].as_json()["mean_score"] is None
    assert layers.scores(AgentOf("other", "default"), (1,))[1].turns == 0


def test_what_is_imported_activated_and_taken_back_is_in_the_audit(database: Database, layers: LearnedLayers) -> None:
    by = Actor("key_1", "ada")
    layers.add(AGENT, NewVersion(layer(1), "dspy"), now_ms=NOW_MS, by=by)
    layers.activate(AGENT, 1, share=None, now_ms=NOW_MS, by=by)
    layers.roll_back(AGENT, now_ms=NOW_MS, by=by)
    page = AuditRows(database).page(WORKSPACE, AuditFilter(), limit=9, after=None)
    seen = [(each.as_json()["kind"], each.as_json()["actor"], each.as_json()["subject"]) for each in page.items]
    assert [kind for kind, _, _ in seen] == ["learned.rolled_back", "learned.activated", "learned.imported"]
    assert {(kind, subject) for kind, _, subject in seen} == {
        ("learned.rolled_back", "default 0"),
        ("learned.activated", "default 1"),
        ("learned.imported", "default 1"),
    }
