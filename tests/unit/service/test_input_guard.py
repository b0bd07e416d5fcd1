"""What a client says to tool calls that really wait for a person."""

from dataclasses import replace

import pytest

from loom_worker.core.errors import Conflict, Invalid
from loom_worker.core.values.agents import Agent, ApprovalPolicy
from loom_worker.core.values.chat import ToolUse
from loom_worker.core.values.decisions import Decision
from loom_worker.core.values.json import Json
from loom_worker.core.values.turns import Turn
from loom_worker.service.input_guard import Approvals
from tests.support.models import says, wants
from tests.support.out import Out
from tests.support.stage import WORKSPACE, Stage

CALL = "toolu_1"


@pytest.fixture
def approvals(stage: Stage, out: Out) -> Approvals:
    """Those of a service whose tools are the stage's."""

    class Agents(Out):
        def prepared(self, agent: str, use: ToolUse, _version: str | None = None) -> tuple[Json, str | None]:
            assert agent == stage.agent.name
            found = stage.registry.prepared(use, stage.agent.tools, read_only=stage.agent.is_read_only)
            return found.arguments, found.error

    return out.service(stage, runtimes=Agents()).approvals


@pytest.fixture
def asking(stage: Stage) -> Turn:
    """A turn that waits for a person before it adds 1 and 2."""
    stage.agent = Agent("default", system_prompt="You help.", approval=ApprovalPolicy(("add",), timeout_s=60))
    turn = stage.answered(wants(("add", {"a": 1, "b": 2})), says("Done."), text="Add.")
    assert (turn.status, [call.approval for call in turn.calls]) == ("requires_action", ["waiting"])
    return turn


@pytest.mark.parametrize(
    ("decision", "approval", "status"),
    [
        (Decision("approve"), "approved", "pending"),
        (Decision("edit", {"a": 3, "b": 4}), "edited", "pending"),
        (Decision("reject", reason="No."), "rejected", "denied"),
    ],
)
def test_a_decision_is_stored_before_the_lane_is_alerted(
    stage: Stage, approvals: Approvals, asking: Turn, out: Out, decision: Decision, approval: str, status: str
) -> None:
    answered = approvals.decide(WORKSPACE, asking.id, CALL, decision)
    assert [(call.approval, call.status) for call in answered.calls] == [(approval, status)]
    assert (stage.turn(asking), out.alerted) == (answered, [asking.lane])


def test_an_edited_call_runs_with_what_its_tool_makes_of_the_arguments(
    stage: Stage, approvals: Approvals, asking: Turn
) -> None:
    answered = approvals.decide(WORKSPACE, asking.id, CALL, Decision("edit", {"a": "40", "b": "2"}))
    assert answered.calls[0].arguments == {"a": 40, "b": 2}
    stage.lanes.alert(asking.lane)
    worker = stage.worker("w2")
    stage.serve(asking, worker)
    assert [call.content for call in stage.answer_calls(asking, worker).calls] == ["42"]
    assert stage.serve(asking, worker).output_text == "Done."


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"a": 1},
        {"a": "one", "b": 2},
        {"a": 1, "b": 2, "c": 3},
    ],
)
def test_arguments_that_the_tool_does_not_take_decide_nothing(
    stage: Stage, approvals: Approvals, asking: Turn, out: Out, arguments: Json
) -> None:
    with pytest.raises(Invalid, match="add does not take these arguments") as refused:
        approvals.decide(WORKSPACE, asking.id, CALL, Decision("edit", arguments))
    assert [flaw.pointer for flaw in refused.value.flaws] == ["/arguments"]
    assert (stage.turn(asking).calls[0].approval, out.alerted) == ("waiting", [])
    approvals.decide(WORKSPACE, asking.id, CALL, Decision("approve"))


def test_an_edit_gives_an_agent_no_tool_that_it_may_not_call(stage: Stage, approvals: Approvals, asking: Turn) -> None:
    stage.agent = replace(stage.agent, tools=("note",))
    with pytest.raises(Invalid, match="not allowed"):
        approvals.decide(WORKSPACE, asking.id, CALL, Decision("edit", {"a": 3, "b": 4}))


def test_a_decision_wakes_no_turn_that_was_cancelled_meanwhile(
    stage: Stage, approvals: Approvals, asking: Turn, out: Out
) -> None:
    stage.cancel(asking, "interrupt")
    stage.serve(asking, stage.worker("w2"))
    with pytest.raises(Conflict, match="already decided"):
        approvals.decide(WORKSPACE, asking.id, CALL, Decision("approve"))
    assert (stage.turn(asking).status, out.alerted) == ("cancelled", [])
