"""Reading settings from a mapping of texts, such as the environment; every complaint is kept, none is raised."""

import os
from collections.abc import Callable, Iterator, Mapping
from difflib import SequenceMatcher
from pathlib import Path
from typing import TypeVar

from loom_worker.core.values.problems import Problem

T = TypeVar("T")

KNOWN = (
    "LOOM_HOME",
    "LOOM_DATABASE_URL",
    "LOOM_REDIS_URL",
    "LOOM_MODEL",
    "LOOM_PROVIDER",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "OLLAMA_HOST",
    "LOOM_AGENTS_DIR",
    "LOOM_PATTERNS_DIR",
    "LOOM_PATTERNS_SHIPPED",
    "LOOM_PATTERNS_DEBOUNCE_MS",
    "LOOM_PATTERNS_LEARN",
    "LOOM_WORKSPACES_DIR",
    "LOOM_BACKEND_URL",
    "LOOM_MAX_CONTEXT_TOKENS",
    "LOOM_RESERVED_OUTPUT_TOKENS",
    "LOOM_L1_TOKENS",
    "LOOM_LLM_TIMEOUT_S",
    "LOOM_MAX_REPLY_BYTES",
    "LOOM_MAX_ATTEMPTS",
    "LOOM_LEASE_S",
    "LOOM_TOOL_TIMEOUT_S",
    "LOOM_TURN_TIMEOUT_S",
    "LOOM_MAX_LLM_CALLS",
    "LOOM_MAX_TOOL_CALLS",
    "LOOM_TOOL_CONCURRENCY",
    "LOOM_TOOL_PROCESSES",
    "LOOM_TOOL_ENV",
    "LOOM_CONFINE_TOOLS",
    "LOOM_MAX_RESULT_BYTES",
    "LOOM_REFERENCE_BYTES",
    "LOOM_BLOB_DIR",
    "LOOM_BLOB_MEMORY_BYTES",
    "LOOM_BLOB_DISK_BYTES",
    "LOOM_BLOB_TTL_S",
    "LOOM_EVENT_LOG_BYTES",
    "LOOM_EVENT_TTL_S",
    "LOOM_ERROR_DAYS",
    "LOOM_JOURNAL_DAYS",
    "LOOM_CONVERSATION_DAYS",
    "LOOM_SQLITE_SYNC",
    "LOOM_HOST",
    "LOOM_PORT",
    "LOOM_API_KEYS",
    "LOOM_TRUSTED_PROXIES",
    "LOOM_WEBHOOK_SECRET",
    "LOOM_ALLOW_PRIVATE_WEBHOOKS",
    "LOOM_WEBHOOK_TIMEOUT_S",
    "LOOM_WORKER_CONCURRENCY",
    "LOOM_DEBUGGABLE",
    "LOOM_LOG_LEVEL",
    "LOOM_LOG_FORMAT",
    "LOOM_CRASHPOINTS",
)
"""Every variable that is read; each must stand in docs/settings.md (a test checks)."""

NAMED_PREFIX = "LOOM_SECRET_"
"""``LOOM_SECRET_<NAME>``: a secret that agent files refer to by its name; there may be any number of them."""

SECRET = frozenset({"ANTHROPIC_API_KEY", "LOOM_API_KEYS", "LOOM_WEBHOOK_SECRET"})
"""Variables whose values are never printed."""

PROVIDER_PREFIXES = ("ANTHROPIC_", "AWS_")
"""What the models' own packages read: keys, tokens, addresses."""

_MAY_HOLD_A_PASSWORD = frozenset({"LOOM_DATABASE_URL", "LOOM_REDIS_URL", "ANTHROPIC_BASE_URL"})
"""A complaint does not repeat their values: where the password stands in what is no URL, nobody can tell."""


PREFIX = "LOOM_"
CLIENTS = frozenset({"LOOM_URL"})
"""Read by commands that ask a Loom."""
FOR_TESTS = "LOOM_TEST_"
"""Begins the names that the tests read, and nothing else."""
_NEAR_LOOM = 0.7
"""How alike (0-1) what follows the prefix must be, to be taken for a typing error: ``REDIS`` for ``REDIS_URL``."""
_NEAR_OTHER = 0.85
"""The same of whole names that are others' too: ``ANTHROPIC_KEY`` is near, ``ANTHROPIC_AUTH_TOKEN`` is not."""


def misnamed(environ: Mapping[str, str]) -> Iterator[Problem]:
    """Variables that look like settings of Loom's and are none; their values are not told, they may be secrets."""
    for name in sorted(name for name, value in environ.items() if value.strip()):
        if name in KNOWN or name in CLIENTS or name.startswith((NAMED_PREFIX, FOR_TESTS)):
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
    if secret and _alike(kind, "SECRET") > _NEAR_OTHER:
        return NAMED_PREFIX + secret
    ours = {known.removeprefix(PREFIX): known for known in KNOWN if known.startswith(PREFIX)}
    return _nearest(rest, ours, _NEAR_LOOM)


def _nearest(name: str, known: Mapping[str, str], least: float) -> str:
    best = max(known, key=lambda each: _alike(name, each))
    return known[best] if _alike(name, best) >= least else ""


def _alike(one: str, other: str) -> float:
    """From 0 to 1; letters that only changed places count as they are."""
    return 1.0 if sorted(one) == sorted(other) else SequenceMatcher(None, one, other).ratio()


def is_secret(name: str) -> bool:
    """True for what no tool is handed, and what leaves a process's environment once it is read."""
    urls = _MAY_HOLD_A_PASSWORD | {"LOOM_BACKEND_URL"}
    return name in SECRET or name in urls or name.startswith((NAMED_PREFIX, *PROVIDER_PREFIXES))


class Reader:
    """Reads single values and keeps every complaint, so that all bad values are reported at once."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.complaints: list[str] = []

    def prefixed(self, prefix: str) -> dict[str, str]:
        """All variables that begin so and have a value, by the rest of their names."""
        return {
            name.removeprefix(prefix): value
            for name, value in self._environ.items()
            if name.startswith(prefix) and value
        }

    def text(self, name: str) -> str | None:
        """The value without blanks around it; None if there is none."""
        return self._environ.get(name, "").strip() or None

    def parsed(self, name: str, default: T, parse: Callable[[str], T], expected: str) -> T:
        """What ``parse`` makes of a value; where it raises ValueError, a complaint and the default."""
        raw = self.text(name)
        if raw is None:
            return default
        try:
            return parse(raw)
        except ValueError:
            self.complaints.append(f"{_shown(name, raw)}: expected {expected}")
            return default

    def folder(self, name: str, default: str | None = None) -> Path | None:
        """Where a folder is or can be made, absolute; None if there is no value, or one that cannot be a folder's.

        A relative one lies in the working directory of this process.
        """
        raw = self.text(name) or default
        if raw is None:
            return None
        try:
            return _folder(raw)
        except ValueError as error:
            self.complaints.append(f"{name}={raw!r}: {error}")
            return None

    def whole(self, name: str, default: int, *, least: int = 1, most: int = 10_000_000) -> int:
        """A whole number."""
        return self.parsed(name, default, lambda raw: within(int(raw), least, most), f"a whole number {least}-{most}")

    def seconds(self, name: str, default: float) -> float:
        """Seconds."""
        return self.parsed(name, default, lambda raw: within(float(raw), 0.1, 86_400.0), "seconds, 0.1-86400")

    def choice(self, name: str, default: T, choices: Mapping[str, T]) -> T:
        """One of some words, whatever their case."""

        def pick(raw: str) -> T:
            if raw.lower() not in choices:
                raise ValueError(raw)
            return choices[raw.lower()]

        return self.parsed(name, default, pick, "one of " + ", ".join(choices))


def _shown(name: str, raw: str) -> str:
    if name in _MAY_HOLD_A_PASSWORD:
        return name
    return f"{name}=***" if name in SECRET else f"{name}={raw!r}"


def _folder(raw: str) -> Path:
    # Not Path.expanduser: it raises RuntimeError where this leaves the tilde.
    path = Path(os.path.expanduser(raw))
    if path.parts[0].startswith("~"):
        raise ValueError("there is no such user, or none with a home directory")
    path = path.absolute()
    # Not Path.exists, which raises where a name is too long.
    nearest = next(each for each in (path, *path.parents) if os.path.lexists(each))
    if not os.path.isdir(nearest):
        raise ValueError(f"{'it' if nearest == path else nearest} is no folder")
    return path


def within(number: T, least: T, most: T) -> T:
    """The number itself; ValueError if it is out of its range."""
    if not least <= number <= most:  # type: ignore[operator]  # T is int or float here; a bound would cost a Protocol
        raise ValueError(number)
    return number
