import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from loom_worker.cli import checks
from loom_worker.cli.checks import InstallationCheck, backend, contents, data_directory, database, redis, server_binary
from loom_worker.cli.doctor import line, setting_rows
from loom_worker.cli.main import main
from loom_worker.core.env import KNOWN, SECRET
from loom_worker.core.settings import from_env
from loom_worker.core.values.problems import Problem
from loom_worker.store.prepare import prepare
from tests.support.disks import spoil
from tests.support.messages_server import MessagesServer, Say, failure
from tests.support.messages_wire import WireCall

DOCS = Path(__file__).parents[3] / "docs"


def doctor(tmp_path: Path, **env: str) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(main, ["doctor", "--json"], env={"LOOM_HOME": str(tmp_path), **env})
    return result.exit_code, json.loads(result.stdout)


def failed(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in report["checks"] if not check["is_ok"]}


def test_a_sound_installation_exits_0(tmp_path: Path) -> None:
    code, report = doctor(tmp_path)
    assert failed(report) == {}
    assert (code, report["ok"]) == (0, True)


def test_every_setting_has_a_value_and_a_source_and_no_secret_is_shown(tmp_path: Path) -> None:
    env = dict.fromkeys(SECRET, "s3cret") | {
        "LOOM_API_KEYS": "shop=s3cret",
        "LOOM_WEBHOOK_SECRET": "whsec_" + "s3cretAA" * 4,
        "LOOM_TRACE_HEADERS": "x-key=s3cret",
    }
    env |= {"LOOM_PORT": "8123", "LOOM_REDIS_URL": "redis://:s3cret@127.0.0.1:9/0"}
    _, report = doctor(tmp_path, **env)
    shown = {row["name"]: (row["value"], row["source"]) for row in report["settings"]}
    assert list(shown) == list(KNOWN)
    assert shown["LOOM_PORT"] == ("8123", "environment")
    assert shown["LOOM_LEASE_S"] == ("3.0", "default")
    assert {shown[name] for name in SECRET} == {("***", "environment")}
    assert "s3cret" not in json.dumps(report)


def test_every_known_variable_can_be_read_back() -> None:
    assert [row.name for row in setting_rows(from_env({}), {})] == list(KNOWN)


@pytest.mark.cases("name", KNOWN)
def test_every_variable_is_in_the_table_of_the_docs(name: str) -> None:
    rows = [row for row in (DOCS / "settings.md").read_text(encoding="utf-8").splitlines() if f"| `{name}` |" in row]
    assert len(rows) == 1
    assert all(cell.strip() for cell in rows[0].strip("|").split("|"))


@pytest.mark.parametrize(("name", "value"), [("LOOM_WEBHOOK_SECRET", "plain"), ("LOOM_MODEL", "scripted-demo+xx")])
def test_what_no_process_would_start_with_is_a_failed_check(tmp_path: Path, name: str, value: str) -> None:
    code, report = doctor(tmp_path, **{name: value})
    assert code == 1
    assert failed(report)["settings"]["found"].startswith(name)


def test_a_wrong_setting_is_a_failed_check_that_names_it(tmp_path: Path) -> None:
    code, report = doctor(tmp_path, LOOM_PORT="many")
    assert code == 1
    assert "LOOM_PORT='many'" in failed(report)["settings"]["found"]


def test_a_redis_that_does_not_answer_fails_with_the_way_out(tmp_path: Path) -> None:
    code, report = doctor(tmp_path, LOOM_REDIS_URL="redis://127.0.0.1:9/0")
    assert code == 1
    assert "LOOM_REDIS_URL" in failed(report)["redis"]["fix"]


PINGS = Say(calls=[WireCall("toolu_1", "ping")])
REFUSED = failure(401, "authentication_error")


@pytest.mark.cases(
    "plays, is_ok, calls_tools",
    [((Say("P"), PINGS), True, True), ((Say("P"), Say("pong")), True, False), ((REFUSED,), False, False)],
)
def test_the_model_is_asked_for_a_token_and_a_tool_call(plays: Any, is_ok: bool, calls_tools: bool) -> None:
    with MessagesServer() as server:
        server.then(*plays)
        found = checks.model(from_env({"ANTHROPIC_BASE_URL": server.url, "LOOM_PROVIDER": "anthropic"}))
    assert (found.is_ok, not found.warning) == (is_ok, calls_tools or not is_ok)
    assert server.url in found.found
    assert [body["max_tokens"] for body in server.requests] == [1, 256][: len(plays)]


@pytest.mark.cases(
    ("plays", "exit_code", "word"), [((Say("P"), Say("P")), 0, "ok"), ((Say("P"), REFUSED), 1, "refused")]
)
def test_each_model_that_is_named_is_asked_for_a_token(tmp_path: Path, plays: Any, exit_code: int, word: str) -> None:
    (tmp_path / "a.yaml").write_text("agent: {name: a, llm: {model: anthropic/claude-haiku-5-5}}", encoding="utf-8")
    with MessagesServer() as server:
        server.then(*plays)
        env = {"LOOM_HOME": str(tmp_path), "ANTHROPIC_BASE_URL": server.url, "LOOM_AGENTS_DIR": str(tmp_path)}
        result = CliRunner().invoke(main, ["models", "--check"], env=env)
    assert result.exit_code == exit_code, result.output
    lines = [line.split()[:2] for line in result.stdout.splitlines()]
    assert lines == [["ok", "anthropic/claude-sonnet-5-5"], [word, "anthropic/claude-haiku-5-5" + ":" * exit_code]]
    assert [body["max_tokens"] for body in server.requests] == [1, 1]


def test_a_backend_that_cannot_be_opened_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("sqlite:///file:x?.db?mode=rwc&uri=true", "nonsense", "oracle+none://h/x"):
        found = backend(from_env({"LOOM_BACKEND_URL": url}))
        assert not found.is_ok
        assert (f" {tmp_path}/x?.db: no such file" in found.found) == url.startswith("sqlite")
    assert not [*tmp_path.iterdir()]


def test_a_database_of_somebody_else_fails(tmp_path: Path) -> None:
    (tmp_path / "loom.db").write_bytes(b"not a database" * 100)
    check = database(from_env({"LOOM_HOME": str(tmp_path)}))
    assert not check.is_ok
    assert "loom.db" in check.found


def test_a_prepared_database_has_this_codes_schema(tmp_path: Path) -> None:
    env = {"LOOM_HOME": str(tmp_path), "LOOM_BACKEND_URL": "sqlite:////elsewhere.db"}
    assert CliRunner().invoke(main, ["prepare"], env=env).exit_code == 0
    assert "schema" in database(from_env({"LOOM_HOME": str(tmp_path)})).found


def prepared(tmp_path: Path) -> Path:
    """The file of a database that is made and sound."""
    prepare(from_env({"LOOM_HOME": str(tmp_path)}))
    return tmp_path / "loom.db"


def test_a_sound_database_is_looked_through_and_left_as_it_is(tmp_path: Path) -> None:
    before = prepared(tmp_path).read_bytes()
    for is_full, told in ((False, "but for its indexes"), (True, "all of it")):
        (check,) = contents(from_env({"LOOM_HOME": str(tmp_path)}), is_full=is_full)
        assert check.is_ok
        assert told in check.found
    assert prepared(tmp_path).read_bytes() == before


def test_damage_inside_the_database_fails_and_says_to_restore_a_backup(tmp_path: Path) -> None:
    spoil(prepared(tmp_path), "turns")
    code, report = doctor(tmp_path)
    assert code == 1
    check = failed(report)["database contents"]
    assert check["found"] != "sound"
    assert "restore a backup" in check["fix"]
    page, _, section = check["fix"].partition("(")[2].partition(")")[0].partition(", ")
    assert f"## {section}\n" in (DOCS.parent / page).read_text(encoding="utf-8")


def test_a_database_that_cannot_be_opened_is_not_looked_into(tmp_path: Path) -> None:
    prepared(tmp_path).write_bytes(b"something else" * 100)
    _, report = doctor(tmp_path)
    assert "database" in failed(report)
    assert "database contents" not in {check["name"] for check in report["checks"]}


def test_a_home_below_a_file_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not data_directory(replace(from_env({}), home=tmp_path / "file" / "home")).is_ok
    assert data_directory(replace(from_env({}), home=tmp_path / "new" / "home")).is_ok


CONTRADICTION = "min_l1_messages: 6, max_l1_messages: 2"


def test_an_agents_file_that_is_no_yaml_or_contradicts_itself_fails_by_name(tmp_path: Path) -> None:
    good = "apiVersion: loom/v1\nkind: Agent\nmetadata: {name: NAME}\nspec: {memory: {memory_compression: {WHAT}}}\n"
    (tmp_path / "good.yaml").write_text(good.replace("NAME", "good").replace("WHAT", "max_l1_messages: 6"))
    (tmp_path / "odd.yaml").write_text(good.replace("NAME", "odd").replace("WHAT", CONTRADICTION))
    (tmp_path / "bad.yaml").write_text("metadata: {name: [\n")
    code, report = doctor(tmp_path, LOOM_AGENTS_DIR=str(tmp_path))
    assert code == 1
    agents = [check for check in report["checks"] if check["name"] == "agents"]
    assert ["good in" in check["found"] for check in agents if check["is_ok"]] == [True]
    wrong = " ".join(check["found"] for check in agents if not check["is_ok"])
    assert "bad.yaml" in wrong
    assert "min_l1_messages" in wrong


def test_the_file_and_the_day_of_prices_are_shown(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("as_of: 2026-11-20\nunit: USD per million tokens\nmodels: {m: {input: 1, output: 2}}")
    found = {each["name"]: each["found"] for each in doctor(tmp_path, LOOM_PRICES=str(file))[1]["checks"]}
    assert found["prices"].startswith(f"{file}, of 2026-11-20; ")


def test_an_own_redis_needs_no_embedded_server(tmp_path: Path) -> None:
    assert "not needed" in server_binary(from_env({"LOOM_REDIS_URL": "redis://127.0.0.1:9/0"})).found
    assert redis(from_env({"LOOM_HOME": str(tmp_path)})).is_ok


def test_a_line_says_what_to_do_only_where_there_is_something_to_do() -> None:
    assert line(InstallationCheck("x", True, "1.0", "fix it")).startswith("ok ")
    assert "fix it" not in line(InstallationCheck("x", True, "1.0", "fix it"))
    assert "→ fix it" in line(InstallationCheck("x", False, "none", "fix it"))
    assert line(InstallationCheck("x", True, "0.9", "fix it", "old")).endswith("→ old")


def test_what_cannot_work_fails_with_file_line_and_advice_and_a_warning_does_not(tmp_path: Path) -> None:
    file, head = tmp_path / "a.yaml", "agent:\n  name: a\n"
    file.write_text(f"{head}  colour: red\n", encoding="utf-8")
    env = {"LOOM_AGENTS_DIR": str(tmp_path), "LOOM_HOME": str(tmp_path / "home")}
    code, report = doctor(tmp_path, **env)
    assert (code, report["ok"]) == (0, True)
    assert [(each["line"], each["is_warning"]) for each in report["problems"]] == [(3, True)]
    file.write_text(f"{head}  colour: red\n  tools:\n  - exec_sql\n", encoding="utf-8")
    code, report = doctor(tmp_path, **env)
    assert (code, report["ok"]) == (1, False)
    assert report["problems"][0] == {
        "text": "there is no tool 'exec_sql'",
        "fix": "did you mean execute_sql?",
        "file": str(file),
        "line": 5,
        "agent": "a",
        "field": "agent.tools[0]",
        "is_warning": False,
    }
    check = failed(report)["agents"]
    assert check["found"] == f"{file}:5: agent a: agent.tools[0]: there is no tool 'exec_sql'"
    assert check["fix"] == "did you mean execute_sql?"


def test_the_problems_alone_are_lines_or_the_same_values(tmp_path: Path) -> None:
    env = {"LOOM_HOME": str(tmp_path), "LOOM_MODLE": "claude", "LOOM_FOO_BAR": "x"}
    told = CliRunner().invoke(main, ["doctor", "--problems"], env=env)
    assert told.exit_code == 1
    assert [each[:19] for each in told.stdout.splitlines()] == ["problem  LOOM_MODLE", "warning  LOOM_FOO_B"]
    report = json.loads(CliRunner().invoke(main, ["doctor", "--problems", "--json"], env=env).stdout)
    assert [Problem.from_json(each).field for each in report["problems"]] == ["LOOM_MODLE", "LOOM_FOO_BAR"]
    assert (report["ok"], report["checks"]) == (False, [])


def test_what_a_users_file_prints_while_it_is_imported_is_no_part_of_the_report(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("print('hello')\nraise SystemExit(3)\n", encoding="utf-8")
    (tmp_path / "a.yaml").write_text("agent: {name: a, tools: [mine.py]}", encoding="utf-8")
    code, report = doctor(tmp_path, LOOM_AGENTS_DIR=str(tmp_path))
    assert code == 1
    assert "mine.py:2: SystemExit" in failed(report)["agents"]["found"]


def test_a_broken_default_backend_is_told_once(tmp_path: Path) -> None:
    _, report = doctor(tmp_path, LOOM_BACKEND_URL="sqlite:////no/such/folder/x.db")
    assert list(failed(report)) == ["backend"]


def test_problems_come_first_and_settings_only_if_asked_for(tmp_path: Path) -> None:
    env = {"LOOM_HOME": str(tmp_path), "LOOM_MODLE": "x", "LOOM_FOO_BAR": "x"}
    told = CliRunner().invoke(main, ["doctor"], env=env).stdout
    levels = [each.split()[0] for each in told.partition("\n\n")[2].partition("\n\n")[0].splitlines()]
    levels = [level for level in levels if level != "→"]
    assert list(dict.fromkeys(levels)) == ["problem", "warning", "ok"]
    assert told.startswith(f"problems: 1, warnings: {levels.count('warning')}, ok: {levels.count('ok')}\n")
    assert "LOOM_LEASE_S" not in told
    assert "LOOM_LEASE_S" in CliRunner().invoke(main, ["doctor", "--settings"], env=env).stdout
