"""What an agent's file says of its data, its tools and the persons to be asked."""

from pathlib import Path

import pytest

from loom_worker.agents.known import KnownAgents
from loom_worker.agents.load import Agents, LiveAgents, load
from loom_worker.core.values.agents import Agent, ApprovalPolicy, Auth, Backend, McpServer, Scope
from loom_worker.core.values.guardrails import NO_GUARDRAILS, SENSITIVE, Guardrails
from loom_worker.core.values.learned import AS_ACTIVATED, LearnedPolicy
from loom_worker.workflows.load import LiveWorkflows

HEAD = "apiVersion: loom/v1\nkind: Agent\nmetadata: {name: a}\n"


def read(folder: Path, spec: str) -> Agents:
    (folder / "a.yaml").write_text(f"{HEAD}spec: {spec}", encoding="utf-8")
    return load(folder)


def agent(folder: Path, spec: str) -> Agent:
    found = read(folder, spec)
    assert found.problems == ()
    return found.agents["a"]


def test_a_database_may_be_seen_in_part(tmp_path: Path) -> None:
    spec = "{backend: {type: sql, url: 'sqlite:////x', scope: {schemas: [s], tables: [t], columns: [t.c]}}}"
    assert agent(tmp_path, spec).backend == Backend(url="sqlite:////x", scope=Scope(("s",), ("t",), ("t.c",)))


def test_a_rest_backend_has_a_document_operations_and_a_secret_by_name(tmp_path: Path) -> None:
    spec = """
  backend:
    type: rest
    url: https://api.example.com
    openapi: shop.yaml
    operations: [listOrders]
    allow_private: true
    auth: {type: header, header: X-Key, secret: SHOP}
"""
    assert agent(tmp_path, spec).backend == Backend(
        kind="rest",
        url="https://api.example.com",
        openapi="shop.yaml",
        operations=("listOrders",),
        allow_private=True,
        auth=Auth("header", "SHOP", header="X-Key"),
    )


def test_a_folder_of_documents_is_a_backend(tmp_path: Path) -> None:
    found = agent(tmp_path, "{backend: {type: documents, path: handbook}}")
    assert found.backend == Backend(kind="documents", path="handbook")


def test_servers_of_tools_are_started_or_called(tmp_path: Path) -> None:
    spec = """
  mcp_servers:
    files: {command: mcp-files, args: [/srv], env: {HOME: /srv, TOKEN: {secret: FILES}}, tools: [read]}
    crm: {url: 'https://crm.example.com/mcp', headers: {Authorization: {secret: CRM}}}
"""
    assert agent(tmp_path, spec).mcp_servers == (
        McpServer("files", "mcp-files", ("/srv",), {"HOME": "/srv", "TOKEN": "secret:FILES"}, tools=("read",)),
        McpServer("crm", url="https://crm.example.com/mcp", headers={"Authorization": "secret:CRM"}),
    )


def test_a_list_of_tools_names_all_of_them(tmp_path: Path) -> None:
    found = agent(tmp_path, "{tools: [execute_sql, weather.py, 'shop.tools:ship'], mcp_servers: {s: {command: x}}}")
    assert (found.tools, found.custom) == (("execute_sql",), ("weather.py", "shop.tools:ship"))
    assert not found.allows_mcp


def test_tools_may_be_sorted_by_where_they_come_from(tmp_path: Path) -> None:
    spec = """
  mcp_servers: {one: {command: x}, two: {command: y}}
  tools: {builtin: [execute_sql], custom: [weather.py, registered], mcp: [{server: two, tools: [read]}]}
"""
    found = agent(tmp_path, spec)
    assert (found.tools, found.custom) == (("execute_sql", "registered"), ("weather.py",))
    assert (found.mcp_servers, found.allows_mcp) == ((McpServer("two", "y", tools=("read",)),), True)


def test_what_the_sorted_tools_leave_out_is_not_restricted(tmp_path: Path) -> None:
    found = agent(tmp_path, "{tools: {custom: [weather.py]}, mcp_servers: {one: {command: x}}}")
    assert (found.tools, found.custom, len(found.mcp_servers)) == (None, ("weather.py",), 1)


def test_an_agent_may_only_read_and_must_ask(tmp_path: Path) -> None:
    spec = "{config: {read_only: true, approval: {tools: [pay], timeout_seconds: 60, on_timeout: approve}}}"
    found = agent(tmp_path, spec)
    assert found.is_read_only
    assert found.approval == ApprovalPolicy(("pay",), 60.0, "approve")
    assert (found.approval.asks("pay"), found.approval.asks("look")) == (True, False)
    assert ApprovalPolicy(("*",)).asks("look")


@pytest.mark.cases(
    ("spec", "reason"),
    [
        ("{backend: {type: csv}}", "spec.backend.type: one of sql, rest, documents is needed, not 'csv'"),
        (
            "{backend: {type: rest, url: 'http://x'}}",
            "spec.backend.openapi: a path (a backend of type rest must have it)",
        ),
        ("{backend: {type: documents}}", "spec.backend.path: a path (a backend of type documents must have it)"),
        ("{backend: {type: sql, path: x}}", "spec.backend.path: nothing (a backend of type sql has no such member)"),
        (
            "{backend: {type: rest, openapi: x, auth: {type: bearer}}}",
            "spec.backend.auth.secret: the name of a secret (LOOM_SECRET_<name> in the environment) is needed",
        ),
        ("{mcp_servers: {s: {}}}", "spec.mcp_servers.s: either a command or a url is needed, not 'neither'"),
        ("{mcp_servers: {s: {command: x, url: y}}}", "spec.mcp_servers.s: either a command or a url is needed"),
        ("{mcp_servers: {a__b: {command: x}}}", "a name of 1-32 letters, digits, '-' and single '_' is needed"),
        ("{tools: {mcp: [{server: s}]}}", "spec.tools.mcp[0].server: one of mcp_servers (there are none) is needed"),
        ("{tools: {mcp: s}}", "spec.tools.mcp: a list of mappings is needed, not 's'"),
        (
            "{config: {approval: {on_timeout: maybe}}}",
            "spec.config.approval.on_timeout: one of deny, approve is needed",
        ),
        ("{config: {read_only: 1}}", "spec.config.read_only: true or false is needed, not '1'"),
    ],
)
def test_what_cannot_work_is_told_with_its_place(tmp_path: Path, spec: str, reason: str) -> None:
    found = read(tmp_path, spec)
    assert "a" not in found.agents
    assert reason in str(found.problems[0])


def test_guardrails_name_what_is_searched_for_at_which_stage(tmp_path: Path) -> None:
    spec = "{guardrails: {input: {injection: block, pii: redact}, output: {secret: redact}}}"
    found = agent(tmp_path, spec).guardrails
    assert found.at("input") == {**dict.fromkeys(SENSITIVE[1:], "redact"), "injection": "block"}
    assert (found.at("tool_result"), found.at("output")) == ({}, {"secret": "redact"})
    assert agent(tmp_path, "{}").guardrails == NO_GUARDRAILS


def test_guardrails_that_are_listed_are_the_same_as_by_kind(tmp_path: Path) -> None:
    listed = """{guardrails: {
      input: [{find: injection, action: block}, {find: pii, action: redact}, {find: card, action: flag}],
      tool_result: {secret: redact},
      output: [{find: secrets, action: block}, {find: secret, action: redact}, {find: email, action: flag}]}}"""
    by_kind = """{guardrails: {
      input: {injection: block, pii: redact, card: flag},
      tool_result: {secret: redact},
      output: {secret: block, email: flag}}}"""
    assert agent(tmp_path, listed).guardrails == agent(tmp_path, by_kind).guardrails
    assert agent(tmp_path, "{guardrails: {input: []}}").guardrails == NO_GUARDRAILS


def test_a_model_can_be_asked_about_injection_where_somebody_else_wrote_the_text(tmp_path: Path) -> None:
    rule = "{find: injection, action: block, model: ollama/hub/qwen:1}"
    found = agent(tmp_path, f"{{guardrails: {{input: [{rule}], tool_result: {{injection: flag}}}}}}").guardrails
    assert (found.models, found.input) == ({"input": "ollama/hub/qwen:1"}, {"injection": "block"})
    assert Guardrails.of(found.as_json()) == found
    assert NO_GUARDRAILS.with_those_of(found) == found


@pytest.mark.cases(
    ("spec", "text"),
    [
        ("{guardrails: {input: {cards: block}}}", "pii, secret, card"),
        ("{guardrails: {input: {card: hide}}}", "one of flag, redact, block"),
        ("{guardrails: {output: {injection: block}}}", "of output these can be searched for"),
        ("{guardrails: {input: block}}", "a mapping"),
        ("{guardrails: {input: [block]}}", "a mapping is needed, not str"),
        ("{guardrails: {input: [{find: cards, action: block}]}}", "one of pii, secret, card"),
        ("{guardrails: {input: [{find: card, action: hide}]}}", "one of flag, redact, block"),
        ("{guardrails: {output: [{find: injection, action: block}]}}", "email, ip, secrets is needed, not 'injection'"),
        ("{guardrails: {input: [{action: block}]}}", "is missing"),
        ("{guardrails: {input: [{find: card}]}}", "is missing"),
        ("{guardrails: {input: [{find: card, action: flag, model: anthropic/c}]}}", "find: injection alone"),
        ("{guardrails: {output: [{find: card, action: flag, model: anthropic/c}]}}", "input and tool_result"),
        ("{guardrails: {arguments: [{find: injection, action: flag, model: ollama/q}]}}", "input and tool_result"),
        ("{guardrails: {input: [{find: injection, action: flag, model: haiku}]}}", "provider/model"),
        ("{guardrails: {input: [{find: injection, action: flag, model: scripted/x}]}}", "anthropic, bedrock, openai"),
        (
            "{guardrails: {input: [{find: injection, action: flag, model: ollama/a},"
            " {find: injection, action: block, model: ollama/b}]}}",
            "'ollama/a' (each stage asks one model)",
        ),
    ],
)
def test_guardrails_that_cannot_be_meant_are_told_with_their_line(tmp_path: Path, spec: str, text: str) -> None:
    [problem] = [each for each in read(tmp_path, spec).problems if not each.is_warning]
    assert text in problem.text
    assert problem.line == 4


def test_a_listed_rule_that_cannot_be_meant_is_told_with_its_own_line(tmp_path: Path) -> None:
    spec = "\n  guardrails:\n    input:\n    - {find: card, action: flag}\n    - find: email\n      action: hide\n"
    [problem] = read(tmp_path, spec).problems
    assert (problem.field, problem.line) == ("spec.guardrails.input[1].action", 9)


@pytest.mark.cases(
    ("guardrails", "field"),
    [("{tools: {}}", "tools"), ("{input: [{find: card, action: flag, when: always}]}", "input[0].when")],
)
def test_a_member_of_guardrails_that_is_none_is_an_unknown_key(tmp_path: Path, guardrails: str, field: str) -> None:
    [problem] = read(tmp_path, f"{{guardrails: {guardrails}}}").problems
    assert (problem.field, problem.line) == (f"spec.guardrails.{field}", 4)


def test_an_agent_names_those_it_may_call(tmp_path: Path) -> None:
    assert agent(tmp_path, "{may_call: [aide, flow:writer]}").may_call == ("aide", "flow:writer")
    assert agent(tmp_path, "{}").may_call == ()


def test_a_file_says_which_learned_version_its_sessions_begin_with(tmp_path: Path) -> None:
    spec = "{learned: {enabled: true, version: 3, max_tokens: 900, signatures: [sort]}}"
    assert agent(tmp_path, spec).learned == LearnedPolicy(version=3, max_tokens=900, signatures=("sort",))
    assert agent(tmp_path, "{learned: {version: latest}}").learned.version == "latest"
    assert agent(tmp_path, "{learned: {enabled: false}}").learned.is_enabled is False
    assert agent(tmp_path, "{}").learned == AS_ACTIVATED


def test_what_a_file_says_of_learned_layers_is_found_by_the_agent_s_name(tmp_path: Path) -> None:
    read(tmp_path, "{learned: {version: 3}}")
    known = KnownAgents(LiveAgents(tmp_path), LiveWorkflows(tmp_path))
    assert known.learned("a") == LearnedPolicy(version=3)
    assert known.learned("nobody") == AS_ACTIVATED


@pytest.mark.cases("version", ["0", "-1", "true", "newest", "1.5", "[1]"])
def test_a_learned_version_that_there_cannot_be_is_told_with_its_line(tmp_path: Path, version: str) -> None:
    [problem] = read(tmp_path, f"{{learned: {{version: {version}}}}}").problems
    assert (problem.field, problem.line) == ("spec.learned.version", 4)
    assert "a number from 1, latest or none is needed" in problem.text
