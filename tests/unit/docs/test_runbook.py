import re

from tests.support.runbook import blocks, is_as_told
from tests.unit.docs.pages import ROOT, text

WALKS = (
    *("A stuck lane", "A dead turn", "A poison turn", "A full disk", "A Redis restart", "An upgrade"),
    *("Backup and restore", "Reading a slow turn's trace"),
)


def sources() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))


def test_every_walk_is_there_in_numbered_steps() -> None:
    page = text("docs/runbook.md")
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE))
    assert [walk for walk in WALKS if walk not in sections] == []
    assert [walk for walk in WALKS if not re.search(r"^2\. ", sections[walk], re.MULTILINE)] == []


def test_every_block_of_commands_is_run_by_a_test_and_every_test_that_is_named_exists() -> None:
    found = sources()
    assert [name for name in blocks() if f'"{name}"' not in found] == []
    named = re.findall(r"`(test_\w+)`", text("docs/runbook.md"))
    assert len(named) >= 6
    assert [name for name in named if f"def {name}(" not in found] == []


def test_what_a_command_says_is_compared_word_by_word() -> None:
    told = "ID … STATUS\nturn_… queued … s"
    assert is_as_told("ID   X  STATUS\nturn_1   queued lane for 3 s\n", told)
    assert not is_as_told("ID   X  STATUS\nturn_1   failed lane for 3 s\n", told)
    assert not is_as_told("ID STATUS turn_1 queued 3 s, and more", told)
    assert is_as_told("anything\nat all", "…")
    assert is_as_told("", "")
    assert not is_as_told("something", "")
