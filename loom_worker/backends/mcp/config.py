"""What a server needs to be reached: its secrets filled in, its environment, and the key it is known by."""

import hashlib
import json
import re
from collections.abc import Mapping

from loom_worker.core.errors import ToolFailed
from loom_worker.core.values.agents import McpServer

_INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "TERM")
"""All that a command inherits of our environment: none of it is a secret."""
_SECRET = re.compile(r"secret:([A-Za-z0-9_]+)")


def key(server: McpServer) -> str:
    """The same for the same server in every process; secrets are in it by their names only.

    Its name and the choice of its tools are the agent's: two agents with one server share what is known of it.
    """
    same = (server.command, server.args, server.url, server.allow_private, dict(server.env), dict(server.headers))
    return f"mcp:2:{hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()[:32]}"


def filled(values: Mapping[str, str], secrets: Mapping[str, str]) -> dict[str, str]:
    """The values, those that are ``secret:NAME`` replaced by the secret.

    Raises:
        ToolFailed: there is no such secret (UNAVAILABLE).
    """
    return {name: _filled(value, secrets) for name, value in values.items()}


def used(server: McpServer, secrets: Mapping[str, str]) -> tuple[str, ...]:
    """The secrets a server is given, longest first: they are masked in whatever it says."""
    named = [_SECRET.fullmatch(value) for value in (*server.env.values(), *server.headers.values())]
    found = {secrets[match[1]] for match in named if match and secrets.get(match[1])}
    return tuple(sorted(found, key=len, reverse=True))


def environment(server: McpServer, secrets: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a command: a few harmless variables of ours, and what its file gives it.

    Raises:
        ToolFailed: as filled.
    """
    return {name: ours[name] for name in _INHERITED if name in ours} | filled(server.env, secrets)


def _filled(value: str, secrets: Mapping[str, str]) -> str:
    named = _SECRET.fullmatch(value)
    if named is None:
        return value
    if named[1] not in secrets:
        raise ToolFailed(f"it needs a secret that is not there: set LOOM_SECRET_{named[1]}", "UNAVAILABLE")
    return secrets[named[1]]
