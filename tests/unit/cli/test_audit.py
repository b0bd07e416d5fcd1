"""The list comes from the API; rows are verified, and heads printed, from the database alone."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from loom_worker.cli import checks
from loom_worker.cli.main import main
from loom_worker.core.settings import Settings
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.core.values.audit import AuditEntry
from loom_worker.store.audit import append
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.engines.sqlite_backup import back_up
from loom_worker.store.folding import Folding
from tests.support.fake_loom import FakeLoom
from tests.support.http_server import serving

Run = Callable[..., Result]


@pytest.fixture
def run(settings: Settings) -> Run:
    def audit(*arguments: str, **env: str) -> Result:
        return CliRunner().invoke(main, ["audit", *arguments], env={"LOOM_HOME": str(settings.home), **env})

    return audit


@pytest.fixture
def rows(database: Database) -> Database:
    with database.write(lock=WHOLE) as tx:
        for workspace in ("acme", "acme", "other"):
            append(tx, AuditEntry(workspace=workspace, at_ms=1, action="key.created", subject="key_1"))
    return database


def test_rows_that_are_not_chained_yet_are_chained_before_they_are_read(run: Run, rows: Database) -> None:
    assert [line.split()[:2] for line in run("head").stdout.splitlines()] == [["acme", "2"], ["other", "1"]]
    assert not Folding(rows).fold()


def changed(database: Database) -> None:
    """Somebody changes the second row of acme."""
    Folding(database).fold()
    with database.write(lock=WHOLE) as tx:
        tx.exec_driver_sql("DROP TRIGGER audit_is_not_changed")
        tx.exec_driver_sql("UPDATE audit SET user = 'x' WHERE workspace = 'acme' AND seq = 2")


def found(settings: Settings) -> Any:
    [check] = checks.audit(settings)
    return check


@pytest.mark.usefixtures("rows")
def test_rows_that_nobody_changed_are_sound(run: Run, settings: Settings) -> None:
    done = run("verify")
    assert done.exit_code == 0
    assert "ok       workspace acme: sound up to row 2" in done.stdout
    assert json.loads(run("verify", "--json").stdout) == {"ok": True, "broken": []}
    assert found(settings).is_ok
    assert "3 rows hold" in found(settings).found


def test_the_first_row_that_was_changed_is_named(run: Run, settings: Settings, rows: Database) -> None:
    changed(rows)
    done = run("verify")
    assert done.exit_code == 1
    assert "problem  workspace acme, row 2" in done.stdout
    assert "ok       workspace other" in done.stdout
    assert json.loads(run("verify", "--json").stdout)["broken"][0]["seq"] == 2
    assert not found(settings).is_ok
    assert "workspace acme, row 2" in found(settings).found


@pytest.mark.usefixtures("rows")
def test_the_heads_can_be_kept_elsewhere(run: Run) -> None:
    heads = json.loads(run("head", "--json").stdout)["data"]
    assert [(head["workspace"], head["seq"]) for head in heads] == [("acme", 2), ("other", 1)]
    assert run("head").stdout.splitlines()[0] == f"acme 2 {heads[0]['hash']}"


def test_nothing_is_said_of_a_database_that_is_not_made_yet(tmp_path: Path) -> None:
    from loom_worker.core.settings import from_env

    assert list(checks.audit(from_env({"LOOM_HOME": str(tmp_path)}))) == []


@pytest.mark.usefixtures("rows")
def test_a_backup_holds_the_audit_and_its_chain_verifies(settings: Settings, tmp_path: Path) -> None:
    copy = tmp_path / "copy" / "loom.db"
    copy.parent.mkdir()
    back_up(settings.home / "loom.db", copy, may_replace=False)
    restored = Database(f"sqlite:///{copy}")
    try:
        from loom_worker.store.audit import AuditRows

        assert AuditRows(restored).verify() == ()
        assert len(AuditRows(restored).heads()) == 2
    finally:
        restored.close()
    with sqlite3.connect(copy) as raw, pytest.raises(sqlite3.DatabaseError, match="never changed"):
        raw.execute("UPDATE audit SET user = 'x'")


def test_the_list_is_asked_for_with_its_filters(run: Run) -> None:
    loom = FakeLoom(pages={"/v1/audit": {"object": "list", "data": [{"seq": 7, "kind": "key.created"}]}})
    with serving(loom) as url:
        done = run("--kind", "key.created", "--user", "maria", "--agent", "shop", "--url", url)
    assert done.exit_code == 0, done.output
    assert "key.created" in done.stdout
    [(method, path, _, _)] = loom.asked
    assert (method, path) == ("GET", "/v1/audit?kind=key.created&user=maria&agent=shop&limit=50")


def test_options_of_the_list_are_refused_before_a_command(run: Run) -> None:
    assert run("--user", "maria", "verify").exit_code == 2
