import json
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from loom_worker.cli.keys import moment_ms, seconds
from loom_worker.cli.main import main
from loom_worker.core.settings import Settings
from loom_worker.core.values.ids import now_ms
from loom_worker.service.keys import Keys
from loom_worker.store.api_keys import KeyRows
from loom_worker.store.database import Database
from tests.support.fake_loom import FakeLoom
from tests.support.http_server import serving

Run = Callable[..., Result]


@pytest.fixture
def run(settings: Settings) -> Run:
    def keys(*arguments: str, **env: str) -> Result:
        return CliRunner().invoke(main, ["keys", *arguments], env={"LOOM_HOME": str(settings.home), **env})

    return keys


@pytest.fixture
def found(database: Database) -> Keys:
    return Keys(KeyRows(database))


def made(run: Run, *arguments: str, **env: str) -> dict[str, object]:
    done = run("create", *arguments, "--json", **env)
    assert done.exit_code == 0, done.output
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def test_a_key_made_here_is_known_to_the_web(run: Run, found: Keys) -> None:
    key = made(run, "CI", "--scope", "read", "--scope", "admin", "--workspace", "acme", "--user", "maria")
    stored = found.find(str(key["secret"]))
    assert stored is not None
    assert (stored.id, stored.workspace, stored.user) == (key["id"], "acme", "maria")
    assert stored.scopes == ("read", "admin")


def test_the_secret_is_printed_once_and_said_to_be(run: Run) -> None:
    done = run("create", "CI")
    assert done.exit_code == 0
    [secret] = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("secret ")]
    assert secret.startswith("loom_")
    assert "The secret is not shown again." in done.stderr
    assert secret not in run("list").output + run("list", "--json").output


def test_the_first_key_and_the_last_one_are_told_what_they_change(run: Run) -> None:
    first = run("create", "first")
    assert "serves nobody without a key" in first.stderr
    second = json.loads(run("create", "second", "--json").stdout)
    assert "serves nobody" not in run("create", "third").stderr
    listed = json.loads(run("list", "--json").stdout)["data"]
    for key in listed:
        told = run("revoke", key["id"]).stderr
        assert ("No key is left" in told) == (key is listed[-1])
    assert second["id"] in {key["id"] for key in listed}


def test_where_the_environment_has_keys_nothing_changes_for_this_machine(run: Run) -> None:
    env = {"LOOM_API_KEYS": "team=k"}
    assert "serves nobody" not in run("create", "first", **env).stderr
    [key] = json.loads(run("--json").stdout)["data"]
    assert "No key is left" not in run("revoke", key["id"], **env).stderr


def test_a_key_is_listed_until_and_after_it_is_revoked(run: Run) -> None:
    key = made(run, "CI")
    assert run("revoke", str(key["id"])).stdout == f"{key['id']}: revoked\n"
    [listed] = json.loads(run("list", "--json").stdout)["data"]
    assert listed["revoked_at"]
    assert "CI" in run("list").stdout
    assert json.loads(run("list", "--workspace", "other", "--json").stdout)["data"] == []


def test_a_rotated_key_gives_way_after_the_grace(run: Run, found: Keys) -> None:
    old = made(run, "CI")
    rotated = run("rotate", str(old["id"]), "--grace", "1h", "--json")
    new = json.loads(rotated.stdout)
    assert new["rotated_from"] == old["id"]
    assert "not shown again" in rotated.stderr
    kept = found.find(str(old["secret"]))
    assert kept is not None
    assert kept.expires_ms is not None
    assert kept.end(now_ms()) is None
    assert run("rotate", new["id"]).exit_code == 0
    ended = found.find(new["secret"])
    assert ended is not None
    assert ended.end(now_ms()) == "revoked"


@pytest.mark.cases(
    ("arguments", "code", "told"),
    [
        (["create", " "], 2, "not blanks alone"),
        (["create", "x" * 129], 2, "1 to 128 characters"),
        (["create", "x", "--user", " "], 2, "--user must have"),
        (["create", "x", "--scope", "root"], 2, "'root' is not one of"),
        (["create", "x", "--expires", "soon"], 2, "no span of time"),
        (["create", "x", "--expires", "0s"], 1, "expired already"),
        (["create", "x", "--workspace", "a/b"], 1, "a workspace has"),
        (["revoke", "key_1"], 1, "There is no key 'key_1'"),
        (["rotate", "key_1"], 1, "There is no key 'key_1'"),
        (["rotate", "key_1", "--grace", "1"], 2, "no span of time"),
        (["--json", "list"], 2, "put --json behind `list`"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(run: Run, arguments: list[str], code: int, told: str) -> None:
    done = run(*arguments)
    assert done.exit_code == code
    assert told in done.stderr


def test_a_key_of_another_workspace_is_not_found(run: Run) -> None:
    key = made(run, "CI", "--workspace", "acme")
    assert run("revoke", str(key["id"])).exit_code == 1
    assert run("revoke", str(key["id"]), "--workspace", "acme").exit_code == 0


def test_without_a_database_it_says_what_to_do(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["keys", "create", "x"], env={"LOOM_HOME": str(tmp_path / "none")})
    assert done.exit_code == 2
    assert "run `loom prepare` first" in done.stderr


@pytest.mark.parametrize(
    ("text", "span_s"), [("0", 0), ("90s", 90), ("15m", 900), ("12h", 43_200), ("30d", 2_592_000), ("2w", 1_209_600)]
)
def test_a_span_is_read_in_its_unit(text: str, span_s: int) -> None:
    assert seconds(text) == span_s


@pytest.mark.cases("text", ["", "1", "d", "-1d", "1.5h", "1y", "1 d", "٣d", "9999999d"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        seconds(text)


def test_a_time_is_a_moment_or_a_span_from_now() -> None:
    assert moment_ms("2027-01-31T12:00:00Z") == 1_801_396_800_000
    before_ms = now_ms()
    assert before_ms + 86_400_000 <= moment_ms("1d") <= now_ms() + 86_400_000


def test_the_commands_send_the_key_of_their_own_before_those_of_the_server(settings: Settings) -> None:
    fake = FakeLoom(pages={"/v1/agents": {"object": "list", "data": []}})
    with serving(fake) as url:
        env = {"LOOM_HOME": str(settings.home), "LOOM_URL": url, "LOOM_KEY": "loom_mine", "LOOM_API_KEYS": "team=k"}
        assert CliRunner().invoke(main, ["agents"], env=env).exit_code == 0
    assert [key for _, _, key, _ in fake.asked] == ["Bearer loom_mine"]
