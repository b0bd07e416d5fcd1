"""Workflows from YAML files (docs/workflows.md); an error in a file affects the workflows of that document alone."""

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

from loom_worker.agents import work
from loom_worker.agents.folder import DefiningFiles, check_kind, without_effect
from loom_worker.agents.load import Agents, files_of
from loom_worker.agents.load import built as agent_from  # the one reading of an agent's keys
from loom_worker.agents.schedules import schedule_of
from loom_worker.core.fields import Fields, InvalidField, mapping
from loom_worker.core.live_files import Clock, LiveFiles, Marks, marks_of
from loom_worker.core.text import did_you_mean
from loom_worker.core.values.agents import Agent
from loom_worker.core.values.json import Json
from loom_worker.core.values.problems import Problem, line_near
from loom_worker.core.values.workflows import Coordination, Pattern, Workflow, agent_ids
from loom_worker.core.yaml_files import Document
from loom_worker.workflows.members import defines_agent, key_of, listed, refuse_older_form, resolved
from loom_worker.workflows.placeholders import RUN, advice_on, canonical, malformed, templates
from loom_worker.workflows.spec import pattern_of

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


@dataclass(slots=True)
class _Variables:
    values: dict[str, str] = field(default_factory=dict)
    declared: dict[str, str] = field(default_factory=dict)
    """The paths of those that ``spec.variables`` names."""
    needed: dict[str, int] = field(default_factory=dict)
    """Lines of the places that need those without a value."""
    used: set[str] = field(default_factory=set)


def read(path: Path, document: Document) -> tuple[Workflow, list[Problem]]:
    """Build the workflow of a document, and report which of its keys have no effect.

    Raises:
        InvalidField: a value cannot be used; its place is one of the file.
    """
    head = Fields(document.content, what="a workflow")
    check_kind(head, "Workflow")
    name, given = head.under("metadata").name(), _plain(document.content.get("spec"))
    refuse_older_form(document.content, given)
    return _read(f"{path}:{document.line}", document, name, given)


def _read(source: str, document: Document, name: str, given: Json) -> tuple[Workflow, list[Problem]]:
    lines, written, spec = document.lines(), document.as_written(), resolved(given, name)
    root = Fields({**document.content, "spec": spec})
    check_kind(root, "Workflow")
    meta, fields, schedule = root.under("metadata"), root.under("spec"), root.under("schedule")
    pattern, (agents, entries) = pattern_of(fields), inline_agents(spec, source, lines)
    members = pattern.agent_ids if isinstance(pattern, Coordination) else ()
    meta.get("name")
    labels, scheduled = meta.under("labels"), _scheduled(schedule, _inner(written, "schedule", "variables"))
    variables = _variables(fields.under("variables"), scheduled, _inner(written, "spec", "variables"))
    _note_uses(variables, pattern, lines)
    workflow = Workflow(
        name=name,
        pattern=pattern,
        spec=spec,
        version=meta.text("version") or "",
        description=meta.text("description") or "",
        labels=MappingProxyType({name: labels.text(name) or "" for name in labels.names()}),
        variables=MappingProxyType(variables.values),
        needed=MappingProxyType(variables.needed),
        scheduled={name: name in variables.used for name in variables.values if name not in variables.declared},
        agents=MappingProxyType(acquainted(agents, members)),
        budget=_budget(fields),
        deadline_s=fields.number("deadline_seconds"),
        schedule=schedule_of(schedule, "workflow", name, variables=scheduled),
        source=source,
        lines=lines,
    )
    unknown = [key for each in (root, *entries) for key in each.unknown()]
    unused = [path for each in (root, *entries) for path in each.unused()]
    problems = (*without_effect(workflow, unknown, unused, document), *_doubtful(workflow, variables, given))
    workflow = replace(workflow, unknown_keys=tuple(key for key, _ in unknown))
    return workflow, sorted(problems, key=attrgetter("line"))


def _note_uses(variables: _Variables, pattern: Pattern, lines: Mapping[str, int]) -> None:
    """Note which variables the texts of a pattern use, and which of them have no value."""
    for template in templates(pattern):
        at = f"spec.{template.path}"
        if fault := malformed(template.text):
            raise InvalidField((at,), fault)
        for name in template.variables():
            variables.used.add(name)
            if name not in variables.values:
                variables.needed.setdefault(name, line_near(lines, at))
    for name, at in variables.declared.items():
        if name not in variables.values:
            variables.needed.setdefault(name, line_near(lines, at))


def _plain(spec: Any) -> Json:
    """A spec as JSON holds it, for it is stored with each run."""
    try:
        plain: Json = json.loads(json.dumps(mapping({} if spec is None else spec, ("spec",)), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InvalidField(("spec",), f"a value that JSON does not have: {error}") from error
    return plain


def _budget(spec: Fields) -> Json | None:
    found = work.budget(spec)
    for period in ("day", "month"):
        if found is not None and period in found:
            raise spec.under("budget").invalid(period, "nothing (a run has one budget, for good)", period)
    return found


def _variables(given: Fields, scheduled: Mapping[str, str], texts: Mapping[str, Any]) -> _Variables:
    """The variables that the file names: those of the spec, and those of the schedule that the spec does not name."""
    found = _Variables()
    for name in given.names():
        value, known = given.get(name), canonical(name)
        if not _VARIABLE.fullmatch(name):
            raise given.invalid(name, "a name of letters, digits, '_' and '-', at most 64,", name)
        if known in RUN | {"initial"}:
            raise InvalidField(given.place_of(name), "Loom gives this a value itself; choose another name")
        if isinstance(value, dict | list):
            raise given.invalid(name, "a text, a number, true or false", value)
        if known in found.declared:
            raise InvalidField(given.place_of(name), f"{known!r} is another name for it, and stands here too")
        found.declared[known] = f"spec.variables.{name}"
        if value is not None:
            found.values[known] = _text(value, texts.get(name))
    for known, text in ((canonical(name), text) for name, text in scheduled.items()):
        if known not in found.declared:
            found.values.setdefault(known, text)
    return found


def _scheduled(schedule: Fields, texts: Mapping[str, Any]) -> dict[str, str]:
    """The variables of runs that the schedule begins; what Loom gives a value itself is left out."""
    given = schedule.get("variables")
    return {
        str(name): _text(value, texts.get(str(name)))
        for name, value in (given.items() if isinstance(given, dict) else ())
        if isinstance(value, str | int | float) and canonical(str(name)) not in RUN
    }


def _inner(written: Any, *path: str) -> Mapping[str, Any]:
    for key in path:
        written = written.get(key) if isinstance(written, dict) else None
    return written if isinstance(written, dict) else {}


def _text(value: str | int | float, written: Any) -> str:
    """A value as it stands in the file: 1.10 is not 1.1."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return written if isinstance(written, str) else str(value)


def _doubtful(workflow: Workflow, variables: _Variables, given: Json) -> Iterator[Problem]:
    """Report agents that an entry replaces, variables that nothing uses, and placeholders that look misspelt."""
    for path, entry in listed(given):
        if defines_agent(entry) and entry.get("agent") is not None:
            text = "without effect: the entry has settings of its own, which define a new agent"
            yield workflow.problem(f"{path}.agent", text, is_warning=True)
    for name, path in variables.declared.items():
        if name not in variables.used:
            yield workflow.problem(path, "no text uses this variable", is_warning=True)
    for template in templates(workflow.pattern):
        known = {*template.filled, *variables.values, *variables.declared, "input"}
        for name in template.variables():
            if name not in known and (advice := advice_on(name, known)):
                text = f"{{{{{name}}}}} is a variable of the run"
                yield workflow.problem(f"spec.{template.path}", text, advice, is_warning=True)


MOST_NAME = 63
"""Characters of an agent's name within its file; with the workflow's before it, it is as long as an agent's may be."""


def inline_agents(spec: Json, source: str, lines: Mapping[str, int]) -> tuple[dict[str, Agent], list[Fields]]:
    """The agents of a spec by the name under which they work, ``workflow:agent``, and the entries of its lists.

    Args:
        source: ``file:line`` of its document.
        lines: of its paths.
    """
    agents: dict[str, Agent] = {}
    entries = []
    for path, entry in listed(spec):
        fields = Fields(entry, (path,))
        name_key = key_of(entry) or "name"
        own_name = fields.required(name_key)
        for key in ("id", "name", "agent", "description"):
            fields.get(key)
        fields.keep("path", "role", "prompt_template")
        if defines_agent(entry):
            own_name = fields.name(name_key, most=MOST_NAME)
            agent = agent_from(fields, fields, fields.required("agent"))
            if agent.name in agents:
                raise InvalidField((path, name_key), f"another agent has the name {own_name!r}")
            agents[agent.name] = _placed(agent, entry, path, source, lines)
        entries.append(fields)
    return agents, entries


def acquainted(agents: Mapping[str, Agent], members: Sequence[str]) -> dict[str, Agent]:
    """Agents that know each other: those that name none to call may call all who work with them.

    Args:
        members: of a coordination, by the names under which they work; empty: nobody works with them.
    """
    own = {name.rpartition(":")[2]: name for name in agents}
    return {
        name: replace(
            agent,
            may_call=tuple(own.get(each, each) for each in agent.may_call) or tuple(m for m in members if m != name),
        )
        for name, agent in agents.items()
    }


def _placed(agent: Agent, entry: Json, path: str, source: str, lines: Mapping[str, int]) -> Agent:
    """An agent that knows where it stands, as if its entry were a file of its own."""
    own = {
        f"agent{at[len(path) :]}": line
        for at, line in lines.items()
        if at == path or at.startswith((f"{path}.", f"{path}["))
    }
    begin = own.get("agent", 0)
    file = source.rpartition(":")[0]
    return replace(agent, raw={"agent": entry}, source=f"{file}:{begin}", lines=own)


@dataclass(frozen=True, slots=True)
class Workflows:
    """All workflows of a folder."""

    workflows: Mapping[str, Workflow] = field(default_factory=lambda: MappingProxyType({}))
    """By name."""
    problems: tuple[Problem, ...] = ()
    """What was left out or is not known."""
    refused: Mapping[str, Problem] = field(default_factory=lambda: MappingProxyType({}))
    """Names that a file defines and that are not among ``workflows`` because of an error in it, with that error."""
    unread: frozenset[Path] = frozenset()
    """Files that cannot be read, so that their workflows are not known."""
    suspected: Mapping[str, Problem] = field(default_factory=lambda: MappingProxyType({}))
    """Names that a file with an error seems to define; they explain why a workflow is missing, and remove none."""

    def fault(self, name: str) -> str:
        """Why this workflow is missing although it has a file; empty if it is not missing, or has none."""
        problem = self.refused.get(name) or (None if name in self.workflows else self.suspected.get(name))
        return f"The workflow {name!r} cannot run, its file is broken: {problem}" if problem else ""

    def current(self, wanted: str | None = None) -> "Workflows":
        """These workflows; ``LiveWorkflows`` follow their files."""
        return self


class _WorkflowFiles(DefiningFiles[Workflow]):
    noun = "workflow"

    def read(self, path: Path, document: Document) -> tuple[Workflow, list[Problem]]:
        return read(path, document)

    def head(self, content: dict[str, Any]) -> tuple[Any, bool]:
        return content.get("metadata"), content.get("kind") == "Workflow"


def load(folder: Path | None) -> Workflows:
    """Read every ``*.yaml`` and ``*.yml`` of a folder, several workflows per file; None gives none.

    A workflow with a value of the wrong type is left out. A key that Loom does not know or use is kept and reported.
    """
    found = _WorkflowFiles()
    found.add_folder(folder, files_of(folder))
    kept = {name: workflow for name, workflow in found.entries.items() if name not in found.refused}
    return Workflows(
        MappingProxyType(kept),
        tuple(found.problems),
        MappingProxyType(found.refused),
        frozenset(found.unread),
        MappingProxyType(found.suspected),
    )


def faults(workflow: Workflow, agents: Agents) -> Iterator[Problem]:
    """Report agents that do not exist, or whose file is broken, each once; those of the file itself exist."""
    reported: set[str] = set()
    for path, name in agent_ids(workflow.pattern):
        if name in workflow.agents or name in agents.agents or name in reported:
            continue
        reported.add(name)
        fault = agents.fault(name)
        known = [*agents.agents, *(own.rpartition(":")[2] for own in workflow.agents)]
        advice = "" if fault else did_you_mean(name, known) or "agents are read from LOOM_AGENTS_DIR"
        yield workflow.problem(f"spec.{path}", fault or f"there is no agent {name!r}", advice)


def used_folder(own: Path | None, shipped: Path | None) -> Path | None:
    """The user's folder; the package's where none is named, or no file is in it, as in a mount that is empty."""
    return own if files_of(own) else shipped or own


class LiveWorkflows(LiveFiles[Workflows]):
    """Workflows as their files are; an error in a file leaves its workflows as they last were."""

    def __init__(self, folder: Path | None, *, shipped: Path | None = None, clock: Clock = time) -> None:
        self._folders = folder, shipped
        super().__init__("workflows", clock=clock)

    def current(self, wanted: str | None = None) -> Workflows:
        """The workflows as of a moment ago; as of now if ``wanted`` was not among them: another process may know it."""
        return self.latest(wanted)

    def agents(self, wanted: str) -> Mapping[str, Agent]:
        """The agents that the files define, by ``workflow:agent``; as of now if ``wanted`` was not among them."""
        found = _agents(self.latest(None))
        return found if wanted in found else _agents(self.latest(wanted))

    def _marks(self) -> Marks:
        return marks_of(files_of(used_folder(*self._folders)))

    def _load(self) -> Workflows:
        return load(used_folder(*self._folders))

    def _entries(self, found: Workflows) -> Mapping[str, Workflow]:
        return found.workflows

    def _with(self, found: Workflows, entries: Mapping[str, Workflow], refused: Mapping[str, Problem]) -> Workflows:
        return replace(found, workflows=entries, refused=refused)


def _agents(found: Workflows) -> dict[str, Agent]:
    return {name: agent for workflow in found.workflows.values() for name, agent in workflow.agents.items()}
