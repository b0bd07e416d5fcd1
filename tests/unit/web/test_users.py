"""Nothing that a user said or was told is left anywhere once the user is deleted; the ids are."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from flask.testing import FlaskClient
from sqlalchemy import select

from loom_worker.core.values.api_keys import ALL_SCOPES, KeyHolder, NewKey
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.sessions import SessionPatch
from loom_worker.core.values.tenants import Actor, WorkspaceUser
from loom_worker.core.values.turns import NewTurn
from loom_worker.service.users import GRACE_MS, UserDeletions
from loom_worker.store.folding import Folding
from loom_worker.store.schema import metadata
from loom_worker.store.sessions import Sessions
from loom_worker.store.users import Users
from tests.support.belongings import Belongings, belongings
from tests.support.web_stage import WebStage

CANARY = "canary7f3"
OTHER = "parrot9c1"
MARIA, JOHN = (KeyHolder("alpha", ALL_SCOPES, user) for user in ("maria", "john"))
WHO = WorkspaceUser("alpha", "maria")


def planted(stage: WebStage, holder: KeyHolder, text: str) -> Belongings:
    """Everything that somebody can own, with the text in it, and in places that the ids do not name."""
    owner = belongings(stage, holder, text)
    session = owner.ids["session_id"]
    stage.service.sessions.patch(
        holder.tenant, session, SessionPatch(kernel={"name": text}, metadata={"is": text}), now_ms=now_ms()
    )
    stage.service.submit(holder.tenant, session, NewTurn(f"{text} waits", metadata={"is": text}), agent=None)
    stage.worker.start(owner.ids["turn_id"])
    stage.worker.say(owner.ids["turn_id"], f"{text} is told")
    Folding(stage.database).fold()
    return owner


def admin(stage: WebStage) -> dict[str, str]:
    _, secret = stage.service.keys.create(KeyHolder("alpha", ALL_SCOPES), NewKey("admin", ("admin",)))
    return {"Authorization": f"Bearer {secret}"}


def swept(stage: WebStage) -> None:
    """What the sweep does, and the flush, until nothing is left to do."""
    Folding(stage.database).fold()
    sessions = Sessions(stage.database)
    stage.events.forget(dict.fromkeys(sessions.deleted_turns(limit=999), False))
    while sessions.purge():
        pass
    while stage.service.references.tidy(now_ms()) + stage.service.files.tidy(now_ms()):
        pass


def left(stage: WebStage, text: str) -> Iterator[str]:
    """Where the text is: tables, the search index, files of large results, keys of Redis."""
    with stage.database.read() as tx:
        for name, table in metadata.tables.items():
            if text in str(tx.execute(select(table)).all()):
                yield f"table {name}"
        names = "SELECT name FROM sqlite_schema WHERE type = 'table'"
        for name in set(tx.exec_driver_sql(names).scalars()) - set(metadata.tables):
            if text in str(tx.exec_driver_sql(f'SELECT * FROM "{name}"').all()):
                yield f"table {name}"
    folder: Path = stage.service.settings.home / "blobs"
    yield from (f"file {file}" for file in folder.rglob("*") if text in file.name or holds(file, text))
    for key in stage.redis.scan_iter():
        if text in key or text in str(stage.redis.dump(key)):
            yield f"redis {key}"


def holds(file: Path, text: str) -> bool:
    return file.is_file() and text.encode() in file.read_bytes()


KEPT = {"table usage", "table audit"}
"""They keep the ids, of which one here holds the text: the session's."""


def test_no_table_file_or_key_holds_what_the_user_said(client: FlaskClient, stage: WebStage) -> None:
    planted(stage, MARIA, CANARY)
    planted(stage, JOHN, OTHER)
    headers = admin(stage)
    tables = ("messages", "turns", "sessions", "api_keys", "workflow_runs", "run_stages", "run_events")
    assert {f"table {name}" for name in tables} <= set(left(stage, CANARY))
    others = set(left(stage, OTHER))
    answer = client.delete("/v1/users/maria", headers=headers)
    assert (answer.status_code, answer.get_json()) == (
        200,
        {"user": "maria", "object": "user.deleted", "sessions": 2, "turns": 4, "keys": 2},
    )
    swept(stage)
    assert set(left(stage, CANARY)) == KEPT
    assert set(left(stage, OTHER)) == others
    with stage.database.read() as tx:
        for name in ("usage", "audit"):
            rows = [dict(row) for row in tx.execute(select(metadata.tables[name])).mappings()]
            assert CANARY not in str([{**row, "session_id": "", "subject": ""} for row in rows])
    assert stage.service.audit.verify() == ()


def test_a_process_that_dies_half_way_leaves_the_rest_to_the_sweep(stage: WebStage) -> None:
    planted(stage, MARIA, CANARY)
    Users(stage.database).begin(WHO, Actor("key_admin"), now_ms=now_ms())
    Users(stage.database).delete_some(WHO, now_ms=now_ms())
    resumed = UserDeletions(stage.database, stage.lanes, stage.events)
    resumed.resume(now_ms())
    assert Users(stage.database).progress(WHO) is not None, "whoever was asked has a minute"
    resumed.resume(now_ms() + GRACE_MS + 1000)
    assert Users(stage.database).progress(WHO) is None
    swept(stage)
    assert set(left(stage, CANARY)) == KEPT


def test_the_user_s_keys_end_at_once(client: FlaskClient, stage: WebStage) -> None:
    owner = belongings(stage, MARIA, CANARY)
    headers = {"Authorization": f"Bearer {owner.secret}"}
    assert client.get("/v1/sessions", headers=headers).status_code == 200
    client.delete("/v1/users/maria", headers=admin(stage))
    assert client.get("/v1/sessions", headers=headers).status_code == 401


@pytest.mark.parametrize("user", ["nobody", "x" * 257, "a%00b", "maria/x"])
def test_a_user_of_whom_there_is_nothing_returns_404(client: FlaskClient, stage: WebStage, user: str) -> None:
    belongings(stage, MARIA, CANARY)
    assert client.delete(f"/v1/users/{user}", headers=admin(stage)).status_code == 404


def test_a_user_with_spaces_and_signs_is_deleted(client: FlaskClient, stage: WebStage) -> None:
    user = "Zoë\u3000& maria@example.com?#"
    belongings(stage, replace(MARIA, user=user), CANARY)
    answer = client.delete(f"/v1/users/{quote(user)}", headers=admin(stage))
    assert answer.get_json()["sessions"] == 2


@pytest.mark.parametrize("step", ["%2Ffacts", "%2ffacts", "%5Cfacts", "%252Ffacts", "/facts/", "%00", "%2F..%2Fmaria"])
def test_no_encoded_step_leads_to_another_operation(client: FlaskClient, stage: WebStage, step: str) -> None:
    belongings(stage, MARIA, CANARY)
    assert client.delete(f"/v1/users/maria{step}", headers=admin(stage)).status_code == 404
    assert client.get("/v1/users%2Fmaria/facts", headers=admin(stage)).status_code == 404
    assert client.get("/v1/users/maria/facts", headers=admin(stage)).get_json()["data"]


@pytest.mark.cases("user", ["a/b", "a\\b", "a%2Fb", "..", ".", "", " ", "a\n", "\x7f", "a\u200b", "x" * 257])
def test_nothing_is_made_for_a_user_whose_id_could_be_a_path(client: FlaskClient, stage: WebStage, user: str) -> None:
    bodies: dict[str, Any] = {"sessions": {}, "sessions/s1/turns": {"input": "hello"}, "keys": {"name": "k"}}
    bodies |= {"pairings": {"channel": "mail", "identity": "m"}, "workflows/two/runs": {"input": "hello"}}
    for path, body in bodies.items():
        answer = client.post(f"/v1/{path}", json={**body, "user": user}, headers=admin(stage))
        assert [flaw["pointer"] for flaw in answer.get_json()["errors"]] == ["/user"], path


def test_a_user_deletes_no_user(client: FlaskClient, stage: WebStage) -> None:
    owner = belongings(stage, MARIA, CANARY)
    headers = {"Authorization": f"Bearer {owner.secret}"}
    assert client.delete("/v1/users/maria", headers=headers).status_code == 404


def test_the_audit_says_who_deleted_whom(client: FlaskClient, stage: WebStage) -> None:
    belongings(stage, MARIA, CANARY)
    headers = admin(stage)
    client.delete("/v1/users/maria", headers=headers)
    [row] = client.get("/v1/audit?kind=user.deleted", headers=headers).get_json()["data"]
    [asked] = [key for key in client.get("/v1/keys", headers=headers).get_json()["data"] if key["name"] == "admin"]
    assert (row["actor"], row["subject"]) == (asked["id"], "maria")
