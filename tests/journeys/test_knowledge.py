"""Patterns and skills find their way into turns: put there by commands and files, seen in what the model is sent."""

import json
from pathlib import Path

import pytest

from tests.support.messages_server import MessagesServer, Say
from tests.support.messages_wire import WireCall
from tests.support.system import Json, System
from tests.support.tool_wire import data, results
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.takes(10)]

SKILL = """---
name: harbour
description: How the harbour office words its notices; use it for any notice to captains.
compatibility: Needs nothing.
metadata:
  gateway:trigger: keyword
  gateway:keywords: notice tide
---

Begin every notice with {word}.
The signals are in references/signals.md.
"""
PATTERN = """
name: tug_rota
category: harbour
title: Which tug is on duty
description: Says which tug boat has duty at a given hour, and who commands it.
intents: [which tug is on duty tonight, tug boat rota, who commands the tug on duty]
templates: {{answer: "Tug {word} has duty from {{{{hour}}}}."}}
parameters: [{{name: hour, default: "18:00"}}]
"""
TUG = "Which tug boat is on duty tonight?"


@pytest.fixture(scope="module")
def system(shared_system: System, library: Path) -> System:
    (library / "harbour").mkdir()
    (library / "harbour" / "tugs.yaml").write_text(PATTERN.format(word="Amalia"))
    until(lambda: "harbour/tug_rota" in shared_system.get("/v1/patterns").text, 20, "the pattern is told of")
    shared_system.settle()
    return shared_system


def sent(server: MessagesServer, system: System, text: str, session: str) -> tuple[Json, str]:
    """The turn of a question, and all that the model was sent for it."""
    server.then(Say("Done."))
    turn = system.ended(system.submit(session, text))
    assert turn["status"] == "completed", turn
    return turn, json.dumps(server.requests[-1])


def skill_source(folder: Path, word: str) -> Path:
    source = folder / "harbour"
    (source / "references").mkdir(parents=True, exist_ok=True)
    (source / "SKILL.md").write_text(SKILL.format(word=word))
    (source / "references" / "signals.md").write_text("Two black balls: the port is closed.\n")
    return source


def test_a_changed_pattern_is_in_the_next_turns_and_what_came_of_it_is_counted(
    server: MessagesServer, system: System, library: Path
) -> None:
    turn, request = sent(server, system, TUG, "tugs")
    assert [pattern["id"] for pattern in turn["patterns"]] == ["harbour/tug_rota"]
    assert "Tug Amalia has duty" in request
    (library / "harbour" / "tugs.yaml").write_text(PATTERN.format(word="Brunhild"))

    def everywhere() -> bool:
        listed = system.get("/v1/patterns").json
        now = listed["data"][0]["version"]
        return now != turn["patterns"][0]["version"] and len(listed["processes"]) >= 2

    until(everywhere, 20, "the new library is told of")
    until(lambda: "Tug Brunhild" in sent(server, system, TUG, "tugs")[1], 20, "a turn sees the new text")
    effect = system.get("/v1/patterns/harbour/tug_rota").json
    assert effect["effect"]["succeeded"] == effect["effect"]["uses"] >= 1
    assert effect["effect_of_all_versions"]["uses"] > effect["effect"]["uses"]
    matched = system.get("/v1/patterns/match?q=tug+rota").json["data"][0]
    assert (matched["id"], "tug" in matched["terms"]) == ("harbour/tug_rota", True)


def test_a_skill_is_installed_called_by_a_keyword_read_and_followed_after_an_edit(
    server: MessagesServer, system: System, tmp_path: Path
) -> None:
    assert "Ahoy" not in sent(server, system, "Write a notice about the tide.", "before")[1]
    installed = system.run("skill", "install", str(skill_source(tmp_path, "Ahoy")), "--workspace", "homelab")
    assert installed.returncode == 0, installed.stderr
    linked = system.run("skill", "link", "harbour", "--from", "homelab", "--to", "default")
    assert linked.returncode == 0, linked.stderr

    server.then(
        Say("", [WireCall("toolu_1", "read_skill_file", {"skill": "harbour", "path": "references/signals.md"})])
    )
    server.then(Say("Ahoy, the port is closed."))
    turn = system.ended(system.submit("notices", "Write a notice about the tide."))
    assert turn["output_text"] == "Ahoy, the port is closed."
    first, second = server.requests[-2:]
    assert "Begin every notice with Ahoy." in json.dumps(first["messages"])
    assert "Two black balls" in data(results(second)[0], turn["id"])
    told = [event.data for event in system.events(turn["id"]) if event.type == "skill.used"]
    assert told == [{"skills": [{"name": "harbour", "how": "keyword"}]}]

    source = system.home / "workspaces" / "homelab" / "skills" / "harbour" / "SKILL.md"
    source.write_text(SKILL.format(word="Hail"))
    assert "Begin every notice with Hail." in sent(server, system, "use skill: harbour", "later")[1]
    request = server.requests[-1]
    assert "harbour office words its notices" in json.dumps(request["system"]), "it is listed by its description"
    assert "Begin every notice" not in json.dumps(request["system"])


def test_the_system_text_of_a_session_stays_when_skills_come_and_go(server: MessagesServer, system: System) -> None:
    sent(server, system, "Hello.", "steady")
    before = server.requests[-1]["system"]
    assert system.run("skill", "remove", "harbour", "--workspace", "default").returncode == 0
    sent(server, system, "Hello again.", "steady")
    assert server.requests[-1]["system"] == before
    sent(server, system, "Hello.", "fresh")
    assert "harbour office" not in json.dumps(server.requests[-1]["system"])
