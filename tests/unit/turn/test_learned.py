"""The learned layer in the system text of a turn: within ROM's budget, and the same bytes for the whole session."""

from dataclasses import replace

import pytest

from loom_worker.core.values.agents import Agent
from loom_worker.core.values.learned import Demonstration, LearnedLayer, LearnedPolicy, NewVersion, Signature
from loom_worker.core.values.memory import MemoryPolicy, Shares
from loom_worker.store.learned import AgentOf, LearnedLayers
from loom_worker.turn.context import new_rom
from tests.support.models import says
from tests.support.stage import WORKSPACE, Stage, StageKnowledge

AGENT = AgentOf(WORKSPACE, "default")
LAYER = LearnedLayer(
    (Signature("self", "Sort the message."),),
    tuple(Demonstration("self", {"message": f"number {n} " + "word " * 40}) for n in range(10)),
)


class Stored(StageKnowledge):
    """Layers as the database has them."""

    def __init__(self, rows: LearnedLayers) -> None:
        super().__init__()
        self.rows = rows

    def learned(self, workspace: str, lane: str, agent: Agent, version: int | None) -> tuple[int, LearnedLayer | None]:
        return self.rows.for_session(AgentOf(workspace, agent.name), lane, agent.learned, version)


@pytest.fixture
def layers(stage: Stage) -> LearnedLayers:
    found = LearnedLayers(stage.database)
    found.add(AGENT, NewVersion(LAYER, "dspy"), now_ms=stage.now_ms)
    other = LearnedLayer((Signature("self", "Something else."),))
    found.add(AGENT, NewVersion(other, "dspy"), now_ms=stage.now_ms)
    found.activate(AGENT, 1, share=None, now_ms=stage.now_ms)
    return found


def test_a_first_turn_that_is_run_again_is_sent_the_same_bytes_whatever_is_activated(
    stage: Stage, layers: LearnedLayers
) -> None:
    stage.model.scenes = [says("One."), says("Two."), says("Three.")]
    turn = stage.submit()
    dead = stage.claims.claim(turn.lane, worker="dead", now_ms=stage.now_ms)
    assert dead is not None
    layers.activate(AGENT, 2, share=None, now_ms=stage.now_ms)
    worker = stage.worker("w1", knowledge=Stored(layers))
    done = stage.serve(turn, worker)
    assert (done.status, done.learned_version) == ("completed", 1)
    stage.serve(stage.submit(), worker)
    later = stage.serve(stage.submit(session="s2"), worker)
    first, second, other = (asked.system for asked in stage.model.asked)
    assert first == second
    assert "Sort the message." in first
    assert first.index("You help.") < first.index("Sort the message.") < first.index("orders(id, total)")
    assert "Something else." in other
    assert later.learned_version == 2
    session = stage.sessions.get(WORKSPACE, "s1")
    assert session.learned_part == {
        "version": 1,
        "signatures": 1,
        "demonstrations": 10,
        "left_out_signatures": 0,
        "left_out_demonstrations": 0,
    }


@pytest.mark.parametrize(("agent_tokens", "expected"), [(None, 10), (300, 4), (60, 0), (20, 0)])
def test_examples_are_left_out_where_the_agent_s_limit_ends(
    stage: Stage, agent_tokens: int | None, expected: int
) -> None:
    stage.agent = replace(stage.agent, learned=LearnedPolicy(max_tokens=agent_tokens))
    made = new_rom(stage.runtime(), StageKnowledge(), (1, LAYER))
    assert made.learned is not None
    assert (made.learned.demonstrations, made.text.count("<example>")) == (expected, expected)
    assert made.learned.left_out_demonstrations == 10 - expected
    assert ("Sort the message." in made.text) is (agent_tokens != 20)


def test_the_layer_keeps_rom_within_its_share_and_leaves_half_of_it_for_the_schema(stage: Stage) -> None:
    stage.budget_tokens = 3_000
    stage.agent = Agent("default", system_prompt="You help.", memory=MemoryPolicy(shares=Shares(rom=0.3)))
    made = new_rom(stage.runtime(), StageKnowledge(), (1, LAYER))
    assert made.learned is not None
    assert 0 < made.learned.demonstrations < 10
    assert "orders(id, total)" in made.text
    assert stage.runtime().count(made.text) <= 900


def test_a_prompt_that_fills_rom_leaves_no_room_and_that_is_told(stage: Stage) -> None:
    stage.agent = Agent("default", system_prompt="word " * 30_000)
    made = new_rom(stage.runtime(), StageKnowledge(), (1, LAYER))
    assert made.learned is not None
    assert (made.learned.signatures, made.learned.left_out_signatures) == (0, 1)
    assert "Sort the message." not in made.text


def test_without_a_layer_the_system_text_is_as_it_was(stage: Stage) -> None:
    assert new_rom(stage.runtime(), StageKnowledge()).learned is None
    assert "learned" not in new_rom(stage.runtime(), StageKnowledge()).text
