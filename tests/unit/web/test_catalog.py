from dataclasses import fields, replace
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from loom_worker.agents.load import load
from loom_worker.core.values.agents import UNSHOWN, Agent, ApprovalPolicy, ModelChoice
from loom_worker.core.values.ids import now_ms
from tests.support.played_worker import PlayedWorker
from tests.support.web_stage import TOOLS, MakeStage, Submit, WebStage
from web.agents import agent_json
from web.app import create_app

AGENT = """
agent:
  name: a
  system_prompt: The word is hunter2.
  backend: {type: sql, url: "postgresql+psycopg://u:hunter2@h/x?sslpassword=hunter2"}
  mcp_servers: {m: {command: x, args: [--token=hunter2], env: {A: hunter2, B: {secret: FILES}}}}
  config: {approval: {tools: [refund]}}
  judges: {members: [{name: j, criteria: Is it right?}]}
  schedule: {cron: "0 8 * * 1", input: hello}
  budget: {day: {usd: 2}}
  guardrails: {input: {injection: block}}
"""
GROUPED = ("session", "user")
SECRET = "whsec_" + "YWJj" * 8


def test_the_agents_are_listed_without_their_secrets(client: FlaskClient) -> None:
    answer = client.get("/v1/agents")
    assert "default" in [agent["name"] for agent in answer.get_json()["data"]]
    assert not {"raw", "backend", "system_prompt", "source"} & answer.get_json()["data"][0].keys()


def test_one_agent_is_found_by_name(client: FlaskClient) -> None:
    assert client.get("/v1/agents/default").get_json()["name"] == "default"
    assert client.get("/v1/agents/nobody").status_code == 404


def test_one_agent_is_shown_with_all_that_its_file_says_but_no_secret(make_stage: MakeStage, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(AGENT, encoding="utf-8")
    agent = load(tmp_path).agents["a"]
    answer = create_app(make_stage((agent,)).service).test_client().get("/v1/agents/a").get_json()
    assert answer.keys() >= {each.name for each in fields(Agent)} - UNSHOWN
    assert [each["type"] for each in answer["judges"]["members"]] == ["llm"]
    assert answer["approval"]["tools"] == ["refund"]
    assert (answer["schedules"][0]["plan"]["cron"], answer["budget"]) == ("0 8 * * 1", {"day": {"usd": 2}})
    assert answer["guardrails"]["input"] == {"injection": "block"}
    assert answer["backend"]["url"] == "postgresql+psycopg://u:***@h/x?sslpassword=***"
    assert [each["env"] for each in answer["mcp_servers"]] == [{"A": "***", "B": "secret:FILES"}]
    assert "hunter2" not in str(answer)


def test_tools_come_with_the_schema_of_their_arguments(client: FlaskClient) -> None:
    tools = client.get("/v1/tools").get_json()["data"]
    assert tools
    assert all(tool["input_schema"]["type"] == "object" and tool["description"] for tool in tools)


def test_tools_are_those_of_the_agent_that_is_named(client: FlaskClient) -> None:
    assert client.get("/v1/tools?agent=default").get_json() == client.get("/v1/tools").get_json()
    answer = client.get("/v1/tools?agent=nobody")
    assert (answer.status_code, answer.get_json()["errors"][0]["pointer"]) == (422, "/agent")


def test_usage_is_summed_by_the_group_asked_for(client: FlaskClient, submit: Submit, worker: PlayedWorker) -> None:
    for session in ("s", "s", "t"):
        worker.finish(submit(session)["id"])
    rows = {row["key"]: row["turns"] for row in client.get("/v1/usage?group_by=session").get_json()["data"]}
    assert rows == {"s": 2, "t": 1}
    assert [row["turns"] for row in client.get("/v1/usage").get_json()["data"]] == [3]


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("/v1/agents?", "name"),
        ("/v1/tools?", "name"),
        *((f"/v1/usage?group_by={each}&", "key") for each in GROUPED),
    ],
)
def test_a_list_that_is_there_as_a_whole_is_walked_in_pages(
    client: FlaskClient, submit: Submit, worker: PlayedWorker, path: str, key: str
) -> None:
    for session, user in (("s", "maria"), ("t", "john"), ("u", None)):
        worker.finish(submit(session, **({"user": user} if user else {}))["id"])
    whole = client.get(path).get_json()
    assert (whole["has_more"], whole["next"]) == (False, None)
    walked, after = [], ""
    while after is not None:
        page = client.get(f"{path}limit=1" + (f"&after={after}" if after else "")).get_json()
        walked += page["data"]
        assert len(page["data"]) == 1
        assert page["next"] == (page["data"][0][key] if page["has_more"] else None)
        after = page["next"]
    assert walked == whole["data"]
    assert client.get(f"{path}after=nobody").status_code == 422


def test_the_queue_is_counted(client: FlaskClient, submit: Submit) -> None:
    submit("s")
    submit("s")
    stats = client.get("/v1/queue/stats").get_json()
    assert (stats["queued"], stats["lanes"]) == (2, 1)


@pytest.fixture
def delivery_id(client: FlaskClient, submit: Submit, stage: WebStage) -> str:
    """Of a delivery that nobody answered."""
    stage.worker.finish(submit(webhook={"url": "https://hooks.example/", "secret": SECRET})["id"])
    outbox, delivery_id = stage.service.outbox, str(client.get("/v1/deliveries").get_json()["data"][0]["id"])
    delivery = outbox.take(delivery_id, now_ms=now_ms(), hold_ms=1000)
    assert delivery is not None
    outbox.save(replace(delivery, status="dead", attempts=10))
    return delivery_id


def test_a_delivery_is_listed_without_its_secret(client: FlaskClient, delivery_id: str) -> None:
    assert SECRET.removeprefix("whsec_") not in client.get("/v1/deliveries").text


@pytest.mark.parametrize("options", [{}, {"json": {}}, {"content_type": "application/json"}])
def test_a_delivery_is_replayed_with_or_without_a_body(
    client: FlaskClient, stage: WebStage, delivery_id: str, options: dict[str, object]
) -> None:
    stage.book.delivered.clear()
    answer = client.post(f"/v1/deliveries/{delivery_id}/replay", **options)
    assert (answer.status_code, answer.get_json()["status"]) == (202, "pending")
    assert stage.book.delivered == [delivery_id]


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"data": "{}", "content_type": "text/plain"}, 415),
        ({"data": {"a": "b"}}, 415),
        ({"data": "{", "content_type": "application/json"}, 400),
        ({"json": {"when": "now"}}, 422),
        ({"headers": {"Origin": "https://evil.example"}}, 403),
    ],
)
def test_a_replay_that_says_anything_else_is_refused(
    client: FlaskClient, delivery_id: str, options: dict[str, object], status: int
) -> None:
    assert client.post(f"/v1/deliveries/{delivery_id}/replay", **options).status_code == status
    assert client.get("/v1/deliveries").get_json()["data"][0]["status"] == "dead"


def test_an_agents_own_tools_are_among_its_tools() -> None:
    shown = [agent_json(Agent("a", tools=tools, custom=("calc.py:add",)))["tools"] for tools in ((), ("x",), None)]
    assert shown == [["calc.py:add"], ["x", "calc.py:add"], None]


def test_a_tool_needs_approval_where_it_or_the_agent_asks_for_one(make_stage: MakeStage) -> None:
    agents = (Agent("default", approval=ApprovalPolicy(("dice",))), Agent("other", approval=ApprovalPolicy(("*",))))
    clock, dice = TOOLS[:2]
    tools = (clock, dice, replace(clock, spec=replace(clock.spec, name="refund"), needs_approval=True))
    client = create_app(make_stage(agents, tools).service).test_client()
    tools = client.get("/v1/tools?agent=default").get_json()["data"]
    assert {tool["name"]: tool["needs_approval"] for tool in tools} == {"clock": False, "dice": True, "refund": True}


def test_the_models_that_can_be_named_are_those_with_a_key_and_those_that_agents_and_the_workspace_name(
    make_stage: MakeStage,
) -> None:
    own = Agent("default", llm=ModelChoice(model="vllm/qwen", fallbacks=(ModelChoice(model="groq/unknown"),)))
    stage = make_stage(agents=(own,))
    service, client = stage.service, create_app(stage.service).test_client()
    service.settings = replace(service.settings, llm=replace(service.settings.llm, offered=("openai",)))
    listed = {each["id"]: each for each in client.get("/v1/models").get_json()["data"]}
    assert {"vllm/qwen", "groq/unknown", "openai/gpt-5.2", "scripted/scripted-demo"} <= listed.keys()
    assert "groq/llama-3.3-70b-versatile" not in listed  # it has no key
    assert "tools" in listed["openai/gpt-5.2"]["can"]
    assert listed["openai/gpt-5.2"]["context_tokens"] > 0
    assert (listed["groq/unknown"]["can"], listed["groq/unknown"]["prices"]) == ([], None)
    client.patch("/v1/workspaces/default", json={"model": "anthropic/claude-sonnet-5-5"})
    listed = {each["id"]: each for each in client.get("/v1/models").get_json()["data"]}
    assert listed["anthropic/claude-sonnet-5-5"]["prices"]["output"] > 0
