"""A workflow as its users run it: started over HTTP, followed, interrupted by deaths, decided on, reported."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.messages_server import Hang, MessagesServer, Say
from tests.support.messages_wire import answer, sse
from tests.support.system import Json, System, told
from tests.support.until import until
from tests.support.webhook_receiver import WebhookReceiver

pytestmark = [pytest.mark.journey, pytest.mark.takes(20)]


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as receiver:
        yield receiver


def offered(system: System, name: str, spec: Json) -> str:
    """Write a workflow, as its author does while Loom runs, and wait until it is there."""
    document = {"apiVersion": "loom/v1", "kind": "Workflow", "metadata": {"name": name}, "spec": spec}
    folder = Path(system.environ["LOOM_WORKFLOWS_DIR"])
    draft = folder / f".{name}.draft"
    draft.write_text(json.dumps(document))  # JSON is YAML
    draft.rename(folder / f"{name}.yaml")
    until(lambda: system.get(f"/v1/workflows/{name}").status == 200, 20, f"{name} is read")
    return name


def started(system: System, name: str, **body: Any) -> str:
    found = system.post(f"/v1/workflows/{name}/runs", body)
    assert found.status == 202, found.text
    run_id: str = found.json["id"]
    return run_id


def ended(system: System, run_id: str) -> Json:
    def look() -> Json | None:
        run: Json = system.get(f"/v1/runs/{run_id}?wait=1").json
        return run if run["status"] in {"completed", "failed", "cancelled", "incomplete"} else None

    found = until(look, 60, f"{run_id} has ended")
    assert found is not None
    return found


def stages(*prompts: str) -> list[Json]:
    return [{"agent_id": "maker", "prompt_template": prompt} for prompt in prompts]


def asked(server: MessagesServer, text: str) -> int:
    """How often the model was asked with this text last."""
    return sum(text in str(request["messages"][-1]) for request in server.requests)


def test_a_run_whose_workers_are_killed_within_its_stages_asks_each_of_them_once_and_reports_its_end(
    server: MessagesServer, system: System, receiver: WebhookReceiver
) -> None:
    spec = {"type": "pipeline", "initial_prompt": "{{input}}", "stages": stages("A {{initial}}", "B {{previous}}", "C")}
    name = offered(system, "relay", spec)
    release = threading.Event()
    half = sse(answer("the first half and the second half"))
    server.then(Hang(release, half, after_bytes=len(half) // 2), Say("one"), Say("two"), Say("three"))
    run_id = started(system, name, input="go", webhook=receiver.url)
    first = system.get(f"/v1/runs/{run_id}").json["stages"][0]
    holder = until(lambda: system.holder(first["turn_id"]), 20, "the first stage runs")
    until(lambda: asked(server, "A go") == 1, 20, "the model is asked")
    system.kill(str(holder))
    release.set()

    run = ended(system, run_id)
    assert (run["status"], run["merged_output"]) == ("completed", "three")
    assert [(stage["id"], stage["output_text"]) for stage in run["stages"]] == [
        ("stages.0", "one"),
        ("stages.1", "two"),
        ("stages.2", "three"),
    ]
    turns = [system.turn(stage["turn_id"]) for stage in run["stages"]]
    assert [turn["input"] for turn in turns] == ["A go", "B one", "C"]
    assert [turn["attempt"] for turn in turns] == [2, 1, 1]
    assert {turn["trace_id"] for turn in turns} == {run["trace_id"]}
    (request,) = receiver.wait_for(1, timeout_s=60)
    body = json.loads(request.body)
    assert (body["type"], body["data"]["id"], body["data"]["merged_output"]) == ("run.completed", run_id, "three")


def test_a_fan_out_runs_side_by_side_and_its_events_have_no_gap(server: MessagesServer, system: System) -> None:
    tasks = [{"agent_id": "maker", "prompt": f"part {n}"} for n in range(4)]
    name = offered(system, "parts", {"type": "parallel", "tasks": tasks})
    release = threading.Event()
    whole = sse(answer("done"))
    server.then(*[Hang(release, whole, after_bytes=10)] * 4)
    run_id = started(system, name)
    until(lambda: asked(server, "part ") == 4, 30, "all four are asked at once")
    release.set()
    run = ended(system, run_id)
    assert run["merged_output"] == "\n\n".join(["[maker]\ndone"] * 4)
    lines = system.get(f"/v1/runs/{run_id}/events").text.splitlines()
    seen = list(told(iter(lines)))
    assert [event.id for event in seen] == list(range(1, len(seen) + 1))
    kinds = [event.type for event in seen]
    assert (kinds[0], kinds[-1], kinds.count("stage.started"), kinds.count("stage.completed")) == (
        "run.started",
        "run.completed",
        4,
        4,
    )
    assert seen[-1].data == run


def test_a_run_that_waits_for_a_person_goes_on_where_the_command_says_so(
    server: MessagesServer, system: System
) -> None:
    gated = stages("Draft it.", "Send {{previous}}")
    gated[0]["approval"] = True
    name = offered(system, "gated", {"type": "pipeline", "initial_prompt": "x", "stages": gated})
    server.then(Say("the draft"), Say("sent"))
    run_id = started(system, name)
    asking = until(
        lambda: run if (run := system.get(f"/v1/runs/{run_id}").json)["status"] == "requires_action" else None,
        30,
        "a person is asked",
    )
    assert asking is not None
    assert asking["stages"][-1]["prompt"] == "the draft"
    said = system.run("runs", "approve", run_id, "stages.0")
    assert said.returncode == 0, said.stderr
    assert ended(system, run_id)["merged_output"] == "sent"


def test_a_cancelled_run_takes_its_turns_with_it_and_a_retry_goes_on_from_there(
    server: MessagesServer, system: System
) -> None:
    name = offered(
        system,
        "long",
        {"type": "pipeline", "initial_prompt": "x", "stages": stages("First of long.", "Second of long.")},
    )
    release = threading.Event()
    half = sse(answer("never to be heard"))
    server.then(Say("one"), Hang(release, half, after_bytes=len(half) // 2))
    run_id = started(system, name)
    until(lambda: asked(server, "Second of long.") == 1, 30, "the second stage runs")
    assert system.post(f"/v1/runs/{run_id}/cancel").status == 202
    run = ended(system, run_id)
    release.set()
    assert (run["status"], [stage["status"] for stage in run["stages"]]) == ("cancelled", ["completed", "cancelled"])
    again = system.post(f"/v1/runs/{run_id}/retry")
    assert again.status == 202, again.text
    done = ended(system, again.json["id"])
    assert (done["status"], done["merged_output"], done["retry_of"]) == ("completed", "echo: Second of long.", run_id)
    assert [stage["reused"] for stage in done["stages"]] == [True, False]


@pytest.mark.heavy
def test_runs_outlive_everything_that_serves_them(server: MessagesServer, system: System) -> None:
    name = offered(
        system, "many", {"type": "pipeline", "initial_prompt": "{{n}}", "stages": stages("{{initial}}", "B")}
    )
    runs = [started(system, name, variables={"n": n}) for n in range(6)]
    for worker in ("worker-1", "worker-2", "web"):
        system.kill(worker)
    until(system.is_ready, 60, "everything is started again")
    for run_id in runs:
        run = ended(system, run_id)
        assert (run["status"], len(run["stages"])) == ("completed", 2)
    per_stage = system.rows("SELECT run_id, count(*), count(DISTINCT turn_id) FROM run_stages GROUP BY run_id")
    assert {row[0]: row[1:] for row in per_stage if row[0] in runs} == dict.fromkeys(runs, (2, 2))
