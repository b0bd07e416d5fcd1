"""What a stage of a workflow's run costs beside a plain turn, one after the other and with a thousand runs at once."""

import json
import tempfile
import threading
import time
from pathlib import Path

from bench.load import HELLO, PATIENCE_S, burst, latencies, warm_up
from bench.report import Report
from bench.scale import Scale
from bench.stats import percentile
from bench.system import SCRIPTED, System

STAGES = 5
CLIENTS = 4
LOOK_S = 0.05

_OPEN = "SELECT count(*) FROM workflow_runs WHERE completed_ms IS NULL"
_NOT_COMPLETED = "SELECT status, reason, count(*) FROM workflow_runs WHERE status != 'completed' GROUP BY 1, 2"
_DOUBLED = "SELECT count(*) - count(DISTINCT turn_id) FROM run_stages"


def measure(report: Report, scale: Scale) -> None:
    """Each beside plain turns of the same Loom, whose answers are the same."""
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder))
        with System(**SCRIPTED, LOOM_WORKFLOWS_DIR=folder) as loom:
            warm_up(loom)
            _one_by_one(report, loom, scale.workflow_runs)
            _many_at_once(report, loom, scale.flying_runs)


def _write(folder: Path) -> None:
    stage = {"agent_id": "default", "prompt_template": HELLO}
    spec = {"type": "pipeline", "initial_prompt": HELLO, "stages": [stage] * STAGES}
    document = {"apiVersion": "loom/v1", "kind": "Workflow", "metadata": {"name": "five"}, "spec": spec}
    (folder / "five.yaml").write_text(json.dumps(document))


def _one_by_one(report: Report, loom: System, runs: int) -> None:
    """Runs and turns take turns, so that both meet the same machine; sessions are new for both."""
    client, of_stage, of_turn = loom.client(), [], []
    for n in range(runs):
        began_s = time.perf_counter()
        client.wait_for_run(client.run("five"))
        of_stage.append((time.perf_counter() - began_s) * 1000 / STAGES)
        _, ended = latencies(loom, STAGES, sessions=STAGES, prefix=f"beside-{n}")
        of_turn += ended
    ratio = percentile(of_stage, 50) / percentile(of_turn, 50)
    told = {"turn_ms": round(percentile(of_turn, 50), 2), "ratio_to_a_turn": round(ratio, 2)}
    report.add(f"a stage of {STAGES} in a run, p50", percentile(of_stage, 50), "ms", model="scripted", **told)
    report.add("a stage, in plain turns of new sessions", ratio, "x", model="scripted")


def _many_at_once(report: Report, loom: System, runs: int) -> None:
    turns = burst(loom, runs * STAGES, sessions=runs, prefix="plain")
    began_s = time.perf_counter()
    most = _fly(loom, runs)
    took_s = time.perf_counter() - began_s
    if failed := loom.rows(_NOT_COMPLETED):
        raise SystemExit(f"runs did not complete: {failed}")
    if loom.rows(_DOUBLED) != [(0,)]:
        raise SystemExit("a turn stands for two stages")
    ratio = (took_s / (runs * STAGES)) * turns.per_s
    told = {"seconds": round(took_s, 1), "most_at_once": most, "turns_per_s": round(turns.per_s, 1)}
    report.add(f"{runs} runs of {STAGES} stages at once", runs * STAGES / took_s, "stages/s", model="scripted", **told)
    report.add("a stage among them, in plain turns of as many sessions", ratio, "x", model="scripted")


def _fly(loom: System, runs: int) -> int:
    """Start all runs and wait for the last end; the most that were unfinished at any look."""

    def start(part: int) -> None:
        client = loom.client()
        for _ in range(part, runs, CLIENTS):
            client.run("five")

    threads = [threading.Thread(target=start, args=(part,)) for part in range(CLIENTS)]
    for thread in threads:
        thread.start()
    deadline_s, most = time.monotonic() + PATIENCE_S, 0
    while (left := int(str(loom.rows(_OPEN)[0][0]))) or any(thread.is_alive() for thread in threads):
        most = max(most, left)
        if time.monotonic() > deadline_s:
            raise SystemExit(f"{left} runs are unfinished after {PATIENCE_S:g} s")
        time.sleep(LOOK_S)
    return most
