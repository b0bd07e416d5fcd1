"""The state machine of runs, against the same pattern played straight through."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from loom_worker.core.values.runs import EXPIRED, Run, RunStage
from loom_worker.core.values.workflows import ApprovalGate, Pattern, Pipeline, PipelineStage
from loom_worker.workflows.decide import AskApproval, AwaitAnswers, BeginStages, EndRun, decide, play
from loom_worker.workflows.sequences import Scene
from loom_worker.workflows.steps import Gate, Question, StageAnswer, Stopped
from tests.unit.workflows import patterns as made

VALUES = {"topic": "ships", "input": "Ask."}


def a_run(*stages: RunStage, **fields: Any) -> Run:
    return Run("run_1", "default", "flow", "pipeline", "in_progress", 0, stages=stages, **fields)


def straight(pattern: Pattern, seed: int) -> tuple[str, str | None, list[str]]:
    """Status, result and questions of a pattern that is played once, with every answer at hand."""
    asked: list[str] = []

    def answered(wanted: Sequence[Question] | Gate) -> tuple[StageAnswer, ...]:
        if isinstance(wanted, Gate):
            asked.append(wanted.key)
            said: Any = made.decision(wanted.key, wanted.prompt, seed)
            return (StageAnswer(decision=said, reason="Better."),)
        asked.extend(each.key for each in wanted)
        return tuple(StageAnswer(made.answer(each.agent_id, each.prompt, seed)) for each in wanted)

    steps = play(pattern, Scene(VALUES))
    try:
        wanted = next(steps)
        while True:
            wanted = steps.send(answered(wanted))
    except StopIteration as ended:
        return "completed", ended.value, asked
    except Stopped as stopped:
        return stopped.status, stopped.output, asked


@dataclass
class Played:
    """A run in memory: what was begun is answered whenever a test says so."""

    pattern: Pattern
    seed: int
    stages: dict[str, RunStage] = field(default_factory=dict)
    prompts: dict[str, str] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)
    """Keys in the order in which they were begun."""
    ended: EndRun | None = None
    cancel: str | None = None

    def go_on(self) -> None:
        """What the store does after each change: it asks what is next, and does it."""
        if self.ended is not None:
            return
        run = a_run(*self.stages.values(), cancel=self.cancel)
        decision = decide(self.pattern, VALUES, run, now_ms=0)
        match decision:
            case BeginStages(asks):
                for ask in asks:
                    self._begin(RunStage(ask.key, ask.role, ask.agent_id, "queued"), ask.prompt)
            case AskApproval(gate):
                self._begin(RunStage(gate.key, "approval", gate.agent_id, "requires_action"), gate.prompt)
            case EndRun():
                self.ended = decision
            case AwaitAnswers():
                pass

    def _begin(self, stage: RunStage, prompt: str) -> None:
        assert stage.key not in self.stages, f"{stage.key} is asked twice"
        self.stages[stage.key], self.prompts[stage.key] = stage, prompt
        self.begun.append(stage.key)

    @property
    def open(self) -> list[str]:
        return [key for key, stage in self.stages.items() if stage.is_open]

    def answer(self, key: str) -> None:
        """An agent answers, or a person decides."""
        stage = self.stages[key]
        if stage.role == "approval":
            said: Any = made.decision(key, self.prompts[key], self.seed)
            self.stages[key] = replace(stage, status="completed", decision=said, comment="Better.")
        else:
            text = made.answer(stage.agent_id, self.prompts[key], self.seed)
            self.stages[key] = replace(stage, status="completed", output_text=text)

    def fail(self, key: str) -> None:
        self.stages[key] = replace(self.stages[key], status="failed", reason="provider")

    def retried(self) -> "Played":
        """The run that goes on from where this one failed."""
        assert self.ended is not None
        failed = self.ended.stage
        kept = {
            key: stage
            for key, stage in self.stages.items()
            if stage.status == "completed" and failed and key != failed and not key.startswith(f"{failed}.")
        }
        return Played(self.pattern, self.seed, kept, {key: self.prompts[key] for key in kept})

    def finish(self) -> EndRun:
        """Answer everything in order."""
        for _ in range(1000):
            self.go_on()
            if self.ended is not None:
                return self.ended
            for key in self.open:
                self.answer(key)
        raise AssertionError("the run does not end")


@given(made.patterns, st.integers(0, 9))
def test_a_run_gives_what_the_pattern_played_once_gives(pattern: Pattern, seed: int) -> None:
    status, output, asked = straight(pattern, seed)
    run = Played(pattern, seed)
    ended = run.finish()
    assert (ended.status, ended.output, run.begun) == (status, output, asked)


@given(made.patterns, st.integers(0, 9), st.data())
def test_a_retry_of_a_failed_run_gives_what_a_run_without_failures_gives(
    pattern: Pattern, seed: int, data: st.DataObject
) -> None:
    status, output, asked = straight(pattern, seed)
    run = Played(pattern, seed)
    victim = data.draw(st.sampled_from(asked))
    while run.ended is None:
        run.go_on()
        for key in run.open:
            is_victim = key == victim and run.stages[key].role != "approval"
            (run.fail if is_victim else run.answer)(key)
    if run.stages[victim].status != "failed":
        return
    assert (run.ended.status, run.ended.stage) == ("failed", victim)
    again = run.retried()
    assert victim not in again.stages
    ended = again.finish()
    assert (ended.status, ended.output) == (status, output)
    assert set(again.begun).isdisjoint(key for key, stage in run.stages.items() if key in run.retried().stages)


class RunMachine(RuleBasedStateMachine):
    """Agents answer in any order, signals are lost and repeated, and somebody may cancel."""

    @initialize(pattern=made.patterns, seed=st.integers(0, 9))
    def begin(self, pattern: Pattern, seed: int) -> None:
        self.run = Played(pattern, seed)
        self.failed: set[str] = set()
        self.run.go_on()

    @precondition(lambda self: self.run.open)
    @rule(data=st.data(), is_signal_lost=st.booleans())
    def answer(self, data: st.DataObject, is_signal_lost: bool) -> None:
        self.run.answer(data.draw(st.sampled_from(self.run.open)))
        if not is_signal_lost:
            self.run.go_on()

    @precondition(lambda self: any(self.run.stages[key].role != "approval" for key in self.run.open))
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        turns = [key for key in self.run.open if self.run.stages[key].role != "approval"]
        key = data.draw(st.sampled_from(turns))
        self.run.fail(key)
        self.failed.add(key)
        self.run.go_on()

    @rule()
    def sweep(self) -> None:
        before = list(self.run.begun)
        self.run.go_on()
        self.run.go_on()
        assert len(set(self.run.begun)) == len(self.run.begun) >= len(before)

    @rule()
    def cancel(self) -> None:
        if self.run.ended is None:
            self.run.cancel = "interrupt"

    @invariant()
    def nothing_begins_behind_a_failure_or_an_end(self) -> None:
        if self.run.ended is not None:
            assert not [key for key in self.run.open if self.run.stages[key].role != "approval"]

    def teardown(self) -> None:
        """Whatever happened, the run ends, and as it must."""
        run = self.run
        if run.ended is None:
            run.finish()
        assert run.ended is not None
        if run.cancel is None and not self.failed:
            assert (run.ended.status, run.ended.output) == straight(run.pattern, run.seed)[:2]
        elif self.failed and run.ended.status == "failed" and run.ended.reason == "provider":
            assert run.ended.stage in self.failed
        elif self.failed:
            assert run.ended.status == "cancelled"


TestRunMachine = RunMachine.TestCase
TestRunMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def gated(**policy: Any) -> Pipeline:
    return Pipeline("Begin", (PipelineStage("anna", "Do it.", id="a", approval=ApprovalGate(**policy)),))


def stage(key: str, text: str = "done", **fields: Any) -> RunStage:
    return RunStage(
        key, fields.pop("role", "stage"), "anna", fields.pop("status", "completed"), output_text=text, **fields
    )


def test_a_run_without_an_answer_asks_for_the_first_stage() -> None:
    decision = decide(gated(), VALUES, a_run(), now_ms=0)
    assert decision == BeginStages((Question("stages.0", "anna", "Do it.", name="a", conversation="stages.0"),))


def test_an_output_that_a_person_must_see_is_shown_before_the_run_goes_on() -> None:
    decision = decide(gated(prompt="Look: {{output}}"), VALUES, a_run(stage("stages.0", "42")), now_ms=0)
    assert isinstance(decision, AskApproval)
    assert (decision.gate.key, decision.gate.prompt) == ("stages.0.approval", "Look: 42")


def test_a_revision_continues_the_stages_conversation_with_what_the_person_said() -> None:
    said = stage("stages.0.approval", role="approval", decision="revise", comment="Shorter.")
    decision = decide(gated(), VALUES, a_run(stage("stages.0"), said), now_ms=0)
    assert isinstance(decision, BeginStages)
    [ask] = decision.asks
    assert (ask.key, ask.conversation) == ("stages.0.revision.1", "stages.0")
    assert "Shorter." in ask.prompt


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"decision": "reject", "comment": "No."}, "rejected"),
        ({"decision": "reject", "reason": EXPIRED}, "approval-timeout"),
    ],
)
def test_a_rejected_output_fails_the_run_and_a_retry_does_the_stage_again(fields: Any, reason: str) -> None:
    said = stage("stages.0.approval", role="approval", **fields)
    decision = decide(gated(), VALUES, a_run(stage("stages.0"), said), now_ms=0)
    assert isinstance(decision, EndRun)
    assert (decision.status, decision.reason, decision.stage) == ("failed", reason, "stages.0")


def test_a_run_past_its_deadline_begins_nothing_more() -> None:
    late = a_run(deadline_ms=1000)
    assert decide(gated(), VALUES, late, now_ms=999) != decide(gated(), VALUES, late, now_ms=1000)
    ended = decide(gated(), VALUES, late, now_ms=1000)
    assert isinstance(ended, EndRun)
    assert (ended.status, ended.reason) == ("failed", "deadline")


def test_an_open_approval_waits_and_a_cancel_does_not_wait_for_it() -> None:
    asked = stage("stages.0.approval", role="approval", status="requires_action")
    run = a_run(stage("stages.0"), asked)
    assert decide(gated(), VALUES, run, now_ms=0) == AwaitAnswers()
    ended = decide(gated(), VALUES, replace(run, cancel="interrupt"), now_ms=0)
    assert isinstance(ended, EndRun)
    assert ended.status == "cancelled"


def test_a_failed_stage_ends_the_run_with_the_words_of_its_turn() -> None:
    error = {"type": "provider", "message": "The key is not valid."}
    broken = RunStage("stages.0", "stage", "anna", "failed", reason="provider", error=error)
    ended = decide(gated(), VALUES, a_run(broken), now_ms=0)
    assert isinstance(ended, EndRun)
    assert ended.message == "Stage stages.0 (anna) failed: The key is not valid."
