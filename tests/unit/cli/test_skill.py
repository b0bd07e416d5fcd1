import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from loom_worker.cli.main import main
from tests.support.webhook_receiver import Answer, WebhookReceiver
from tests.unit.skills.archives import Entry, zipped
from tests.unit.skills.parts import put, skill_md


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two workspaces with skills."""
    root = tmp_path / "workspaces"
    put(root, "default", "pdf", skill_md("pdf", "Fill in forms.", description="Reads and writes PDF files."))
    mail = skill_md("mail", description="Sends letters.", metadata="gateway:trigger: keyword\ngateway:keywords: post")
    put(root, "office", "mail", mail)
    return root


def loom(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["skill", *arguments], env={"LOOM_HOME": str(root.parent)})


def told(root: Path, *arguments: str) -> Any:
    done = loom(root, *arguments, "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    return json.loads(done.stdout)


def names(listing: Any) -> list[str]:
    return [f"{row['workspace']}/{row['name']}" for row in listing["data"]]


def test_the_list_is_of_the_default_workspace_another_or_all(root: Path) -> None:
    assert names(told(root, "list")) == ["default/pdf"]
    assert names(told(root, "list", "--workspace", "office")) == ["office/mail"]
    assert names(told(root, "list", "--all")) == ["default/pdf", "office/mail"]
    assert names(told(root, "list", "--workspace", "nobody")) == []


def test_without_a_command_there_is_the_list(root: Path) -> None:
    assert told(root, "--all") == told(root, "list", "--all")
    misplaced = loom(root, "--all", "search", "pdf")
    assert (misplaced.exit_code, "put --all behind `search`" in misplaced.stderr) == (2, True)


def test_the_list_tells_what_a_person_must_know(root: Path) -> None:
    assert told(root, "list", "--workspace", "office")["data"][0] == {
        "workspace": "office",
        "name": "mail",
        "trigger": "keyword",
        "keywords": ["post"],
        "compatibility": "",
        "linked_from": None,
        "description": "Sends letters.",
    }


def test_the_list_is_a_table_and_broken_folders_are_told_apart(root: Path) -> None:
    put(root, "default", "broken", "nothing")
    done = loom(root, "list")
    head, row = done.stdout.splitlines()
    assert head.split()[:3] == ["WORKSPACE", "NAME", "TRIGGER"]
    assert row.split()[:3] == ["default", "pdf", "model"]
    assert (done.exit_code, done.stderr[:38]) == (0, "default/skills/broken/SKILL.md:1: the ")


def test_installing_shows_what_it_is_and_that_nothing_of_it_runs(root: Path, tmp_path: Path) -> None:
    text = skill_md("docx", compatibility="Requires pandoc", allowed_tools="Read Bash(git:*)")
    source = put(tmp_path / "elsewhere", "x", "docx", text, scripts__run="x")
    (source / ".git").mkdir()
    done = loom(root, "install", str(source), "--workspace", "office")
    assert done.exit_code == 0
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[:7] == [
        "workspace office",
        "name docx",
        "description What docx does.",
        "compatibility Requires pandoc",
        "allowed_tools Read, Bash(git:*)",
        "files 2",
        f"size_bytes {len(text) + 1}",
    ]
    assert lines[8:10] == ["left_out .git", "replaced false"]
    assert lines[10].startswith("Loom runs no scripts")
    assert names(told(root, "list", "--workspace", "office")) == ["office/docx", "office/mail"]


def test_installing_compares_the_checksum_before_anything_is_written(root: Path, tmp_path: Path) -> None:
    (tmp_path / "pdf.zip").write_bytes(zipped())
    sha256 = hashlib.sha256(zipped()).hexdigest()
    refused = loom(root, "install", str(tmp_path / "pdf.zip"), "--workspace", "lab", "--sha256", "0" * 64)
    assert (refused.exit_code, refused.stderr) == (1, f"loom: the checksum is {sha256}, not {'0' * 64}\n")
    assert not (root / "lab").exists()
    arguments = ("install", str(tmp_path / "pdf.zip"), "--workspace", "lab", "--sha256", sha256)
    assert told(root, *arguments)["sha256"] == sha256


def test_installing_again_needs_force(root: Path, tmp_path: Path) -> None:
    (tmp_path / "pdf.zip").write_bytes(zipped())
    refused = loom(root, "install", str(tmp_path / "pdf.zip"))
    assert refused.exit_code == 1
    assert refused.stderr == ("loom: default/skills: pdf is there already, a folder; --force replaces what is there\n")
    assert told(root, "install", str(tmp_path / "pdf.zip"), "--force")["replaced"] is True


def test_a_folder_called_otherwise_is_installed_under_the_skills_name(root: Path, tmp_path: Path) -> None:
    source = put(tmp_path / "elsewhere", "x", "docx-main", skill_md("docx"))
    assert "is called docx, not other" in loom(root, "install", str(source), "--name", "other").stderr
    assert told(root, "install", str(source), "--name", "docx")["name"] == "docx"


def test_what_the_format_does_not_allow_is_said_when_it_is_installed_and_listed(root: Path, tmp_path: Path) -> None:
    source = put(tmp_path / "elsewhere", "x", "My_Skill", skill_md("My_Skill"))
    for done in (loom(root, "install", str(source)), loom(root, "list")):
        assert done.exit_code == 0
        assert "SKILL.md:2: name: 'My_Skill': the format has lower-case letters" in done.stderr
        assert done.stderr.endswith("(it loads)\n")


def test_a_hostile_archive_is_a_sentence_and_no_file(root: Path, tmp_path: Path) -> None:
    (tmp_path / "evil.zip").write_bytes(zipped(Entry("../../../evil")))
    done = loom(root, "install", str(tmp_path / "evil.zip"), "--workspace", "lab")
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.endswith("'../../../evil': leads out of the skill's folder\n")
    assert not (root / "lab").exists()


def test_a_url_of_this_machine_needs_leave(root: Path) -> None:
    with WebhookReceiver() as server:
        server.answer_with(Answer(body=zipped()))
        refused = loom(root, "install", server.url, "--workspace", "lab")
        assert (refused.exit_code, server.received) == (1, ())
        assert "--allow-private" in refused.stderr
        assert told(root, "install", server.url, "--workspace", "lab", "--allow-private")["name"] == "pdf"


def test_a_skill_is_copied_linked_and_removed(root: Path) -> None:
    assert told(root, "copy", "pdf", "--from", "default", "--to", "lab")["workspace"] == "lab"
    assert loom(root, "copy", "pdf", "--from", "default", "--to", "lab").exit_code == 1
    assert told(root, "copy", "pdf", "--from", "default", "--to", "lab", "--force")["replaced"] is True
    linked = loom(root, "link", "pdf", "--from", "default", "--to", "office")
    assert linked.stdout == "office: pdf follows that of default\n"
    rows = {row["name"]: row["linked_from"] for row in told(root, "list", "--workspace", "office")["data"]}
    assert rows == {"mail": None, "pdf": "default"}
    refused = loom(root, "remove", "pdf")
    assert (refused.exit_code, "linked by office" in refused.stderr) == (1, True)
    forced = loom(root, "remove", "pdf", "--force")
    assert forced.stdout.splitlines()[0] == "default: pdf is removed; links of office lead nowhere now"
    assert told(root, "remove", "pdf", "--workspace", "lab")["broken_links"] == []
    assert told(root, "link", "mail", "--from", "office", "--to", "lab") == {
        "workspace": "lab",
        "name": "mail",
        "linked_from": "office",
    }


@pytest.mark.parametrize("trigger", ["auto", "model", "keyword", "manual"])
def test_what_sessions_keep_in_their_system_text_is_said(root: Path, tmp_path: Path, trigger: str) -> None:
    text = skill_md("pdf", metadata=f"gateway:trigger: {trigger}\ngateway:keywords: pdf")
    source = str(put(tmp_path / "elsewhere", "x", "pdf", text))
    kept = "Sessions that began before keep it in their system text as it was, until PATCH /v1/sessions/{s} asks for "
    first = loom(root, "install", source, "--workspace", "lab")
    replaced = loom(root, "install", source, "--workspace", "lab", "--force")
    removed = loom(root, "remove", "pdf", "--workspace", "lab")
    said = [[line for line in done.stdout.splitlines() if line.startswith(kept)] for done in (replaced, removed)]
    wanted = [] if trigger == "manual" else [kept + '{"agent": "name@latest"}.']
    assert said == [wanted, wanted]
    assert (first.exit_code, kept in first.stdout) == (0, False)


def test_a_listed_skill_that_a_manual_one_replaces_is_said_to_stay_in_sessions(root: Path, tmp_path: Path) -> None:
    put(tmp_path / "workspaces", "lab", "pdf", skill_md("pdf", metadata="gateway:trigger: manual"))
    assert "Sessions that" in loom(root, "copy", "pdf", "--from", "lab", "--to", "default", "--force").stdout


@pytest.mark.parametrize("source", ["", " "])
def test_an_empty_source_is_not_the_folder_one_is_in(root: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root / "default" / "skills" / "pdf")
    done = loom(root, "install", source, "--workspace", "lab")
    assert (done.exit_code, "SOURCE is empty" in done.stderr, (root / "lab").exists()) == (2, True, False)


@pytest.mark.parametrize("source", ["https://ada:secret@example.com/a.zip", "ftp://ada:secret@example.com/a.zip"])
def test_a_password_in_a_source_is_refused_and_not_repeated(root: Path, source: str) -> None:
    done = loom(root, "install", source)
    assert (done.exit_code, "secret" in done.output) == (1, False)


def test_a_strangers_skill_cannot_steer_the_terminal(root: Path, tmp_path: Path) -> None:
    key = '"\\e[2J\\nloom: fine\\u202e"'
    text = f"---\nname: x\nmetadata:\n  {key}: 1\n  {key}: 2\ndescription: d\n---\n"
    source = put(tmp_path / "elsewhere", "x", "x", text)
    done = loom(root, "install", str(source))
    assert (done.exit_code, done.stderr.count("\n"), done.stderr.strip().isprintable()) == (1, 1, True)


def test_search_finds_by_name_description_keywords_and_instructions(root: Path) -> None:
    for words in (["pdf"], ["PDF", "files"], ["reads"], ["forms"]):
        assert names(told(root, "search", *words)) == ["default/pdf"], words
    assert names(told(root, "search", "post")) == ["office/mail"]
    assert names(told(root, "search", "post", "--workspace", "default")) == []
    assert names(told(root, "search", "zzz")) == []


def test_search_puts_first_what_says_it_of_itself(root: Path) -> None:
    put(root, "lab", "forms", skill_md("forms", description="Checks forms."))
    found = told(root, "search", "forms")
    assert names(found) == ["lab/forms", "default/pdf"]
    assert found["data"][0]["score"] > 0
    assert "forms" in found["data"][0]["terms"]


def test_search_finds_part_of_a_name_that_no_word_is_like(root: Path) -> None:
    put(root, "lab", "xyzzy", skill_md("xyzzy", description="Says plugh."))
    assert names(told(root, "search", "yzz")) == ["lab/xyzzy"]


def test_search_among_no_skills_finds_none(tmp_path: Path) -> None:
    assert told(tmp_path / "workspaces", "search", "pdf")["data"] == []


@pytest.mark.parametrize("command", [["list"], ["install", "x"], ["remove", "x"], ["search", "x"]], ids=lambda c: c[0])
def test_a_workspace_that_cannot_be_is_refused(root: Path, command: list[str]) -> None:
    done = loom(root, *command, "--workspace", "../x")
    assert (done.exit_code, done.stderr[:6]) == (1, "loom: ")


def test_without_what_is_needed_the_usage_is_told(root: Path) -> None:
    assert [loom(root, *each).exit_code for each in (["search"], ["copy", "pdf"], ["install"])] == [2, 2, 2]
