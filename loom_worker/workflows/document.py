"""One document of a workflow file, checked."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

from loom_worker.agents import work
from loom_worker.agents.folder import without_effect
from loom_worker.agents.schedules import schedule_of
from loom_worker.core.fields import Fields, InvalidField, invalid, mapping
from loom_worker.core.values.json import Json
from loom_worker.core.values.problems import Problem, line_near
from loom_worker.core.values.workflows import Coordination, Pattern, Workflow
from loom_worker.core.yaml_files import Document
from loom_worker.workflows.inline_agents import acquainted, inline_agents
from loom_worker.workflows.members import defines_agent, listed, refuse_older_form, resolved
from loom_worker.workflows.placeholders import RUN, advice_on, canonical, malformed
from loom_worker.workflows.spec import pattern_of
from loom_worker.workflows.templates import templates

_API_VERSION = "loom/v1"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


@dataclass(slots=True)
class _Variables:
    """What the file and its texts say of variables, by canonical name."""

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
    kind, version = head.text("kind"), head.text("apiVersion")
    if kind != "Workflow":
        raise InvalidField(("kind",), f"Workflow is needed, not {kind or 'nothing'}")
    if version != _API_VERSION:
        raise InvalidField(("apiVersion",), f"{_API_VERSION} is needed, not {version or 'nothing'}")
    meta = head.under("metadata")
    name = meta.name()
    given = _plain(document.content.get("spec"))
    refuse_older_form(document.content, given)
    return _read(f"{path}:{document.line}", document, name, given)


def _read(source: str, document: Document, name: str, given: Json) -> tuple[Workflow, list[Problem]]:
    lines, written, spec = document.lines(), document.as_written(), resolved(given, name)
    root = Fields({**document.content, "spec": spec})
    for key in ("kind", "apiVersion"):
        root.get(key)
    meta, fields, schedule = root.under("metadata"), root.under("spec"), root.under("schedule")
    pattern, inline = pattern_of(fields), inline_agents(spec, source, lines)
    meta.get("name")
    variables = _variables(fields, schedule, written)
    _note_uses(variables, pattern, lines)
    workflow = Workflow(
        name=name,
        pattern=pattern,
        spec=spec,
        version=meta.text("version") or "",
        description=meta.text("description") or "",
        labels=MappingProxyType(_labels(meta.under("labels"))),
        variables=MappingProxyType(variables.values),
        needed=MappingProxyType(variables.needed),
        scheduled={name: name in variables.used for name in variables.values if name not in variables.declared},
        agents=MappingProxyType(
            acquainted(inline.agents, pattern.agent_ids if isinstance(pattern, Coordination) else ())
        ),
        budget=_budget(fields),
        deadline_s=fields.number("deadline_seconds"),
        schedule=schedule_of(schedule, "workflow", name, variables=_scheduled(schedule, written)),
        unknown_keys=tuple(key for key, _ in (*root.unknown(), *inline.unknown)),
        source=source,
        lines=lines,
    )
    keys = (*root.unknown(), *inline.unknown), (*root.unused(), *inline.unused)
    problems = (*without_effect(workflow, *keys, document), *_doubtful(workflow, variables, given))
    return workflow, sorted(problems, key=attrgetter("line"))


def _note_uses(variables: _Variables, pattern: Pattern, lines: Mapping[str, int]) -> None:
    """Note which variables the texts of a pattern use, and which of them have no value.

    Raises:
        InvalidField: a placeholder that is none.
    """
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


def _labels(fields: Fields) -> dict[str, str]:
    return {name: fields.text(name) or "" for name in fields.names()}


def _budget(spec: Fields) -> Json | None:
    """What one run may spend."""
    found = work.budget(spec)
    for period in ("day", "month"):
        if found is not None and period in found:
            place = (*spec.place_of("budget"), period)
            raise invalid(place, "nothing (a run has one budget, for good)", period)
    return found


def _variables(spec: Fields, schedule: Fields, written: Any) -> _Variables:
    """The variables that the file names: those of the spec, and those of the schedule that the spec does not name."""
    found = _Variables()
    given, texts = spec.under("variables"), _inner(written, "spec", "variables")
    for name in given.names():
        value = given.get(name)
        if not _VARIABLE.fullmatch(name):
            raise given.invalid(name, "a name of letters, digits, '_' and '-', at most 64,", name)
        if canonical(name) in RUN | {"initial"}:
            raise InvalidField(given.place_of(name), "Loom gives this a value itself; choose another name")
        if isinstance(value, dict | list):
            raise given.invalid(name, "a text, a number, true or false", value)
        if canonical(name) in found.declared:
            raise InvalidField(given.place_of(name), f"{canonical(name)!r} is another name for it, and stands here too")
        found.declared[canonical(name)] = f"spec.variables.{name}"
        if value is not None:
            found.values[canonical(name)] = _text(value, texts.get(name))
    scheduled, texts = schedule.get("variables"), _inner(written, "schedule", "variables")
    for name, value in scheduled.items() if isinstance(scheduled, dict) else ():
        known = canonical(str(name))
        if known not in found.declared and known not in RUN and isinstance(value, str | int | float):
            found.values.setdefault(known, _text(value, texts.get(str(name))))
    return found


def _scheduled(schedule: Fields, written: Any) -> dict[str, str]:
    """The variables of runs that the schedule begins."""
    given, texts = schedule.get("variables"), _inner(written, "schedule", "variables")
    return {
        str(name): _text(value, texts.get(str(name)))
        for name, value in (given.items() if isinstance(given, dict) else ())
        if isinstance(value, str | int | float) and canonical(str(name)) not in RUN - {"input"}
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
