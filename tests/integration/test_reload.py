"""The library and the agents of a whole system follow their files, in the web and in every worker; all tell alike."""

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loom_worker.patterns.events import CHANNEL
from tests.support.system import Json, System, pid_of, plain_agent
from tests.support.until import until

pytestmark = [pytest.mark.integration, pytest.mark.heavy, pytest.mark.takes(15)]

WAIT_S = 20.0
PATTERN = "name: {name}\ntitle: {title}\ncategory: sales\nintents: [monthly revenue by {name}]\n"
LIVE_S = 2.0
"""A changed file is live in a tenth of that; this machine may be busy with other things."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    for name in ("north", "south", "east"):
        (folder / name).mkdir()
        exchange(folder / name / "region.yaml", PATTERN.format(name=name, title="As it was"))
    return folder


@pytest.fixture(scope="module")
def system(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    place = tmp_path_factory.mktemp("reload")
    environ = {
        "LOOM_AGENTS_DIR": plain_agent(place / "agents"),
        "LOOM_PATTERNS_DIR": str(library),
        "LOOM_PATTERNS_SHIPPED": "0",
    }
    with System(place / "home", **environ) as system:
        until(lambda: takers(system) <= set(told(system)), WAIT_S, "all that take turns have loaded")
        yield system


def test_a_new_agents_file_is_known_to_web_and_workers_without_a_restart(system: System) -> None:
    place = Path(system.environ["LOOM_AGENTS_DIR"])
    exchange(place / "late.yaml", "agent: {name: late, description: Came later., tools: []}")
    until(lambda: "late" in [agent["name"] for agent in system.get("/v1/agents").json["data"]], WAIT_S, "it is listed")
    sessions = [f"late-{number}" for number in range(8)]
    turns = [system.submit(session, "Hello?", agent="late") for session in sessions]
    assert [system.ended(turn)["status"] for turn in turns] == ["completed"] * 8


@pytest.fixture
def heard(system: System) -> Iterator[Any]:
    """What is published on the channel of the library."""
    with system.redis() as client, client.pubsub(ignore_subscribe_messages=True) as channel:
        channel.subscribe(CHANNEL)
        channel.get_message(timeout=5)
        yield channel


def exchange(path: Path, content: str) -> None:
    path.with_name(".new").write_text(content)
    os.rename(path.with_name(".new"), path)


def listed(system: System) -> Json:
    answer: Json = system.get("/v1/patterns").json
    return answer


def told(system: System) -> dict[int, Json]:
    """By pid, what each worker says of its library."""
    return {pid_of(each["process"]): each for each in listed(system)["processes"]}


def takers(system: System) -> set[int]:
    """The pids of those workers that take turns."""
    return {system.children[name] for name in ("worker-1", "worker-2")}


def events(system: System, heard: Any) -> dict[int, Json]:
    """The next event of each process that has a library, with ``after_s`` from now, by pid."""
    began_s, found = time.monotonic(), dict[int, Json]()
    everyone = {*takers(system), system.children["web"]}

    def all_told() -> bool:
        message = heard.get_message(timeout=0.05)
        if message:
            event = json.loads(message["data"])
            found[pid_of(event["process"])] = {**event, "after_s": time.monotonic() - began_s}
        return everyone <= set(found)

    until(all_told, WAIT_S, "every process has told")
    return found


def figure(system: System, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", system.get("/metrics").text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def titles(system: System) -> dict[str, str]:
    return {each["id"]: each["title"] for each in listed(system)["data"]}


def test_a_changed_file_is_live_in_every_process_at_once(system: System, library: Path, heard: Any) -> None:
    before = told(system)
    exchange(library / "north" / "region.yaml", PATTERN.format(name="north", title="Changed"))
    found = events(system, heard)
    for event in found.values():
        assert (event["type"], event["changed"], event["errors"]) == ("PatternUpdateEvent", ["north/north"], [])
        assert (event["added"], event["removed"]) == ([], [])
        assert event["after_s"] < LIVE_S
    assert titles(system) == {"east/east": "As it was", "north/north": "Changed", "south/south": "As it was"}
    after = told(system)
    assert all(after[pid]["loaded_at"] > before[pid]["loaded_at"] for pid in takers(system))
    assert {after[pid]["patterns"] for pid in takers(system)} == {3}
    answer = system.get("/v1/patterns/match?q=monthly+revenue+by+north").json
    assert answer["data"][0]["title"] == "Changed"


def test_a_bad_file_is_told_everywhere_and_the_rest_goes_on(system: System, library: Path, heard: Any) -> None:
    reloads = figure(system, 'loom_pattern_reloads_total{result="failed"}')
    exchange(library / "south" / "region.yaml", "name: [\n")
    complaint = f"{library / 'south' / 'region.yaml'}:1: "
    for event in events(system, heard).values():
        assert (event["added"], event["changed"], event["removed"]) == ([], [], [])
        assert [error[: len(complaint)] for error in event["errors"]] == [complaint]
    answer = listed(system)
    (error,) = answer["errors"]
    assert error.startswith("south/region.yaml:1: "), "clients need not know where the library lies on this machine"
    assert titles(system)["south/south"] == "As it was"
    assert all(told(system)[pid]["errors"] == answer["errors"] for pid in takers(system))
    assert figure(system, "loom_pattern_errors") == 1
    assert figure(system, "loom_patterns") == 3
    failed = 'loom_pattern_reloads_total{result="failed"}'
    until(lambda: figure(system, failed) == reloads + 3, WAIT_S, "each process has counted it")

    exchange(library / "east" / "region.yaml", PATTERN.format(name="east", title="Good all the same"))
    assert {tuple(event["changed"]) for event in events(system, heard).values()} == {("east/east",)}

    exchange(library / "south" / "region.yaml", PATTERN.format(name="south", title="Mended"))
    assert {tuple(event["changed"]) for event in events(system, heard).values()} == {("south/south",)}
    assert (listed(system)["errors"], titles(system)["south/south"]) == ([], "Mended")
    assert figure(system, "loom_pattern_errors") == 0


def test_a_library_that_comes_and_one_that_goes_are_told_in_the_log_of_each_process(
    system: System, library: Path, heard: Any
) -> None:
    (library / "west").mkdir()
    exchange(library / "west" / "region.yaml", PATTERN.format(name="west", title="New"))
    assert {tuple(event["added"]) for event in events(system, heard).values()} == {("west/west",)}
    (library / "west" / "region.yaml").unlink()
    (library / "west").rmdir()
    assert {tuple(event["removed"]) for event in events(system, heard).values()} == {("west/west",)}
    for name in ("web", "worker-1", "worker-2"):
        log = (system.home / "logs" / f"{name}.log").read_text()
        assert re.search(r"Pattern library loaded \(3 patterns, \d+ ms\)", log)
        assert len(re.findall(r"Pattern library reloaded \(4 patterns, \d+ ms\)", log)) == 1
        assert log.count("WARNING pattern library: ") == 1
