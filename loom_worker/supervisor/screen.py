"""What `loom up` says once everything serves: text from values, nothing looked up here."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from loom_worker.core import sqlite_driver
from loom_worker.core.isolation.home_secrets import Secret
from loom_worker.core.settings import Settings
from loom_worker.core.text import one_line
from loom_worker.core.values.problems import Problem
from loom_worker.core.variables import is_server, without_password

QUESTION = "Which three products sold best last year, and how much did each bring in?"
PROBLEM_CHARS = 500
"""Characters of a problem, in one line."""
MOST_PROBLEMS = 20
"""Told one by one; of more, how many there are."""


@dataclass(frozen=True, slots=True)
class StartReport:
    """What was found and chosen while starting."""

    settings: Settings
    url: str
    flower_url: str
    flower_password: Secret
    ready_after_s: float
    sqlite_version: tuple[int, ...]
    wanted_port: int
    """The port asked for; another one may have been taken instead."""
    port: int
    webhook_secret: Secret | None
    """None if it came from LOOM_WEBHOOK_SECRET."""
    problems: tuple[Problem, ...] | None = ()
    """What cannot work though everything serves; None: that is not known yet."""
    has_stored_keys: bool = False
    """True if clients need a key for there are some in the database."""

    @property
    def has_keys(self) -> bool:
        """True if clients need a key."""
        return self.has_stored_keys or bool(self.settings.web.api_keys)


def screen(facts: StartReport) -> str:
    """One screen: what runs where, on which model and data, and what to try first."""
    rows = [
        ("web", _web(facts)),
        ("docs", f"{facts.url}/docs"),
        ("flower", f"{facts.flower_url}  (user loom, password in {facts.flower_password.file})"),
        ("data directory", f"{facts.settings.home}  (logs in {facts.settings.home / 'logs'})"),
        ("model", model_line(facts.settings)),
        ("data", _data(facts.settings)),
        ("clients", _clients(facts)),
        ("webhooks", _webhooks(facts)),
    ]
    table = "\n".join(f"  {name:<15}{text}" for name, text in rows)
    begin = f"Loom is ready after {facts.ready_after_s:.1f} s{problem_counts(facts.problems)}\n"
    return "\n".join([begin, table, *_warnings(facts), "", _try_it(facts)])


def problem_counts(problems: Sequence[Problem] | None) -> str:
    """The end of a sentence on what is wrong, with a line for each problem."""
    if problems is None:
        return "; agents and tools are still being looked at, and what is wrong with them will be said."
    if not problems:
        return "."
    faults = sum(not problem.is_warning for problem in problems)
    warnings = len(problems) - faults
    counts = [f"{many} {what}{'s' if many > 1 else ''}" for many, what in ((faults, "problem"), (warnings, "warning"))]
    lines = [f"  {each.level}  {one_line(str(each), PROBLEM_CHARS)}" for each in problems]
    shown = lines[:MOST_PROBLEMS]
    shown += [f"  and {len(lines) - len(shown)} more: `loom doctor --problems`"] if len(lines) > len(shown) else []
    return f", with {' and '.join(count for count in counts if count[0] != '0')}:\n" + "\n".join(shown)


def _web(facts: StartReport) -> str:
    if facts.port == facts.wanted_port:
        return facts.url
    return f"{facts.url}  (port {facts.wanted_port} was taken; choose one with --port)"


_ADDRESSES = {
    "anthropic": "https://api.anthropic.com",
    "bedrock": "Bedrock's own address in the region of AWS_REGION or of the AWS profile",
    "openai": "https://api.openai.com/v1",
}


def model_line(settings: Settings) -> str:
    """Which model answers, and at which address it is asked."""
    llm = settings.llm
    if llm.provider == "scripted":
        return "demo model: scripted, no LLM; set ANTHROPIC_API_KEY or OPENAI_API_KEY and start again for a real one"
    where = settings.access(llm.provider)[0] or _ADDRESSES.get(llm.provider)
    if llm.provider == "ollama":
        from loom_worker.llm.presets import address

        where = address(llm.ollama_host)
    return f"{llm.model} ({llm.provider}){f' at {without_password(where)}' if where else ''}"


def _data(settings: Settings) -> str:
    if settings.has_sample_backend:
        return "the sample shop; set LOOM_BACKEND_URL to work on your own"
    return without_password(settings.backend_url)


def _clients(facts: StartReport) -> str:
    if facts.settings.web.api_keys:
        return "those with an API key: Authorization: Bearer <key>"
    if facts.has_stored_keys:
        return "those with a key that `loom keys create` made: Authorization: Bearer <key>"
    return "there is no API key, so only this machine is served (make one: loom keys create NAME)"


def _webhooks(facts: StartReport) -> str:
    if facts.webhook_secret is None:
        return "signed with LOOM_WEBHOOK_SECRET"
    return f"signed with the secret in {facts.webhook_secret.file}"


def _warnings(facts: StartReport) -> list[str]:
    if facts.sqlite_version >= sqlite_driver.SOUND or is_server(facts.settings.database_url):
        return []
    return [f"\nwarning: {sqlite_driver.unsound('.'.join(map(str, facts.sqlite_version)))}"]


def _try_it(facts: StartReport) -> str:
    key = "     -H 'Authorization: Bearer <key>' \\\n" if facts.has_keys else ""
    body = shlex.quote(f'{{"input": "{QUESTION}"}}')
    return (
        f"Try it in a browser: {facts.url} is a page to ask and watch. Or in a terminal:\n"
        f"  curl -s -X POST {facts.url}/v1/sessions/demo/turns \\\n"
        f"{key}     -H 'Content-Type: application/json' -H 'Prefer: wait=30' \\\n"
        f"     -d {body}\n"
        f'  loom ask "{QUESTION}"\n'
        "  loom chat\n"
        "(no `loom` on your PATH? It is .venv/bin/loom after `make up`.)\n\n"
        "Stop it with Ctrl-C, or `loom stop` with the same LOOM_HOME."
    )
