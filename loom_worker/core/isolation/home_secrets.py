"""Secrets that Loom makes itself, once, and keeps in files of the home that only its own user can read."""

import contextlib
import fcntl
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from loom_worker.core.settings import VALKEY_CONF, embedded_url

HOME_TOKEN = "home.token"  # noqa: S105 - the name of a file


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret that Loom made itself."""

    text: str
    file: Path
    """Where it is kept, readable by this user alone: screens and logs name it in place of the secret."""


def kept(path: Path, fresh: str) -> Secret:
    """The secret in this file (0600), which is ``fresh`` if there was none; processes that ask at once get the same.

    Raises:
        OSError: it cannot be read, or not be made.
    """
    with contextlib.suppress(FileNotFoundError):
        if text := path.read_text(encoding="ascii").strip():
            return Secret(text, path)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with open(handle, "r+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        # Empty where the process that made the file was killed, or had no room: such a secret would protect nothing.
        if text := file.read().decode("ascii").strip():
            return Secret(text, path)
        file.write(fresh.encode("ascii") + b"\n")
    return Secret(fresh, path)


def home_token(home: Path) -> Secret:
    """What a client shows to make the first key over HTTP; raises what ``kept`` raises."""
    return kept(home / HOME_TOKEN, secrets.token_urlsafe(32))


def embedded_with_password(home: Path) -> str:
    """The URL of the embedded server with its password, made if there was none; raises what ``kept`` raises."""
    kept(home / VALKEY_CONF, f"requirepass {secrets.token_urlsafe(32)}")
    return embedded_url(home)
