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
    USUAL_MODELS,
    VALKEY_CONF,
    LaneSettings,
    LimitSettings,
    LlmSettings,
    ProviderSettings,
    Settings,
    declared,
    embedded_socket,
)
from loom_worker.core.values.agents import PROVIDERS, Provider, provider_and_model
from loom_worker.core.values.problems import Problem
from loom_worker.core.variables import VARIABLE, BadFolder, Variable

__all__ = [
    "VALKEY_CONF",
    "LaneSettings",
    "LimitSettings",
    "Settings",
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


def offered(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The providers with a key in this environment, and those that LOOM_PROVIDERS says have one elsewhere."""
    read = _Reader(environ)
    known = Settings(llm=read.section(LlmSettings()), providers=read.section(ProviderSettings()))
    keyed = (each for each in PROVIDERS if each == "anthropic" or known.access(each)[1])
    return tuple(dict.fromkeys((*(each for each in keyed if not known.lacks(each)), *known.llm.offered)))


def embedded_url(home: Path) -> str:
    """The embedded server's URL for redis-py, with the password; without one while none was made or can be read."""
    password = ""
    with contextlib.suppress(OSError):
        password = (home / VALKEY_CONF).read_text(encoding="ascii").strip().removeprefix("requirepass ")
    return f"unix://{f':{password}@' if password else ''}{embedded_socket(home)}"


class _Reader:
    """Reads the variables of a mapping and keeps every error, so that all wrong values are reported at once."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.errors: list[str] = []

    def text(self, name: str) -> str | None:
        raw = self.environ.get(name, "").strip()
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
        found = ((name, value) for name, value in self.environ.items() if name.startswith(NAMED_PREFIX))
        return {name.removeprefix(NAMED_PREFIX): value for name, value in found if value}


def _with_derived_defaults(settings: Settings, read: _Reader) -> Settings:
    llm, home = settings.llm, settings.home if settings.home.is_absolute() else Path("/nowhere")
    # A base URL that is refused stays, so that its error is the only one: provider_key would miss a key as well.
    base_url = llm.base_url or read.text("ANTHROPIC_BASE_URL")
    model, keyed = llm.model, offered(read.environ)
    prefix, name = provider_and_model(model)
    provider = llm.provider
    if read.text("LOOM_PROVIDER") is None:
        usual: Provider = next((each for each in USUAL_MODELS if each in keyed), "scripted")
        provider = prefix or usual
    if read.text("LOOM_MODEL") is None:
        model = USUAL_MODELS.get(provider, "")
    elif provider == prefix:
        model = name
    reserved_tokens = llm.reserved_output_tokens
    if read.text("LOOM_RESERVED_OUTPUT_TOKENS") is None:
        reserved_tokens = llm.max_context_tokens // 10
    llm = replace(
        llm,
        model=model,
        provider=provider,
        is_chosen=read.text("LOOM_PROVIDER") is not None,
        offered=keyed,
        base_url=base_url,
        reserved_output_tokens=reserved_tokens,
    )
    own_socket = f"unix://{embedded_socket(home)}"
    return replace(
        settings,
        home=home,
        database_url=settings.database_url or f"sqlite:///{home / 'loom.db'}",
        redis_url=embedded_url(home) if settings.redis_url in ("", own_socket) else settings.redis_url,
        backend_url=settings.backend_url or f"sqlite:///{home / 'shop.db'}",
        workspaces_dir=settings.workspaces_dir if read.text("LOOM_WORKSPACES_DIR") else home / "workspaces",
        blobs=settings.blobs if read.text("LOOM_BLOB_DIR") else replace(settings.blobs, folder=home / "blobs"),
        llm=llm,
        secrets=read.secrets(),
        # Variables without the effect that their author may expect.
        problems=(*misnamed(read.environ), *_unused_model(llm, read)),
    )


def _contradictions(settings: Settings, read: _Reader) -> Iterator[str]:
    if re.search("[?#%]", str(settings.home)):
        yield "LOOM_HOME: expected a path without ?, # and %, for it becomes part of URLs"
    llm = settings.llm
    if llm.reserved_output_tokens >= llm.max_context_tokens:
        reserved, window = llm.reserved_output_tokens, llm.max_context_tokens
        yield f"LOOM_RESERVED_OUTPUT_TOKENS={reserved}: must be below the window of {window}"
    if not llm.model:
        yield f"LOOM_MODEL: LOOM_PROVIDER={llm.provider} needs the name of a model"
    if any(map(is_secret, settings.tools.env)):
        variable = next(each for each, _ in declared(settings.tools) if each.name == "LOOM_TOOL_ENV")
        yield variable.error(read.text("LOOM_TOOL_ENV") or "")


def _unused_model(llm: LlmSettings, read: _Reader) -> Iterator[Problem]:
    """A model that is named while another than its provider answers."""
    is_script, model = llm.model.startswith("scripted"), llm.model
    if read.text("LOOM_MODEL") is None or is_script == (llm.provider == "scripted"):
        return
    if is_script:
        text = f"{model!r} is the demo's name, and the provider is {llm.provider}"
        yield Problem(text, "name a model of its own, or set LOOM_PROVIDER=scripted", field="LOOM_MODEL")
    elif llm.is_chosen:
        text = f"{model!r} is named, and the demo's script answers, for LOOM_PROVIDER is scripted"
        yield Problem(text, field="LOOM_MODEL", is_warning=True)
    else:
        text = f"{model!r} is named without a key, so the demo's script answers"
        fix = "set ANTHROPIC_API_KEY or OPENAI_API_KEY, or put its provider before it, as in groq/NAME"
        yield Problem(text, fix, field="LOOM_MODEL")
