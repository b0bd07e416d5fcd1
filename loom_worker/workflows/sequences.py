"""Patterns whose parts follow each other: pipeline, iterative, conditional, and coordination. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from loom_worker.core.values.workflows import (
    ApprovalGate,
    Conditional,
    Coordination,
    Iterative,
    OutputRetries,
    Pattern,
    Pipeline,
    PipelineStage,
)
from loom_worker.workflows.placeholders import fill, used
from loom_worker.workflows.readings import Restart, choice_of, restart_of, schema_error, valid_values, verdict
from loom_worker.workflows.steps import Gate, Question, StageAnswer, Steps, Stopped, ask, decided

REPAIR = (
    "Your output cannot be used: {{error}}\n{{valid_values}}\n"
    "Give the whole output again, with this put right and nothing else changed."
)
"""What a stage is told whose output is not what it must be; it continues the stage's own conversation."""
REVISE = "A person has looked at your output and asks for a change: {{feedback}}\n\nGive the whole output again."
MOST_REASON_CHARS = 500
"""Characters of what a validation said, as the stage is told."""
ANSWER_YES_OR_NO = "\n\nAnswer with yes or no first, then say why in one sentence."


class InvalidOutput(Stopped):
    """A stage's output is not what it must be, and its retries are used up."""


@dataclass(frozen=True, slots=True)
class _Conversation:
    """A stage as it is asked in one session, again and again."""

    stage: PipelineStage
    key: str
    values: Mapping[str, str]

    def question(self, key: str, prompt: str) -> Question:
        stage, form = self.stage, self.stage.response_format
        return Question(key, stage.agent_id, prompt, name=stage.id, conversation=self.key, response_format=form)

    def stopped(self, reason: str, message: str, output: str) -> Stopped:
        return Stopped("failed", reason, message, stage=self.key, output=output)


def checked_stage(stage: PipelineStage, key: str, values: Mapping[str, str], prompt: str) -> Steps:
    """Ask a stage until its output is what it must be and, where the file says so, a person has approved it.

    Args:
        key: of the stage in its run.
        values: by placeholder, for the stage's other templates.
        prompt: the stage's own, filled.

    Raises:
        InvalidOutput: the retries are used up.
        Stopped: a person rejected the output, or nobody answered in time.
    """
    talk = _Conversation(stage, key, values)
    output = yield from _valid_output(talk, key, prompt)
    if stage.approval is None:
        return output
    for revision in range(1, stage.approval.max_revisions + 2):
        gate_key = f"{key}.approval" if revision == 1 else f"{key}.approval.{revision}"
        shown = fill(stage.approval.prompt, {**values, "output": output})
        said = yield from decided(Gate(gate_key, stage.agent_id, shown, stage.approval))
        if said.decision == "approve":
            return output
        if said.decision == "reject" or revision > stage.approval.max_revisions:
            raise talk.stopped(*_rejected(stage.approval, key, said), output)
        again = fill(REVISE, {"feedback": said.reason or "see the task"})
        output = yield from _valid_output(talk, f"{key}.revision.{revision}", again)
    raise AssertionError("the last revision approves or rejects")


def _rejected(policy: ApprovalGate, key: str, said: StageAnswer) -> tuple[str, str]:
    if said.is_expired:
        return "approval-timeout", f"Nobody approved the output of stage {key} within {policy.timeout_s:.0f} s."
    why = f": {said.reason}" if said.reason else "."
    if said.decision == "revise":
        return "rejected", f"Stage {key} was revised {policy.max_revisions} times, the most it may be{why}"
    return "rejected", f"A person rejected the output of stage {key}{why}"


def _valid_output(talk: _Conversation, key: str, prompt: str) -> Steps:
    """Ask, and ask again with what is wrong, as often as the stage may be."""
    retry, output, error = talk.stage.retry, "", ""
    for attempt in range(retry.max_retries + 1):
        asked = key if attempt == 0 else f"{key}.retry.{attempt}"
        told = prompt if attempt == 0 else repair(retry, talk.stage, talk.values, output, error, attempt)
        output = yield from ask(talk.question(asked, told))
        error = yield from _error_in(talk, asked, output)
        if not error:
            return output
    times = "a retry" if retry.max_retries == 1 else f"{retry.max_retries} retries"
    tried = f" after {times}" if retry.max_retries else ""
    message = f"The output of stage {talk.key} is not valid{tried}: {error}"
    raise InvalidOutput("failed", "invalid-output", message, stage=talk.key, output=output)


def repair(
    retry: OutputRetries, stage: PipelineStage | None, values: Mapping[str, str], output: str, error: str, attempt: int
) -> str:
    """What an agent is told whose output is not what it must be."""
    schema = stage.output_schema if stage is not None else None
    options = valid_values(schema) if schema and retry.include_valid_values else []
    known = {
        **values,
        "output": output,
        "error": error,
        "attempt": str(attempt),
        "max_retries": str(retry.max_retries),
        "valid_values": f"Valid values: {'; '.join(options)}." if options else "",
    }
    return fill(retry.feedback or REPAIR, known).replace("\n\n\n", "\n\n")


def _error_in(talk: _Conversation, asked: str, output: str) -> Steps:
    stage = talk.stage
    if stage.output_schema is not None:
        error = schema_error(output, stage.output_schema, shows_values=stage.retry.include_valid_values)
        if error:
            return error
    if stage.validation_prompt is None:
        return ""
    filled = fill(stage.validation_prompt, {**talk.values, "output": output})
    whole = filled if "output" in used(stage.validation_prompt) else f"{filled}\n\nOutput:\n{output}"
    question = Question(f"{asked}.validation", stage.agent_id, whole + ANSWER_YES_OR_NO, role="validation")
    said = yield from ask(question)
    if verdict(said):
        return ""
    return " ".join(said.split())[:MOST_REASON_CHARS] or "the validation gave no answer"


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
    restart: Restart | None = None
    for iteration in range(pattern.max_iterations):
        outputs, restart = kept[:begin], None
        inside = replace(scene.below("iterations", iteration), feedback=feedback)
        initial = inside.filled(pattern.pipeline.initial_prompt)
        for n in range(begin, len(stages)):
            more = _how_to_restart(pattern, stages[n])
            try:
                text = yield from _stage(pattern.pipeline, n, inside, initial, outputs, more)
                restart = restart_of(text) if more else None
            except InvalidOutput as error:
                text, restart = error.output or "", Restart("", error.message)
            outputs.append(_Output(stages[n], text))
            if restart is not None:
                break
        if restart is None:
            return outputs[-1].text
        kept, begin = outputs, _first(pattern, restart, len(outputs))
        feedback = restart.reason or "it is not good enough yet"
    why = f"The work was not done after {pattern.max_iterations} iterations, the most it may take: {feedback}"
    last = scene.key("iterations", pattern.max_iterations - 1)
    raise Stopped("incomplete", "iterations", why, stage=last, output=outputs[-1].text)


def _how_to_restart(pattern: Iterative, stage: PipelineStage) -> str:
    """What is added to the prompt of a stage that may ask for another iteration."""
    return ASK_AGAIN if not pattern.restart_triggers or stage.id in pattern.restart_triggers else ""


def _first(pattern: Iterative, restart: Restart, done: int) -> int:
    """The stage from which the next iteration begins: the one named, if it may be and there is something before it."""
    ids = [stage.id for stage in pattern.pipeline.stages]
    if restart.stage in ids and (not pattern.restartable_stages or restart.stage in pattern.restartable_stages):
        return min(ids.index(restart.stage), done)
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
