"""One stage of a pipeline: asked, its output checked, asked again if need be, and shown to a person. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from loom_worker.core.values.workflows import ApprovalGate, OutputRetries, PipelineStage
from loom_worker.workflows.placeholders import fill, used
from loom_worker.workflows.readings import schema_error, valid_values, verdict
from loom_worker.workflows.steps import Gate, Question, StageAnswer, Steps, Stopped, ask, decided

REPAIR = (
    "Your output cannot be used: {{error}}\n{{valid_values}}\n"
    "Give the whole output again, with this put right and nothing else changed."
)
"""What a stage is told whose output is not what it must be; it continues the stage's own conversation."""
REVISE = "A person has looked at your output and asks for a change: {{feedback}}\n\nGive the whole output again."
MOST_REASON_CHARS = 500
"""Of what a validation said, as the stage is told."""
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
        return Question(key, self.stage.agent_id, prompt, name=self.stage.id, conversation=self.key)

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
