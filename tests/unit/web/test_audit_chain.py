"""What the API lists is enough to verify the chain, with nothing but the code that docs/audit.md shows."""

import re
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from loom_worker.core.values.api_keys import ALL_SCOPES, KeyHolder
from loom_worker.core.values.audit import START, AuditEntry
from tests.support.belongings import belongings
from tests.support.web_stage import WebStage
from web.strict_json import parse_object

PAGE = Path(__file__).parents[3] / "docs" / "audit.md"
NAMES: dict[str, Any] = {}
exec(re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0], NAMES)
"""As an outsider runs it: none of Loom's code is asked."""
TURN = AuditEntry(
    workspace="alpha", at_ms=1_795_253_400_999, action="turn.ended", key_id="env_0a1b2c3d", user="Zoë \U0001f980 \"q\"",
    channel="sms", agent="shop", model="m1 + m2", session_id="s.1", turn_id="turn_9", subject="x", status="incomplete",
    reason="budget", tools=({"name": "look", "calls": 2, "outcomes": {"failed": 1, "completed": 1}},),
    decisions=({"kind": "guard", "name": "input.card", "outcome": "redact"}, {"kind": "count", "outcome": 3}),
    tokens=1_234, cost_nano=1_000_000_007, duration_ms=0,
)  # fmt: skip

Rows = list[dict[str, Any]]


@pytest.fixture
def rows(client: FlaskClient, stage: WebStage) -> Rows:
    """All rows of a workspace in which much happened, as pages of two list them."""
    owner = belongings(stage, KeyHolder("alpha", ALL_SCOPES), "ours7f3")
    headers = {"Authorization": f"Bearer {owner.secret}"}
    for cost in (TURN.cost_nano, 1, 123_456_789_012_345, 0, None):
        stage.service.audit.add(AuditEntry(**{**_values(TURN), "cost_nano": cost}))
    stage.service.audit.add(AuditEntry(**{**_values(TURN), "workspace": "beta"}))
    client.patch("/v1/workspaces/alpha", json={"budget": {"tokens": 9}}, headers=headers)
    client.delete(f"/v1/users/{owner.ids['user']}", headers=headers)
    found: Rows = []
    after = ""
    while True:
        answer = parse_object(client.get(f"/v1/audit?limit=2{after}", headers=headers).data)
        found += answer["data"]
        if not answer["has_more"]:
            return found
        after = f"&after={answer['next']}"


def _values(entry: AuditEntry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in AuditEntry.__slots__}


def wrong(rows: Rows) -> int | None:
    found: int | None = NAMES["wrong"](rows)
    return found


def test_the_rows_that_are_listed_verify(rows: Rows) -> None:
    assert wrong(rows) is None
    assert rows[-1]["prev_hash"] == START
    kinds = {row["kind"] for row in rows}
    assert {"turn.ended", "key.created", "pairing.created", "workspace.changed", "user.deleted"} <= kinds


def test_rows_have_ids_that_are_unique_and_sort_as_they_were_written(rows: Rows) -> None:
    ids = [row["id"] for row in rows]
    assert ids == sorted(set(ids), reverse=True)
    assert [f"aud_{row['seq']:012}{row['hash'][:14]}" for row in rows] == ids


def test_a_row_has_every_member_that_clients_rely_on(rows: Rows) -> None:
    names = "id at kind actor session_id turn_id agent model tools decisions usage duration_ms prev_hash hash".split()
    assert [row["seq"] for row in rows if not row.keys() >= set(names)] == []
    assert [row["seq"] for row in rows if not isinstance(row["actor"], str)] == []


def test_a_turn_tells_its_usage_and_other_rows_have_none(rows: Rows) -> None:
    told = {row["usage"]["cost_usd"] for row in rows if row["agent"] == "shop"}
    assert told == {1.000000007, 1e-09, 123_456.789012345, 0, None}
    assert {row["usage"] is None for row in rows if row["kind"] == "turn.ended"} == {False}
    assert {row["usage"] for row in rows if row["kind"] != "turn.ended"} == {None}


OTHER = {"seq": 99, "at": "2026-11-21T09:30:00.123Z", "tools": [], "duration_ms": 1}
DERIVED = ("id", "object", "usage")


def test_any_member_that_is_changed_is_found(rows: Rows) -> None:
    at = next(at for at, row in enumerate(rows) if row["user"] == TURN.user)
    for name in rows[at].keys() - set(DERIVED):
        told = [*rows[:at], {**rows[at], name: OTHER.get(name, "0" * 64)}, *rows[at + 1 :]]
        assert wrong(told) is not None, name
    for usage in (None, {"tokens": 1_234, "cost_usd": 5}, {"tokens": 1, "cost_usd": rows[at]["usage"]["cost_usd"]}):
        assert wrong([*rows[:at], {**rows[at], "usage": usage}, *rows[at + 1 :]]) == rows[at]["seq"]


def test_a_row_that_is_missing_is_found(rows: Rows) -> None:
    for at in range(1, len(rows) - 1):
        assert wrong(rows[:at] + rows[at + 1 :]) == rows[at - 1]["seq"]
