"""Workflows of files, and what a run must give them."""

from tests.support.web_stage import WebStage
from tests.unit.web.flow import Flow, refused

FILE = """apiVersion: loom/v1
kind: Workflow
metadata: {{name: {name}, version: "3", description: Notes., labels: {{team: docs}}}}
spec:
  type: pipeline
  initial_prompt: "{{{{input}}}}"
  stages:
    - agent_id: {agent}
      prompt_template: "{{{{previous}}}} for {{{{audience}}}}, {{{{tone}}}}"
  variables: {{tone: friendly}}
  budget: {{tokens: 5000}}
"""
"""Needs ``input`` (line 6) and ``audience`` (line 9)."""


def write(stage: WebStage, name: str = "notes", *, agent: str = "default", text: str = FILE) -> None:
    (stage.workflow_files / f"{name}.yaml").write_text(text.format(name=name, agent=agent), encoding="utf-8")


def test_a_workflow_that_is_not_there_is_not_found_and_the_nearest_is_named(flow: Flow) -> None:
    for answer in (flow.post(name="tow"), flow.client.get("/v1/workflows/tow")):
        assert answer.status_code == 404
        assert "There is no workflow 'tow'. Did you mean 'two'?" in answer.text
    assert flow.client.get("/v1/workflows/%00").status_code == 404


def test_missing_variables_are_told_with_the_line_that_needs_them(flow: Flow) -> None:
    write(flow.stage)
    text = refused(flow.post({}, "notes"), "/variables/input", "/variables/audience")
    file = flow.stage.workflow_files / "notes.yaml"
    assert f"{file}:6" in text
    assert f"{file}:9" in text
    assert flow.client.get("/v1/runs").get_json()["data"] == []


def test_a_variable_that_the_workflow_has_not_is_refused(flow: Flow) -> None:
    write(flow.stage)
    given = {"input": "x", "audience": "users", "tome": "dry", "a/b~": 1}
    answer = flow.post({"variables": given}, "notes")
    assert "has no variable 'tome'" in refused(answer, "/variables/a~1b~0", "/variables/tome")


def test_variables_are_the_file_s_unless_given_and_stand_in_prompts_as_json_spells_them(flow: Flow) -> None:
    write(flow.stage)
    run = flow.start("notes", variables={"user_query": True, "audience": 1.5})
    assert run["variables"] == {"input": "true", "audience": "1.5", "tone": "friendly"}
    assert (run["workflow_version"], run["budget"]) == ("3", {"tokens": 5000})
    turn = flow.client.get(f"/v1/turns/{run['stages'][0]['turn_id']}").get_json()
    assert turn["input"] == "true for 1.5, friendly"


def test_what_a_schedule_gives_a_workflow_is_shown_to_its_own_workspace_alone(flow: Flow) -> None:
    for workspace in ("acme", "default"):
        plan = (
            f"schedule: {{{{cron: '@daily', workspace: {workspace}, variables: {{{{audience: Zoe, unused: Ida}}}}}}}}\n"
        )
        write(flow.stage, workspace, text=FILE + plan)
    texts = {name: flow.client.get(f"/v1/workflows/{name}").text for name in ("acme", "default")}
    assert [("Zoe" in text, "Ida" in text) for text in texts.values()] == [(False, False), (True, True)]
    refused(flow.post({"input": "x"}, "acme"), "/variables/audience")
    assert flow.start("default", variables={"input": "x"})["variables"]["audience"] == "Zoe"


def test_a_broken_file_stops_its_own_workflow_alone(flow: Flow) -> None:
    write(flow.stage)
    write(flow.stage, "broken", text=FILE.replace("initial_prompt", "prompt"))
    place = f"{flow.stage.workflow_files / 'broken.yaml'}:"
    for answer in (flow.post(name="broken"), flow.client.get("/v1/workflows/broken")):
        assert answer.get_json()["type"] == "/problems/workflow-broken"
        assert place in refused(answer, "/workflow")
    listed = flow.client.get("/v1/workflows").get_json()
    assert [each["name"] for each in listed["data"]] == ["fork", "gated", "notes", "two"]
    (error,) = listed["errors"]
    assert error.startswith(place)
    assert flow.post({"input": "x", "variables": {"audience": "y"}}, "notes").status_code == 202


def test_a_workflow_with_an_agent_that_is_not_there_cannot_run(flow: Flow) -> None:
    write(flow.stage, agent="defualt")
    place = f"{flow.stage.workflow_files / 'notes.yaml'}:8"
    text = refused(flow.post({"input": "x", "variables": {"audience": "y"}}, "notes"), "/workflow")
    for told in (text, *flow.client.get("/v1/workflows").get_json()["errors"]):
        assert place in told
        assert "defualt" in told


def test_workflows_are_shown_with_what_they_need(flow: Flow) -> None:
    write(flow.stage)
    shown = flow.client.get("/v1/workflows/notes").get_json()
    assert shown in flow.client.get("/v1/workflows").get_json()["data"]
    assert (shown["version"], shown["description"], shown["labels"]) == ("3", "Notes.", {"team": "docs"})
    assert shown["variables"] == [
        {"name": "tone", "default": "friendly"},
        {"name": "input", "default": None},
        {"name": "audience", "default": None},
    ]
    assert (shown["agents"], shown["spec"]["type"]) == (["default"], "pipeline")


def test_workflows_come_in_pages(flow: Flow) -> None:
    first = flow.client.get("/v1/workflows?limit=2").get_json()
    assert ([each["name"] for each in first["data"]], first["next"]) == (["fork", "gated"], "gated")
    assert [each["name"] for each in flow.client.get("/v1/workflows?after=gated").get_json()["data"]] == ["two"]
    assert flow.client.get("/v1/workflows?after=none").status_code == 422
