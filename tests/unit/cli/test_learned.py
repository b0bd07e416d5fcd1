"""`loom learned` against the real front end over the real service."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from loom_worker.cli.main import main
from loom_worker.cli.sessions import learned
from tests.support.cli_server import asked_by_commands
from tests.support.web_stage import WebStage

Loom = Callable[..., Result]
FILES = Path(__file__).parents[1] / "agents" / "learned"


@pytest.fixture
def loom(stage: WebStage, tmp_path: Path) -> Iterator[Loom]:
    """`loom learned …`, asking a server on loopback."""
    with asked_by_commands(stage, tmp_path) as env:
        yield lambda *arguments: CliRunner().invoke(main, ["learned", *map(str, arguments)], env=env)


def test_versions_are_imported_listed_compared_activated_and_taken_back(loom: Loom) -> None:
    done = loom("import", FILES / "saved_by_dspy.json", "--agent", "default", "--note", "nightly")
    assert done.output.splitlines() == [
        "default: version 1: 2 signatures, 5 demonstrations",
        "not active: loom learned activate default --version 1",
    ]
    assert "version 2: 2 gradients" in loom("import", FILES / "tuned_by_textgrad.json", "--agent", "default").output
    assert loom("activate", "default", "--version", 1).output == "default: sessions begin with version 1\n"
    tried = loom("activate", "default", "--version", 2, "--share", 0.1).output
    assert tried == "default: sessions begin with version 1, 10% of them with version 2\n"
    listed = [line.split() for line in loom("list", "default").output.splitlines()]
    assert [line[:2] for line in listed[1:]] == [["2", "10%"], ["1", "90%"], ["0", "0%"]]
    assert "dspy 3.4.1" in " ".join(listed[2])
    assert "nightly" in listed[2]
    shown = loom("show", "default", 1).output
    assert "Sort a customer's message." in shown
    assert "message: money back 0" in shown
    compared = loom("diff", "default", 1, 2).output
    assert "-Sort a customer's message." in compared
    assert "+Thank the customer." in compared
    assert loom("diff", "default", 1, 1).output == "no difference\n"
    assert loom("rollback", "default").output == "default: sessions begin with version 1\n"
    assert loom("rollback", "default").output == "default: sessions begin with no learned layer\n"
    assert loom("erase", "default", 1).output == "default: version 1 is erased\n"
    assert "Nothing was activated" in loom("rollback", "default").output
    assert (
        json.loads(loom("show", "default", 2, "--json").output)["layer"]["gradients"][1]["name"] == "closing sentence"
    )


def test_pages_go_on_where_the_last_one_ended(loom: Loom) -> None:
    loom("import", FILES / "saved_by_dspy.json", "--agent", "default")
    page = loom("list", "default", "--limit", 1).output
    assert page.splitlines()[-1] == "more: --after 1"
    assert loom("list", "default", "--after", 1).output.splitlines()[1].startswith("0 ")


def test_an_error_names_the_file_and_the_key_and_keys_that_are_left_out_are_told(loom: Loom, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"self": {"demos": [], "signature": {"instructions": 3.5}, "vote": 1}}')
    told = loom("import", path, "--agent", "default")
    assert "x.json: warning: self.vote: not imported" in told.output
    path.write_text('{"self": {"demos": "many"}}')
    refused = loom("import", path, "--agent", "default")
    assert refused.exit_code == 1
    assert f"{path}: self.demos: a list of mappings is needed, not 'many'" in refused.output
    assert (
        "a list of tuned prompts is needed"
        in loom("import", FILES / "saved_by_dspy.json", "--agent", "default", "--form", "textgrad").output
    )
    assert "There is no agent 'nobody'" in loom("import", FILES / "saved_by_dspy.json", "--agent", "nobody").output


def test_a_saved_folder_is_refused_and_told_how_to_save(loom: Loom, tmp_path: Path) -> None:
    refused = loom("import", tmp_path, "--agent", "default")
    assert refused.exit_code == 1
    assert 'program.save("program.json")' in refused.output


def test_a_session_tells_how_much_of_the_layer_it_was_sent() -> None:
    part = {"version": 2, "signatures": 1, "demonstrations": 3, "left_out_signatures": 0, "left_out_demonstrations": 4}
    assert list(learned({"learned": part})) == ["learned version 2 in rom: 1 of 1 signatures, 3 of 7 demonstrations"]
    assert list(learned({"learned": None})) == []
