"""Stored versions of agents: what one is called, which of them a new session gets, what two of them differ in. Pure."""

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any, Literal

import yaml

from loom_worker.core.values.ids import drawn
from loom_worker.core.values.json import Json, rfc3339

BY_FILE = "file"
"""Who changed an agent, where an edit of its file was noticed."""
LATEST = "latest"
"""Stands for the newest version of an agent's file, whatever that is."""
LABELS = ("production", "canary")
"""What versions can be labelled as: what new sessions get, and what a share of them gets."""
RESERVED = frozenset({LATEST, *LABELS})
LONGEST = 48
"""Characters of a version as declared; a number may follow."""
LINE_CHARS = 100
"""At which the lines of a shown document are folded."""

LabelName = Literal["production", "canary"]
_FOREIGN = re.compile(r"[^A-Za-z0-9._+-]+")


@dataclass(frozen=True, slots=True)
class AgentVersion:
    """One text that an agent's file has had."""

    agent: str
    n: int
    """1 for the first that was stored, one more for each that followed."""
    version: str
    """``metadata.version``, followed by a number where another text had that already; unique for each agent."""
    digest: str
    """SHA-256 of the document, in hexadecimal."""
    document: str
    """JSON of all that the file says about the agent."""
    created_ms: int
    changed_by: str = BY_FILE
    labels: tuple[str, ...] = ()
    """That it has in the workspace of whoever asks."""
    is_active: bool = False
    """True of what new sessions of that workspace get, those of the canary aside."""

    def brief(self) -> "AgentVersion":
        return self

    def as_json(self) -> Json:
        """The AgentVersion of the HTTP API, without the document."""
        return {
            "object": "agent.version",
            "agent": self.agent,
            "version": self.version,
            "digest": self.digest,
            "by": self.changed_by,
            "labels": list(self.labels),
            "active": self.is_active,
            "created_at": rfc3339(self.created_ms),
        }

    def with_document(self) -> Json:
        """The same with the document as it was in the file."""
        return {**self.as_json(), "document": json.loads(self.document)}


@dataclass(frozen=True, slots=True)
class VersionLabel:
    """What a version of an agent is to a workspace."""

    name: LabelName
    version: str
    share: float = 1.0
    """Share of new sessions (0-1) that get it; only a canary has less than all."""


@dataclass(frozen=True, slots=True)
class ActivationRequest:
    """What an administrator asks to be done with a version."""

    version: str
    """A version, a label, or ``latest``, which takes the label away: new sessions follow the file again."""
    label: LabelName = "production"
    share: float = 1.0
    """Share of new sessions (0-1), for a canary."""
    repins: bool = False
    """True: sessions that have begun move to the version, too."""


@dataclass(frozen=True, slots=True)
class Seen:
    """An agent as a process reads it in its file."""

    agent: str
    declared: str
    document: str
    digest: str


def seen(agent: str, declared: str, raw: Json) -> Seen:
    """An agent of a file, ready to be stored."""
    document = json.dumps(raw, ensure_ascii=False, separators=(",", ":"), default=str)
    sorted_document = json.dumps(raw, sort_keys=True, separators=(",", ":"), default=str)
    digest = hashlib.sha256(sorted_document.encode("utf-8", "surrogatepass")).hexdigest()
    return Seen(agent, declared, document, digest)


def free_version(declared: str, taken: Collection[str]) -> str:
    """What the next version of an agent is called: as declared, or with the first number that is free.

    Args:
        declared: ``metadata.version``; characters that a URL or ``name@version`` cannot hold become a hyphen.
        taken: what earlier versions of the agent are called. No two differ in the case of letters alone.
    """
    plain = _FOREIGN.sub("-", declared).strip("-")[:LONGEST] or "1"
    known = {*map(str.casefold, taken), *RESERVED}
    number, found = 2, plain
    while found.casefold() in known:
        number, found = number + 1, f"{plain}-{number}"
    return found


def for_new_session(lane: str, newest: str, labels: Mapping[str, VersionLabel]) -> str:
    """The version that a session gets whose first turn begins.

    Args:
        lane: the session's internal key: its hash decides who gets the canary, the same at every attempt.
        newest: of the agent's file.
        labels: of the session's workspace, by name.
    """
    canary, production = labels.get("canary"), labels.get("production")
    if canary is not None and drawn(f"canary:{lane}") < canary.share:
        return canary.version
    return newest if production is None else production.version


class _Literal(yaml.SafeDumper):
    """Writes texts of several lines line by line, so that a difference shows the lines that differ."""


_Literal.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def shown(document: str) -> str:
    """A stored document as YAML, its keys in the order of the file."""
    content: Any = json.loads(document)
    return yaml.dump(content, Dumper=_Literal, sort_keys=False, allow_unicode=True, width=LINE_CHARS)


def diff(before: AgentVersion, after: AgentVersion) -> str:
    """What two versions differ in, as a unified diff of their documents; empty if in nothing."""
    old, new = (shown(each.document).splitlines(keepends=True) for each in (before, after))
    return "".join(unified_diff(old, new, f"{before.agent}@{before.version}", f"{after.agent}@{after.version}"))
