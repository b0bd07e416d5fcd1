"""What the checks find in small histories: a row for each kind of broken promise, and what is quiet without it.

A history is a database with two good turns of one session, what the witnesses saw of it, and one change. A check that
has died is noticed here at once; that a whole system's broken promise is seen is what the planted bugs are for.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import JSON, Integer

from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.store.schema import metadata
from tests.chaos.checker import CHECKS
from tests.chaos.facts import read_facts
from tests.chaos.panels import TOOL
from tests.chaos.records import Decided, Effect, Evidence, Hook, Injection, ModelCall, Polled, Read, Submitted
from tests.chaos.run_plan import RunJob
from tests.chaos.run_records import RunCancelled, RunPolled, RunRead, RunStarted, RunWitness
from tests.chaos.summaries import BEGINS

pytestmark = pytest.mark.heavy
Change = Mapping[str, Any] | str
MS, S = 1_800_000_000_000, 1_800_000_000.0
TRACE = {"stored": [MS * 1000] * 2, "runs": [[1, "w1", MS * 1000, MS * 1000, "completed"]]}


def turn(number: int, **more: Any) -> dict[str, Any]:
    """The row of a turn that completed, T00001 as ``t1``."""
    text = {"input": f"T0000{number} plain", "output_text": f"T0000{number}.1 says."}
    place = {"lane": "lane", "session_id": "s1", "seq": number, "agent": "front-desk"}
    times = {"created_ms": MS, "claimed_us": MS * 1000, "trace": TRACE, "fence": 1, "model": "claude-test"}
    return {"table": "turns", "id": f"t{number}", "status": "completed", **times, **place, **text, **more}


def said(number: int, role: str, content: str, n: int) -> dict[str, Any]:
    place = {"id": f"m{n}", "lane": "lane", "session_id": "s1", "turn_id": f"t{number}"}
    return {"table": "messages", "n": n, "role": role, "content": content, **place}


def call(name: str, position: int = 1, **more: Any) -> dict[str, Any]:
    known = {"turn_id": "t1", "position": position, "id": f"c{position}", "name": name, "reply_n": 1}
    times = {"started_ms": MS, "finished_ms": MS}
    return {"table": "calls", "status": "completed", "content": "Done.", **known, **times, **more}


def asked(mark: str, *messages: str, number: int = 1, at_s: float = S, **more: Any) -> ModelCall:
    """A request of a turn that was answered whole."""
    body = {"model": "claude-test", "messages": [{"role": "user", "content": text} for text in messages], **more}
    return ModelCall(number, mark, body, at_s, at_s, 200, "", True, None, nth=1, said=f"{mark}.1 says.")


def step(n: int, kind: str, payload: Any) -> dict[str, Any]:
    return {"table": "steps", "turn_id": "t1", "n": n, "kind": kind, "payload": payload}


def reply(n: int, text: str, **more: Any) -> dict[str, Any]:
    return step(n, "reply", {"text": text, "tool_uses": [], "usage": {}, "model": "claude-test", **more})


def stage(key: str, **more: Any) -> dict[str, Any]:
    known = {"run_id": "run_1", "n": 1, "key": key, "role": "agent", "agent_id": "bob", "status": "completed"}
    return {"table": "run_stages", "turn_id": "t9", "created_ms": MS, **known, **more}


def news(n: int, **more: Any) -> dict[str, Any]:
    known = {
        "id": f"amsg_{n}",
        "to_agent": "ann",
        "from_turn_id": "t1",
        "kind": "note",
        "body": f"News T0000{n}. Hear!",
    }
    return {"table": "agent_messages", "n": n, "status": "queued", "created_ms": MS, **known, **more}


QUIET: Sequence[Change] = (
    {"table": "sessions", "lane": "lane", "id": "s1", "agent": "front-desk", "status": "idle"},
    turn(1),
    turn(2),
    said(1, "user", "T00001 plain", 1),
    said(1, "assistant", "T00001.1 says.", 2),
    said(2, "user", "T00002 plain", 3),
    said(2, "assistant", "T00002.1 says.", 4),
)
COUNTED = ("UPDATE sessions SET queue_depth = 0", "DELETE FROM depth_deltas")
"""A trigger counts the turns that are accepted, and ours never were."""
SUBMITTED = tuple(Submitted(f"T0000{n}", f"t{n}", "s1", S, n) for n in (1, 2))
CALLS = (asked("T00001", "T00001 plain"), asked("T00002", "T00001 plain", "T00002 plain", number=2, at_s=S + 1))
SUMMARY = (asked("part T00009", "[user] T00009", number=9, system=[{"type": "text", "text": BEGINS}]),) * 2
LOOK = asked("T00001", "The question:\n<data a>\nT00001 plain\n</data a>", number=9, tool_choice={"name": TOOL})
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "x" * 3_000}
PREVIEWED = [{"role": "user", "content": "T00001 plain"}, {"role": "user", "content": [RESULT]}]
CHANGE = {"version": 1, "kind": "compressed", "by": "heuristic", "messages": 2, "snapshot_id": None}
SUMMARIZED = {"first_n": 3, "l2_from_n": 1, "l2_text": "Note-3 speaks of T00009.", "version": 1, "changes": [CHANGE]}
ASKED = {"agent": "front-desk", "message": "T00002 plain"}
ABOVE = json.dumps([{"turn_id": "t1", "lane": "lane", "agent": "front-desk"}])
RUN = {"table": "workflow_runs", "id": "run_1", "status": "completed", "workflow": "fork-first", "created_ms": MS}
RUN |= {"metadata": {"name": "R00001"}}
EVENT = {"table": "run_events", "run_id": "run_1", "n": 1, "type": "run.started"}
APPROVED = {"role": "approval", "decision": "approve"}
STARTED = (RunStarted("run_1", RunJob("R00001", "fork-first", {}, ends="rejected", hook="ok"), "key", ("run_1",)),)

ROWS: Mapping[str, tuple[Sequence[Change], Mapping[str, Any], Mapping[str, str]]] = {
    "nothing is broken": ((), {}, {}),
    "a turn that was accepted is lost": (
        (),
        {"submitted": (*SUBMITTED, Submitted("T00009", "lost", "s1", S, 3))},
        {"check_accepted": "lost was accepted and is not", "check_progress": "1 of 3 turns did not complete"},
    ),
    "an answer is kept twice": (
        (said(1, "assistant", "T00001.1 says.", 5),),
        {},
        {"check_messages": "2 final answers", "check_order": "has messages after those of T00002"},
    ),
    "a call has no result": (
        ("""UPDATE messages SET tool_calls_json = '[{"id": "c1", "name": "note", "arguments": {}}]' WHERE n = 2""",),
        {},
        {"check_messages": "without a final answer", "check_wellformed": "['c1'] are followed by results of []"},
    ),
    "a turn asks again while a later one runs": (
        (),
        {"model_calls": (*CALLS, asked("T00001", "T00001 plain", number=3, at_s=S + 9))},
        {"check_overlap": "request 3 ran while a later", "check_model_calls": "unused, and asked for again"},
    ),
    "a request shows a question that nobody asked": (
        (),
        {
            "model_calls": (
                CALLS[0],
                asked("T00002", "T00008 plain", "T00002 plain"),
            )
        },
        {"check_history": "['T00008', 'T00002'] after ['T00001']"},
    ),
    "a request lacks what would fit": (
        (),
        {
            "model_calls": (
                CALLS[0],
                asked("T00002", "T00002 plain"),
            )
        },
        {"check_covered": "lacks T00001"},
    ),
    "a request is over its budget": (
        (),
        {"budget_tokens": 1},
        {"check_budget": "tokens, allowed are 1"},
    ),
    "clients are told something else": (
        (),
        {"polled": (Polled("t1", b'{"status": "failed"}', S),), "read": (Read("t1", "hearsay"),)},
        {"check_shown": "was shown status 'failed'", "check_read": "has read 'hearsay'"},
    ),
    "a receiver is told something else, by a stranger": (
        (),
        {"hooks": (Hook("whd_1", "t1", b'{"type": "turn.failed"}', S, False, 204),)},
        {"check_shown": "was told turn.failed", "check_webhooks": "not validly signed"},
    ),
    "a tool runs twice, after its worker's death": (
        (call("charge", arguments={"nonce": "n1"}),),
        {"effects": (Effect("charge", "n1", S), Effect("charge", "n1", S + 9, worker=7)), "deaths": {7: S}},
        {"check_tools": "charge n1 ran 2 times", "check_children": "ran on for 9.0 s"},
    ),
    "a lease is left over": ((), {"leftovers": ("lease of lane",)}, {"check_rest": "lease of lane"}),
    "a part of the conversation is in no layer": (
        ({"table": "memory", "lane": "lane", "first_n": 3},),
        {},
        {"check_layers": "message 1 is in no layer", "check_changes": "took 0 messages out of L1, 2 are gone"},
    ),
    "a memory has a stranger's summary, is held and beyond its dates": (
        ({"table": "memory", "lane": "lane", "held_by": "w1", "dated_n": 2, **SUMMARIZED},),
        {},
        {"check_notes": "is of T00009", "check_settled": "is held by w1", "check_dated": "message 1 is in 0 summaries"},
    ),
    "a fact and all vectors are missing": (
        ({"table": "dated_summaries", "id": "d1", "lane": "lane", "content": "Dated-1 speaks of T00001."},),
        {"embeds": True},
        {"check_learned": "is a fact 0 times", "check_embedded": "message 1 has no vector"},
    ),
    "a summary of nothing is asked for twice": (
        (),
        {"model_calls": (*CALLS, *SUMMARY)},
        {"check_summaries": "is for a summary of the sessions []"},
    ),
    "nobody has agreed to a call, and a decision fails": (
        (call("refund", arguments={"nonce": "n1"}, approval="approved"),),
        {"effects": (Effect("refund", "n1", S),), "decided": (Decided("t1", "c9", "approve", S, (500,)),)},
        {"check_people": "is approved, and nobody has said so", "check_decisions": "the answer was 500"},
    ),
    "a large result is lost, and shown": (
        (call("report", arguments={"nonce": "n1"}, ref="ref_1"),),
        {"effects": (Effect("report", "n1", S),), "model_calls": (asked("T00001", messages=PREVIEWED), CALLS[1])},
        {"check_results": "ref_1 is not in the database", "check_previews": "has 3000 characters of ref_1"},
    ),
    "an answer is judged that is not, and one is not that should be": (
        ("UPDATE turns SET agent = 'judged' WHERE id = 't1'",),
        {"model_calls": (*CALLS, LOOK)},
        {"check_verdict_calls": "the database has none", "check_judged": "None answers were judged"},
    ),
    "an answer that was given anew is kept": (
        (reply(1, "T00001.1 says."), step(2, "judged", {"is_last": False}), reply(3, "T00001.2 says.")),
        {},
        {"check_rejected": "holds an answer that was given anew", "check_traces": "has 0 replies, the journal 2"},
    ),
    "the books are wrong, and a budget that nobody has is spent": (
        ("""UPDATE turns SET usage = '{"input_tokens": 5}', reason = 'budget' WHERE id = 't1'""",),
        {},
        {"check_ledger": "used Counter({'input_tokens': 5})", "check_budgets": "and none limits it"},
    ),
    "a reply is booked as another model's, at the price of none": (
        (reply(1, "T00001.1 says.", model="claude-opus-5", usage={"input_tokens": 7}),),
        {},
        {
            "check_ledger": "reply 1 is booked as claude-opus-5's, claude-test gave it\n"
            "T00001 t1 (seq 1 of s1): reply 1 is booked at 0 billionths of a USD, claude-opus-5 asks 35000\n"
            "T00001 t1 (seq 1 of s1): names claude-test, claude-opus-5 gave its last reply",
            "check_traces": "has 0 replies, the journal 1",
        },
    ),
    "a trace has not arrived, and no audit tells of its turn": (
        (f"UPDATE turns SET completed_ms = {MS}, traceparent = '00-a-b-01' WHERE id = 't1'",),
        {"exports": (), "most_trace_messages": 99},
        {"check_exported": "not arrived", "check_requests": "99 messages waited", "check_rest": "and has 0 rows"},
    ),
    "a run is unknown, does not stop and has a turn of nobody": (
        (RUN, "UPDATE turns SET run_id = 'run_9' WHERE id = 't2'"),
        {"runs": RunWitness(cancelled=(RunCancelled("run_1", S),))},
        {
            "check_runs_kept": "nobody was told of it",
            "check_stage_turns": "run_9 has turns",
            "check_run_cancels": "knows nothing",
            "check_run_events": "has 0 events of its start",
        },
    ),
    "a run is not what its workflow, its clients and its books say": (
        ({**RUN, "completed_ms": MS, "events": 1}, EVENT),
        {"runs": RunWitness(STARTED, (RunPolled("run_1", b"{}", True),), (RunRead("run_1", ((2, "", {}),), 0, ()),))},
        {
            "check_runs_played": "did not ask agents.",
            "check_run_progress": "ended completed, not rejected",
            "check_run_events": "has the ends []",
            "check_run_shown": "a client has read [(2, '')]",
            "check_run_webhooks": "0 webhooks in the outbox instead of 1",
            "check_run_books": "has 0 rows of its end in the audit",
        },
    ),
    "a run takes over what there was not, and a person's word": (
        ({**RUN, "completed_ms": MS}, stage("agents.1", is_reused=1), stage("sign", n=2, **APPROVED)),
        {"runs": RunWitness(STARTED)},
        {
            "check_run_retries": "took over agents.1, from nowhere",
            "check_run_decisions": "is approve, and nobody has said so",
            "check_stage_turns": "is no turn of the database",
            "check_runs_played": "sign was asked",
            "check_run_events": "tells [] of sign",
            "check_run_webhooks": "instead of 1",
            "check_run_books": "0 decisions in the audit",
        },
    ),
    "an agent is asked again in a circle, and goes on for nobody": (
        (
            call("ask_agent", child_turn_id="t2", arguments={"agent": "ann", "message": "T00002 plain"}),
            call("ask_agent", 2, child_turn_id="t2", status="timeout", finished_ms=MS - 9_000, arguments=ASKED),
            f"UPDATE turns SET completed_ms = {MS}, parent_turn_id = 't1', ancestors = '{ABOVE}' WHERE id = 't2'",
        ),
        {},
        {
            "check_agent_calls": "of front-desk instead of ann",
            "check_agent_answers": "c1 gave 'Done.'",
            "check_agent_chains": "asks front-desk again",
            "check_agent_ends": "went on for 9.0 s",
            "check_rest": "audit",
        },
    ),
    "messages between agents are lost, made up, and read in another order": (
        (
            call("send_agent", arguments={"agent": "ann", "message": "News T00003."}, content='{"sent": "amsg_9"}'),
            call("receive_messages", 2, content='[{"id": "amsg_2"}, {"id": "amsg_1"}]'),
            *(news(1), news(2), {"table": "blob_grants", "ref": "ref_1", "lane": "lane"}),
        ),
        {},
        {
            "check_sent": "its message is not in the database",
            "check_taken": "which is for another agent",
            "check_order_of_messages": "in the order [2, 1]",
            "check_passed": "nobody has passed it on",
            "check_rest": "foreign_key_check",
        },
    ),
}


def history(home: Path, changes: Sequence[Change]) -> None:
    """Write a database, past Loom and its foreign keys."""
    with closing(sqlite3.connect(home / "loom.db")) as connection:
        for change in (*QUIET, *changes, *COUNTED):
            connection.execute(*((change,) if isinstance(change, str) else _insert(change)))
        connection.commit()


def _insert(row: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """A statement and its values; columns that must have some, and for which none is given, are empty."""
    table = metadata.tables[row["table"]]
    values: dict[str, Any] = {}
    for column in table.columns:
        is_json = isinstance(column.type, JSON)
        if column.name in row:
            values[f'"{column.name}"'] = json.dumps(row[column.name]) if is_json else row[column.name]
        elif not column.nullable and column.server_default is None and not column.primary_key:
            values[f'"{column.name}"'] = "{}" if is_json else 0 if isinstance(column.type, Integer) else ""
    return f"INSERT INTO {table.name} ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})", [*values.values()]


def seen(home: Path, **changed: Any) -> Evidence:
    """What the witnesses saw of the quiet history, but for some of it."""
    polled = tuple(Polled(each.id, json.dumps(each.shown).encode(), S) for each in read_facts(home).turns[:2])
    known = {"submitted": SUBMITTED, "polled": polled, "model_calls": CALLS, "hooks": (), "effects": (), "home": home}
    return Evidence(
        **{**known, "injections": (Injection("duplicate", "turn", S, S),), "budget_tokens": 9_000, **changed}
    )


def found(evidence: Evidence) -> Iterator[tuple[str, str]]:
    facts = read_facts(evidence.home)
    for check in CHECKS:
        if flaws := [each.text for each in check(evidence, facts)]:
            yield check.__name__, "\n".join(flaws)


@pytest.mark.parametrize("name", ROWS)
def test_a_check_finds_what_a_history_breaks_and_nothing_else(name: str, tmp_path: Path, empty_database: Path) -> None:
    changes, witnessed, wanted = ROWS[name]
    (tmp_path / "loom.db").write_bytes(empty_database.read_bytes())
    history(tmp_path, changes)
    flaws = dict(found(seen(tmp_path, **witnessed)))
    assert flaws.keys() == wanted.keys(), flaws
    assert [text for check, text in wanted.items() if text not in flaws[check]] == [], flaws


def test_no_check_is_without_a_row() -> None:
    assert {check.__name__ for check in CHECKS} == {check for _, _, wanted in ROWS.values() for check in wanted}
