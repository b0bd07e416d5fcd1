import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loom_worker.core.values.budgets import usd
from loom_worker.core.values.calls import Call
from loom_worker.core.values.chat import Usage
from loom_worker.core.values.turns import Turn
from loom_worker.webhook.body import LIMIT_BYTES, completed

URL = "https://loom.example/v1/turns/turn_01"
NOW_MS = 1_795_000_000_123

ANY_CHARACTER = st.characters(categories=None)
"""Lone surrogates included."""
TEXTS = st.text(ANY_CHARACTER, max_size=50) | st.builds(
    lambda text, times: text * times, st.text(ANY_CHARACTER, min_size=1, max_size=5), st.sampled_from([10, 500, 5000])
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
OBJECTS = st.dictionaries(
    TEXTS,
    st.recursive(
        SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=5
    ),
    max_size=5,
)
CALLS = st.builds(
    Call,
    id=st.text(max_size=30),
    name=TEXTS,
    arguments=OBJECTS,
    position=st.just(0),
    reply_n=st.just(0),
    status=st.sampled_from(["completed", "failed", "timeout", "cancelled"]),
    content=st.none() | TEXTS,
)
SCORES = st.none() | st.floats(0, 1)
VERDICTS = st.fixed_dictionaries({"name": TEXTS, "score": SCORES, "critique": TEXTS, "error": TEXTS})
MANY = st.lists(VERDICTS, max_size=3).flatmap(lambda each: st.sampled_from([1, 7]).map(lambda n: each * n))
JUDGES = st.fixed_dictionaries(
    {
        "score": SCORES,
        "passed": st.none() | st.booleans(),
        "attempts": st.integers(1, 10),
        "verdicts": MANY,
    }
)
TURNS = st.builds(
    Turn,
    id=st.just("turn_01"),
    lane=st.just("secret-lane"),
    session_id=TEXTS,
    workspace=st.just("main"),
    agent=TEXTS,
    seq=st.integers(1, 10**6),
    status=st.sampled_from(["completed", "failed", "cancelled", "incomplete"]),
    input=TEXTS,
    created_ms=st.just(NOW_MS - 5000),
    reason=st.none() | TEXTS,
    output_text=st.none() | TEXTS,
    error=st.none() | OBJECTS,
    judge=st.none() | JUDGES,
    patterns=st.lists(OBJECTS, max_size=3).map(tuple),
    metadata=OBJECTS,
    model=st.none() | TEXTS,
    user=st.none() | TEXTS,
    budget=st.none() | OBJECTS,
    trace_id=st.none() | TEXTS,
    retry_of=st.none() | TEXTS,
    calls=st.lists(CALLS, max_size=3).flatmap(lambda calls: st.sampled_from([1, 12]).map(lambda n: tuple(calls * n))),
)


def a_turn(**changes: Any) -> Turn:
    values: dict[str, Any] = {
        "id": "turn_01",
        "lane": "secret-lane",
        "session_id": "s1",
        "workspace": "main",
        "agent": "default",
        "seq": 1,
        "status": "completed",
        "input": "What sold best?",
        "output_text": "Tea.",
        "created_ms": NOW_MS - 5000,
        "started_ms": NOW_MS - 4000,
        "completed_ms": NOW_MS,
        "usage": Usage(input_tokens=10, output_tokens=2, cost_usd=usd(0.001), llm_calls=1),
    }
    return Turn(**{**values, **changes})


def data_of(turn: Turn) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(completed(turn, now_ms=NOW_MS, url=URL))["data"]
    return data


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


@given(TURNS)
@example(a_turn(output_text="\ud83d" * 30_000, metadata={"\ud800": float("nan")}))
def test_whatever_a_turn_holds_the_body_is_short_and_valid_and_names_the_turn(turn: Turn) -> None:
    raw = completed(turn, now_ms=NOW_MS, url=URL).encode()
    assert len(raw) < LIMIT_BYTES
    body = json.loads(raw, parse_constant=no_constant)
    assert set(body) == {"type", "timestamp", "data"}
    assert body["type"] == f"turn.{turn.status}"
    data = body["data"]
    assert (data["id"], data["status"], data["seq"]) == ("turn_01", turn.status, turn.seq)
    assert set(turn.as_json()) <= set(data)
    assert isinstance(data["metadata"], dict)
    assert "secret-lane" not in raw.decode()
    json.dumps(body, ensure_ascii=False).encode()  # raises if a lone surrogate were escaped in it


def test_a_short_turn_is_told_whole() -> None:
    turn = a_turn(metadata={"order": "ü-77"}, patterns=({"id": "sql/top_n", "score": 0.7},))
    assert data_of(turn) == turn.as_json()


def test_the_time_is_rfc_3339() -> None:
    assert json.loads(completed(a_turn(), now_ms=NOW_MS, url=URL))["timestamp"] == "2026-11-18T11:06:40.123Z"


def test_a_long_answer_fills_the_body_and_says_where_the_rest_is() -> None:
    turn = a_turn(output_text="tea " * 10_000)
    data = data_of(turn)
    assert (data["truncated"], data["url"]) == (True, URL)
    assert data["output_text"].endswith("…")
    assert turn.output_text is not None
    assert turn.output_text.startswith(data["output_text"].removesuffix("…"))
    assert len(completed(turn, now_ms=NOW_MS, url=URL).encode()) > LIMIT_BYTES - 500


def test_the_answer_outlives_long_tool_results() -> None:
    calls = tuple(
        Call(f"toolu_{n}", "query", {"sql": "x" * 900}, position=n, reply_n=1, status="completed", content="r" * 2000)
        for n in range(20)
    )
    data = data_of(a_turn(output_text="a" * 9000, calls=calls))
    assert data["output_text"] == "a" * 9000
    assert data["truncated"] is True
    assert [call["id"] for call in data["tool_calls"]][:2] == ["toolu_0", "toolu_1"]
    assert all(len(call["content"]) <= 300 for call in data["tool_calls"])


def test_the_score_outlives_long_critiques() -> None:
    verdicts = [{"name": f"judge {n}", "score": 0.1, "critique": "c" * 1_000} for n in range(20)]
    judge = {"score": 0.1, "passed": False, "attempts": 3, "verdicts": verdicts}
    data = data_of(a_turn(output_text="a" * 9000, judge=judge))
    assert {**data["judge"], "verdicts": None} == {**judge, "verdicts": None}
    assert [verdict["name"] for verdict in data["judge"]["verdicts"]][:2] == ["judge 0", "judge 1"]
    assert data["output_text"] == "a" * 9000


def test_short_metadata_survives_a_long_neighbour_and_keeps_its_order() -> None:
    metadata = data_of(a_turn(metadata={"blob": "b" * 30_000, "rows": list(range(9000)), "order": "77"}))["metadata"]
    assert list(metadata) == ["blob", "order"]
    assert metadata["order"] == "77"
    assert metadata["blob"].endswith("…")


@pytest.mark.cases("character", ['"', "\\", "\x00", "é", "語", "🦉"])
def test_a_text_of_costly_characters_is_cut_between_them(character: str) -> None:
    told = data_of(a_turn(output_text=character * 30_000))["output_text"]
    assert set(told) == {character, "…"}


def test_numbers_json_does_not_have_become_null() -> None:
    data = data_of(a_turn(metadata={"nan": float("nan"), "inf": float("inf"), "n": 1.5}))
    assert data["metadata"] == {"nan": None, "inf": None, "n": 1.5}


def test_a_failed_turn_says_so_in_its_type() -> None:
    body = json.loads(completed(a_turn(status="failed", error={"type": "dead"}), now_ms=NOW_MS, url=URL))
    assert (body["type"], body["data"]["error"]) == ("turn.failed", {"type": "dead"})
