"""How a setting is declared: the name of its variable, how its text is read, how its value is shown. Pure."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import unquote, urlsplit

from loom_worker.core import crash_points

T = TypeVar("T")
Read = TypeVar("Read", covariant=True)
Number = TypeVar("Number", int, float)
VARIABLE = "variable"
"""Key in the metadata of a dataclass field that a variable sets."""


class Parser(Generic[Read]):
    """Reads the text of a variable, and shows its value."""

    expected: str
    """What a text must be, for the error message."""

    def parse(self, raw: str) -> Read:
        """Read a text that is not blank.

        Raises:
            ValueError: the text is not what is expected.
        """
        raise NotImplementedError

    def show(self, value: Any) -> str:
        """The value as `loom doctor` prints it; empty if there is nothing to print."""
        return str(value)


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable that sets one field of the settings."""

    name: str
    parser: Parser[object]
    is_secret: bool
    """True: its value is never printed."""
    may_hold_password: bool
    """True: an error does not repeat its value, since nobody can find the password in an invalid URL."""

    def error(self, raw: str, reason: str = "") -> str:
        """One line for a value that cannot be used."""
        shown = self.name if self.may_hold_password else f"{self.name}={'***' if self.is_secret else repr(raw)}"
        return f"{shown}: {reason or f'expected {self.parser.expected}'}"

    def shown(self, value: object) -> str:
        """A value as `loom doctor` prints it; ``-`` where nothing is set."""
        text = "" if value is None else self.parser.show(value)
        return "***" if text and self.is_secret else text or "-"


def setting(name: str, parser: Parser[T], default: T, *, is_secret: bool = False, may_hold_password: bool = False) -> T:
    """A dataclass field that the environment variable of this name sets."""
    variable, is_shown = Variable(name, parser, is_secret, may_hold_password), not (is_secret or may_hold_password)
    if isinstance(default, Mapping):
        return field(default_factory=lambda: default, repr=is_shown, metadata={VARIABLE: variable})
    return field(default=default, repr=is_shown, metadata={VARIABLE: variable})


_PASSWORD = re.compile(r"(://[^/?#:@\s]*:)[^/\s]*(?=@)")
_SECRET_PARAMETER = re.compile(r"([?&][^=&#]*(?:pass|pwd|secret|token|key|sig|auth)[^=&#]*=)[^&#\s]+", re.IGNORECASE)


def without_password(url: str) -> str:
    """A URL as it may be shown: a password, and parameters that are named as secrets, as ``***``."""
    return _SECRET_PARAMETER.sub(r"\1***", _PASSWORD.sub(r"\1***", url))


class BadFolder(ValueError):
    """A path that cannot be a folder's."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason


class Text(Parser[str]):
    """Any text."""

    def parse(self, raw: str) -> str:
        return raw


class Url(Text):
    """A URL that only the code that uses it can check; shown without its password."""

    def show(self, value: str) -> str:
        return without_password(value)


class Whole(Parser[int]):
    """A whole number."""

    def __init__(self, least: int = 1, most: int = 10_000_000) -> None:
        self._least, self._most = least, most
        self.expected = f"a whole number {least}-{most}"

    def parse(self, raw: str) -> int:
        return _within(int(raw), self._least, self._most)


class Seconds(Parser[float]):
    """Seconds, with a fraction if need be."""

    expected = "seconds, 0.1-86400"

    def parse(self, raw: str) -> float:
        return _within(float(raw), 0.1, 86_400.0)


class OneOf(Parser[T]):
    """One of several words, in any case."""

    def __init__(self, *words: T) -> None:
        self._words = {str(word).lower(): word for word in words}
        self.expected = "one of " + ", ".join(self._words)

    def parse(self, raw: str) -> T:
        if raw.lower() not in self._words:
            raise ValueError(raw)
        return self._words[raw.lower()]


class YesNo(Parser[bool]):
    """Yes or no, shown as True or False."""

    _WORDS: Mapping[str, bool] = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    expected = "one of " + ", ".join(_WORDS)

    def parse(self, raw: str) -> bool:
        if raw.lower() not in self._WORDS:
            raise ValueError(raw)
        return self._WORDS[raw.lower()]


class OneZero(YesNo):
    """Yes or no, shown as 1 or 0."""

    def show(self, value: bool) -> str:
        return str(int(value))


class Folder(Parser[Path]):
    """A directory that exists or can be made, absolute; a relative path starts at this process's working directory."""

    def __init__(self, *, must_exist: bool = False) -> None:
        self._must_exist = must_exist

    def parse(self, raw: str) -> Path:
        """Make the path absolute; BadFolder where it cannot be a directory."""
        # Not Path.expanduser: it raises RuntimeError where this leaves the tilde.
        path = Path(os.path.expanduser(raw))
        if path.parts[0].startswith("~"):
            raise BadFolder(raw, "there is no such user, or none with a home directory")
        path = path.absolute()
        # Not Path.exists, which raises where a name is too long.
        nearest = next(each for each in (path, *path.parents) if os.path.lexists(each))
        if not os.path.isdir(nearest):
            raise BadFolder(raw, f"{'it' if nearest == path else nearest} is no folder")
        if self._must_exist and not path.is_dir():
            raise BadFolder(str(path), "no such folder")
        return path


class DatabaseUrl(Url):
    """The URL of Loom's own database."""

    expected = (
        "sqlite:///<absolute path>, or postgresql://user:password@host:port/database (libpq's parameters follow a ?)"
    )

    def parse(self, raw: str) -> str:
        """Check the URL, and turn other spellings of a PostgreSQL server into libpq's."""
        url = re.sub(r"^postgres(ql)?(\+\w+)?://", "postgresql://", raw)
        # Three slashes alone: a file in whatever folder a process was started in.
        if not re.match(r"sqlite:////.|postgresql://\S*/[^/?\s]\S*$", url):
            raise ValueError(raw)
        return url


def is_server(url: str) -> bool:
    """True if LOOM_DATABASE_URL names a server, False for a file."""
    return url.startswith("postgresql:")


class RedisUrl(Url):
    """The URL of a Redis server or socket."""

    expected = "redis://host:port/number (port 1-65535), rediss:// likewise, or unix:///path/of.sock"

    def parse(self, raw: str) -> str:
        """Check the URL, and turn kombu's spelling of a socket into redis-py's."""
        url = re.sub(r"^redis\+socket://", "unix://", raw)
        parts = urlsplit(url)
        if url.startswith("unix://"):
            is_sound = parts.hostname is None and len(parts.path) > 1
        else:
            # redis-py takes what is no number for database 0 without a word, Celery refuses it with the first task.
            is_sound = url.startswith(("redis://", "rediss://")) and parts.port != 0
            is_sound = is_sound and re.fullmatch("/?[0-9]*", parts.path) is not None
        if not is_sound or re.search(r"\s", raw):
            raise ValueError(raw)
        return url


class WebUrl(Url):
    """The base URL of a web server."""

    expected = "http(s)://host[:port][/path]"

    def parse(self, raw: str) -> str:
        parts = urlsplit(raw)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0 or re.search(r"[\s?#]", raw):
            raise ValueError(raw)
        return raw


class BareUrl(WebUrl):
    """The base URL of a server whose secrets have settings of their own, such as a collector of traces."""

    expected = "http(s)://host[:port][/path], without user name and password"

    def parse(self, raw: str) -> str:
        if "@" in urlsplit(raw).netloc:
            raise ValueError(raw)
        return super().parse(raw)


class HttpHeaders(Parser[Mapping[str, str]]):
    """Headers of HTTP requests, as OTEL_EXPORTER_OTLP_HEADERS has them."""

    expected = "name=value[,name=value…], with %2C for a comma in a value"
    _OWN = frozenset("host content-type content-length content-encoding transfer-encoding connection".split())

    def parse(self, raw: str) -> Mapping[str, str]:
        """Read the pairs; the headers that say how the body is sent cannot be set."""
        headers: dict[str, str] = {}
        for pair in filter(None, map(str.strip, raw.split(","))):
            name, equals, value = pair.partition("=")
            name, value = name.strip(), unquote(value.strip())
            is_sound = equals and re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) and re.fullmatch(r"[ -~]*", value)
            if not is_sound or name.lower() in self._OWN:
                raise ValueError(pair)
            headers[name] = value
        return headers

    def show(self, value: Mapping[str, str]) -> str:
        return ", ".join(value)


class Host(Text):
    """An address or name to listen on."""

    expected = "an address or name of this machine"

    def parse(self, raw: str) -> str:
        # A name whose last label is a number is an address, and not a right one.
        if not re.fullmatch(r"([A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]*[A-Za-z_-][A-Za-z0-9_-]*\.?", raw):
            ip_address(raw)
        return raw


class ApiKeys(Parser[Mapping[str, str]]):
    """Key to workspace."""

    expected = "workspace=key[,workspace=key…]"

    def parse(self, raw: str) -> Mapping[str, str]:
        """Read the pairs; no key may stand for two workspaces."""
        keys: dict[str, str] = {}
        for pair in raw.split(","):
            workspace, equals, key = pair.strip().partition("=")
            if not (equals and key and re.fullmatch(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,64}", workspace)) or key in keys:
                raise ValueError(pair)
            keys[key] = workspace
        return keys

    def show(self, value: Mapping[str, str]) -> str:
        return ", ".join(value.values())


class Origins(Parser[tuple[str, ...]]):
    """Origins of web pages, as browsers name them."""

    expected = "scheme://host[:port][,scheme://host[:port]…], in small letters and without a path"
    _ONE = re.compile(r"https?://(\[[0-9a-f:]+\]|[a-z0-9.-]+)(:\d+)?")

    def parse(self, raw: str) -> tuple[str, ...]:
        """Split the origins; ``*`` is none: without keys any page would read what this machine may read."""
        origins = tuple(filter(None, map(str.strip, raw.split(","))))
        if wrong := [each for each in origins if not self._ONE.fullmatch(each)]:
            raise ValueError(wrong)
        return origins


class VariableNames(Parser[tuple[str, ...]]):
    """Names of variables, or others of such letters, separated by commas."""

    def __init__(self, expected: str = "names of variables, none of them a secret of Loom's") -> None:
        self.expected = expected

    def parse(self, raw: str) -> tuple[str, ...]:
        """Split the names; settings.py refuses those of secrets."""
        names = tuple(name.strip() for name in raw.split(",") if name.strip())
        if wrong := [name for name in names if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)]:
            raise ValueError(wrong)
        return names

    def show(self, value: tuple[str, ...]) -> str:
        return ",".join(value)


class Ports(Parser[tuple[int, ...]]):
    """Numbers of ports, separated by commas."""

    expected = "ports 1-65535, separated by commas"

    def parse(self, raw: str) -> tuple[int, ...]:
        return tuple(_within(int(one), 1, 65_535) for one in raw.split(","))

    def show(self, value: tuple[int, ...]) -> str:
        return ",".join(map(str, value))


class CrashPoints(Parser[Mapping[str, int]]):
    """Crash points, and how many processes die at each."""

    expected = "name[*times][,…], the names being " + ", ".join(crash_points.POINTS)

    def parse(self, raw: str) -> Mapping[str, int]:
        points: dict[str, int] = {}
        for one in raw.split(","):
            name, _, times = one.strip().partition("*")
            if name not in crash_points.POINTS:
                raise ValueError(one)
            points[name] = _within(int(times or 1), 1, 10_000)
        return points

    def show(self, value: Mapping[str, int]) -> str:
        return ",".join(f"{name}*{times}" for name, times in value.items())


def _within(number: Number, least: Number, most: Number) -> Number:
    if not least <= number <= most:
        raise ValueError(number)
    return number
