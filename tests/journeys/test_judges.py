"""Judges over the whole system: models, a function and a rule look at answers, while their workers are killed."""

import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path

import pytest

from tests.support.flower_client import FlowerClient
from tests.support.messages_server import MessagesServer, Say
from tests.support.system import Json, System, spoken
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(30)]

AGENT = """
apiVersion: loom/v1
kind: Agent
metadata: {name: careful}
spec:
  system_prompt: Answer.
  llm: {model: claude-sonnet-4-5}
  judge_llm: {model: claude-haiku-4-5}
  backend: false
  config: {patterns: {enabled: false}}
  judges:
    strategy: min
    members:
      - {name: right, criteria: Names the number.}
      - {name: brief, criteria: Is brief.}
      - {name: polite, type: contains, criteria: {none: [damn]}}
      - {name: own, type: python, criteria: "judges.py:spells_it"}
"""
FUNCTION = '''
def spells_it(answer: str) -> dict:
    """The number is spelt out."""
    return {"score": float("forty-two" in answer), "critique": "Spell the number."}
'''
POINTS = ("judge.claimed", "judge.scored", "judge.stored", "judge.concluded")
USAGE = {"input_tokens": 100, "output_tokens": 10}


def is_judge(body: Json) -> bool:
    return "score" in body.get("output_config", {}).get("format", {}).get("schema", {}).get("properties", {})


def script(body: Json) -> Say:
    """The answer is wrong at first and right once judges have had it given anew."""
    last = body["messages"][-1]["content"][-1]["text"]
    if is_judge(body):
        good = "forty-two" in last.rpartition("The answer to be judged")[2]
        verdict = {"score": 0.9 if good else 0.1, "critique": "" if good else "Name the number."}
        return Say(json.dumps(verdict), model=body["model"], usage=USAGE)
    text = "There are forty-two." if "was judged" in last else "There are many."
    return Say(text, model=body["model"], usage=USAGE)


@pytest.fixture(scope="module")
def server() -> Iterator[MessagesServer]:
    with MessagesServer(script=script) as server:
        yield server


@pytest.fixture(scope="module")
def system(server: MessagesServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("judges")
    agents = folder / "agents"
    agents.mkdir()
    (agents / "careful.yaml").write_text(AGENT, encoding="utf-8")
    (agents / "judges.py").write_text(FUNCTION, encoding="utf-8")
    environ = {"LOOM_AGENTS_DIR": str(agents), "LOOM_CRASHPOINTS": ",".join(POINTS)}
    environ["LOOM_MAX_ATTEMPTS"] = "9"  # a turn may be in each worker that dies
    with System(folder / "home", ANTHROPIC_BASE_URL=server.url, ANTHROPIC_API_KEY="key", **environ) as system:
        yield system


@pytest.fixture(scope="module")
def ended(system: System) -> list[Json]:
    """Turns in which a worker died at each of the points; in later ones none dies."""
    turns = [system.submit(f"s{n}", "How many?", agent="careful") for n in range(6)]
    return [system.ended(turn) for turn in turns]


def test_answers_are_judged_and_given_anew_though_workers_die_at_every_step(
    system: System, server: MessagesServer, ended: Sequence[Json]
) -> None:
    crashes = {path.name.rpartition(".")[0] for path in (system.home / "crashes").iterdir()}
    assert crashes == set(POINTS)
    for turn in ended:
        assert (turn["status"], turn["output_text"]) == ("completed", "There are forty-two.")
        judge = turn["judge"]
        assert (judge["score"], judge["passed"], judge["attempts"]) == (0.9, True, 2)
        assert [verdict["name"] for verdict in judge["verdicts"]] == ["right", "brief", "polite", "own"]
    verdicts = system.rows("SELECT type, status, sends FROM verdicts")
    assert {status for _, status, _ in verdicts} == {"scored"}
    asked = sum(is_judge(body) for body in server.requests)
    # Only a judge whose worker died while it looked is asked again: for each request there is a message.
    assert asked <= sum(sends for kind, _, sends in verdicts if kind == "llm")


@pytest.mark.usefixtures("ended")
def test_the_ledger_the_turns_and_the_sessions_agree_to_the_last_token(system: System) -> None:
    turns: list[Json] = system.get("/v1/turns?limit=50").json["data"]
    by_kind = {row["key"]: row for row in system.get("/v1/usage?group_by=kind").json["data"]}
    calls = sum(turn["usage"]["llm_calls"] for turn in turns)
    assert by_kind["turn"]["llm_calls"] + by_kind["judge"]["llm_calls"] == calls
    # A judge whose worker was taken for dead and lived is paid for twice: at most once for each message.
    ((sends,),) = system.rows("SELECT sum(sends) FROM verdicts WHERE type = 'llm'")
    assert 4 * len(turns) <= by_kind["judge"]["llm_calls"] <= sends
    cost = sum(Decimal(str(turn["usage"]["cost_usd"])) for turn in turns)
    assert sum(Decimal(str(row["cost_usd"])) for row in by_kind.values()) == cost
    sessions: list[Json] = system.get("/v1/sessions?limit=50").json["data"]
    assert sum(Decimal(str(each["cumulative_usage"]["cost_usd"])) for each in sessions) == cost


@pytest.mark.usefixtures("ended")
def test_a_reader_is_left_with_the_answer_that_passed_and_the_conversation_too(system: System) -> None:
    turn_id = system.submit("reader", "How many?", agent="careful")
    events = list(system.events(turn_id))
    assert spoken(events) == "There are forty-two."
    said = [event.data for event in events if event.type == "judge.verdict"]
    assert [(each["passed"], each["is_last"]) for each in said] == [(False, False), (True, True)]
    assert "Spell the number." in [verdict["critique"] for verdict in said[0]["verdicts"]]
    assert [message["content"] for message in system.messages("reader")] == ["How many?", "There are forty-two."]


@pytest.mark.usefixtures("ended")
def test_the_audit_of_a_turn_names_what_each_judge_decided(system: System) -> None:
    rows: list[Json] = system.get("/v1/audit?kind=turn.ended&agent=careful&limit=1").json["data"]
    outcomes = [(each["name"], each["outcome"]) for each in rows[0]["decisions"] if each["kind"] == "judge"]
    assert outcomes[:4] == [("right", "failed"), ("brief", "failed"), ("polite", "passed"), ("own", "failed")]
    assert {outcome for _, outcome in outcomes[4:]} == {"passed"}


def test_the_judges_of_a_page_and_of_the_document_are_the_same(system: System) -> None:
    document = system.get("/openapi.json").json
    assert "judge" in document["components"]["schemas"]["Turn"]["properties"]


def test_doctor_tells_of_a_function_that_cannot_judge(system: System, tmp_path: Path) -> None:
    agents = Path(system.environ["LOOM_AGENTS_DIR"])
    bad = agents / "bad.yaml"
    bad.write_text(AGENT.replace("careful", "bad").replace("spells_it", "nothing"), encoding="utf-8")
    try:
        told = system.run("doctor").stdout
    finally:
        bad.unlink()
    assert "spec.judges.members[3].criteria: judges.py:nothing: there is no 'nothing'" in told


@pytest.mark.usefixtures("ended")
def test_flower_shows_each_judge_of_each_answer_with_its_score(system: System) -> None:
    turn_id = system.submit("flower", "How many?", agent="careful")
    system.ended(turn_id)
    with FlowerClient.of(system.state["flower_url"], system.home) as flower:

        def judges() -> list[Json]:
            found = [task for task in flower.parts_of(turn_id, "loom.judge.score") if task["state"] == "SUCCESS"]
            return found if len(found) == 8 else []

        shown = until(judges, 20, "Flower shows four judges of two answers")
    results = sorted(task["result"] for task in shown)
    assert results == ["scored 0", "scored 0.1", "scored 0.1", "scored 0.9", "scored 0.9", *["scored 1"] * 3]
    assert {task["args"] for task in shown} == {repr((turn_id, "flower"))}
    assert "{'judge': 'own', 'type': 'python'}" in {task["kwargs"] for task in shown}
