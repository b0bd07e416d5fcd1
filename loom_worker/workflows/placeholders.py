"""Placeholders in the texts of a workflow: ``{{name}}`` or ``{{.name}}``. Pure.

There is no template language: a placeholder is a name, and what it is filled with is never looked at again. The output
of an agent therefore cannot insert anything by containing braces.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from loom_worker.core.text import did_you_mean
from loom_worker.core.values.problems import Problem
from loom_worker.core.values.workflows import (
    Conditional,
    Coordination,
    Debate,
    Iterative,
    OutputRetries,
    ParallelTasks,
    Pattern,
    Pipeline,
    PipelineStage,
    Swarm,
    Workflow,
)

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


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """One text with placeholders."""

    path: str
    """Below ``spec``."""
    text: str
    filled: frozenset[str]
    """Canonical names that Loom fills; the others are variables of the run."""

    def variables(self) -> tuple[str, ...]:
        """The variables that it uses; where no initial prompt exists, ``initial`` is the input."""
        names = (name for name in used(self.text) if name not in self.filled)
        return tuple(dict.fromkeys("input" if name == "initial" else name for name in names))


def templates(pattern: Pattern, outer: frozenset[str] = RUN) -> Iterator[PromptTemplate]:
    """All of a pattern's texts, in the order in which they are read.

    Args:
        outer: what is filled in the pattern's own texts.
    """
    match pattern:
        case Pipeline():
            yield PromptTemplate("initial_prompt", pattern.initial_prompt, outer)
            for n, stage in enumerate(pattern.stages):
                yield from _below(f"stages[{n}]", _of_stage(stage))
        case ParallelTasks(type="fork-join", tasks=tasks):
            yield PromptTemplate("prompt", tasks[0].prompt, outer)
        case ParallelTasks(tasks=tasks):
            yield from (PromptTemplate(f"tasks[{n}].prompt", task.prompt, outer) for n, task in enumerate(tasks))
        case Conditional():
            yield PromptTemplate("condition_prompt", pattern.condition_prompt, outer)
            yield from _of_retry(pattern.retry, outer)
            for name, branch in pattern.branches.items():
                yield from _below(f"branches.{name}", templates(branch, RUN | BRANCH))
            if pattern.default_branch is not None:
                yield from _below("default_branch", templates(pattern.default_branch, RUN | BRANCH))
        case Iterative():
            yield from _below("pipeline", templates(pattern.pipeline, outer))
        case Debate():
            yield PromptTemplate("topic", pattern.topic, outer)
        case Swarm():
            yield PromptTemplate("question", pattern.question, outer)
            yield from _of_retry(pattern.retry, outer)
        case Coordination():
            yield PromptTemplate("prompt", pattern.prompt, outer)


def _of_stage(stage: PipelineStage) -> Iterator[PromptTemplate]:
    yield PromptTemplate("prompt_template", stage.prompt_template, RUN | STAGE)
    if stage.validation_prompt is not None:
        yield PromptTemplate("validation_prompt", stage.validation_prompt, RUN | CHECK)
    yield from _of_retry(stage.retry, RUN | CHECK)
    if stage.approval is not None:
        yield PromptTemplate("approval.prompt", stage.approval.prompt, RUN | CHECK)


def _of_retry(policy: OutputRetries, outer: frozenset[str]) -> Iterator[PromptTemplate]:
    if policy.feedback is not None:
        yield PromptTemplate("retry_policy.feedback_template", policy.feedback, outer | RETRY)


def _below(path: str, found: Iterator[PromptTemplate]) -> Iterator[PromptTemplate]:
    yield from (PromptTemplate(f"{path}.{each.path}", each.text, each.filled) for each in found)
