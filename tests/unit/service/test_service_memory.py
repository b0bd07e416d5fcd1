"""What the service asks of memory and agent runtimes, and what it refuses for them."""

from dataclasses import replace

import pytest

from loom_worker.agents.load import Agents
from loom_worker.core.errors import BadSettings, Invalid, NotFound, Unavailable
from loom_worker.core.values.agents import Agent, Backend
from loom_worker.core.values.sessions import NewSession, SessionPatch
from loom_worker.core.values.turns import NewTurn
from loom_worker.service.service import CHECKED_BYTES, Service
from tests.support.models import says
from tests.support.out import Out
from tests.support.stage import WORKSPACE, Stage

AGENTS = Agents({"default": Agent("default", backend=Backend(databases=("north.db",))), "other": Agent("other")}, ())


@pytest.fixture
def service(stage: Stage, out: Out) -> Service:
    made = out.service(stage, AGENTS)
    made.create_session(WORKSPACE, NewSession(id="s1"))
    return made


def test_tools_and_database_are_chosen_of_the_agents_own(service: Service, out: Out) -> None:
    session = service.patch_session(WORKSPACE, "s1", SessionPatch(tools=("note",), backend="north.db"))
    assert (session.tools, session.backend) == (("note",), "north.db")
    assert out.asked == [("tools", "default")]
    assert service.patch_session(WORKSPACE, "s1", SessionPatch(clear=frozenset({"tools", "backend"}))).tools is None


@pytest.mark.parametrize(
    "patch", [SessionPatch(tools=("rm",)), SessionPatch(backend="x.db"), SessionPatch(agent="other@latest")]
)
def test_what_the_agent_does_not_allow_changes_nothing(service: Service, patch: SessionPatch) -> None:
    before = service.sessions.get(WORKSPACE, "s1")
    with pytest.raises(Invalid):
        service.patch_session(WORKSPACE, "s1", replace(patch, title="new"))
    assert service.sessions.get(WORKSPACE, "s1") == before


def test_a_session_takes_up_its_agent_as_it_is_now(stage: Stage, service: Service) -> None:
    stage.model.scenes = [says("Mine.")]
    turn = service.submit(WORKSPACE, "s1", NewTurn("?"), agent=None)[0]
    stage.lanes.submit(turn.lane, [(turn.seq, turn.id)])
    stage.serve(turn, stage.worker("w1"))
    assert service.sessions.get(WORKSPACE, "s1").agent_version == "1"
    session = service.patch_session(WORKSPACE, "s1", SessionPatch(agent="default@latest"))
    assert (session.rom, session.agent_version) == (None, None)


def test_the_choice_of_an_agent_that_is_gone_is_refused_and_the_rest_is_not(stage: Stage, out: Out) -> None:
    out.service(stage, AGENTS).create_session(WORKSPACE, NewSession(id="s2", agent="other"))
    service = out.service(stage, Agents({"default": AGENTS.agents["default"]}, ()))
    with pytest.raises(Invalid, match="no agent 'other'"):
        service.patch_session(WORKSPACE, "s2", SessionPatch(tools=("add",)))
    assert service.patch_session(WORKSPACE, "s2", SessionPatch(title="t")).title == "t"


def test_an_agent_that_cannot_work_has_no_tools_to_choose_from(service: Service, out: Out) -> None:
    asks = (
        lambda: service.tools("default", "default"),
        lambda: service.patch_session(WORKSPACE, "s1", SessionPatch(tools=("add",))),
    )
    for ask in asks:
        out.refusal = BadSettings("the URL cannot be read")
        with pytest.raises(Invalid, match="'default' cannot work: the URL cannot be read"):
            ask()
        out.refusal = Unavailable("The database does not answer.")  # which says nothing about the agent
        with pytest.raises(Unavailable):
            ask()


def test_a_kernel_beyond_its_share_is_neither_made_nor_changed(service: Service, out: Out) -> None:
    out.refusal = Invalid("too large")
    with pytest.raises(Invalid):
        service.patch_session(WORKSPACE, "s1", SessionPatch(kernel={"a": "long"}))
    with pytest.raises(Invalid):
        service.create_session(WORKSPACE, NewSession(id="s2", kernel={"a": "long"}))
    assert out.asked == [("kernel", "default", {"a": "long"})] * 2
    assert service.sessions.get(WORKSPACE, "s1").kernel == {}
    with pytest.raises(NotFound):
        service.sessions.get(WORKSPACE, "s2")


def test_an_empty_kernel_always_fits(service: Service, out: Out) -> None:
    out.refusal = Invalid("too large")
    assert service.patch_session(WORKSPACE, "s1", SessionPatch(kernel={})).kernel == {}


@pytest.mark.parametrize(
    ("text", "is_counted"), [("é" * (CHECKED_BYTES // 2), False), ("é" * (CHECKED_BYTES // 2 + 1), True)]
)
def test_only_a_long_message_is_counted_before_it_is_accepted(
    service: Service, out: Out, text: str, is_counted: bool
) -> None:
    service.submit(WORKSPACE, "s1", NewTurn(text), agent="other")
    assert out.asked == ([("fits", WORKSPACE, "s1", "other", text)] if is_counted else [])


def test_a_broken_default_agent_keeps_no_turn_from_sessions_of_another(stage: Stage, out: Out) -> None:
    out.service(stage, AGENTS).create_session(WORKSPACE, NewSession(id="theirs", agent="other"))
    service = out.service(stage, Agents({"other": Agent("other")}, ()))
    assert service.submit(WORKSPACE, "theirs", NewTurn("?"), agent=None)[0].agent == "other"
    with pytest.raises(Invalid, match="no agent 'default'"):
        service.submit(WORKSPACE, "new", NewTurn("?"), agent=None)


def test_a_message_that_can_never_be_sent_is_not_accepted(service: Service, out: Out) -> None:
    out.refusal = Invalid("too large", (), "message-too-large")
    with pytest.raises(Invalid) as caught:
        service.submit(WORKSPACE, "new", NewTurn("x" * (CHECKED_BYTES + 1)), agent=None)
    assert (caught.value.slug, out.announced) == ("message-too-large", [])
    with pytest.raises(NotFound):
        service.sessions.get(WORKSPACE, "new")
