"""Agents with tools, written as a user writes them: YAML files, and a Python file beside them."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Json = dict[str, Any]
HANDMADE = Path(__file__).parents[1] / "journeys" / "handmade.py"
NO_PATTERNS = {"patterns": {"enabled": False}}
"""Reading the library takes every worker a second at its start."""


def written(folder: Path, agents: Mapping[str, Json]) -> str:
    """Write agents and the tools of ``handmade.py`` into a new folder; its path.

    Args:
        agents: name to ``spec``; one named ``default`` is added, so that no worker loads patterns at its start.
    """
    folder.mkdir(parents=True)
    shutil.copy(HANDMADE, folder)
    for name, spec in {"default": {"backend": False}, **agents}.items():
        add(folder, name, spec)
    return str(folder)


def add(folder: Path, name: str, spec: Json) -> None:
    """Write one more agent, whole at once: a Loom that runs may read it at any moment."""
    config = {**NO_PATTERNS, **spec.get("config", {})}
    agent = {
        "apiVersion": "loom/v1",
        "kind": "Agent",
        "metadata": {"name": name},
        "spec": {"system_prompt": "Answer.", **spec, "config": config},
    }
    draft = folder / f".{name}.draft"
    draft.write_text(json.dumps(agent))  # JSON is YAML
    draft.rename(folder / f"{name}.yaml")
