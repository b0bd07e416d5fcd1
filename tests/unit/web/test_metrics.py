import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import fakeredis
import pytest
import redis
from flask.testing import FlaskClient
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import insert

from loom_worker.core.metric_recorder import Histogram
from loom_worker.core.metrics import COMMITS, FAMILIES, LLM_REQUESTS, TURNS
from loom_worker.core.settings_tree import BlobSettings
from loom_worker.core.values.ids import now_ms
from loom_worker.guard.limits import BreakerPolicy, Breakers, State
from loom_worker.patterns.events import LibraryEvents
from loom_worker.patterns.live import LiveLibrary
from loom_worker.service.metrics import Figures
from loom_worker.store.blobs import BlobRows
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.tables import memory
from loom_worker.tools.references import References, stores
from tests.support.agent_messages import dead, sent
from tests.support.pattern_files import MINIMAL, write
from tests.support.until import until
from tests.support.web_stage import MakeStage, Submit, WebStage
from web.app import create_app
from web.metrics import GAUGES, KEYS, LABELLED, OPENNESS, exposition

ELSEWHERE = {"REMOTE_ADDR": "10.0.0.7"}


KNOWN = ("disks", "turns", "workers", "waits", "tools", "results", "patterns", "messages", "counters")
AGES = (
    "loom_oldest_queued_age_seconds",
    "loom_oldest_running_age_seconds",
    "loom_oldest_waiting_age_seconds/lane",
    "loom_oldest_waiting_age_seconds/model",
)
ALL_ZERO = (
    *("loom_patterns", "loom_pattern_errors"),
    *(f"loom_oldest_waiting_age_seconds/{what}" for what in ("rate_limit", "tools", "agents", "judges", "person")),
    *(f"loom_large_results_{what}" for what in ("disk_bytes", "in_memory", "memory_bytes")),
)


def zeros() -> dict[str, float]:
    """What is shown of all that processes count before anything was."""
    return samples(exposition({"counted": {}})[0].decode())


def half_open(stage: WebStage, name: str) -> None:
    """Let a breaker open, and its time be over at once."""
    breakers = Breakers(stage.redis, policy=BreakerPolicy(failures=1, open_s=0.001))
    breakers.failed(name)
    until(lambda: breakers.states()[name] == "half-open", 10, "the breaker's time is over")


def samples(text: str) -> dict[str, float]:
    """Every sample, under its name and the values of its labels."""
    families = text_string_to_metric_families(text)
    return {
        "/".join((sample.name, *sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


def test_the_figures_are_those_of_all_workspaces(client: FlaskClient, submit: Submit, stage: WebStage) -> None:
    stage.worker.start(submit("s1")["id"])
    submit("s1")
    sender = stage.service.turn("default", submit("s2")["id"])
    for tells in (dead, dead, sent):
        tells(stage.database, sender)
    stage.bring_worker()
    stage.keep_snapshots("s1", "one", "two")
    half_open(stage, "tool:dice")
    lane = stage.service.sessions.get("default", "s2").lane
    with stage.database.write(lock=WHOLE) as tx:
        tx.execute(insert(memory).values(lane=lane, version=5, due_ms=now_ms() - 1500))
    answer = client.get("/metrics")
    assert answer.content_type == "text/plain; version=0.0.4; charset=utf-8"
    found = samples(answer.text)
    assert 1.5 <= found.pop("loom_memory_oldest_due_age_seconds") < 60
    ages = [found.pop(name) for name in AGES]
    assert all(0 <= age < 60 for age in ages)
    assert found == zeros() | dict.fromkeys(ALL_ZERO, 0) | {
        "loom_turns/queued": 2,
        "loom_turns/running": 1,
        "loom_turns/waiting": 0,
        "loom_lanes": 2,
        "loom_lane_depth_max": 2,
        "loom_disks_full": 0,
        "loom_workers": 1,
        "loom_dead_turns": 0,
        "loom_memory_changes": 5,
        "loom_memory_snapshots": 2,
        "loom_memory_due_sessions": 1,
        "loom_turns_awaiting_approval": 0,
        "loom_tool_errors_last_hour": 0,
        "loom_large_results": 0,
        "loom_agent_messages/queued": 1,
        "loom_agent_messages/taken": 0,
        "loom_agent_messages/done": 0,
        "loom_agent_messages/dead": 2,
        "loom_breaker_open/tool:dice": 0.5,
        **{f"loom_figures_known/{of}": 1 for of in KNOWN},
    }


def test_every_figure_says_what_it_is() -> None:
    labelled = {
        "breakers": {"tool:dice": "open"},
        "counted": {},
        "known": {"turns": True},
    }
    families = list(text_string_to_metric_families(exposition(dict.fromkeys(KEYS, 1) | labelled)[0].decode()))
    assert len(families) == len(GAUGES) + len(LABELLED) + len(FAMILIES)
    assert [family.name for family in families if not family.documentation] == []
    # All else is of what there is now, and goes with it.
    lasting = {family.name for family in families if family.type != "gauge"}
    assert lasting == {name.removesuffix("_total") for name in (*FAMILIES, "loom_guard_decisions_total")}


def test_names_and_units_are_as_prometheus_wants_them() -> None:
    for name, family in FAMILIES.items():
        assert re.fullmatch(r"loom_[a-z]+(_[a-z]+)*", name)
        if isinstance(family, Histogram):
            assert name.endswith("_seconds") == (name != "loom_judge_score")
            assert list(family.bounds) == sorted(set(family.bounds))
        else:
            assert name.endswith("_total")


def test_a_histogram_has_cumulative_buckets_and_a_sum() -> None:
    cell = [0.0] * COMMITS.size
    cell[0], cell[1], cell[3], cell[-1] = 7.5, 2, 1, 1
    found = samples(exposition({"counted": {(COMMITS, ("full",)): cell}})[0].decode())
    buckets = [found[f"loom_store_commit_seconds_bucket/{le}/full"] for le in ("0.0001", "0.00025", "0.0005", "5.0")]
    assert buckets == [2, 2, 3, 3]
    assert found["loom_store_commit_seconds_bucket/+Inf/full"] == found["loom_store_commit_seconds_count/full"] == 4
    assert found["loom_store_commit_seconds_sum/full"] == 7.5
    assert found["loom_store_commit_seconds_count/normal"] == 0


def test_labels_are_shown_as_they_are_whatever_is_in_them() -> None:
    odd = 'a"b\\c\nd,e="f"}'
    cells = {(TURNS, ("failed", odd)): [2.0], (LLM_REQUESTS, (odd, "ok")): [1.0] * LLM_REQUESTS.size}
    found = samples(exposition({"counted": cells})[0].decode())
    assert found[f"loom_turns_total/{odd}/failed"] == 2
    assert found[f"loom_llm_request_seconds_sum/{odd}/ok"] == 1


def test_breakers_results_and_what_is_known_come_by_name() -> None:
    assert set(OPENNESS) == set(get_args(State))
    figures = {
        "breakers": {"llm:anthropic:m": "open", "tool:a": "half-open", "tool:b": "closed"},
        "waiting_ages": {"model": 61.5, "lane": 0.0},
        "known": {"turns": False, "results": True},
        "memory_blobs": 2,
    }
    assert samples(exposition(figures)[0].decode()) == {
        "loom_breaker_open/llm:anthropic:m": 1,
        "loom_breaker_open/tool:a": 0.5,
        "loom_breaker_open/tool:b": 0,
        "loom_oldest_waiting_age_seconds/model": 61.5,
        "loom_oldest_waiting_age_seconds/lane": 0,
        "loom_figures_known/turns": 0,
        "loom_figures_known/results": 1,
        "loom_large_results_in_memory": 2,
    }


def test_the_figures_of_large_results_are_those_that_are_told(database: Database, tmp_path: Path) -> None:
    blobs = BlobSettings(folder=tmp_path / "blobs")
    with fakeredis.FakeRedis() as redis:
        told = References(stores(blobs, BlobRows(database), redis), blobs).figures()
    assert told.keys() <= set(KEYS)
    assert samples(exposition(told)[0].decode())["loom_large_results_disk_bytes"] == 0


def test_the_figures_of_patterns_are_those_that_are_told(
    valkey: redis.Redis, database: Database, tmp_path: Path
) -> None:
    write(tmp_path, sql__good=MINIMAL, sql__bad="category: ranking")
    events = LibraryEvents(valkey, process="p1")
    library = LiveLibrary(tmp_path, listener=events)
    assert told_of(library) == {"loom_patterns": 1, "loom_pattern_errors": 1}
    write(tmp_path, sql__bad="name: slow\ncategory: ranking\n")
    library.reload()
    assert told_of(library) == {"loom_patterns": 2, "loom_pattern_errors": 0}


def told_of(library: LiveLibrary) -> dict[str, float]:
    nothing: Any = None
    figures = Figures(nothing, nothing, nothing, nothing, library)
    return samples(exposition(figures.of_patterns())[0].decode())


def test_a_figure_that_is_not_known_is_left_out() -> None:
    assert samples(exposition({"queued": 1, "lanes": 3})[0].decode()) == {"loom_turns/queued": 1, "loom_lanes": 3}


def test_what_is_known_is_told_while_the_database_does_not_answer(client: FlaskClient, stage: WebStage) -> None:
    stage.bring_worker()
    half_open(stage, "tool:dice")
    stage.database.is_down = True
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert samples(answer.text) == {
        "loom_disks_full": 0,
        "loom_workers": 1,
        "loom_breaker_open/tool:dice": 0.5,
        "loom_patterns": 0,
        "loom_pattern_errors": 0,
        **{f"loom_figures_known/{of}": of in ("disks", "workers", "patterns") for of in KNOWN},
    }


@pytest.fixture
def keyed(make_stage: MakeStage) -> FlaskClient:
    return create_app(make_stage(api_keys={"key-a": "alpha"}).service).test_client()


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({}, 401),
        ({"headers": {"Authorization": "Bearer key-a"}}, 200),
        ({"headers": {"Authorization": "Bearer nope"}}, 401),
        ({"environ_overrides": ELSEWHERE, "headers": {"Authorization": "Bearer key-a"}}, 200),
    ],
)
def test_where_there_are_keys_everybody_needs_one(keyed: FlaskClient, options: dict[str, Any], status: int) -> None:
    assert keyed.get("/metrics", **options).status_code == status


@pytest.mark.parametrize("keys", [{}, {"key-a": "alpha"}])
def test_metrics_that_are_open_need_no_key(make_stage: MakeStage, keys: dict[str, str]) -> None:
    client = create_app(make_stage(api_keys=keys, metrics_are_open=True).service).test_client()
    assert client.get("/metrics", environ_overrides=ELSEWHERE).status_code == 200


@pytest.mark.parametrize("options", [{"environ_overrides": ELSEWHERE}, {"headers": {"Host": "evil.example"}}])
def test_without_keys_other_machines_see_no_figures(client: FlaskClient, options: dict[str, Any]) -> None:
    assert client.get("/metrics", **options).status_code == 403


def test_prometheus_is_loaded_when_figures_are_asked_for() -> None:
    program = "import sys, web.app; raise SystemExit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
