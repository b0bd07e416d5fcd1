import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom_worker.core.errors import ToolFailed, Unavailable
from loom_worker.core.values.chat import ToolUse
from loom_worker.store.database import Database
from loom_worker.store.shared_memory import Namespace, SharedEntry, SharedMemory
from loom_worker.tools.registry import Registry
from loom_worker.tools.shared_memory import SharedParts, shared_tools
from tests.unit.tools.shared.conftest import NOW_MS, Agents, Time, agent

ME = agent()
SECRET = "secret-of-player2"
READERS, WRITERS = ("read", "list", "watch"), ("write", "delete")


@contextmanager
def refused(code: str, text: str | None = None) -> Iterator[None]:
    with pytest.raises(ToolFailed, match=text) as raised:
        yield
    assert raised.value.code == code


def test_what_is_written_is_read_listed_and_deleted(agents: Agents) -> None:
    assert agents.call(ME, "write", key="sheet", value={"name": "Eldrin"}) == {"key": "sheet", "version": 1}
    told = {"key": "sheet", "version": 1, "updated_by": "player1", "updated_at": "2026-11-21T09:30:00.000Z"}
    assert NOW_MS == 1_795_253_400_000
    assert agents.call(ME, "read", key="sheet") == {**told, "value": {"name": "Eldrin"}}
    assert agents.call(ME, "list") == {"keys": [told], "next": None}
    assert agents.call(ME, "delete", key="sheet") == {"deleted": "sheet", "version": 2}
    with refused("ERROR_NOT_FOUND", "no key 'sheet'"):
        agents.call(ME, "read", key="sheet")


def test_two_agents_of_one_workflow_keep_their_own_sheets_and_share_the_rest(
    agents: Agents, scopes: dict[str, dict[str, object]]
) -> None:
    scopes["s1"] = scopes["s2"] = {"workflow_id": "w1"}
    you = agent("player2", "s2")
    for who, name in ((ME, "Eldrin"), (you, "Luna")):
        agents.call(who, "write", key="character_sheet", value=name, namespace="agent")
    agents.call(ME, "write", key="scene", value="a cave", namespace="workflow")
    assert [agents.call(who, "read", key="character_sheet")["value"] for who in (ME, you)] == ["Eldrin", "Luna"]
    assert agents.call(you, "read", key="scene", namespace="WORKFLOW")["updated_by"] == "player1"
    scopes["s2"] = {"workflow_id": "w2"}
    with refused("ERROR_NOT_FOUND"):
        agents.call(you, "read", key="scene", namespace="WORKFLOW")


def test_an_agent_finds_what_it_kept_in_another_session_but_in_no_other_workspace(agents: Agents) -> None:
    agents.call(ME, "write", key="a", value=1)
    agents.call(ME, "write", key="g", value=1, namespace="GLOBAL")
    assert agents.call(agent(session="s2"), "read", key="a")["value"] == 1
    assert agents.call(agent("player2", "s2"), "read", key="g", namespace="GLOBAL")["value"] == 1
    for key, namespace in (("a", "AGENT"), ("g", "GLOBAL")):
        with refused("ERROR_NOT_FOUND"):
            agents.call(agent(workspace="other"), "read", key=key, namespace=namespace)


def test_a_write_or_deletion_that_comes_too_late_names_the_version_there_is(agents: Agents) -> None:
    for value in range(3):
        agents.call(ME, "write", key="a", value=value, expected_version=value)
    for name, more in (("write", {"value": 9}), ("delete", {})):
        with refused("INVALID_INPUT", "'a' has version 3, not 1. Read it"):
            agents.call(ME, name, key="a", expected_version=1, **more)
    assert agents.call(ME, "read", key="a")["value"] == 2


@pytest.mark.cases(
    ("name", "arguments"),
    [
        ("write", {"key": "", "value": 1}),
        ("write", {"key": "a", "value": "x" * 70_000}),
        ("write", {"key": "a", "value": 1, "namespace": "WORKFLOW"}),
        ("read", {"key": "a\0b"}),
        ("list", {"prefix": "\ud800"}),
        ("list", {"after": "k" * 300}),
        ("watch", {"prefix": "p" * 257}),
        ("delete", {"key": "a", "namespace": "nowhere"}),
    ],
)
def test_what_cannot_be_is_refused_in_words_for_the_model(agents: Agents, name: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ToolFailed) as raised:
        agents.call(ME, name, **arguments)
    assert raised.value.code == "INVALID_INPUT"
    assert 0 < len(f"Code INVALID_INPUT: {raised.value}") <= 110


def test_lists_go_on_where_they_ended(agents: Agents) -> None:
    for key in "abcde":
        agents.call(ME, "write", key=key, value=1)
    first = agents.call(ME, "list", limit=3)
    rest = agents.call(ME, "list", limit=3, after=first["next"])
    assert [entry["key"] for entry in first["keys"] + rest["keys"]] == list("abcde")
    assert rest["next"] is None


def test_a_database_that_does_not_answer_is_told_as_such(database: Database) -> None:
    class Silent(SharedMemory):
        def read(self, namespace: Namespace, key: str) -> SharedEntry:
            raise Unavailable("The database is locked by another program.")

    parts = SharedParts(Silent(database), Time())
    read = {tool.spec.name: tool for tool in shared_tools(parts)}["shared_memory_read"]
    with refused("DATABASE_ERROR"):
        read.run({"key": "a"}, ME)


def test_only_what_only_looks_may_be_done_again_and_no_answer_serves_twice(agents: Agents) -> None:
    flags = {name.removeprefix("shared_memory_"): tool for name, tool in agents.tools.items()}
    assert {name for name, tool in flags.items() if tool.is_idempotent} == set(READERS)
    assert {name for name, tool in flags.items() if not tool.is_bounded} == {"watch"}
    assert not any(tool.is_repeatable for tool in flags.values())
    assert all(tool.is_read_only for tool in flags.values())


def test_every_schema_is_one_that_the_registry_takes(agents: Agents) -> None:
    registry = Registry(agents.tools.values())
    assert registry.prepared(ToolUse("c", "shared_memory_write", {"key": "a", "value": None})).error is None
    assert registry.prepared(ToolUse("c", "shared_memory_write", {"key": "a"})).error is not None
    assert registry.prepared(ToolUse("c", "shared_memory_watch", {"wait_s": 21})).error is not None


NAMES = st.one_of(
    st.sampled_from(["AGENT", "GLOBAL", "WORKFLOW", "SWARM", "agent", "AGENT:player2", "agent:player2"]),
    st.text(max_size=9),
)
HOSTILE = [
    "",
    "%",
    "_",
    "sheet",
    "SHEET",
    "shee%",
    "agent:player2:sheet",
    "player2",
    "player2:sheet",
    "../player2/sheet",
]
HOSTILE += ["sheet\0", "\0", "ѕheet", "sheet' OR '1'='1", "sheet\\", "k" * 300, "\U0010ffff", "player2\x1fsheet"]
WORDS = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=12))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from([*READERS, *WRITERS]),
    who=st.sampled_from(
        [agent(), agent("player", "s1"), agent("player22"), agent("PLAYER2"), agent("player2", workspace="b")]
    ),
    namespace=NAMES,
    words=st.tuples(WORDS, WORDS),
    version=st.sampled_from([None, 0, 1, 2]),
)
def test_no_string_of_an_agents_reaches_a_key_of_another(
    agents: Agents, name: str, who: Any, namespace: str, words: tuple[str, str], version: int | None
) -> None:
    them = agent("player2", "s2")
    if not agents.call(them, "list")["keys"]:
        agents.call(them, "write", key="sheet", value=SECRET)
        agents.call(them, "write", key=f"{SECRET}-key", value=SECRET)
    before = agents.call(them, "watch")
    arguments: dict[str, Any] = {"namespace": namespace}
    arguments |= {"prefix": words[0]} if name in ("list", "watch") else {"key": words[0]}
    arguments |= {"list": {"after": words[1]} if words[1] else {}, "watch": {"wait_s": 0}, "write": {"value": 1}}.get(
        name, {}
    )
    if version is not None and name != "list" and name != "read":
        arguments |= {"since_version" if name == "watch" else "expected_version": version}
    try:
        told = json.dumps(agents.call(who, name, **arguments))
    except ToolFailed as error:
        told = str(error)
    assert SECRET not in told
    assert agents.call(them, "watch") == before


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    key=st.text(min_size=1, max_size=20),
    owners=st.lists(st.text(min_size=1, max_size=8), min_size=2, max_size=2, unique=True),
)
def test_agents_of_any_two_names_never_meet(agents: Agents, key: str, owners: list[str]) -> None:
    one, other = (agent(name) for name in owners)
    try:
        agents.call(one, "write", key=key, value=SECRET)
        agents.call(other, "write", key=key, value="mine")
    except ToolFailed:
        return  # no key, or no name, can be so
    assert agents.call(one, "read", key=key)["value"] == SECRET
    assert agents.call(other, "read", key=key)["value"] == "mine"
