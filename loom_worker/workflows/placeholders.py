"""Placeholders in the texts of a workflow: ``{{name}}`` or ``{{.name}}``. Pure.

There is no template language: a placeholder is a name, and what it is filled with is never looked at again. The output
of an agent therefore cannot insert anything by containing braces.
"""

import re
from collections.abc import Collection, Mapping
from types import MappingProxyType

from loom_worker.core.text import did_you_mean
from loom_worker.core.values.problems import Problem
from loom_worker.core.values.workflows import Workflow

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "previous_output": "previous",
        "user_query": "input",
        "user_input": "input",
        "query": "input",
        "revision_feedback": "feedback",
    }
)
"""Other names of placeholders, as public workflow files use them."""
RUN = frozenset({"run_id", "workflow", "date"})
"""Filled in every text."""
BRANCH = frozenset({"initial", "previous"})
"""Filled in a workflow within another one."""
STAGE = BRANCH | {"history", "feedback"}
"""Filled in the prompt of a pipeline's stage."""
CHECK = STAGE | {"output"}
"""Filled in the other texts of a stage."""
RETRY = frozenset({"output", "error", "attempt", "max_retries", "valid_values"})
"""Filled in what an agent is told before a retry."""

_PLACEHOLDER = re.compile(r"\{\{[ \t]*\.?(?P<name>[A-Za-z_][A-Za-z0-9_-]*)[ \t]*\}\}")
_OPENED = re.compile(r"\{\{[^\n]{0,40}")
_CLOSED = re.compile(r"\{\{[^\n]*?\}\}")


def canonical(name: str) -> str:
    """The name by which the value of a placeholder or variable is known."""
    return ALIASES.get(name, name)


def used(template: str) -> tuple[str, ...]:
    """The canonical names in a template, in order, each once."""
    return tuple(dict.fromkeys(canonical(found["name"]) for found in _PLACEHOLDER.finditer(template)))


def fill(template: str, values: Mapping[str, str]) -> str:
    """A template with its placeholders filled; those that have no value stay as they are.

    Args:
        values: by canonical name.
    """
    return _PLACEHOLDER.sub(lambda found: values.get(canonical(found["name"]), found[0]), template)


def renamed(template: str, names: Mapping[str, str]) -> str:
    """A template with other names in its placeholders.

    Args:
        names: new names by those that stand in the template, which may be aliases.
    """
    return _PLACEHOLDER.sub(
        lambda found: f"{{{{{names[found['name']]}}}}}" if found["name"] in names else found[0], template
    )


def malformed(template: str) -> str:
    """What is wrong with the first placeholder that is none; empty if there is no such thing."""
    rest = _PLACEHOLDER.sub("\0", template)
    opened = _OPENED.search(rest)
    if opened is None:
        return ""
    closed = _CLOSED.match(rest, opened.start())
    if closed is None:
        return f"a placeholder is opened and not closed: {opened[0]!r}"
    return f"a placeholder is a name, as in {{{{name}}}}, not {closed[0][:60]!r}"


def advice_on(name: str, known: Collection[str] = ()) -> str:
    """Which filled name a variable without a value is probably meant to be; unless given, of all that are filled."""
    if name in CHECK | RETRY:
        return "Loom fills it in other texts, not in this one"
    return did_you_mean(name, known or CHECK | RETRY | RUN, least=0.8)


def variables_of(workflow: Workflow, given: Mapping[str, str]) -> dict[str, str]:
    """The values of all variables in a run, by canonical name: those given, and the file's for the others."""
    return {**workflow.variables, **{canonical(name): value for name, value in given.items()}}


def missing(workflow: Workflow, given: Mapping[str, str]) -> tuple[Problem, ...]:
    """The variables that a run must give and does not, each with the place that needs it."""
    known = {canonical(name) for name in given}
    return tuple(
        Problem(
            f"the workflow {workflow.name} needs the variable {name!r}",
            f"{advice_on(name)} give it with the run, or add a value as spec.variables.{name}".lstrip(),
            workflow.file,
            line,
            field=name,
        )
        for name, line in workflow.needed.items()
        if name not in known
    )


def surplus(workflow: Workflow, given: Mapping[str, str]) -> tuple[str, ...]:
    """The given names, as they are spelled there, that the workflow neither declares nor uses."""
    return tuple(name for name in given if canonical(name) not in workflow.variables.keys() | workflow.needed.keys())
