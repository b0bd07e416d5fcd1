"""Runs are removed with age, and with their user."""

import pytest

from loom_worker.core.errors import NotFound
from loom_worker.core.settings import LimitSettings
from loom_worker.core.values.runs import NewRun
from loom_worker.core.values.tenants import Actor, Tenant, WorkspaceUser
from loom_worker.store.database import Database
from loom_worker.store.retention import DAY_MS, OldRuns
from loom_worker.store.runs import Runs
from loom_worker.store.sessions import Sessions
from loom_worker.store.users import Users
from loom_worker.store.workspaces import Workspaces
from tests.support.runs import pipeline, run_journal, workflow

NOW = 1_800_000_000_000
MARIA = WorkspaceUser("default", "maria")


def ended_run(database: Database, tenant: Tenant, *, ended_ms: int = NOW) -> str:
    """A run that was accepted and cancelled at once."""
    journal = run_journal(database, LimitSettings())
    run = journal.accept(tenant, workflow(pipeline("One")), NewRun(), now_ms=ended_ms)[0].run
    journal.cancel(tenant, run.id, now_ms=ended_ms)
    return run.id


def exists(database: Database, run_id: str, tenant: Tenant = "default") -> bool:
    try:
        Runs(database).get(tenant, run_id)
    except NotFound:
        return False
    return True


def remove_all(database: Database, days: int) -> None:
    expiry, after = OldRuns(database, days), ""
    while after := expiry.remove_some(after, NOW):
        pass


@pytest.mark.parametrize(("days", "rule", "stays"), [(0, None, True), (3, None, False), (0, 3, False), (9, 3, False)])
def test_an_old_run_is_kept_as_long_as_conversations_are(
    database: Database, days: int, rule: int | None, stays: bool
) -> None:
    old = ended_run(database, "default", ended_ms=NOW - 4 * DAY_MS)
    young = ended_run(database, "default", ended_ms=NOW - 2 * DAY_MS)
    if rule is not None:
        Workspaces(database).patch("default", {"retention": {"days": rule}}, now_ms=NOW)
    remove_all(database, days)
    assert (exists(database, old), exists(database, young)) == (stays, True)


def test_a_run_that_goes_on_is_kept_whatever_its_age(database: Database) -> None:
    journal = run_journal(database, LimitSettings())
    run = journal.accept("default", workflow(pipeline("One")), NewRun(), now_ms=0)[0].run
    remove_all(database, 1)
    assert exists(database, run.id)


def test_the_runs_of_a_deleted_user_go_with_the_user(database: Database) -> None:
    run_ids = [ended_run(database, MARIA) for _ in range(30)]
    others = ended_run(database, "default")
    users = Users(database)
    users.begin(MARIA, Actor("key_1"), now_ms=NOW)
    while users.delete_some(MARIA, now_ms=NOW):
        pass
    users.finish(MARIA, now_ms=NOW)
    assert not any(exists(database, run_id) for run_id in run_ids)
    assert exists(database, others)


def test_a_run_whose_sessions_are_gone_still_goes_with_its_user(database: Database) -> None:
    run_id = ended_run(database, MARIA)
    for stage in Runs(database).get(MARIA, run_id).stages:
        Sessions(database).delete(MARIA, str(stage.session_id))
    users = Users(database)
    users.begin(MARIA, Actor("key_1"), now_ms=NOW)
    users.finish(MARIA, now_ms=NOW)
    assert not exists(database, run_id)
