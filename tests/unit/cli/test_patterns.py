import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result

from loom_worker.cli.main import main
from loom_worker.core.settings import Settings
from loom_worker.patterns.library import packaged_root
from tests.support.fake_loom import FakeLoom
from tests.support.http_server import serving
from tests.support.pattern_files import MINIMAL, write
from tests.support.web_stage import stages
from web.app import create_app

GOOD = "name: top_n\ntitle: The best\ncategory: ranking\nintents: [top ten customers, best products, most sold]\n"
LINE = {"id": "sql/top_n", "title": "The best", "category": "ranking"}


def run(tmp_path: Path, pages: dict[str, object], *arguments: str) -> tuple[Result, FakeLoom]:
    fake = FakeLoom(pages=pages)
    with serving(fake) as url:
        return offline(tmp_path, *arguments, LOOM_URL=url), fake


def offline(tmp_path: Path, *arguments: str, **env: str) -> Result:
    return CliRunner().invoke(main, ["patterns", *arguments], env={"LOOM_HOME": str(tmp_path), **env})


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ([], "/v1/patterns"),
        (["--category", "data quality"], "/v1/patterns?category=data+quality"),
        (["show", "sql/top_n"], "/v1/patterns/sql/top_n"),
        (["show", "a b/ä?#"], "/v1/patterns/a%20b/%C3%A4%3F%23"),
        (["match", "where's it? 😀"], "/v1/patterns/match?q=where%27s+it%3F+%F0%9F%98%80&k=3"),
        (["match", "x", "-k", "20", "--agent", "a&b"], "/v1/patterns/match?q=x&k=20&agent=a%26b"),
        (["match", ""], "/v1/patterns/match?q=&k=3"),
        (["match", "a\udcff"], "/v1/patterns/match?q=a%EF%BF%BD&k=3"),
        (["--category", "\udcff"], "/v1/patterns?category=%EF%BF%BD"),
        (["show", "sql/\udcff"], "/v1/patterns/sql/%EF%BF%BD"),
    ],
)
def test_each_command_asks_for_what_it_shows(tmp_path: Path, arguments: list[str], asked: str) -> None:
    _, fake = run(tmp_path, {}, *arguments)
    assert [each[:2] for each in fake.asked] == [("GET", asked)]


def test_the_patterns_are_a_table(tmp_path: Path) -> None:
    page = {"object": "list", "data": [LINE], "has_more": False, "next": None, "errors": []}
    result, _ = run(tmp_path, {"/v1/patterns": page})
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["ID", "TITLE", "CATEGORY"],
        ["sql/top_n", "The", "best", "ranking"],
    ]


def test_one_pattern_is_shown_field_by_field_or_as_it_came(tmp_path: Path) -> None:
    page = {"/v1/patterns/sql/top_n": LINE}
    assert run(tmp_path, page, "show", "sql/top_n")[0].stdout.startswith("id                sql/top_n\n")
    assert json.loads(run(tmp_path, page, "show", "sql/top_n", "--json")[0].stdout) == LINE


@pytest.mark.cases(
    "pattern_id", ["..", "../agents", "sql/../../agents/default", "./match", "match", "/match", "match/", ""]
)
def test_an_id_never_leads_to_another_page(tmp_path: Path, pattern_id: str) -> None:
    pages: dict[str, object] = {"/v1/agents": {"name": "other"}, "/v1/patterns/match": {"data": []}}
    result, fake = run(tmp_path, pages, "show", pattern_id)
    assert (result.exit_code, fake.asked) == (1, [])
    assert result.stderr == f"loom: there is no pattern '{pattern_id}'\n"


def test_what_a_pattern_says_cannot_steer_the_terminal(tmp_path: Path) -> None:
    pages: dict[str, object] = {"/v1/patterns/sql/top_n": {**LINE, "title": "a\x1b[2J\u202eb\u200b\nid evil"}}
    told = run(tmp_path, pages, "show", "sql/top_n")[0].stdout
    assert "title             a[2Jb id evil\n" in told
    assert [line for line in told.split("\n") if not line.isprintable()] == []


def test_an_unknown_pattern_exits_1(tmp_path: Path) -> None:
    result, _ = run(tmp_path, {}, "show", "sql/none")
    assert (result.exit_code, result.stderr) == (1, "loom: 404 not-found: no such thing\n")


@pytest.mark.parametrize("arguments", [[], ["show", "sql/top_n"], ["match", "x"]])
def test_a_loom_that_does_not_run_is_named(tmp_path: Path, arguments: list[str]) -> None:
    result = offline(tmp_path, *arguments, LOOM_URL="http://127.0.0.1:9")
    assert result.exit_code == 1
    assert result.stderr == "loom: Loom is not running at http://127.0.0.1:9; start it with `loom up`\n"


@pytest.mark.parametrize("k", ["0", "21", "many"])
def test_k_is_from_1_to_20(tmp_path: Path, k: str) -> None:
    result, fake = run(tmp_path, {}, "match", "x", "-k", k)
    assert (result.exit_code, fake.asked) == (2, [])


def test_options_of_the_list_are_refused_before_a_command(tmp_path: Path) -> None:
    result, fake = run(tmp_path, {}, "--category", "sql", "match", "x")
    assert (result.exit_code, fake.asked) == (2, [])
    assert "put --category behind `match`" in result.stderr


def test_a_folder_is_matched_without_a_running_loom(tmp_path: Path) -> None:
    write(tmp_path / "lib", sql__a=GOOD, sql__b="name: notes\ncategory: text\nintents: [release notes]\n")
    told = offline(tmp_path, "match", "who are the ten top customers", "--dir", str(tmp_path / "lib"))
    lines = told.stdout.splitlines()
    assert lines[0].split() == ["ID", "TITLE", "CONFIDENCE", "SCORE", "TERMS"]
    assert lines[1].startswith("sql/top_n")
    assert "customer" in lines[1]


def test_a_folder_is_told_as_the_api_tells_it(tmp_path: Path, settings: Settings, valkey: redis.Redis) -> None:
    write(tmp_path / "lib", sql__a=GOOD)
    told = offline(tmp_path, "match", "top ten customers", "--dir", str(tmp_path / "lib"), "--json")
    with stages(settings, valkey) as make:
        stage = make()
        write(stage.patterns, sql__a=GOOD)
        client = create_app(stage.service).test_client()
        by_api: Any = client.get("/v1/patterns/match?q=top+ten+customers").get_json()
    here = json.loads(told.stdout)
    assert here.keys() == by_api.keys()
    assert [*here["data"][0]] == [*by_api["data"][0]]


def test_a_broken_file_of_a_folder_is_told_beside_what_is_found(tmp_path: Path) -> None:
    write(tmp_path / "lib", sql__a=GOOD, sql__b="name: [\n")
    told = offline(tmp_path, "match", "top ten customers", "--dir", str(tmp_path / "lib"), "--json")
    assert told.exit_code == 0
    assert json.loads(told.stdout)["data"][0]["id"] == "sql/top_n"
    assert told.stderr.startswith(f"{tmp_path}/lib/sql/b.yaml:")


def test_nothing_that_fits_is_an_empty_table(tmp_path: Path) -> None:
    write(tmp_path / "lib", sql__a=GOOD)
    told = offline(tmp_path, "match", "zzzz", "--dir", str(tmp_path / "lib"))
    assert (told.exit_code, len(told.stdout.splitlines())) == (0, 1)


def test_a_folder_without_a_pattern_exits_1_and_says_what_helps(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    told = offline(tmp_path, "match", "x", "--dir", str(tmp_path / "lib"))
    assert told.exit_code == 1
    assert told.stderr == f"loom: {tmp_path}/lib holds no pattern; `loom patterns lint {tmp_path}/lib` says why\n"


def test_an_agent_cannot_be_asked_of_a_folder(tmp_path: Path) -> None:
    told = offline(tmp_path, "match", "x", "--dir", str(tmp_path), "--agent", "default")
    assert told.exit_code == 2
    assert "--agent needs a running Loom" in told.stderr


def test_a_folder_that_is_not_there_exits_2(tmp_path: Path) -> None:
    for arguments in (("lint", str(tmp_path / "none")), ("match", "x", "--dir", str(tmp_path / "none"))):
        assert offline(tmp_path, *arguments).exit_code == 2


@pytest.mark.heavy
def test_the_shipped_library_has_nothing_to_complain_of(tmp_path: Path) -> None:
    told = offline(tmp_path, "lint")
    assert told.exit_code == 0
    last = told.stdout.splitlines()[-1]
    assert (told.stdout.splitlines()[:-1], last.partition(" patterns, ")[2]) == (
        [],
        f"0 problems, 0 warnings in {packaged_root()}",
    )


def test_an_error_is_told_with_file_and_line_and_exits_1(tmp_path: Path) -> None:
    root = write(tmp_path / "lib", sql__a=GOOD, sql__b="name: slow\ntitle: No category\n")
    told = offline(tmp_path, "lint", str(root))
    assert told.exit_code == 1
    errors = [line for line in told.stdout.splitlines() if ": problem: " in line]
    assert [line.startswith(f"{root}/sql/b.yaml:1: problem: ") for line in errors] == [True]
    assert told.stdout.splitlines()[-1].startswith("1 patterns, 1 problems, ")


def test_warnings_alone_exit_0(tmp_path: Path) -> None:
    root = write(tmp_path / "lib", sql__a=GOOD + "intends: [x]\n")
    told = offline(tmp_path, "lint", str(root))
    assert told.exit_code == 0
    assert f"{root}/sql/a.yaml:5: warning: " in told.stdout
    assert "intents" in told.stdout


def test_findings_as_json_say_the_same(tmp_path: Path) -> None:
    root = write(tmp_path / "lib", sql__a="name: [\n")
    told = offline(tmp_path, "lint", str(root), "--json")
    assert told.exit_code == 1
    (finding,) = json.loads(told.stdout)
    assert finding.keys() == {"path", "line", "level", "what", "advice"}
    assert (finding["path"], finding["level"]) == (f"{root}/sql/a.yaml", "error")
    shutil.copytree(packaged_root() / "rest", tmp_path / "sound" / "rest")
    assert json.loads(offline(tmp_path, "lint", str(tmp_path / "sound"), "--json").stdout) == []


def test_a_shipped_pattern_may_be_named_as_related_unless_it_is_left_out(tmp_path: Path) -> None:
    root = write(tmp_path / "lib", mine__a=f"{MINIMAL}related_patterns: [sql/customer_ranking, sql/none]\n")
    told = offline(tmp_path, "lint", str(root)).stdout
    assert ("no pattern sql/customer_ranking" in told, "no pattern sql/none" in told) == (False, True)
    told = offline(tmp_path, "lint", str(root), LOOM_PATTERNS_SHIPPED="0").stdout
    assert "no pattern sql/customer_ranking" in told


def test_unless_given_the_folder_of_the_settings_is_looked_at(tmp_path: Path) -> None:
    root = write(tmp_path / "lib", sql__a="name: [\n")
    told = offline(tmp_path, "lint", LOOM_PATTERNS_DIR=str(root))
    assert (told.exit_code, f"{root}/sql/a.yaml" in told.stdout) == (1, True)


def test_what_files_say_cannot_steer_the_terminal(tmp_path: Path) -> None:
    root = write(tmp_path / "lib", sql__a='name: a\ncategory: b\n"\\e[2J\\nevil\\u202e": 1\n')
    strange = os.fsencode(root / "sql") + b"/\xff\x07\x1b[2J\n.yaml"
    with open(strange, "wb") as file:
        file.write(GOOD.encode())
    linted = offline(tmp_path, "lint", str(root))
    matched = offline(tmp_path, "match", "x", "--dir", str(root))
    for told in (linted.stdout, matched.stderr):
        assert "cannot be shown" in told
        assert [line for line in told.split("\n") if not line.isprintable()] == []
    assert (linted.exit_code, matched.exit_code) == (1, 0)
