"""Traces over the whole system: every part of a turn is there, also after workers were killed at each of them."""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from loom_worker.core.values.chat import Usage
from tests.support.agents import written
from tests.support.messages_server import Behaviour, MessagesServer, Say, failure
from tests.support.messages_wire import WireCall
from tests.support.system import Json, System
from tests.support.until import until
from tests.support.webhook_receiver import WebhookReceiver

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(60)]

DOCUMENTED = Path(__file__).parents[2] / "docs" / "tracing.md"
POINTS = ("llm.streaming", "tool.ran", "judge.scored", "turn.committing", "turn.ended", "summary.made")
"""Where a worker dies, once each."""
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CLIENT_SPAN = "00f067aa0ba902b7"
LONG = " ".join(f"word{n}" for n in range(150))
"""More than LOOM_L1_TOKENS allows of two turns."""
AGENT: Json = {
    "backend": False,
    "llm": {"model": "claude-sonnet-4-5"},
    "tools": ["handmade.py"],
    "judges": {
        "members": [
            {"name": "right", "criteria": "Says that it is done."},
            {"name": "polite", "type": "contains", "criteria": {"none": ["damn"]}},
        ]
    },
}
USAGE = {"input_tokens": 100, "output_tokens": 10}


def script(body: Json) -> Behaviour:
    """Verdicts for judges, notes for the memory; three tools for ``Everything``, one for ``Count``; else an answer."""
    model = body["model"]
    if "score" in body.get("output_config", {}).get("format", {}).get("schema", {}).get("properties", {}):
        return Say(json.dumps({"score": 0.9, "critique": ""}), model=model, usage=USAGE)
    if "tools" not in body:
        return Say("[]" if "JSON" in body["system"][0]["text"] else "Notes of what was said.", model=model, usage=USAGE)
    last = body["messages"][-1]["content"][-1]
    counts = WireCall("toolu_count", "count", {"n": 1})
    if last["type"] == "text" and "Everything" in last["text"]:
        pays = WireCall("toolu_pay", "pay", {"amount": 1, "to": "nobody"})
        return Say("All of it.", [counts, WireCall("toolu_broken", "broken", {}), pays], model=model, usage=USAGE)
    if failed := re.search(r"Error ID: (err_\w+)", json.dumps(body["messages"][-1])):
        return Say("", [WireCall("toolu_read", "get_error_detail", {"error_id": failed[1]})], model=model, usage=USAGE)
    if last["type"] == "text" and "Count" in last["text"]:
        return Say("I count.", [counts], model=model, usage=USAGE)
    return Say("It is done.", model=model, usage=USAGE)


@pytest.fixture(scope="module")
def server() -> Iterator[MessagesServer]:
    with MessagesServer(script=script) as server:
        yield server


@pytest.fixture(scope="module")
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def system(server: MessagesServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("traces")
    environ = {
        "ANTHROPIC_BASE_URL": server.url,
        "LOOM_AGENTS_DIR": written(folder / "agents", {"traced": AGENT}),
        "LOOM_ALLOW_PRIVATE_WEBHOOKS": "1",
        "LOOM_CRASHPOINTS": ",".join(POINTS),
        "LOOM_L1_TOKENS": "300",
    }
    with System(folder / "home", **environ) as system:
        yield system


@pytest.fixture(scope="module")
def killed(system: System, receiver: WebhookReceiver) -> list[str]:
    """Turns in which a worker died at each of the points; in later ones none dies."""
    turns = [
        system.submit(f"s{n % 3}", f"Count. {LONG}", agent="traced", webhook=receiver.url, max_attempts=9)
        for n in range(6)
    ]
    for turn_id in turns:
        assert system.ended(turn_id)["status"] == "completed"
    until(lambda: _crashes(system) == set(POINTS), 60, "a worker died at each point")
    until(lambda: not system.rows("SELECT 1 FROM memory WHERE due_ms IS NOT NULL"), 60, "all memories are compressed")
    until(lambda: not system.rows("SELECT 1 FROM outbox WHERE status = 'pending'"), 60, "all webhooks are delivered")
    return turns


def _crashes(system: System) -> set[str]:
    return {path.name.rpartition(".")[0] for path in (system.home / "crashes").glob("*")}


def trace_of(system: System, turn_id: str) -> list[Json]:
    """All spans of a turn, of which nothing may be wrong that is wrong of any."""
    page = system.get(f"/v1/turns/{turn_id}/trace?limit=500").json
    assert not page["has_more"]
    spans: list[Json] = page["data"]
    ids = [span["span_id"] for span in spans]
    assert len(ids) == len(set(ids))
    assert [span["name"] for span in spans if span["parent_id"] not in ids] == ["http.request"]
    assert [span["name"] for span in spans if span["end_time"] is None] == []
    assert {span["trace_id"] for span in spans} == {system.turn(turn_id)["trace_id"]}
    return spans


def named(spans: list[Json], name: str) -> list[Json]:
    return [span for span in spans if span["name"] == name]


def below(spans: list[Json], parents: list[Json], name: str) -> list[Json]:
    """The spans of a name whose parent is one of these."""
    ids = {span["span_id"] for span in parents}
    return [span for span in named(spans, name) if span["parent_id"] in ids]


def told(headers: Mapping[str, str]) -> tuple[str, str]:
    """Trace and span of a traceparent."""
    _, trace_id, span_id, _ = headers["traceparent"].split("-")
    return trace_id, span_id


def test_nothing_that_was_stored_is_missing_in_the_traces_of_turns_whose_workers_were_killed(
    system: System, killed: list[str]
) -> None:
    for turn_id in killed:
        turn, spans = system.turn(turn_id), trace_of(system, turn_id)
        asked, judged = below(spans, named(spans, "turn.run"), "llm.completion"), named(spans, "judge.score")
        replies = [span for span in asked if "loom.tokens" in span["attributes"]]
        of_judges = below(spans, judged, "llm.completion")
        calls = len(replies) + sum(span["attributes"]["loom.llm_calls"] for span in of_judges)
        died = system.rows("SELECT payload FROM steps WHERE turn_id = ? AND kind = 'tried'", turn_id)
        lost = Usage.from_json(json.loads(died[0][0])["usage"]) if died else Usage()
        assert calls + lost.llm_calls == turn["usage"]["llm_calls"]
        (chat,) = named(spans, "agent.chat")
        used = sum(span["attributes"]["loom.tokens"] for span in (*replies, *of_judges))
        assert chat["attributes"]["loom.tokens"] == used + lost.tokens
        assert [span["attributes"]["gen_ai.tool.call.id"] for span in named(spans, "tool.execute")] == ["toolu_count"]
        assert sorted(span["attributes"]["gen_ai.evaluation.name"] for span in judged) == ["polite", "right"]
        assert {span["status"] for span in judged} == {"OK"}
        assert len(named(spans, "store.finish")) == len(named(spans, "lane.wait")) == 1
        assert named(spans, "webhook.deliver")[-1]["attributes"]["loom.delivery.status"] == "delivered"


def test_the_run_of_a_worker_that_was_killed_is_an_error_that_ends_with_its_successor(
    system: System, killed: list[str]
) -> None:
    dead = 0
    for turn_id in killed:
        runs = named(trace_of(system, turn_id), "turn.run")
        assert runs[-1]["attributes"]["loom.run.end"] == "ended"
        for run, successor in pairwise(runs):
            if run["status"] == "Error":
                dead += 1
                assert (run["status_message"], run["end_time"]) == ("the worker died", successor["start_time"])
                # Another process, which may have taken the name of the dead one.
                assert run["attributes"]["loom.worker"].startswith("worker-")
                assert run["attributes"]["loom.run.fence"] < successor["attributes"]["loom.run.fence"]
    assert dead >= 2, "at llm.streaming and at turn.committing"


@pytest.mark.usefixtures("killed")
def test_a_compression_whose_worker_was_killed_is_told_by_the_one_that_did_it(
    system: System, killed: list[str]
) -> None:
    done = [span for turn_id in killed for span in named(trace_of(system, turn_id), "memory.compress")]
    stored = system.rows("SELECT count(*) FROM spans WHERE json_extract(body, '$.name') = 'memory.compress'")
    assert len(done) == stored[0][0] > 0
    versions = sum(version for (version,) in system.rows("SELECT version FROM memory"))
    assert len(done) == versions, "one for each step that was stored"


@pytest.mark.usefixtures("killed")
def test_every_span_that_the_documentation_lists_is_in_the_trace_of_a_turn_with_everything(
    system: System, receiver: WebhookReceiver
) -> None:
    before = len(receiver.received)
    system.ended(system.submit("whole", f"Count. {LONG}", agent="traced"))
    headers = {"traceparent": f"00-{TRACE}-{CLIENT_SPAN}-01"}
    body = {"input": f"Everything. {LONG}", "webhook": receiver.url}
    answer = system.post("/v1/sessions/whole/turns", body, headers)
    assert told({name.lower(): text for name, text in answer.headers.items()}) == (TRACE, CLIENT_SPAN)
    turn_id = answer.json["id"]
    until(lambda: system.turn(turn_id)["status"] == "requires_action", 30, "it waits for a person")
    assert system.post(f"/v1/turns/{turn_id}/approvals/toolu_pay", {"decision": "approve"}).status == 200
    turn = system.ended(turn_id)
    assert (turn["status"], turn["trace_id"]) == ("completed", TRACE)

    def is_told() -> bool:
        names = [span["name"] for span in system.get(f"/v1/turns/{turn_id}/trace").json["data"]]
        return names.count("webhook.deliver") == 2 and "memory.compress" in names

    until(is_told, 60, "what follows its end is there")
    spans = trace_of(system, turn_id)
    shown = DOCUMENTED.read_text().partition("## What a trace shows")[2].partition("\n## ")[0]
    documented = set(re.findall(r"^\| `([a-z_.]+)` \|", shown, re.M))
    assert {span["name"] for span in spans} == documented - {"workflow.run"}  # the turn is not a stage of a run
    (root,) = named(spans, "http.request")
    assert (root["trace_id"], root["parent_id"]) == (TRACE, CLIENT_SPAN)
    sent = {told(request.headers) for request in receiver.received[before:]}
    assert sent == {(TRACE, span["span_id"]) for span in named(spans, "webhook.deliver")}

    (failed,) = [span for span in named(spans, "tool.execute") if span["status"] == "Error"]
    assert failed["attributes"]["gen_ai.tool.name"] == "broken"
    assert [event["name"] for event in below(spans, [failed], "error_store.store")[0]["events"]] == ["error_stored"]
    (read,) = named(spans, "error_store.get")
    assert read["attributes"] == {"loom.error_id": failed["attributes"]["loom.error_id"]}
    error = system.get(f"/v1/errors/{failed['attributes']['loom.error_id']}").json
    assert error["span_id"] == failed["span_id"]
    (chat,) = named(spans, "agent.chat")
    assert chat["attributes"]["conversation.turns"] == 2
    assert chat["attributes"]["conversation.tokens.total"] > chat["attributes"]["loom.tokens"]
    assert "word149" not in json.dumps(spans)

    shown = system.run("trace", turn_id, "--url", system.url)
    assert (shown.returncode, len(shown.stdout.splitlines())) == (0, 1 + len(spans)), shown.stderr


@pytest.mark.usefixtures("killed")
def test_a_turn_that_failed_for_its_provider_names_its_last_request_in_its_error(
    server: MessagesServer, system: System
) -> None:
    server.then(Say("I count.", [WireCall("toolu_1", "count", {"n": 1})]), failure(401, "authentication_error"))
    turn = system.ended(system.submit("refused", "Count.", agent="traced"))
    assert (turn["status"], turn["reason"]) == ("failed", "provider")
    spans = trace_of(system, turn["id"])
    last = named(spans, "llm.completion")[-1]
    assert (last["status"], "401" in last["status_message"]) == ("Error", True)
    error = system.get(f"/v1/errors/{turn['error']['error_id']}").json
    assert error["span_id"] == last["span_id"]
    (chat,) = named(spans, "agent.chat")
    assert (chat["status"], chat["attributes"]["loom.error_id"]) == ("Error", error["id"])
    assert [span["parent_id"] for span in named(spans, "error_store.store")] == [chat["span_id"]]
