"""What `loom doctor` looks at; each check that fails says what to do about it."""

import importlib.metadata
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from loom_worker.agents.load import load
from loom_worker.core import sqlite_driver
from loom_worker.core.errors import BadSettings, LoomError, Unavailable
from loom_worker.core.isolation import landlock
from loom_worker.core.settings import Settings
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.agents import ModelChoice, resolved
from loom_worker.core.values.chat import ChatMessage, Reply, Request, ToolSpec
from loom_worker.core.values.problems import Problem
from loom_worker.core.variables import is_server, without_password
from loom_worker.store.engines.sqlite_file import full_disks
from loom_worker.supervisor import home, ready, valkey
from loom_worker.supervisor.screen import model_line
from loom_worker.supervisor.specs import WORKERS

ASK_S = 10.0  # longest answer of the model to each of two requests
LEAST_PYTHON = (3, 11)
TOKEN_S = 60.0  # of one token: a server on this machine may load the model first
ONE_TOKEN = Request("", (ChatMessage("user", "Say yes."),), max_tokens=1)
PING = ToolSpec("ping", "Answers pong.", {"type": "object", "properties": {}})
BACKEND_URL = "LOOM_BACKEND_URL"
"""What is wrong with it, the check ``backend`` says."""


@dataclass(frozen=True, slots=True)
class InstallationCheck:
    """What was looked at and what was found."""

    name: str
    is_ok: bool
    found: str
    fix: str = ""
    """What to do if it is not."""
    warning: str = ""
    """What to know though it is."""

    @property
    def level(self) -> str:
        """The word for what was found."""
        return "problem" if not self.is_ok else "warning" if self.warning else "ok"


def of_installation() -> Iterator[InstallationCheck]:
    """What can be looked at without settings."""
    yield python()
    yield from packages()
    yield sqlite()


def of_settings(
    settings: Settings, problems: Sequence[Problem] = (), *, is_full: bool = False, asks_model: bool = True
) -> Iterator[InstallationCheck]:
    """What the settings name; each check stands alone, so that one failure hides no other.

    Args:
        problems: what is wrong with variables, agents, their tools and data.
        is_full: look through the database's indexes too.
    """
    yield data_directory(settings)
    yield server_binary(settings)
    yield confinement(settings)
    yield redis(settings)
    found = database(settings)
    yield found
    if found.is_ok:
        yield from server(settings)
        yield from contents(settings, is_full=is_full)
        yield from audit(settings)
    yield backend(settings)
    yield from agents(settings, [each for each in problems if each.field != BACKEND_URL])
    yield model(settings, asks=asks_model)
    yield prices(settings)
    yield running(settings)


def python() -> InstallationCheck:
    """Is it new enough?"""
    version = ".".join(map(str, sys.version_info[:3]))
    return InstallationCheck(
        "python", sys.version_info >= LEAST_PYTHON, f"{version} ({sys.executable})", "use Python 3.11 or newer"
    )


def packages() -> Iterator[InstallationCheck]:
    """Is everything installed that this Loom declares?"""
    for requirement in importlib.metadata.requires("loom-worker") or []:
        name, _, marker = requirement.partition(";")
        if "extra ==" in marker:
            continue
        yield _package(re.split(r"[<>=!~\[ ]", name.strip(), maxsplit=1)[0], is_optional=bool(marker.strip()))


def _package(name: str, *, is_optional: bool) -> InstallationCheck:
    try:
        return InstallationCheck(f"package {name}", True, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        warning = "it is not made for every platform" if is_optional else ""
        return InstallationCheck(
            f"package {name}", is_optional, "missing", "run `make up`, or `pip install -r constraints.txt`", warning
        )


def sqlite() -> InstallationCheck:
    """Has it the fix of the WAL-reset corruption? Only a warning: it is rare."""
    version = sqlite3.sqlite_version
    warning = "" if sqlite_driver.is_sound() else sqlite_driver.unsound(version)
    return InstallationCheck("sqlite", True, f"{version}, of the module {sqlite_driver.driver_name()}", warning=warning)


def data_directory(settings: Settings) -> InstallationCheck:
    """Can it be written, or made?"""
    from loom_worker.store.database import engine_of

    nearest = settings.home
    while not nearest.exists():
        nearest = nearest.parent
    if full := full_disks(nearest, *(file.parent for file in engine_of(settings.database_url).files)):
        return InstallationCheck("data directory", False, "; ".join(full), "Loom cannot store anything before that")
    is_ok = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
    found = str(settings.home) if nearest == settings.home else f"{settings.home} (will be made)"
    return InstallationCheck(
        "data directory", is_ok, found, f"make {nearest} writable, or set LOOM_HOME to another folder"
    )


def server_binary(settings: Settings) -> InstallationCheck:
    """Is there a server to embed, where one is needed?"""
    if not settings.has_embedded_redis:
        return InstallationCheck("embedded server", True, "not needed: LOOM_REDIS_URL is set")
    try:
        return InstallationCheck("embedded server", True, str(valkey.find_binary()))
    except valkey.NoServer as error:
        return InstallationCheck("embedded server", False, "missing", str(error))


def confinement(settings: Settings) -> InstallationCheck:
    """Can Loom's own files be kept from tools? Only a warning: Loom works without."""
    if not settings.tools.is_confined:
        return InstallationCheck(
            "confined tools", True, "no", warning="LOOM_CONFINE_TOOLS=0: tools may read all that Loom may"
        )
    version = landlock.version()
    warning = "" if version else "no Landlock (Linux 5.13) here: tools may read all that Loom may (docs/tools.md)"
    if 0 < version < landlock.KNOWS_TRUNCATE:
        warning = "Landlock before Linux 6.2: tools can empty Loom's files, though neither read nor write them"
    return InstallationCheck("confined tools", True, f"by Landlock {version}" if version else "no", warning=warning)


def redis(settings: Settings) -> InstallationCheck:
    """Does it answer, where it should run by now?"""
    from loom_worker.core import redis_client

    shown = without_password(settings.redis_url)
    if settings.has_embedded_redis and home.running(settings.home) is None:
        return InstallationCheck("redis", True, "embedded; starts with `loom up`")
    client = redis_client.client(settings.redis_url, connections=1, timeout_s=redis_client.LOOK_S)
    return _tried("redis", shown, lambda: redis_client.probe(client), "start the server, or correct LOOM_REDIS_URL")


def database(settings: Settings) -> InstallationCheck:
    """Does it open, and has it this code's schema?"""
    from loom_worker.store import prepare, schema
    from loom_worker.store.database import engine_of

    try:
        with closing(engine_of(settings.database_url)) as engine:
            version, where = engine.version(), f"{engine.name}, {engine.where}"
            is_newer = version is not None and version > schema.VERSION and prepare.is_usable(version, engine)
    except (BadSettings, Unavailable) as error:
        fix = "do what it says; if the database is lost, restore a backup (docs/operations.md, Backup and restore)"
        return InstallationCheck("database", False, str(error), fix)
    if version is None:
        return InstallationCheck("database", True, f"{where} (will be made by `loom up`)")
    if version == schema.VERSION:
        return InstallationCheck("database", True, f"{where}, schema {version}")
    if (mark := prepare.MoveMark.of(version)) is not None:
        return InstallationCheck("database", False, f"{where} {mark.refusal}", "see docs/upgrade.md")
    if is_newer:
        warning = f"a newer Loom made it that; this one ({schema.VERSION}) works on it until this host is updated, too"
        return InstallationCheck("database", True, f"{where}, schema {version}", warning=warning)
    fix = "update Loom" if version > schema.VERSION else "`loom up` or `loom prepare` migrates it"
    return InstallationCheck("database", False, f"{where} has schema {version}, this Loom {schema.VERSION}", fix)


def server(settings: Settings) -> Iterator[InstallationCheck]:
    """Is the server of the database reached as it should be, and has it connections enough? A file has none."""
    if not is_server(settings.database_url):
        return
    from loom_worker.store.engines.postgresql_report import report

    try:
        found = report(settings.database_url)
    except LoomError as error:
        yield InstallationCheck("database server", False, str(error), "docs/postgresql.md")
        return
    wanted, warnings = _connections(settings), list(found.warnings)
    if wanted > found.connections and not settings.server.has_pooler:
        warnings.append("`loom up` may ask for more connections than it has: lower LOOM_DATABASE_POOL")
    wire = "by TLS" if found.is_encrypted else "without TLS"
    told = f"PostgreSQL {found.version}, {wire}, {found.connections} connections, of which `loom up` takes {wanted}"
    yield InstallationCheck("database server", True, told, warning="; ".join(warnings))


def _connections(settings: Settings) -> int:
    """How many connections all processes of `loom up` may have at the same time."""
    return settings.server.pool * (len(WORKERS) + len(("web", "beat")))


def contents(settings: Settings, *, is_full: bool) -> Iterator[InstallationCheck]:
    """Is the database sound inside? Nothing is said of one that is not made yet."""
    from loom_worker.store.database import engine_of

    began_s = time.monotonic()
    try:
        with closing(engine_of(settings.database_url)) as engine:
            if engine.version() is None:
                return
            found = engine.defects(is_full=is_full)
    except LoomError as error:
        found = (str(error),)
    took = f"{'all of it' if is_full else 'but for its indexes'} checked in {time.monotonic() - began_s:.1f} s"
    fix = "stop Loom, keep the file aside, restore a backup (docs/operations.md, Backup and restore)"
    yield InstallationCheck("database contents", not found, "; ".join(found) or f"sound, {took}", fix)


def audit(settings: Settings) -> Iterator[InstallationCheck]:
    """Are the rows of the audit as they were written? Nothing is said of a database that is not made yet."""
    from loom_worker.store import prepare, schema
    from loom_worker.store.audit import AuditRows
    from loom_worker.store.database import Database

    if prepare.version_of(settings.database_url) != schema.VERSION:
        return
    database = Database.of(settings)
    began_s = time.monotonic()
    try:
        rows = AuditRows(database)
        broken = [f"workspace {each.workspace}, row {each.seq}: {each.why}" for each in rows.verify()]
        count = sum(head.seq for head in rows.heads().values())
    except LoomError as error:
        broken, count = [str(error)], 0
    finally:
        database.close()
    took = f"{count:,} rows hold, checked in {time.monotonic() - began_s:.1f} s"
    fix = "somebody or something changed them behind Loom; compare with a backup (docs/audit.md)"
    yield InstallationCheck("audit", not broken, "; ".join(broken) or took, fix)


def backend(settings: Settings) -> InstallationCheck:
    """Does the data that the agent works on answer?"""
    shown = without_password(settings.backend_url)
    if settings.has_sample_backend and not (settings.home / "shop.db").exists():
        return InstallationCheck("backend", True, "the sample shop (will be made by `loom up`)")

    def connect() -> None:
        from loom_worker.backends.sql import SqlBackend

        with closing(SqlBackend(settings.backend_url)) as data:
            data.check()
            data.describe()

    return _tried("backend", shown, connect, "correct LOOM_BACKEND_URL, or install the driver that it names")


def agents(settings: Settings, problems: Sequence[Problem]) -> Iterator[InstallationCheck]:
    """Which agents there are, and all that is wrong with them, their tools, data and models."""
    for problem in problems:
        name = _subject(problem, settings)
        if problem.is_warning:
            yield InstallationCheck(
                name, True, str(replace(problem, fix="")), warning=problem.fix or "it has no effect"
            )
        else:
            fix = problem.fix or f"mend the file, or take it out of LOOM_{name.upper()}_DIR"
            yield InstallationCheck(name, False, str(replace(problem, fix="")), fix)
    folder = settings.agents_dir
    if folder is None:
        yield InstallationCheck("agents", True, "the agent in the package; LOOM_AGENTS_DIR is not set")
        return
    found = load(folder)
    names = ", ".join(sorted(name for name, agent in found.agents.items() if agent.source.startswith(str(folder))))
    if names:
        yield InstallationCheck("agents", True, f"{names} in {folder}")


def _subject(problem: Problem, settings: Settings) -> str:
    if not problem.file:
        return "tools" if problem.field == "loom.tools" else "settings"
    return "workflows" if Path(problem.file).parent == settings.workflows_dir else "agents"


def model(settings: Settings, *, asks: bool = True) -> InstallationCheck:
    """Does it answer, and call a tool? Two requests of some hundred tokens; the demo is sound, and a warning."""
    llm, shown = settings.llm, model_line(settings)
    if llm.provider == "scripted" or not asks:
        why = "its answers are a script's" if asks else "it was not asked"
        return InstallationCheck("model", True, shown, warning=why)
    call = Request("", (ChatMessage("user", "Call the tool ping."),), tools=(PING,), must_call="ping", max_tokens=256)
    began_s = time.monotonic()
    try:
        said, called = _asked(settings, llm.usual, ONE_TOKEN, call, within_s=ASK_S)
    except LoomError as error:
        return InstallationCheck("model", False, f"{shown}: {error}", "docs/providers.md; --offline asks no model")
    took_ms, usage = (time.monotonic() - began_s) * 1000, said.usage + called.usage
    cost = "no known price" if usage.cost_usd is None else f"{usage.cost_usd:.5f} USD"
    warning = "" if called.tool_uses else "it answers, but called no tool: agents with tools need a model that does"
    found = f"{shown}: answered two requests in {took_ms:.0f} ms ({usage.tokens} tokens, {cost})"
    return InstallationCheck("model", True, found, warning=warning)


def answers(settings: Settings) -> Iterator[tuple[str, str]]:
    """Each model that LOOM_MODEL and agents name, with why it gave no token; empty: it gave one."""
    usual, agents = settings.llm.usual, load(settings.agents_dir).agents.values()
    named = (resolved(usual), *(each for agent in agents for each in agent.models(usual)))
    for chosen in {(each.id, each.base_url, each.secret): each for each in named}.values():
        refusal = ""
        try:
            if chosen.provider != "scripted":
                _asked(settings, chosen, ONE_TOKEN, within_s=TOKEN_S)
        except LoomError as error:
            refusal = str(error)
        yield chosen.id, refusal


def _asked(settings: Settings, chosen: ModelChoice, *requests: Request, within_s: float) -> list[Reply]:
    from loom_worker.llm.model import whole_reply
    from loom_worker.runtime.models import adapter

    made = adapter(replace(settings, llm=replace(settings.llm, call_timeout_s=within_s)), chosen, Stopping(within_s))
    return [whole_reply(made, each) for each in requests]


def prices(settings: Settings) -> InstallationCheck:
    """From which file are they, and of which day?"""
    from loom_worker.llm.prices import packaged, read

    own = settings.llm.prices
    first = f"{own}, of {read(own)[0]}; then " if own else ""
    return InstallationCheck("prices", True, f"{first}those of the package, of {packaged()[0]}")


def running(settings: Settings) -> InstallationCheck:
    """Does a started Loom serve?"""
    state = home.running(settings.home)
    if state is None:
        return InstallationCheck("loom", True, "not running; start it with `loom up` (`make up`)")
    body = ready.readiness(state.url)
    is_ok, found = bool(body and body["ready"]), f"pid {state.pid}, {state.url}"
    warning = "; ".join((body or {}).get("warnings", ()))
    return InstallationCheck("loom", is_ok, found, f"/readyz says {body}; see {settings.home / home.LOGS}", warning)


def _tried(name: str, shown: str, attempt: Callable[[], None], fix: str) -> InstallationCheck:
    try:
        attempt()
    # Drivers raise what they like, from OSError to classes of their own; here a failure of any kind is the finding.
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        return InstallationCheck(name, False, f"{shown}: {type(error).__name__}: {first[:200]}", fix)
    return InstallationCheck(name, True, shown)
