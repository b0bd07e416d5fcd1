"""What an agent's file says of its data, its tools, the calls that a person must approve, and who else answers.

All raise InvalidField for a value that cannot be used.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import urlsplit

from loom_worker.core.fields import Fields, present
from loom_worker.core.values.agents import (
    PROVIDERS,
    ApprovalPolicy,
    Auth,
    Backend,
    CardSkill,
    McpServer,
    RemoteAgent,
    Scope,
)
from loom_worker.core.values.guardrails import (
    ACTIONS,
    CHECKED_STAGES,
    INJECTION,
    OTHER_WORDS,
    STAGES,
    Action,
    Guardrails,
    Stage,
    by_kind,
    kinds_at,
)
from loom_worker.core.values.json import Json
from loom_worker.core.values.learned import LearnedPolicy

_MEMBERS: Mapping[Literal["sql", "rest", "documents"], tuple[str, ...]] = {
    "sql": ("url", "scope"),
    "rest": ("url", "openapi", "operations", "allow_private", "auth"),
    "documents": ("path",),
}
"""Keys of a backend other than ``type``, by its type."""
ELSEWHERE: Mapping[str, Any] = {"tools": (), "patterns_enabled": False, "skills_enabled": False}
"""Fields of an agent that is answered elsewhere: it is sent messages alone, so nothing is added to them."""
_AUTHS: tuple[Literal["bearer", "basic", "header"], ...] = ("bearer", "basic", "header")
MOST_USD = 1_000_000.0
"""A budget; sums of more than some millions would not be exact any more."""
_SERVER_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")
_TARGET = re.compile(r"^[^()\s]*\.py(:[^()\s]*)?$|^(?=.*[.:])[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*)?$")
"""The name of a tool's file or module, and not that of a tool; nor one as other systems write it: ``Bash(git:*)``."""


@dataclass(frozen=True, slots=True)
class ToolList:
    """The tools an agent may have."""

    allowed: tuple[str, ...] | None
    """Names; None: all that there are."""
    custom: tuple[str, ...]
    servers: tuple[McpServer, ...]
    allows_mcp: bool
    """True: all tools of ``servers`` are allowed, though ``allowed`` does not name them."""


def learned(spec: Fields) -> LearnedPolicy:
    """Which version of the learned layer sessions begin with, and what of it is the agent's own."""
    fields = spec.under("learned")
    version = fields.get("version")
    is_number = isinstance(version, int) and not isinstance(version, bool) and version > 0
    if version not in (None, "latest", "none") and not is_number:
        raise fields.invalid("version", "a number from 1, latest or none", version)
    is_enabled = fields.flag("enabled") is not False
    return LearnedPolicy(is_enabled, version, fields.whole("max_tokens"), fields.texts("signatures"))


def budget(spec: Fields) -> Json | None:
    """What all sessions of the agent may spend together, for good, a day and a month."""
    fields = spec.under("budget")
    found = _amounts(fields)
    for period in ("day", "month"):
        if amounts := _amounts(fields.under(period)):
            found[period] = amounts
    return found or None


def guardrails(spec: Fields) -> Guardrails:
    """What its texts are searched for: ``{stage: {kind: action}}``, or ``{stage: [{find, action, model?}]}``."""
    fields = spec.under("guardrails")
    found: Json = {}
    for stage in STAGES:
        if isinstance(fields.get(stage), list):
            entries = fields.each(stage)
            found[stage] = by_kind([_rule(entry, stage) for entry in entries])
            if model := _model_of(entries, stage):
                found.setdefault("models", {})[stage] = model
        elif fields.get(stage) is not None:
            found[stage] = _rules_by_kind(fields.under(stage), stage)
    return Guardrails.of(found)


def _rule(entry: Fields, stage: Stage) -> tuple[str, Action]:
    for name in ("find", "action"):
        entry.required(name)
    entry.choice("find", (*kinds_at(stage), *OTHER_WORDS))
    return entry.required("find"), entry.choice("action", ACTIONS) or ACTIONS[0]


def _model_of(entries: Sequence[Fields], stage: Stage) -> str | None:
    """The model that the rules of a stage name; all that name one name the same."""
    first = None
    for entry in entries:
        named = _checking_model(entry, stage)
        if first and named and named != first:
            raise entry.invalid("model", f"{first!r} (each stage asks one model)", named)
        first = first or named
    return first


def _checking_model(entry: Fields, stage: Stage) -> str | None:
    """The model that is asked about injection in addition to the rules."""
    named = entry.text("model")
    if named is None:
        return None
    if stage not in CHECKED_STAGES or entry.get("find") != INJECTION:
        needed = f"nothing (a model is asked with find: {INJECTION} alone, for {' and '.join(CHECKED_STAGES)})"
        raise entry.invalid("model", needed, named)
    provider, _, model = named.partition("/")
    if provider == "scripted" or provider not in PROVIDERS or not model.strip():
        known = ", ".join(each for each in PROVIDERS if each != "scripted")
        raise entry.invalid("model", f"provider/model, with a provider of {known},", named)
    return named


def _rules_by_kind(rules: Fields, stage: Stage) -> Json:
    kinds = kinds_at(stage)
    for name in rules.names():
        if name not in kinds:
            raise rules.invalid(name, f"nothing (of {stage} these can be searched for: {', '.join(kinds)})", name)
    return {name: rules.choice(name, ACTIONS) for name in rules.names() if rules.get(name) is not None}


def _amounts(fields: Fields) -> Json:
    usd = fields.number("usd", most=MOST_USD)
    return present(usd=usd, tokens=fields.whole("tokens", least=0), tool_calls=fields.whole("tool_calls", least=0))


def backend(spec: Fields) -> Backend | None:
    """What the agent works on; ``backend: false`` is an agent without data."""
    if spec.get("backend") is False:
        return None
    fields = spec.under("backend")
    kind = fields.choice("type", tuple(_MEMBERS)) or "sql"
    for name in sorted({name for members in _MEMBERS.values() for name in members} - set(_MEMBERS[kind])):
        if fields.get(name) is not None:
            raise fields.invalid(name, f"nothing (a backend of type {kind} has no such member)", fields.get(name))
    scope = fields.under("scope")
    found = present(
        url=fields.text("url"),
        databases=scope.texts("databases"),
        openapi=fields.text("openapi"),
        operations=fields.texts("operations"),
        allow_private=fields.flag("allow_private"),
        path=fields.text("path"),
        auth=auth(fields),
    )
    member = {"rest": "openapi", "documents": "path"}.get(kind)
    if member and member not in found:
        raise fields.invalid(member, f"a path (a backend of type {kind} must have it)", None)
    return Backend(kind, scope=Scope(scope.texts("schemas"), scope.texts("tables"), scope.texts("columns")), **found)


def toolbox(spec: Fields) -> ToolList:
    """The tools the file names, in one list or grouped by where they come from."""
    mcp = spec.under("mcp_servers")
    servers = tuple(_server(name, mcp.under(name)) for name in mcp.names())
    if not isinstance(spec.get("tools"), dict):
        listed = spec.texts("tools")
        custom = tuple(name for name in listed or () if _TARGET.search(name))
        names = None if listed is None else tuple(name for name in listed if name not in custom)
        return ToolList(names, custom, servers, allows_mcp=False)
    by_origin = spec.under("tools")
    builtin, own = by_origin.texts("builtin"), by_origin.texts("custom") or ()
    custom = tuple(name for name in own if _TARGET.search(name))
    names = None if builtin is None else (*builtin, *(name for name in own if name not in custom))
    return ToolList(names, custom, _chosen(by_origin, servers), allows_mcp=True)


def approval(config: Fields) -> ApprovalPolicy:
    """Which calls need a person."""
    fields = config.under("approval")
    return ApprovalPolicy(
        **present(
            tools=fields.texts("tools"),
            timeout_s=fields.number("timeout_seconds"),
            on_timeout=fields.choice("on_timeout", ("deny", "approve")),
        )
    )


def auth(section: Fields) -> Auth | None:
    """How requests are authenticated to what a section of the file describes."""
    if section.get("auth") is None:
        return None
    fields = section.under("auth")
    kind, secret = fields.choice("type", _AUTHS) or "bearer", fields.text("secret")
    if not secret:
        raise fields.invalid("secret", "the name of a secret (LOOM_SECRET_<name> in the environment)", secret)
    return Auth(kind, secret, **present(header=fields.text("header") or None, user=fields.text("user")))


def _server(name: str, fields: Fields) -> McpServer:
    command, url = fields.text("command"), fields.text("url")
    if not _SERVER_NAME.fullmatch(name) or "__" in name:
        raise fields.invalid(None, "a name of 1-32 letters, digits, '-' and single '_'", name)
    if (command is None) == (url is None):
        raise fields.invalid(None, "either a command or a url", command or "neither")
    texts = present(**{key: _texts_by_name(fields.under(key)) for key in ("env", "headers")})
    given = present(args=fields.texts("args"), tools=fields.texts("tools"), allow_private=fields.flag("allow_private"))
    return McpServer(name, command, url=url, **texts, **given)


def _texts_by_name(fields: Fields) -> dict[str, str]:
    found = {}
    for name in fields.names():
        if isinstance(fields.get(name), dict):
            found[name] = f"secret:{fields.under(name).text('secret') or ''}"
        else:
            found[name] = fields.text(name) or ""
    return found


def _chosen(fields: Fields, servers: tuple[McpServer, ...]) -> tuple[McpServer, ...]:
    """The servers that ``tools.mcp`` names, each with the tools named there; all where it is not given."""
    if fields.get("mcp") is None:
        return servers
    by_name, chosen = {server.name: server for server in servers}, []
    for entry in fields.each("mcp"):
        name = entry.text("server") or ""
        if name not in by_name:
            raise entry.invalid("server", f"one of mcp_servers ({', '.join(by_name) or 'there are none'})", name)
        tools = entry.texts("tools")
        chosen.append(by_name[name] if tools is None else replace(by_name[name], tools=tools))
    return tuple(chosen)


def remote(fields: Fields, spec: Fields) -> RemoteAgent | None:
    """The agent that answers in place of a model; None if the section names none."""
    url = fields.text("url")
    given = [name for name in ("auth", "allow_private", "timeout_seconds") if fields.get(name) is not None]
    if url is None:
        if given:
            raise fields.invalid("url", f"the address of an agent, for which {given[0]} is meant,", None)
        return None
    if urlsplit(url).scheme not in ("http", "https"):
        raise fields.invalid("url", "a URL that begins with https:// or http://", url)
    for member in ("tools", "mcp_servers", "backend", "system_prompt"):
        if spec.get(member):
            raise spec.invalid(member, "nothing (an agent that a2a.url answers has its own elsewhere)", member)
    return RemoteAgent(
        url,
        auth(fields),
        allow_private=bool(fields.flag("allow_private")),
        timeout_s=fields.number("timeout_seconds"),
    )


def card_skills(fields: Fields) -> tuple[CardSkill, ...]:
    """What the agent's card says that it can do."""
    return tuple(_skill(entry) for entry in fields.each("skills"))


def _skill(entry: Fields) -> CardSkill:
    own_id, name, description = (entry.required(key) for key in ("id", "name", "description"))
    return CardSkill(own_id, name, description, entry.texts("tags") or (), entry.texts("examples") or ())
