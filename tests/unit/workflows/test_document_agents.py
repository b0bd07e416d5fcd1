"""Agents that a coordination defines know those who work with them."""

from pathlib import Path

from tests.unit.workflows import files

SPEC = """
entrypoint: lead
agents:
  - {name: lead, system_prompt: You lead.}
  - {name: helper, system_prompt: You help., may_call: [lead]}
  - {name: other, agent: outside}
"""
ALONE = """
type: pipeline
initial_prompt: Go
stages: [{agent_id: own, prompt_template: "Say {{initial}}"}]
agents: [{name: own, system_prompt: You act.}]
"""


def test_members_of_a_coordination_may_call_each_other_unless_they_name_whom(tmp_path: Path) -> None:
    agents = files.workflow(tmp_path, SPEC).agents
    assert agents["w:lead"].may_call == ("w:helper", "outside")
    assert agents["w:helper"].may_call == ("w:lead",)


def test_agents_of_other_patterns_may_call_nobody_unless_they_say_so(tmp_path: Path) -> None:
    assert files.workflow(tmp_path, ALONE).agents["w:own"].may_call == ()
