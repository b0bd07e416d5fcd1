"""Loom runs LLM agents as durable background work; the rooms are described in CONTRIBUTING.md.

What files of tools need is here: ``from loom_worker import Caller, ToolFailed, tool``.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loom_worker.core.errors import ToolFailed
    from loom_worker.core.values.tools import Caller
    from loom_worker.tools.declare import tool

__all__ = ["Caller", "ToolFailed", "__version__", "tool"]
__version__ = "0.1.0"

_HOMES = {
    "Caller": "loom_worker.core.values.tools",
    "ToolFailed": "loom_worker.core.errors",
    "tool": "loom_worker.tools.declare",
}


def __getattr__(name: str) -> object:
    """Import what files of tools need when it is asked for: every process of Loom imports this package."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
