"""Agent cards, as clients of both versions read them."""

import copy

import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.compat.v0_3 import types as types_03

from loom_worker.core.values.agents import Agent, CardSkill
from loom_worker.fronts.a2a.front import card

SKILL = CardSkill("sales", "Sales", "Answers about orders", ("sql",), ("Best month?",))


@pytest.mark.parametrize("needs_key", [True, False])
@pytest.mark.parametrize("agent", [Agent("plain"), Agent("shop", "3", "Knows the shop", card_skills=(SKILL,))])
def test_both_versions_read_the_same_card(agent: Agent, needs_key: bool) -> None:
    given = card(agent, url="http://loom/a2a/x", needs_key=needs_key)
    new, old = parse_agent_card(copy.deepcopy(given)), types_03.AgentCard.model_validate(given)
    assert (new.name, new.version) == (old.name, old.version) == (agent.name, agent.version)
    assert [(each.protocol_version, each.url) for each in new.supported_interfaces] == [
        ("1.0", "http://loom/a2a/x"),
        ("0.3", "http://loom/a2a/x"),
    ]
    assert (old.url, old.protocol_version, old.preferred_transport) == ("http://loom/a2a/x", "0.3.0", "JSONRPC")
    assert new.capabilities.streaming
    assert new.capabilities.push_notifications
    assert not new.capabilities.extended_agent_card
    assert bool(new.security_requirements) == bool(old.security) == needs_key
    if needs_key:
        assert new.security_schemes["apiKey"].http_auth_security_scheme.scheme == "bearer"
        assert old.security_schemes is not None
        assert old.security_schemes["apiKey"].root.type == "http"


def test_skills_are_those_of_the_file_or_the_agent_s_description() -> None:
    listed = card(Agent("shop", card_skills=(SKILL,)), url="u", needs_key=False)["skills"]
    assert listed == [SKILL.as_json()]
    (own,) = card(Agent("shop", description="Knows the shop"), url="u", needs_key=False)["skills"]
    assert (own["id"], own["description"]) == ("shop", "Knows the shop")
