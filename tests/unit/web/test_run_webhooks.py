"""The ends of runs are told by webhook."""

import json
from typing import Any

import pytest

from loom_worker.core.values.ids import now_ms
from loom_worker.webhook.body import LIMIT_BYTES
from tests.support.runs import workflow
from tests.unit.web.flow import FORK, Flow


def delivered(flow: Flow) -> dict[str, Any]:
    """The body of the only webhook."""
    (delivery,) = flow.client.get("/v1/deliveries").get_json()["data"]
    assert flow.stage.book.delivered == [delivery["id"]]
    taken = flow.stage.service.outbox.take(delivery["id"], now_ms=now_ms(), hold_ms=1000)
    assert taken is not None
    assert len(taken.body.encode()) < LIMIT_BYTES
    return dict(json.loads(taken.body))


def test_the_end_of_a_run_is_told_by_webhook(flow: Flow) -> None:
    run_id = flow.start(webhook={"url": "https://hooks.example/x"})["id"]
    flow.answer(run_id, "one")
    assert flow.client.get("/v1/deliveries").get_json()["data"] == []
    flow.answer(run_id, "two")
    (delivery,) = flow.client.get("/v1/deliveries").get_json()["data"]
    run = flow.get(run_id)
    assert (delivery["run_id"], delivery["turn_id"], delivery["url"]) == (
        run_id,
        run["stages"][-1]["turn_id"],
        "https://hooks.example/x",
    )
    told = delivered(flow)
    assert (told["type"], told["data"]) == ("run.completed", run)


def test_a_webhook_about_much_is_cut_and_keeps_the_result(flow: Flow) -> None:
    """A hundred agents, long answers, and as many variables and as much metadata as there can be."""
    spec = {**FORK, "agent_ids": ["default"] * 100, "merge_strategy": "first"}
    variables = {f"v{n}": "v" * 3_000 for n in range(50)}
    flow.stage.workflows["wide"] = workflow(spec, "wide", needed=dict.fromkeys(variables, 1))
    body = {"variables": variables, "metadata": {"m": "m" * 16_000}, "webhook": "https://hooks.example/x"}
    run_id = flow.start("wide", **body)["id"]
    flow.answer(run_id, *("ä" * 4_000 for _ in range(100)))
    told = delivered(flow)
    assert told["type"] == "run.completed"
    assert (told["data"]["truncated"], told["data"]["url"]) == (True, f"http://loom/v1/runs/{run_id}")
    assert told["data"]["merged_output"].startswith("ä" * 1_000)


@pytest.mark.parametrize("how", ["fail", "cancel", "reject"])
def test_every_end_of_a_run_is_told(flow: Flow, how: str) -> None:
    run_id = flow.start("gated", webhook="https://hooks.example/x")["id"]
    if how == "reject":
        flow.answer(run_id, "a draft")
        flow.decide(run_id, "reject")
    elif how == "fail":
        flow.fail(run_id)
    else:
        flow.client.post(f"/v1/runs/{run_id}/cancel")
    assert delivered(flow)["type"] == ("run.cancelled" if how == "cancel" else "run.failed")
