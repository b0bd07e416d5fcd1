import pytest

from loom_worker.core.errors import ToolFailed
from loom_worker.core.values.tools import Caller
from loom_worker.store.shared_memory import Namespace
from loom_worker.tools.shared_memory import namespace_of

CALLER = Caller("lane", "s1", "acme", "turn_1", "call_1", "player1")
SCOPE = {"WORKFLOW": ("WORKFLOW", "w1"), "SWARM": ("SWARM", "x1")}


@pytest.mark.cases(
    ("namespace", "owner"),
    [("AGENT", "player1"), ("WORKFLOW", "w1"), ("SWARM", "x1"), ("GLOBAL", ""), ("agent", "player1")],
)
def test_each_namespace_has_its_owner(namespace: str, owner: str) -> None:
    assert namespace_of(namespace, CALLER, SCOPE) == Namespace("acme", namespace.upper(), owner)


@pytest.mark.cases("namespace", ["", "AGENT:player2", "agents", "GLOBAL ", "ＡＧＥＮＴ", "AGENT\0"])
def test_there_are_no_other_namespaces(namespace: str) -> None:
    with pytest.raises(ToolFailed, match="must be one of AGENT, WORKFLOW, SWARM, GLOBAL") as raised:
        namespace_of(namespace, CALLER, SCOPE)
    assert raised.value.code == "INVALID_INPUT"


@pytest.mark.cases(("namespace", "member"), [("WORKFLOW", "workflow_id"), ("SWARM", "swarm_id")])
@pytest.mark.cases("value", [None, "", 7, ["w1"], "w" * 129, "w\0"])
def test_a_session_of_no_workflow_or_swarm_is_told_so(namespace: str, member: str, value: object) -> None:
    scope = {} if value is None else {namespace: (namespace, value)}
    with pytest.raises(ToolFailed) as raised:
        namespace_of(namespace, CALLER, scope)
    assert raised.value.code == "INVALID_INPUT"
    assert member in str(raised.value)
    assert len(f"Code INVALID_INPUT: {raised.value}") <= 100
