"""What the log says of turns that wait for tools or a person."""

import logging
from dataclasses import replace

import pytest

from loom_worker.core.values.agents import ApprovalPolicy
from loom_worker.turn.waits import QUIET_MS
from tests.support.models import wants
from tests.support.stage import Stage

ONE = ("add", {"a": 1, "b": 1})


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = (entry for entry in caplog.records if entry.name.endswith("turn.waits"))
    return [entry.getMessage() for entry in found if entry.levelno == logging.WARNING]


def test_tools_that_take_long_are_told_of_once(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    turn = stage.answered(wants(ONE))
    assert warnings(caplog) == []
    stage.alive.add("t1")
    for call in turn.calls:
        stage.calls.claim(turn.id, call.position, 1, worker="t1", now_ms=stage.now_ms, durable=False)
    for _ in range(3):
        stage.now_ms += QUIET_MS // 2
        stage.lapse(turn)
        turn = stage.serve(turn, stage.worker("w2"))
    assert [call.status for call in turn.calls] == ["running"]
    assert warnings(caplog) == ["waiting for tools for over 10 s: add"]


def test_a_person_who_must_decide_is_told_of_once(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.agent = replace(stage.agent, approval=ApprovalPolicy(("add",)))
    turn = stage.answered(wants(ONE))
    stage.lapse(turn)
    turn = stage.serve(turn, stage.worker("w2"))
    assert turn.status == "requires_action"
    assert warnings(caplog) == ["waiting for a person to decide on add"]
    [line] = (entry for entry in caplog.records if entry.name.endswith("turn.waits"))
    assert line.__dict__["turn"] == turn.id
