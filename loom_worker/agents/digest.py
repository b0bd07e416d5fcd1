"""One digest of all agents, the same in every process and on every machine that has the same."""

import hashlib
import json
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from typing import Any

from loom_worker.core.values.agents import Agent

_PLACES = frozenset({"source", "lines"})
"""The fields of an agent that say where its file lies on this machine, and where in it things stand."""


def digest(agents: Mapping[str, Agent]) -> str:
    """SHA-256 of all that agents say, in hexadecimal; where their files lie makes no difference."""
    text = json.dumps(_plain(agents), sort_keys=True, default=repr)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _plain(value: Any) -> Any:
    """As JSON takes it; sets in order, for theirs differs from process to process."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value) if each.name not in _PLACES}
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, Set):
        return sorted(json.dumps(_plain(each), sort_keys=True, default=repr) for each in value)
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
