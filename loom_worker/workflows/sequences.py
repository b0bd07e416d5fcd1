"""Patterns whose parts follow each other: pipeline, iterative, conditional, and coordination. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from loom_worker.core.values.workflows import Conditional, Coordination, Iterative, Pattern, Pipeline, PipelineStage
from loom_worker.workflows.placeholders import fill, used
from loom_worker.workflows.readings import Restart, choice_of, restart_of
from loom_worker.workflows.stage import InvalidOutput, checked_stage, repair
from loom_worker.workflows.steps import Question, Steps, Stopped, ask

ASK_AGAIN = (
    "\n\nIf the work must be done again, say so on a line of its own: RESTART, then the name of the stage from which "
    "on, then a colon and what must be better."
)
"""What a stage of an iterative workflow is told that may ask for another iteration."""


ONE_OF = "\n\nAnswer with one of these, and nothing else: {}."
"""What the agent is told that chooses a branch."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Where a pattern is played: the values of its placeholders, and the place of its stages in the run."""

    values: Mapping[str, str]
    at: str = ""
    """What the keys of its stages begin with: empty, or ``branch.``."""
    feedback: str = ""
    """What must be better than in the iteration before; empty: there was none."""

    def filled(self, template: str) -> str:
        """The template with what is known here."""
        return fill(template, self.values)

    def key(self, *parts: object) -> str:
        """A key below this place."""
        return self.at + ".".join(map(str, parts))

    def below(self, *parts: object, **values: str) -> "Scene":
        """A place below this one, where more is known."""
        return Scene({**self.values, **values}, f"{self.key(*parts)}.")


@dataclass(frozen=True, slots=True)
class _Output:
    stage: PipelineStage
    text: str


def pipeline(pattern: Pipeline, scene: Scene) -> Steps:
    """Each stage after the one before it; the last output is the result."""
    initial = scene.filled(pattern.initial_prompt)
    outputs: list[_Output] = []
    for n, stage in enumerate(pattern.stages):
        text = yield from _stage(pattern, n, scene, initial, outputs)
        outputs.append(_Output(stage, text))
    return outputs[-1].text


def _stage(pattern: Pipeline, n: int, scene: Scene, initial: str, before: Sequence[_Output], more: str = "") -> Steps:
    """One stage, which knows the initial prompt and what came before it."""
    stage, history = pattern.stages[n], _history(before)
    previous = before[-1].text if before else initial
    values = {**scene.values, "feedback": scene.feedback, "initial": initial, "previous": previous, "history": history}
    prompt = fill(stage.prompt_template, values)
    if pattern.pass_full_history and before and "history" not in used(stage.prompt_template):
        prompt += f"\n\nWhat was said before:\n\n{history}"
    if values["feedback"] and "feedback" not in used(stage.prompt_template):
        prompt += f"\n\nWhat must be better than the last time: {values['feedback']}"
    return checked_stage(stage, scene.key("stages", n), values, prompt + more)


def _history(outputs: Sequence[_Output]) -> str:
    return "\n\n".join(f"[{output.stage.id}]\n{output.text}" for output in outputs)


def iterative(pattern: Iterative, scene: Scene) -> Steps:
    """A pipeline, done again from a stage on for as long as a stage asks for it or is not valid.

    Raises:
        Stopped: it would have to be done again after its last iteration; the last output is kept.
    """
    stages, begin, feedback = pattern.pipeline.stages, 0, ""
    kept: list[_Output] = []
    wish: Restart | None = None
    for iteration in range(pattern.max_iterations):
        outputs, wish = kept[:begin], None
        inside = replace(scene.below("iterations", iteration), feedback=feedback)
        initial = inside.filled(pattern.pipeline.initial_prompt)
        for n in range(begin, len(stages)):
            more = _how_to_restart(pattern, stages[n])
            try:
                text = yield from _stage(pattern.pipeline, n, inside, initial, outputs, more)
                wish = restart_of(text) if more else None
            except InvalidOutput as error:
                text, wish = error.output or "", Restart("", error.message)
            outputs.append(_Output(stages[n], text))
            if wish is not None:
                break
        if wish is None:
            return outputs[-1].text
        kept, begin, feedback = outputs, _first(pattern, wish, len(outputs)), wish.reason or "it is not good enough yet"
    why = f"The work was not done after {pattern.max_iterations} iterations, the most it may take: {feedback}"
    last = scene.key("iterations", pattern.max_iterations - 1)
    raise Stopped("incomplete", "iterations", why, stage=last, output=outputs[-1].text)


def _how_to_restart(pattern: Iterative, stage: PipelineStage) -> str:
    """What is added to the prompt of a stage that may ask for another iteration."""
    return ASK_AGAIN if not pattern.restart_triggers or stage.id in pattern.restart_triggers else ""


def _first(pattern: Iterative, wish: Restart, done: int) -> int:
    """The stage from which the next iteration begins: the one named, if it may be and there is something before it."""
    ids = [stage.id for stage in pattern.pipeline.stages]
    if wish.stage in ids and (not pattern.restartable_stages or wish.stage in pattern.restartable_stages):
        return min(ids.index(wish.stage), done)
    return 0


def conditional(pattern: Conditional, scene: Scene, play: Callable[[Pattern, Scene], Steps]) -> Steps:
    """An agent chooses a branch, which is played in its turn.

    Args:
        play: plays any pattern.

    Raises:
        Stopped: the answer names no branch, and there is no default one.
    """
    question = scene.filled(pattern.condition_prompt) + ONE_OF.format(", ".join(pattern.branches))
    names, key, answer = list(pattern.branches), scene.key("condition"), ""
    chosen: str | None = None
    for attempt in range(pattern.retry.max_retries + 1):
        prompt = question
        if attempt:
            options = f" ({', '.join(names)})" if pattern.retry.include_valid_values else ""
            error = f"it must be one of the possible answers{options}, and nothing else."
            prompt = repair(pattern.retry, None, scene.values, answer, error, attempt)
        asked = key if attempt == 0 else f"{key}.retry.{attempt}"
        answer = yield from ask(Question(asked, pattern.condition_agent_id, prompt, role="condition", conversation=key))
        chosen = choice_of(answer, names)
        if chosen is not None:
            break
    branch = pattern.default_branch if chosen is None else pattern.branches[chosen]
    if branch is None:
        why = f"The answer of {pattern.condition_agent_id} names none of the branches: {', '.join(names)}."
        raise Stopped("failed", "no-branch", why, stage=key, output=answer)
    return (yield from play(branch, scene.below("branch", previous=answer, initial=_initial(scene, question))))


def _initial(scene: Scene, question: str) -> str:
    """What the parts of a branch are told they began with: what the run was asked, or the condition's prompt."""
    return scene.values.get("input") or question


def coordination(pattern: Coordination, scene: Scene) -> Steps:
    """One agent, who talks to the others itself."""
    return ask(Question(scene.key("entrypoint"), pattern.entrypoint, scene.filled(pattern.prompt)))
