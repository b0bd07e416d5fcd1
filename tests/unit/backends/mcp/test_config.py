from dataclasses import replace

import pytest

from loom_worker.backends.mcp.servers import environment, filled, key, used
from loom_worker.core.errors import ToolFailed
from loom_worker.core.values.agents import McpServer

SERVER = McpServer("git", command="git-mcp", args=("--stdio",), env={"TOKEN": "secret:GIT", "MODE": "fast"})


def test_a_command_is_given_nothing_of_ours_but_the_harmless() -> None:
    ours = {"PATH": "/bin", "HOME": "/root", "ANTHROPIC_API_KEY": "k", "LOOM_SECRET_GIT": "s", "AWS_TOKEN": "t"}
    assert environment(SERVER, {"GIT": "s"}, ours) == {"PATH": "/bin", "HOME": "/root", "TOKEN": "s", "MODE": "fast"}


def test_a_missing_secret_is_named() -> None:
    with pytest.raises(ToolFailed, match="LOOM_SECRET_GIT") as failed:
        filled(SERVER.env, {"OTHER": "x"})
    assert failed.value.code == "UNAVAILABLE"


def test_only_a_whole_value_is_a_secret() -> None:
    assert filled({"a": "my secret:GIT", "b": "secret:"}, {"GIT": "s"}) == {"a": "my secret:GIT", "b": "secret:"}


def test_secrets_in_use_are_known_longest_first() -> None:
    server = replace(SERVER, headers={"X": "secret:LONG", "Y": "secret:NONE"})
    assert used(server, {"GIT": "s", "LONG": "sss", "UNUSED": "u"}) == ("sss", "s")


def test_the_key_is_of_the_server_and_not_of_the_agent_that_names_it() -> None:
    assert key(replace(SERVER, name="other", tools=("a",))) == key(SERVER)
    others = [
        replace(SERVER, command="x"),
        replace(SERVER, args=()),
        replace(SERVER, env={}),
        replace(SERVER, headers={"a": "b"}),
        replace(SERVER, allow_private=True),
        replace(SERVER, command=None, url="http://x"),
    ]
    assert len({key(server) for server in (SERVER, *others)}) == len(others) + 1
