"""Read all settings at once from the environment, its only reader; settings_tree.py declares them."""

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from loom_worker.core.env import NAMED_PREFIX, is_secret, misnamed
from loom_worker.core.errors import BadSettings
from loom_worker.core.settings_tree import (
    VALKEY_CONF,
    BlobSettings,
    EmbeddingSettings,
    EventSettings,
    FileSettings,
    FlowerSettings,
    LaneSettings,
    LimitSettings,
    LlmSettings,
    LogSettings,
    PatternSettings,
    RetentionSettings,
    ScheduleSettings,
    Settings,
    ToolSettings,
    TraceSettings,
    WebhookSettings,
    WebSettings,
    declared,
    embedded_socket,
)
from loom_worker.core.values.problems import Problem
from loom_worker.core.variables import VARIABLE, BadFolder, Variable

__all__ = [
    "VALKEY_CONF",
    "BlobSettings",
    "EmbeddingSettings",
    "EventSettings",
    "FileSettings",
    "FlowerSettings",
    "LaneSettings",
    "LimitSettings",
    "LlmSettings",
    "LogSettings",
    "PatternSettings",
    "RetentionSettings",
    "ScheduleSettings",
    "Settings",
    "ToolSettings",
    "TraceSettings",
    "WebSettings",
    "WebhookSettings",
    "embedded_socket",
    "embedded_url",
    "from_env",
]

SettingCheck = Callable[[Settings], None]
"""Raises BadSettings for a value that only the package that uses it can check."""


def from_env(environ: Mapping[str, str] | None = None, *, checks: Iterable[SettingCheck] = ()) -> Settings:
    """Build the settings from a mapping (default: the process environment).

    Args:
        checks: their errors are reported with all others; they see the default where a value is refused here.

    Raises:
        BadSettings: names every variable that is wrong, and what was expected.
    """
    environ = os.environ if environ is None else environ
    read = _Reader(environ)
    settings = _with_derived_defaults(read.section(Settings()), read)
    errors = [*read.errors, *_contradictions(settings, read)]
    for check in checks:
        try:
            check(settings)
        except BadSettings as error:
            errors.append(str(error))
    if errors:
        raise BadSettings("\n".join(errors))
    return settings


def embedded_url(home: Path) -> str:
    """The embedded server's URL for redis-py, with the password; without one while none was made or can be read."""
    password = ""
    with contextlib.suppress(OSError):
        password = (home / VALKEY_CONF).read_text(encoding="ascii").strip().removeprefix("requirepass ")
    return f"unix://{f':{password}@' if password else ''}{embedded_socket(home)}"


class _Reader:
    """Reads the variables of a mapping and keeps every error, so that all wrong values are reported at once."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.errors: list[str] = []

    def text(self, name: str) -> str | None:
        raw = self._environ.get(name, "").strip()
        return raw or ("~/.loom" if name == "LOOM_HOME" else None)

    def section(self, defaults: Any) -> Any:
        """A dataclass of settings, each field as its variable says, or its default."""
        found: dict[str, object] = {}
        for each in fields(defaults):
            default = getattr(defaults, each.name)
            if VARIABLE in each.metadata:
                found[each.name] = self._value(each.metadata[VARIABLE], default)
            elif is_dataclass(default):
                found[each.name] = self.section(default)
        return replace(defaults, **found)

    def _value(self, variable: Variable, default: object) -> object:
        raw = self.text(variable.name)
        if raw is None:
            return default
        try:
            return variable.parser.parse(raw)
        except BadFolder as error:
            self.errors.append(variable.error(error.path, error.reason))
        except ValueError:
            self.errors.append(variable.error(raw))
        return default

    def secrets(self) -> dict[str, str]:
        found = ((name, value) for name, value in self._environ.items() if name.startswith(NAMED_PREFIX))
        return {name.removeprefix(NAMED_PREFIX): value for name, value in found if value}

    def problems(self) -> Iterator[Problem]:
        """Variables without the effect that their author may expect."""
        yield from misnamed(self._environ)
        yield from _unused_model(self)


def _with_derived_defaults(settings: Settings, read: _Reader) -> Settings:
    llm, home = settings.llm, settings.home if settings.home.is_absolute() else Path("/nowhere")
    # A base URL that is refused stays, so that its error is the only one: provider_key would miss a key as well.
    base_url = llm.base_url or read.text("ANTHROPIC_BASE_URL")
    provider = llm.provider
    if read.text("LOOM_PROVIDER") is None and (llm.api_key or base_url):
        provider = "anthropic"
    model = llm.model
    if read.text("LOOM_MODEL") is None and provider != "scripted":
        model = "claude-sonnet-5-5"
    reserved_tokens = llm.reserved_output_tokens
    if read.text("LOOM_RESERVED_OUTPUT_TOKENS") is None:
        reserved_tokens = llm.max_context_tokens // 10
    own_socket = f"unix://{embedded_socket(home)}"
    return replace(
        settings,
        home=home,
        database_url=settings.database_url or f"sqlite:///{home / 'loom.db'}",
        redis_url=embedded_url(home) if settings.redis_url in ("", own_socket) else settings.redis_url,
        backend_url=settings.backend_url or f"sqlite:///{home / 'shop.db'}",
        workspaces_dir=settings.workspaces_dir if read.text("LOOM_WORKSPACES_DIR") else home / "workspaces",
        blobs=settings.blobs if read.text("LOOM_BLOB_DIR") else replace(settings.blobs, folder=home / "blobs"),
        llm=replace(
            llm,
            model=model,
            provider=provider,
            is_chosen=read.text("LOOM_PROVIDER") is not None,
            base_url=base_url,
            reserved_output_tokens=reserved_tokens,
        ),
        secrets=read.secrets(),
        problems=tuple(read.problems()),
    )


def _contradictions(settings: Settings, read: _Reader) -> Iterator[str]:
    if re.search("[?#%]", str(settings.home)):
        yield "LOOM_HOME: expected a path without ?, # and %, for it becomes part of URLs"
    llm = settings.llm
    if llm.reserved_output_tokens >= llm.max_context_tokens:
        reserved, window = llm.reserved_output_tokens, llm.max_context_tokens
        yield f"LOOM_RESERVED_OUTPUT_TOKENS={reserved}: must be below the window of {window}"
    if llm.provider in ("bedrock", "ollama") and read.text("LOOM_MODEL") is None:
        yield f"LOOM_MODEL: LOOM_PROVIDER={llm.provider} needs the name of a model"
    if any(map(is_secret, settings.tools.env)):
        variable = next(each for each, _ in declared(settings.tools) if each.name == "LOOM_TOOL_ENV")
        yield variable.error(read.text("LOOM_TOOL_ENV") or "")


def _unused_model(read: _Reader) -> Iterator[Problem]:
    """A model that is named while another than its provider answers."""
    model, provider = read.text("LOOM_MODEL"), (read.text("LOOM_PROVIDER") or "").lower()
    if model is None or provider in ("bedrock", "ollama"):
        return
    has_key = bool(read.text("ANTHROPIC_API_KEY") or read.text("ANTHROPIC_BASE_URL"))
    is_script = model.startswith("scripted")
    if not is_script and provider == "scripted":
        text = f"{model!r} is named, and the demo's script answers, for LOOM_PROVIDER is scripted"
        yield Problem(text, field="LOOM_MODEL", is_warning=True)
    elif not is_script and not provider and not has_key:
        text = f"{model!r} is named without a key, so the demo's script answers"
        yield Problem(text, "set ANTHROPIC_API_KEY, or LOOM_PROVIDER to another one", field="LOOM_MODEL")
    elif is_script and (has_key or provider == "anthropic") and provider != "scripted":
        text = f"{model!r} is the demo's name, and the provider is anthropic"
        yield Problem(text, "name a model of its own, or set LOOM_PROVIDER=scripted", field="LOOM_MODEL")
