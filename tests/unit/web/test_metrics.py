import subprocess
import sys
from typing import Any

import pytest
from flask.testing import FlaskClient
from prometheus_client.parser import text_string_to_metric_families

from tests.support.memory_front import MemoryFront
from tests.support.web_stage import Submit, settings
from web.app import create_app
from web.metrics import KEYS, exposition

ELSEWHERE = {"REMOTE_ADDR": "10.0.0.7"}


def samples(text: str) -> dict[str, float]:
    """Every sample, under its name and the values of its labels."""
    families = text_string_to_metric_families(text)
    return {
        "/".join((sample.name, *sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


def test_the_figures_are_those_of_all_workspaces(client: FlaskClient, submit: Submit, memory: MemoryFront) -> None:
    memory.start(submit("s1")["id"])
    submit("s1")
    submit("s2")
    answer = client.get("/metrics")
    assert answer.content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert samples(answer.text) == {
        "loom_turns/queued": 2,
        "loom_turns/running": 1,
        "loom_turns/waiting": 0,
        "loom_lanes": 2,
        "loom_workers": 1,
        "loom_dead_turns": 0,
        "loom_oldest_queued_age_seconds": 0,
        "loom_memory_changes": 5,
        "loom_memory_snapshots": 2,
        "loom_memory_due_sessions": 1,
        "loom_memory_oldest_due_age_seconds": 1.5,
    }


def test_every_figure_says_what_it_is() -> None:
    families = list(text_string_to_metric_families(exposition(dict.fromkeys(KEYS, 1))[0].decode()))
    assert [family.name for family in families if not family.documentation] == []
    # None is a counter: what is counted is of the sessions there are, and goes with them.
    assert {family.type for family in families} == {"gauge"}


def test_a_figure_that_is_not_known_is_left_out() -> None:
    assert samples(exposition({"queued": 1, "lanes": 3})[0].decode()) == {"loom_turns/queued": 1, "loom_lanes": 3}


def test_figures_are_not_told_while_the_database_does_not_answer(client: FlaskClient, memory: MemoryFront) -> None:
    memory.is_down = True
    assert client.get("/metrics").status_code == 503


@pytest.fixture
def keyed() -> FlaskClient:
    return create_app(MemoryFront(settings(api_keys={"key-a": "alpha"}))).test_client()


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({}, 200),
        ({"headers": {"Authorization": "Bearer key-a"}}, 200),
        ({"headers": {"Authorization": "Bearer nope"}}, 401),
        ({"headers": {"X-Forwarded-For": "8.8.8.8"}}, 401),
        ({"headers": {"Host": "loom.example"}}, 401),
        ({"environ_overrides": ELSEWHERE}, 401),
        ({"environ_overrides": ELSEWHERE, "headers": {"Authorization": "Bearer key-a"}}, 200),
    ],
)
def test_where_there_are_keys_only_this_machine_needs_none(
    keyed: FlaskClient, options: dict[str, Any], status: int
) -> None:
    assert keyed.get("/metrics", **options).status_code == status


@pytest.mark.parametrize("options", [{"environ_overrides": ELSEWHERE}, {"headers": {"Host": "evil.example"}}])
def test_without_keys_other_machines_see_no_figures(client: FlaskClient, options: dict[str, Any]) -> None:
    assert client.get("/metrics", **options).status_code == 403


def test_prometheus_is_loaded_when_figures_are_asked_for() -> None:
    program = "import sys, web.app; raise SystemExit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
