"""Processes whose clock is an hour ahead, while what they measure of passing time is true."""

import os
from collections.abc import Mapping
from pathlib import Path

LIBRARIES = (
    Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"),
    Path("/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1"),
)
FIXES = Path(__file__).parent
"""Python imports ``sitecustomize`` from here before anything else."""


def library() -> Path | None:
    """Where libfaketime is, if it is installed."""
    return next((path for path in LIBRARIES if path.exists()), None)


def environ(faketime: Path, pythonpath: Path) -> Mapping[str, str]:
    """What a Python process needs in its environment to have that clock; its children inherit it.

    Args:
        faketime: the library.
        pythonpath: where else it finds modules.
    """
    return {
        "LD_PRELOAD": str(faketime),
        "FAKETIME": "+3600s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "PYTHONPATH": os.pathsep.join((str(FIXES), str(pythonpath))),
    }
