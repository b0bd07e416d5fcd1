"""The patterns that ship with Loom and an index over them, made once a process: neither ever changes."""

from functools import cache

from loom_worker.patterns.library import Library, load, packaged_root
from loom_worker.patterns.match import Matcher


@cache
def shipped() -> Library:
    """Every file of the packaged library, as it is read."""
    return load(packaged_root())


@cache
def shipped_matcher() -> Matcher:
    """An index over all of them."""
    return Matcher(shipped().patterns)
