import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from loom_worker.cli.main import main
from loom_worker.core.values.json import Json
from tests.support.fake_loom import FakeLoom
from tests.support.fake_runs import START_MS, FakeRuns, log_of, run, stage
from tests.support.http_server import serving
from tests.unit.workflows.files import document

DONE = stage("stages.0", "completed")
END = run(DONE, status="completed", merged_output="So it is.")
PIPELINE = """
type: pipeline
initial_prompt: "About {{topic}}"
stages: [{agent_id: default, prompt_template: "{{previous}} for {{audience}}"}]
variables: {audience: all}
"""
AGENT = "apiVersion: loom/v1\nkind: Agent\nmetadata: {name: writer}\nspec: {}\n"


def offline(tmp_path: Path, *arguments: str, **env: str) -> Result:
    env = {"LOOM_HOME": str(tmp_path), **env}
    return CliRunner().invoke(main, ["workflow", *arguments], env={"LOOM_API_KEYS": None, **env})


def ran(tmp_path: Path, *arguments: str, fake: FakeRuns | None = None) -> tuple[Result, FakeRuns]:
    """`loom workflow run flow …`, asking a server that plays one run."""
    fake = fake or FakeRuns(log_of(DONE, end=END))
    with serving(fake) as url:
        return offline(tmp_path, "run", "flow", *arguments, LOOM_URL=url), fake


def sent(fake: FakeRuns) -> Json:
    """The body of the request that starts a run."""
    (body,) = (body for method, _, _, body in fake.asked if method == "POST")
    assert isinstance(body, dict)
    return body


def test_into_a_pipe_goes_the_result_and_nothing_else(tmp_path: Path) -> None:
    result, fake = ran(tmp_path)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "So it is.\n", "")
    assert [each[:2] for each in fake.asked] == [
        ("POST", "/v1/workflows/flow/runs"),
        ("GET", "/v1/runs/run_1/events"),
    ]


def test_json_is_the_finished_run(tmp_path: Path) -> None:
    assert json.loads(ran(tmp_path, "--json")[0].stdout) == END


@pytest.mark.cases(
    "options, body",
    [
        ([], {"variables": {}}),
        (["--var", "a=1", "--var", "b=x=y"], {"variables": {"a": "1", "b": "x=y"}}),
        (["--var", "a="], {"variables": {"a": ""}}),
        (["--input", "Why?"], {"variables": {}, "input": "Why?"}),
        (["--budget-usd", "0.5"], {"variables": {}, "budget": {"usd": 0.5}}),
        (["--budget-usd", "0", "--budget-tokens", "9"], {"variables": {}, "budget": {"usd": 0.0, "tokens": 9}}),
        (["--deadline", "90"], {"variables": {}, "deadline_s": 90.0}),
    ],
)
def test_the_options_are_the_request(tmp_path: Path, options: list[str], body: Json) -> None:
    assert sent(ran(tmp_path, *options)[1]) == body


def test_a_variable_can_be_the_text_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a=b.txt").write_text("größer\n", encoding="utf-8")
    _, fake = ran(tmp_path, "--var-file", f"notes={tmp_path}/a=b.txt", "--var", "a=1")
    assert sent(fake) == {"variables": {"a": "1", "notes": "größer\n"}}


@pytest.mark.cases(
    "options, told",
    [
        (["--var", "a"], "--var a: write it as name=value"),
        (["--var", "=a"], "--var =a: write it as name=value"),
        (["--var-file", "a"], "--var-file a: write it as name=path"),
        (["--var", "a=1", "--var", "a=2"], "the variable a is given twice"),
        (["--var-file", "a=none", "--var", "a=2"], "the variable a is given twice"),
        (["--var-file", "a=/none"], "--var-file /none: No such file or directory"),
        (["--var-file", "a=/dev"], "--var-file /dev: Is a directory"),
        (["--var", "a=\udcff"], "--var: not valid text"),
        (["--input", "\udcff"], "--input: not valid text"),
        (["--budget-usd", "-1"], "--budget-usd"),
        (["--budget-tokens", "1.5"], "--budget-tokens"),
        (["--deadline", "0"], "--deadline"),
    ],
)
def test_what_makes_no_sense_is_refused_with_2_before_anything_is_asked(
    tmp_path: Path, options: list[str], told: str
) -> None:
    result, fake = ran(tmp_path, *options)
    assert (result.exit_code, fake.asked) == (2, [])
    assert told in result.stderr


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xff")
    result, fake = ran(tmp_path, "--var-file", f"a={tmp_path}/a")
    assert (result.exit_code, fake.asked) == (2, [])
    assert "not UTF-8" in result.stderr


def test_a_request_without_an_answer_is_sent_again_and_starts_no_second_run(tmp_path: Path) -> None:
    result, fake = ran(tmp_path, fake=FakeRuns(log_of(DONE, end=END), lost=1))
    assert (result.exit_code, result.stdout) == (0, "So it is.\n")
    first, second = (key for method, _, key, _ in fake.asked if method == "POST")
    assert first == second is not None


def test_each_run_has_an_idempotency_key_of_its_own(tmp_path: Path) -> None:
    keys = [fake.asked[0][2] for fake in (ran(tmp_path)[1], ran(tmp_path)[1])]
    assert len({*keys}) == 2


def test_a_run_that_failed_prints_what_there_is_says_why_and_exits_1(tmp_path: Path) -> None:
    end = run(status="failed", reason="rejected", error={"message": "A person said no."}, merged_output="Half of it")
    result, _ = ran(tmp_path, fake=FakeRuns(log_of(end=end)))
    assert (result.exit_code, result.stdout) == (1, "Half of it\n")
    assert result.stderr.splitlines() == [
        "loom: the run run_1 is failed (rejected): A person said no.",
        "  `loom runs retry run_1` goes on from what is done",
    ]


def test_a_run_that_is_detached_is_left_to_itself(tmp_path: Path) -> None:
    result, fake = ran(tmp_path, "--detach")
    assert (result.exit_code, result.stdout) == (0, "run_1\n")
    assert "`loom runs watch run_1`" in result.stderr
    assert len(fake.asked) == 1
    assert json.loads(ran(tmp_path, "--detach", "--json")[0].stdout)["status"] == "in_progress"


def test_a_person_who_must_decide_is_told_also_where_nobody_watches(tmp_path: Path) -> None:
    asked = stage("stages.0.approval", "completed", decision="approve", prompt="Publish?", approve_by_ms=START_MS)
    result, _ = ran(tmp_path, fake=FakeRuns(log_of(DONE, asked, end=END)))
    assert (result.exit_code, result.stdout) == (0, "So it is.\n")
    first, prompt, last = result.stderr.splitlines()
    assert first.startswith("stages.0.approval waits for a decision on what default said")
    assert prompt == "  Publish?"
    assert last.startswith("decide with `loom runs approve run_1 stages.0.approval`")


def test_what_the_agents_say_cannot_steer_the_terminal(tmp_path: Path) -> None:
    end = run(status="completed", merged_output="a\x1b[2Jb")
    assert ran(tmp_path, fake=FakeRuns(log_of(end=end)))[0].stdout == "a[2Jb\n"


def test_a_refused_run_is_told(tmp_path: Path) -> None:
    problem = {"title": "Not found", "detail": "There is no workflow 'flow'."}
    with serving(lambda exchange: exchange.answer(404, json.dumps(problem).encode())) as url:
        result = offline(tmp_path, "run", "flow", LOOM_URL=url)
    assert (result.exit_code, result.stderr) == (1, "loom: 404 Not found: There is no workflow 'flow'.\n")


def test_workflows_are_listed_with_what_is_wrong_and_shown(tmp_path: Path) -> None:
    flow = {"name": "flow", "version": "2", "pattern_type": "pipeline", "description": None}
    page = {"object": "list", "data": [flow], "has_more": False, "next": None, "errors": ["a.yaml:3: broken"]}
    with serving(FakeLoom(pages={"/v1/workflows": page, "/v1/workflows/a%2Fb": flow})) as url:
        listed = offline(tmp_path, "list", LOOM_URL=url)
        shown = offline(tmp_path, "show", "a/b", LOOM_URL=url)
        as_json = offline(tmp_path, "show", "a/b", "--json", LOOM_URL=url)
        unknown = offline(tmp_path, "show", "none", LOOM_URL=url)
    assert listed.stdout.splitlines()[1].split() == ["flow", "2", "pipeline", "-"]
    assert listed.stderr == "problem: a.yaml:3: broken\n"
    assert shown.stdout.startswith("name              flow\n")
    assert json.loads(as_json.stdout) == flow
    assert unknown.exit_code == 1


def test_the_shipped_workflows_have_nothing_to_complain_of(tmp_path: Path) -> None:
    told = offline(tmp_path, "lint")
    assert told.exit_code == 0
    *_, last = lines = told.stdout.splitlines()
    assert "sales-report: pipeline, no variable must be given" in lines
    assert f"{len(lines) - 1} workflows, 0 problems, 0 warnings in " in last


def test_variables_that_a_run_must_give_are_named_with_their_line(tmp_path: Path) -> None:
    file = written(tmp_path, document(PIPELINE))
    told = offline(tmp_path, "lint", str(file))
    assert (told.exit_code, told.stdout.splitlines()[0]) == (0, "w: pipeline, a run must give topic (line 6)")


def written(folder: Path, text: str, name: str = "w.yaml") -> Path:
    """A file with this text."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_an_error_is_told_with_file_line_and_advice_and_exits_1(tmp_path: Path) -> None:
    file = written(tmp_path / "flows", document(PIPELINE.replace("pipeline", "pipelin")))
    for place in (file, file.parent):
        told = offline(tmp_path, "lint", str(place))
        error, last = told.stdout.splitlines()
        assert told.exit_code == 1
        assert error.startswith(f"problem  {file}:5: spec.type: ")
        assert last == f"0 workflows, 1 problems, 0 warnings in {place}"


def test_agents_are_those_of_the_settings(tmp_path: Path) -> None:
    file = written(tmp_path, document(PIPELINE.replace("default", "writer")))
    told = offline(tmp_path, "lint", str(file))
    assert told.exit_code == 1
    assert told.stdout.startswith(f"problem  {file}:7: spec.stages[0].agent_id: there is no agent 'writer'; ")
    written(tmp_path / "agents", AGENT)
    assert offline(tmp_path, "lint", str(file), LOOM_AGENTS_DIR=f"{tmp_path}/agents").exit_code == 0


def test_warnings_alone_exit_0(tmp_path: Path) -> None:
    file = written(tmp_path, document(f"{PIPELINE}variabels: {{}}\n"))
    told = offline(tmp_path, "lint", str(file))
    assert told.exit_code == 0
    assert told.stdout.startswith(f"warning  {file}:9: spec.variabels: ")
    assert told.stdout.splitlines()[-1].startswith("1 workflows, 0 problems, 1 warnings in ")


def test_a_file_is_judged_with_those_beside_it_and_they_are_not_told(tmp_path: Path) -> None:
    written(tmp_path / "flows", document(PIPELINE), "a.yaml")
    written(tmp_path / "flows", "broken: [", "b.yaml")
    same = written(tmp_path / "flows", document(PIPELINE), "c.yaml")
    told = offline(tmp_path, "lint", str(same)).stdout.splitlines()
    assert len(told) == 2
    assert told[0].startswith(f"problem  {same}:1: workflow w is already defined in {tmp_path}/flows/a.yaml:1")


def test_several_places_are_told_once_each(tmp_path: Path) -> None:
    file = written(tmp_path / "flows", document(PIPELINE.replace("default", "writer")))
    told = offline(tmp_path, "lint", str(file), str(file.parent), "--json")
    found = json.loads(told.stdout)
    assert (told.exit_code, len(found["workflows"]), len(found["problems"])) == (1, 1, 1)
    assert found["workflows"][0]["variables"][1] == {"name": "topic", "default": None}
    assert (found["problems"][0]["file"], found["problems"][0]["line"]) == (str(file), 7)


def test_a_file_that_no_loom_would_read_is_an_error(tmp_path: Path) -> None:
    file = written(tmp_path, document(PIPELINE), "w.json")
    told = offline(tmp_path, "lint", str(file))
    assert told.exit_code == 1
    assert told.stdout.startswith(f"problem  {file}: is not read; files of workflows end in .yaml or .yml\n")


def test_unless_given_the_folder_of_the_settings_is_looked_at(tmp_path: Path) -> None:
    file = written(tmp_path / "flows", "broken: [")
    told = offline(tmp_path, "lint", LOOM_WORKFLOWS_DIR=str(file.parent))
    assert (told.exit_code, str(file) in told.stdout) == (1, True)


def test_a_place_that_is_not_there_exits_2(tmp_path: Path) -> None:
    assert offline(tmp_path, "lint", str(tmp_path / "none")).exit_code == 2


def test_what_files_say_cannot_steer_the_terminal(tmp_path: Path) -> None:
    file = written(tmp_path, document(PIPELINE + '"\\e[2J\\nevil\\u202e": 1\n'))
    told = offline(tmp_path, "lint", str(file)).stdout
    assert [line for line in told.split("\n") if not line.isprintable()] == []
