"""The names of Loom's variables: which are known, which are secrets, and which look like a misspelt one."""

from collections.abc import Iterator, Mapping

from loom_worker.core.settings_tree import Settings, declared
from loom_worker.core.text import closest
from loom_worker.core.values.problems import Problem

_VARIABLES = tuple(variable for variable, _ in declared(Settings()))

KNOWN = tuple(variable.name for variable in _VARIABLES)
"""Every variable that is read; each must have a row in docs/settings.md (a test checks)."""

SECRET = frozenset(variable.name for variable in _VARIABLES if variable.is_secret)
"""Variables whose values are never printed."""
_PRIVATE = SECRET.union(variable.name for variable in _VARIABLES if variable.may_hold_password)

PREFIX = "LOOM_"
NAMED_PREFIX = "LOOM_SECRET_"
"""``LOOM_SECRET_<NAME>``: a secret that agent files refer to by its name; there may be any number of them."""
PROVIDER_PREFIXES = ("ANTHROPIC_", "AWS_", "OPENAI_", "AZURE_OPENAI_")
"""What the models' own packages read: keys, tokens, addresses."""
GONE = frozenset({"LOOM_PATTERNS_LEARN"})
"""Settings of earlier versions, which have no effect now."""
CLIENTS = frozenset({"LOOM_URL"})
"""Read by commands that send requests to a Loom server."""
FOR_TESTS = "LOOM_TEST_"
"""Prefix of the variables that only the tests read."""
_NEAR_LOOM = 0.7
"""How alike (0-1) the rest of a name must be to count as a typing error: ``REDIS`` for ``REDIS_URL``."""
_NEAR_OTHER = 0.85
"""The same for whole names that others use too: ``ANTHROPIC_KEY`` is near, ``ANTHROPIC_AUTH_TOKEN`` is not."""


def misnamed(environ: Mapping[str, str]) -> Iterator[Problem]:
    """Variables that look like Loom's settings but are not; their values are left out, since they may be secrets."""
    for name in sorted(name for name, value in environ.items() if value.strip()):
        if name in KNOWN or name in CLIENTS or name.startswith((NAMED_PREFIX, FOR_TESTS)):
            continue
        if name in GONE:
            yield Problem("has no effect any more", "take it out", field=name, is_warning=True)
            continue
        meant = _meant(name.upper().replace("-", "_"))
        is_there = bool(environ.get(meant, "").strip())
        if meant and (name.startswith(PREFIX) or not is_there):
            fix = f"did you mean {meant}? rename it, or take it away"
            yield Problem("no such setting", fix, field=name, is_warning=is_there)
        elif name.startswith(PREFIX):
            yield Problem("no such setting", "docs/settings.md lists them all", field=name, is_warning=True)


def _meant(name: str) -> str:
    """The setting that a name resembles, or nothing."""
    if not name.startswith("LOOM"):
        others = (known for known in KNOWN if not known.startswith(PREFIX))
        return _nearest(name, {known: known for known in others}, _NEAR_OTHER)
    rest = name.removeprefix("LOOM").strip("_")
    kind, _, secret = rest.partition("_")
    if secret and _nearest(kind, {"SECRET": NAMED_PREFIX}, _NEAR_OTHER):
        return NAMED_PREFIX + secret
    ours = {known.removeprefix(PREFIX): known for known in KNOWN if known.startswith(PREFIX)}
    return _nearest(rest, ours, _NEAR_LOOM)


def _nearest(name: str, known: Mapping[str, str], least: float) -> str:
    """Letters that only changed places count as they are."""
    letters = sorted(name)
    near = next((each for each in known if sorted(each) == letters), "") or closest(name, known, least=least)
    return known.get(near, "")


def is_secret(name: str) -> bool:
    """True for a variable that no tool inherits, and that a process removes from its environment once it is read."""
    return name in _PRIVATE or name.startswith((NAMED_PREFIX, *PROVIDER_PREFIXES))
