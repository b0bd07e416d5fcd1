"""Workflows that work on the sample shop: YAML files, which are read unless LOOM_WORKFLOWS_DIR names others."""

from pathlib import Path


def shipped_workflows() -> Path:
    """The folder of their files."""
    return Path(__file__).parent
