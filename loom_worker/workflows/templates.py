"""The texts of a pattern that are filled, and what each of them may hold. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

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
)
from loom_worker.workflows.placeholders import BRANCH, CHECK, RETRY, RUN, STAGE, used


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
