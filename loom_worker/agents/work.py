"""What an agent's file says of its work: the data, the tools, and who must be asked before they are used."""

import re
from dataclasses import dataclass, replace
from typing import Any, cast

from loom_worker.agents.fields import Fields
from loom_worker.core.values.agents import ApprovalPolicy, Auth, Backend, McpServer, Scope

_KINDS = ("sql", "rest", "documents")
_MEMBERS = {
    "sql": ("url", "scope"),
    "rest": ("url", "openapi", "operations", "allow_private", "auth"),
    "documents": ("path",),
}
"""Of a backend, by its type, beside ``type``."""
_SERVER_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")
_TARGET = re.compile(r"[./:]")
"""What tells where a tool is from its mere name."""


@dataclass(frozen=True, slots=True)
class ToolList:
    """The tools an agent may have."""

    allowed: tuple[str, ...] | None
    """Names; None: all that there are."""
    custom: tuple[str, ...]
    servers: tuple[McpServer, ...]
    allows_mcp: bool
    """True: all tools of ``servers`` are allowed, though ``allowed`` does not name them."""


def backend(spec: Fields) -> Backend | None:
    """What the agent works on; ``backend: false`` is an agent without data.

    Raises:
        BadFile: a value of the wrong type, or a member that its type of backend does not have.
    """
    if spec.get("backend") is False:
        return None
    told = spec.under("backend")
    kind = told.choice("type", _KINDS) or "sql"
    for name in sorted({name for members in _MEMBERS.values() for name in members} - set(_MEMBERS[kind])):
        if told.get(name) is not None:
            raise told.wrong(name, f"nothing (a backend of type {kind} has no such member)", told.get(name))
    scope = told.under("scope")
    found = Backend(
        kind=cast(Any, kind),
        url=told.text("url"),
        databases=scope.texts("databases") or (),
        scope=Scope(scope.texts("schemas"), scope.texts("tables"), scope.texts("columns")),
        openapi=told.text("openapi"),
        operations=told.texts("operations"),
        allow_private=bool(told.flag("allow_private")),
        path=told.text("path"),
        auth=_auth(told),
    )
    for member, needed_by in (("openapi", "rest"), ("path", "documents")):
        if kind == needed_by and told.get(member) is None:
            raise told.wrong(member, f"a path (a backend of type {kind} must have it)", None)
    return found


def toolbox(spec: Fields) -> ToolList:
    """The tools the file names, whether in one list or sorted by where they come from.

    Raises:
        BadFile: a value of the wrong type, or a server that ``mcp_servers`` does not have.
    """
    servers = _servers(spec.under("mcp_servers"))
    if not isinstance(spec.get("tools"), dict):
        listed = spec.texts("tools")
        custom = tuple(name for name in listed or () if _TARGET.search(name))
        names = None if listed is None else tuple(name for name in listed if name not in custom)
        return ToolList(names, custom, servers, allows_mcp=False)
    sorted_out = spec.under("tools")
    builtin, own = sorted_out.texts("builtin"), sorted_out.texts("custom") or ()
    custom = tuple(name for name in own if _TARGET.search(name))
    registered = tuple(name for name in own if name not in custom)
    names = None if builtin is None else (*builtin, *registered)
    return ToolList(names, custom, _chosen(sorted_out, servers), allows_mcp=True)


def approval(config: Fields) -> ApprovalPolicy:
    """Which calls need a person."""
    told, usual = config.under("approval"), ApprovalPolicy()
    return ApprovalPolicy(
        tools=told.texts("tools") or (),
        timeout_s=told.number("timeout_seconds") or usual.timeout_s,
        on_timeout=cast(Any, told.choice("on_timeout", ("deny", "approve")) or usual.on_timeout),
    )


def _auth(told: Fields) -> Auth | None:
    if told.get("auth") is None:
        return None
    auth = told.under("auth")
    kind, secret = auth.choice("type", ("bearer", "basic", "header")) or "bearer", auth.text("secret")
    if not secret:
        raise auth.wrong("secret", "the name of a secret (LOOM_SECRET_<name> in the environment)", secret)
    usual = Auth(cast(Any, kind), secret)
    return replace(usual, header=auth.text("header") or usual.header, user=auth.text("user") or usual.user)


def _servers(told: Fields) -> tuple[McpServer, ...]:
    return tuple(_server(name, told.under(name)) for name in told.names())


def _server(name: str, told: Fields) -> McpServer:
    command, url = told.text("command"), told.text("url")
    if not _SERVER_NAME.fullmatch(name) or "__" in name:
        raise told.wrong(None, "a name of 1-32 letters, digits, '-' and single '_'", name)
    if (command is None) == (url is None):
        raise told.wrong(None, "either a command or a url", command or "neither")
    return McpServer(
        name=name,
        command=command,
        args=told.texts("args") or (),
        env=_texts_by_name(told.under("env")),
        url=url,
        headers=_texts_by_name(told.under("headers")),
        tools=told.texts("tools"),
        allow_private=bool(told.flag("allow_private")),
    )


def _texts_by_name(told: Fields) -> dict[str, str]:
    found = {}
    for name in told.names():
        if isinstance(told.get(name), dict):
            found[name] = f"secret:{told.under(name).text('secret') or ''}"
        else:
            found[name] = told.text(name) or ""
    return found


def _chosen(told: Fields, servers: tuple[McpServer, ...]) -> tuple[McpServer, ...]:
    """The servers that ``tools.mcp`` names, each with the tools named there; all where it is not given."""
    if told.get("mcp") is None:
        return servers
    by_name, chosen = {server.name: server for server in servers}, []
    for entry in told.each("mcp"):
        name = entry.text("server") or ""
        if name not in by_name:
            raise entry.wrong("server", f"one of mcp_servers ({', '.join(by_name) or 'there are none'})", name)
        tools = entry.texts("tools")
        chosen.append(by_name[name] if tools is None else replace(by_name[name], tools=tools))
    return tuple(chosen)
