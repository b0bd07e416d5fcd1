"""Makers and servers that speak OpenAI's formats: their addresses, and in which way each differs (presets.json)."""

import hashlib
import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from loom_worker.core.errors import BadSettings
from loom_worker.core.values.chat import Thinking
from loom_worker.core.values.json import Json

HOST = "127.0.0.1"
PORT = 11434
PORTS = {"http": 80, "https": 443}
"""Port of an address with a scheme and without a port, as Ollama's own commands read it."""
ADDRESS = re.compile(r"(?:(?P<scheme>https?)://)?(?P<host>\[[0-9a-fA-F:.]+\]|[\w.-]*)(?::(?P<port>\d{1,5}))?/*")
EVERYWHERE = {"0.0.0.0": HOST, "[::]": "[::1]", "": HOST}  # noqa: S104  # addresses to listen on, which no client can call
MOST_ID_CHARS = 40
"""Characters of the id of a call, at OpenAI's."""


@dataclass(frozen=True, slots=True, eq=False)
class Preset:
    """How one maker's server differs from OpenAI's own Chat Completions; there is one of each in a process."""

    name: str
    url: str = ""
    """Its usual address; empty: each account or user has one."""
    key: str = ""
    """Variable with its key; empty: it needs none."""
    address: str = ""
    """Variable with its address; empty: it has but one."""
    path: str = ""
    """What follows an address that names only a host."""
    elsewhere: str = ""
    """The preset that holds in its place at another address than its own."""
    local: bool = False
    """It runs on the user's own machine as a rule."""
    start: str = ""
    """Command that starts it."""
    window: str = ""
    """Variable that widens the window of a server that silently cuts longer prompts."""
    responses: bool = False
    """It speaks Responses, too."""
    reasoning: str = ""
    """Beginnings of the names of models that think before they answer, where they must be asked to show it."""
    max_tokens: str = "max_tokens"
    """Member that limits the reply."""
    seed: str = "seed"
    includes_usage: bool = True
    """It knows ``stream_options.include_usage``; one that does not tells the usage unasked."""
    cache_key: bool = False
    """It knows ``prompt_cache_key``."""
    knows: tuple[str, ...] = ()
    """Sampling members beyond OpenAI's."""
    tool_choice: bool = True
    """False: it lets the model choose whatever is asked, so what may not be called is left out."""
    small: str = ""
    """Its current small model, for summaries; empty: none, or whoever asks is at home."""
    files: bool = False
    """It takes PDFs."""
    shape: Literal["native", "alone", "tool"] = "native"
    """It enforces a JSON Schema: always, only where no tool may be called, or never, so a tool is forced instead."""
    returns: str = ""
    """Member of an assistant message in which thinking goes back; empty: it does not."""
    unsigned_message: Mapping[str, Any] = field(default_factory=dict)
    """Members of an assistant message with calls that has no thinking of this model."""
    unsigned_call: Mapping[str, Any] = field(default_factory=dict)
    """Members of the first call of such a message."""
    after_results: str = ""
    """Text of the assistant between results and a user's message, where one may not follow the other."""
    id_chars: int = 0
    """Letters and digits of a call's id, exactly; 0: at most MOST_ID_CHARS, ``_`` and ``-`` among them."""
    thinking: Mapping[str, Any] = field(default_factory=lambda: {"effort": {"reasoning_effort": "$effort"}})
    """Members that ask for thinking, by ``effort`` and perhaps by ``budget`` of tokens."""
    always: Mapping[str, Any] = field(default_factory=dict)
    """Members of every request."""
    advice: Mapping[str, str] = field(default_factory=dict)
    """What to do about an error, by its status."""

    def at(self, given: str | None) -> tuple["Preset", str]:
        """The preset that holds at an address, and its base URL.

        Args:
            given: None: the usual one; for Ollama as in OLLAMA_HOST.

        Raises:
            BadSettings: it is no address.
        """
        if not given:
            if not self.url:
                raise BadSettings(f"The provider {self.name} needs an address: set {self.address}.")
            return self, self.url
        if self.name == "ollama":
            return self, address(given.strip().rstrip("/").removesuffix(self.path)) + self.path
        url, is_own = given.rstrip("/"), f".{_host(given)}".endswith(f".{_host(self.url)}")
        if self.path and not urlsplit(url).path.strip("/"):
            url += self.path
        return (self if is_own or not self.elsewhere else preset(self.elsewhere)), url

    def reasons(self, model: str) -> bool:
        """True for a model that is known to think before it answers."""
        return bool(self.reasoning and re.match(self.reasoning, model))

    def asks_for(self, thinking: Thinking) -> Json:
        """Members of a request that ask for thinking, by the nearest means that the maker has."""
        if thinking.budget_tokens is not None and "budget" in self.thinking:
            return dict(_filled(self.thinking["budget"], thinking.budget_tokens))
        return dict(_filled(self.thinking["effort"], thinking.nearest_effort))

    def call_id(self, given: str) -> str:
        """The id of a call in the form that the maker takes; the same for the same id."""
        if self.id_chars:
            fits = len(given) == self.id_chars and given.isascii() and given.isalnum()
        else:
            fits = len(given) <= MOST_ID_CHARS
        return given if fits else hashlib.sha256(given.encode()).hexdigest()[: self.id_chars or 32]


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


def _filled(template: Any, value: str | int) -> Any:
    if isinstance(template, dict):
        return {name: _filled(each, value) for name, each in template.items()}
    return value if template in ("$effort", "$tokens") else template


@cache
def _all() -> Mapping[str, Preset]:
    read = json.loads(Path(__file__).with_name("presets.json").read_text("utf-8"))
    lists = {name: fields | {"knows": tuple(fields.get("knows", ()))} for name, fields in read.items()}
    return {name: Preset(name, **fields) for name, fields in lists.items()}


def preset(name: str) -> Preset:
    """The preset of a provider; KeyError: it has none."""
    return _all()[name]


def preset_at(name: str, address: str | None) -> Preset:
    """The preset that holds for a provider's models at an address; None: the usual one. Raises as ``Preset.at``."""
    return preset(name).at(address)[0] if address else preset(name)


def address(host: str | None) -> str:
    """The URL of an OLLAMA_HOST in any of its forms: host, host:port, :port or a URL; None: this machine.

    Raises:
        BadSettings: it has none of these forms.
    """
    raw = (host or "").strip().strip("\"'").strip()
    try:
        is_ipv6 = ipaddress.ip_address(raw).version == 6
    except ValueError:
        is_ipv6 = False
    found = ADDRESS.fullmatch(f"[{raw}]" if is_ipv6 else raw)
    if found is None or int(found["port"] or 1) > 65_535:
        raise BadSettings(f"OLLAMA_HOST={raw!r}: expected host, host:port or http(s)://host[:port]")
    name = EVERYWHERE.get(found["host"], found["host"])
    port = found["port"] or (PORTS[found["scheme"]] if found["scheme"] else PORT)
    return f"{found['scheme'] or 'http'}://{name}:{port}"
