"""Turns that are stages of a run: what they pass on to the next one, and what the agents cost that they ask."""

from loom_worker.core.values.runs import NewRun, Run
from loom_worker.core.values.turns import Turn
from loom_worker.store.agent_messages import AgentMessages
from loom_worker.store.runs import Runs
from loom_worker.tools.agent_tools import NO_WORKERS, MessageParts, Peers, agent_tools
from loom_worker.tools.registry import Registry
from tests.support.models import says, wants
from tests.support.runs import pipeline, workflow
from tests.support.stage import WORKSPACE, Stage

LONG = "A long line of words.\n" * 1000


def begun(stage: Stage, *prompts: str) -> Run:
    """A run of a pipeline, whose first turn is on its lane."""
    step, _ = stage.runs.accept(WORKSPACE, workflow(pipeline(*prompts)), NewRun(), now_ms=stage.now_ms)
    stage.teller().tell(step)
    return step.run


def turns_of(stage: Stage, run: Run) -> list[Turn]:
    found = Runs(stage.database).get(WORKSPACE, run.id)
    return [stage.turns.get(WORKSPACE, each.turn_id) for each in found.stages if each.turn_id]


def served(stage: Stage, run: Run) -> Run:
    """The run once the turn that it waits for has been served."""
    stage.serve(turns_of(stage, run)[-1], stage.worker("w1"))
    return Runs(stage.database).get(WORKSPACE, run.id)


def test_a_long_output_is_passed_on_as_a_reference_that_the_next_stage_alone_can_read(stage: Stage) -> None:
    stranger = stage.submit(session="stranger")
    run = begun(stage, "Write.", "Sum up: {{previous}}")
    stage.model.scenes = [says(LONG)]
    assert served(stage, run).stages[0].output_text == LONG
    first, second = turns_of(stage, run)
    ref = Runs(stage.database).get(WORKSPACE, run.id).as_json()["stages"][0]["output_ref"]
    assert ref in second.input
    assert len(second.input) < 1000
    rows = stage.references.stores.rows
    assert [rows.of_lane(ref, each.lane) is not None for each in (first, second, stranger)] == [True, True, False]
    stage.model.scenes = [says(LONG)]
    assert served(stage, run).merged_output == LONG


def test_what_a_run_passes_on_is_kept_until_it_has_ended(stage: Stage) -> None:
    run = begun(stage, "Write.", "Go on.", "Sum up: {{history}}")
    for text in (LONG, "short"):
        stage.model.scenes = [says(text)]
        served(stage, run)
        assert stage.references.stores.rows.take_expired(unused_since_ms=stage.now_ms * 2, limit=9) == ()
    stage.model.scenes = [says("done")]
    assert served(stage, run).status == "completed"
    assert len(stage.references.stores.rows.take_expired(unused_since_ms=stage.now_ms * 2, limit=9)) == 1


def test_a_stage_of_a_form_gives_its_json_to_the_next_and_is_asked_again_where_it_lacks_the_form(stage: Stage) -> None:
    form = {"type": "json_schema", "schema": {"type": "object", "required": ["n"]}}
    spec = pipeline("Count.", "Double {{previous}}")
    spec["stages"][0] |= {"response_format": form, "retry_policy": {"max_retries": 1}}
    step, _ = stage.runs.accept(WORKSPACE, workflow(spec), NewRun(), now_ms=stage.now_ms)
    stage.teller().tell(step)
    run = step.run
    for texts in (("Many.", "{}"), ('```json\n{"n": 4}\n```',), ("8",)):
        stage.model.scenes = [says(text) for text in texts]
        run = served(stage, run)
    first, again, second = turns_of(stage, run)
    assert (run.status, run.merged_output, second.input) == ("completed", "8", 'Double {"n": 4}')
    assert (first.reason, again.output_parsed) == ("invalid-output", {"n": 4})
    assert "'n' is a required property" in again.input
    assert [request.shape is None for request in stage.model.asked] == [False, False, False, True]


def test_the_cost_of_a_stage_holds_what_the_agents_cost_that_it_asked(stage: Stage) -> None:
    parts = MessageParts(AgentMessages(stage.database), stage.references, NO_WORKERS, 10_240)
    stage.registry = Registry(agent_tools(Peers({"helper": ""}, is_called=False), parts))
    run = begun(stage, "Ask.")
    stage.model.scenes = [wants(("delegate", {"agent": "helper", "task": "Count."}))]
    parent = turns_of(stage, run)[0]
    parent = stage.serve(parent, stage.worker("w1"))
    child = stage.turns.get(WORKSPACE, str(parent.calls[0].child_turn_id))
    assert child.run_id == run.id
    stage.model.scenes = [says("42"), says("It is 42.")]
    stage.serve(child, stage.worker("w2"))
    assert served(stage, run).usage.llm_calls == 3


def test_stages_of_a_run_and_agents_that_they_ask_are_one_source_of_failures(stage: Stage) -> None:
    run = begun(stage, "Add.", "Write.")
    stage.model.scenes = [wants(("add", {"a": 1, "b": 2})), says("3"), says("Written.")]
    parent = turns_of(stage, run)[0]
    parent = stage.serve(parent, stage.worker("w1"))
    owner = stage.calls.owner_of(parent.id, 0)
    assert owner is not None
    assert owner.caller.run_id == run.id
    assert {each.source for each in stage.model.asked} == {run.id}
