"""What an agent's file says under ``a2a``: which agent elsewhere answers, and what its own card shows.

All raise InvalidField for a value that cannot be used.
"""

from typing import Any
from urllib.parse import urlsplit

from loom_worker.agents.work import auth
from loom_worker.core.fields import Fields
from loom_worker.core.values.agents import CardSkill, RemoteAgent


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


def answered_elsewhere(known: dict[str, Any]) -> dict[str, Any]:
    """What an agent is built of that is answered elsewhere: it is sent messages alone, so nothing is added to them."""
    return {**known, "tools": (), "patterns_enabled": False, "skills_enabled": False}


def card_skills(fields: Fields) -> tuple[CardSkill, ...]:
    """What the agent's card says that it can do."""
    return tuple(_skill(entry) for entry in fields.each("skills"))


def _skill(entry: Fields) -> CardSkill:
    own_id, name, description = (entry.required(key) for key in ("id", "name", "description"))
    return CardSkill(own_id, name, description, entry.texts("tags") or (), entry.texts("examples") or ())
