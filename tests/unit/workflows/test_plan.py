"""From what a run does next to the rows that do it."""

from typing import Any

import pytest

from loom_worker.core.values.agents import Agent
from loom_worker.core.values.guardrails import Guardrails, by_stage
from loom_worker.core.values.json import Json
from loom_worker.core.values.runs import Run, RunStage
from loom_worker.core.values.traces import TurnTrace
from loom_worker.core.values.webhooks import Webhook
from loom_worker.core.values.workspaces import NO_RULES
from loom_worker.webhook.body import WebhookBodies
from loom_worker.workflows.plan import NAMES_CHARS, Planner, values_of
from tests.support.runs import NamedAgents, pipeline

TRACEPARENT = f"00-{'a' * 32}-{'b' * 16}-01"
NOW = 1_000_000


def planner(*agents: Agent) -> Planner:
    return Planner(NamedAgents({agent.name: agent for agent in agents}), WebhookBodies("http://loom"), is_exported=True)


def a_run(spec: Json, *stages: RunStage, **fields: Any) -> Run:
    return Run("run_1", "default", "flow", "pipeline", "in_progress", 0, spec=spec, stages=stages, **fields)


def done(key: str, **fields: Any) -> RunStage:
    return RunStage(key, "stage", "default", "completed", conversation=key, session_id="flow:default:run_1.1", **fields)


def test_a_stage_has_a_session_that_no_client_can_name() -> None:
    [stage] = planner().change(a_run(pipeline("Go.")), NO_RULES, now_ms=NOW).begin
    assert (stage.session_id, stage.input, stage.deadline_ms) == ("flow:default:run_1.1", "Go.", None)


def test_an_agent_of_the_workflows_own_is_named_once_and_long_names_are_cut() -> None:
    [own] = planner().change(a_run(pipeline("Go.", agents=("flow:writer",))), NO_RULES, now_ms=NOW).begin
    assert own.session_id == "flow:writer:run_1.1"
    [long] = planner().change(a_run(pipeline("Go.", agents=("a" * 128,))), NO_RULES, now_ms=NOW).begin
    assert len(long.session_id) == NAMES_CHARS + len(":run_1.1")


def test_a_question_of_an_earlier_conversation_stays_in_its_session() -> None:
    spec = pipeline("Go.")
    spec["stages"][0] |= {"output_schema": {"type": "object"}, "retry_policy": {"max_retries": 1}}
    [again] = planner().change(a_run(spec, done("stages.0", output_text="no")), NO_RULES, now_ms=NOW).begin
    assert (again.key, again.session_id) == ("stages.0.retry.1", "flow:default:run_1.1")


def test_the_earliest_of_the_deadlines_holds_for_a_turn() -> None:
    fork = {"type": "fork-join", "prompt": "?", "agent_ids": ["a"], "timeout_seconds": 5}
    for run_deadline_ms, expected in ((None, NOW + 5000), (NOW + 1, NOW + 1), (NOW + 9000, NOW + 5000)):
        [stage] = planner().change(a_run(fork, deadline_ms=run_deadline_ms), NO_RULES, now_ms=NOW).begin
        assert stage.deadline_ms == expected


def test_what_a_guardrail_takes_out_of_a_prompt_does_not_reach_the_agent() -> None:
    rules = Guardrails.of(by_stage({"input": {"email": "redact"}}))
    agent = Agent("default", guardrails=rules)
    run = a_run(pipeline("Write to {{who}}"), variables={"who": "ada@example.org"})
    [stage] = planner(agent).change(run, NO_RULES, now_ms=NOW).begin
    assert "ada@example.org" not in stage.input
    assert not stage.blocked
    assert [decision["outcome"] for decision in stage.guard] == ["redact"]


def test_a_prompt_that_a_guardrail_blocks_is_not_asked() -> None:
    agent = Agent("default", guardrails=Guardrails.of(by_stage({"input": {"email": "block"}})))
    run = a_run(pipeline("Write to {{who}}"), variables={"who": "ada@example.org"})
    [stage] = planner(agent).change(run, NO_RULES, now_ms=NOW).begin
    assert stage.blocked == "A guardrail refuses the prompt of stage stages.0: it holds email."


def test_a_failure_is_told_with_the_stage_that_failed() -> None:
    error = {"type": "provider", "message": "The key is not valid.", "error_id": "err_1"}
    failed = RunStage("stages.0", "stage", "default", "failed", reason="provider", error=error)
    ending = planner().change(a_run(pipeline("Go."), failed), NO_RULES, now_ms=NOW).end
    assert ending is not None
    assert (ending.status, ending.reason, ending.failed_stage) == ("failed", "provider", "stages.0")
    assert ending.error == {
        "type": "provider",
        "message": "Stage stages.0 (default) failed: The key is not valid.",
        "error_id": "err_1",
        "stage": "stages.0",
    }


def test_a_stored_workflow_that_cannot_be_read_ends_its_run() -> None:
    ending = planner().change(a_run({"type": "dance"}), NO_RULES, now_ms=NOW).end
    assert ending is not None
    assert (ending.status, ending.reason) == ("failed", "workflow")


def test_no_variable_of_a_run_takes_the_place_of_what_loom_knows() -> None:
    run = a_run({}, variables={"input": "Ask.", "run_id": "forged", "mine": "1"})
    known = values_of(run)
    assert (known["input"], known["run_id"], known["workflow"], known["date"], known["mine"]) == (
        "Ask.",
        "run_1",
        "flow",
        "1970-01-01",
        "1",
    )


@pytest.mark.parametrize("traceparent", [None, TRACEPARENT])
def test_a_run_with_a_trace_leaves_a_span_over_all_of_its_turns(traceparent: str | None) -> None:
    told = planner().spans(a_run({}, traceparent=traceparent, completed_ms=5), "turn_1")
    if traceparent is None:
        assert told is None
        return
    assert told is not None
    [span] = told.spans
    assert (span.name, span.trace_id, span.end_us, told.is_exported) == ("workflow.run", "a" * 32, 5000, True)


def test_the_span_of_a_run_that_ends_as_it_is_accepted_does_not_end_before_it_begins() -> None:
    accepted = TurnTrace(accepted_us=5_400)
    told = planner().spans(a_run({}, traceparent=TRACEPARENT, trace=accepted, completed_ms=5), "turn_1")
    assert told is not None
    assert [(span.start_us, span.end_us) for span in told.spans] == [(5_400, 5_400)]


def test_only_a_run_with_a_webhook_is_reported() -> None:
    assert planner().delivery(a_run({}), "turn_1", now_ms=NOW) is None
    delivery = planner().delivery(a_run({}, webhook=Webhook("http://there")), "turn_1", now_ms=NOW)
    assert delivery is not None
    assert (delivery.run_id, delivery.turn_id, delivery.url) == ("run_1", "turn_1", "http://there")


def test_a_long_output_reaches_the_next_agent_as_a_preview_with_its_reference() -> None:
    ref = {"ref": "ref_1", "preview": "[Large dataset stored: ref_1] beginning"}
    first = done("stages.0", output_text="a long text", output_ref=ref)
    [stage] = planner().change(a_run(pipeline("Go.", "Sum up: {{previous}}!"), first), NO_RULES, now_ms=NOW).begin
    assert stage.input == "Sum up: [Large dataset stored: ref_1] beginning!"
    assert stage.refs == {"ref_1"}


def test_a_prompt_that_holds_no_long_output_passes_nothing_on() -> None:
    first = done("stages.0", output_text="a long text", output_ref={"ref": "ref_1", "preview": "short"})
    [stage] = planner().change(a_run(pipeline("Go.", "Next."), first), NO_RULES, now_ms=NOW).begin
    assert (stage.input, stage.refs) == ("Next.", frozenset())
