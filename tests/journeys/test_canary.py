"""Keys and a user's words, planted in a turn that uses everything: where they may be, and where nobody finds them.

SOURCES lists the places; a further one is one more function there.
"""

import base64
import json
import re
import secrets
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import urllib3

from loom_worker.core.logs import IDS
from loom_worker.core.settings import embedded_url
from loom_worker.core.values.spans import span_id_of
from tests.support.agents import written
from tests.support.log_lines import records
from tests.support.meeting import Meeting
from tests.support.messages_server import MessagesServer, Say
from tests.support.messages_wire import WireCall
from tests.support.redis_monitor import RedisMonitor
from tests.support.system import Json, System
from tests.support.until import until
from tests.support.webhook_receiver import Answer, WebhookReceiver

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(25)]

WORDS = ("question", "argument", "failure", "sql", "answer", "refusal")
"""Where a user's words are: the message, a tool's arguments, its error, a query, the answer, what a receiver says."""
JUDGES = '''
def fails(answer: str) -> float:
    """Never says anything but why it fails."""
    raise ValueError(f"cannot judge: {answer}")
'''
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
FLOWER_PAGES = ("/api/tasks", "/api/workers", "/api/queues/length", "/tasks", "/workers", "/broker", "/metrics", "/")


def planted(kind: str) -> str:
    return f"canary{kind}{secrets.token_hex(8)}"


@dataclass
class Run:
    """What was planted, and what was seen while the turn ran and after it."""

    system: System
    collector: WebhookReceiver
    """Where traces are exported to."""
    keys: Mapping[str, str]
    words: Mapping[str, str]
    turn: Json = field(default_factory=dict)
    processes: dict[str, str] = field(default_factory=dict)
    """Command line and environment of each process, by what it is."""
    commands: list[list[str]] = field(default_factory=list)
    """All that Redis was told."""


def logs(run: Run) -> Iterator[tuple[str, str]]:
    """Of each process, all that it has said since its start; and of `loom up` itself."""
    yield "output", run.system.output
    yield from ((path.name, path.read_text()) for path in sorted((run.system.home / "logs").iterdir()))


def redis_names(run: Run) -> Iterator[tuple[str, str]]:
    """Keys that there are, and whatever began like one in a command."""
    with run.system.redis() as client:
        yield "keys", "\n".join(client.scan_iter())
    yield "commands", "\n".join(part for command in run.commands for part in command if part.startswith("loom:"))


def celery_messages(run: Run) -> Iterator[tuple[str, str]]:
    """What was sent through Celery's queues and to those that follow its events, bodies decoded."""
    # What scripts do with these queues is listed by itself; their arguments hold what they write elsewhere, too.
    for command in (command for command in run.commands if command[0] not in ("EVALSHA", "EVAL")):
        text = " ".join(command)
        if command[:1] == ["PUBLISH"] or any(part.startswith(("loom:q:", "loom:r:")) for part in command):
            bodies = re.findall(r'"body": ?"([A-Za-z0-9+/=]+)"', text)
            yield command[0], "\n".join([text, *(base64.b64decode(body).decode() for body in bodies)])


def flower(run: Run) -> Iterator[tuple[str, str]]:
    """Pages and API, for those who know the password."""
    password = (run.system.home / "flower.password").read_text().strip()
    headers = urllib3.make_headers(basic_auth=f"loom:{password}")
    with urllib3.PoolManager(retries=False) as pool:
        found = pool.request("GET", f"{run.system.state['flower_url']}/api/tasks", headers=headers)
        pages = [*FLOWER_PAGES, *(f"/task/{task}" for task in json.loads(found.data))]
        for page in pages:
            yield page, pool.request("GET", run.system.state["flower_url"] + page, headers=headers).data.decode()


def error_summaries(run: Run) -> Iterator[tuple[str, str]]:
    """What failed; its text is a user's, but has no keys."""
    yield "errors", run.system.get("/v1/errors").text


def processes(run: Run) -> Iterator[tuple[str, str]]:
    """Command lines and environments."""
    yield from run.processes.items()


def trace(run: Run) -> Iterator[tuple[str, str]]:
    """What the API tells of the turn's spans, and the command prints."""
    yield "spans", run.system.get(f"/v1/turns/{run.turn['id']}/trace").text
    yield "tree", run.system.run("trace", run.turn["id"]).stdout


def exported(run: Run) -> Iterator[tuple[str, str]]:
    """What a collector of traces was sent."""
    assert run.system.run("trace", "--flush").returncode == 0
    until(
        lambda: any(bytes.fromhex(run.turn["trace_id"]) in sent.body for sent in run.collector.received),
        60,
        "the trace",
    )
    yield from ((sent.path, sent.body.decode(errors="replace")) for sent in run.collector.received)


@dataclass(frozen=True)
class Source:
    """A place where somebody may look."""

    texts: Callable[[Run], Iterator[tuple[str, str]]]
    proof: str
    """A pattern of what is found there, or the place was not looked at."""
    has_words: bool = False
    """True if what users wrote belongs there."""


SOURCES = [
    Source(logs, r'"message": "turn\.completed"'),
    Source(redis_names, r"loom:lane:"),
    Source(celery_messages, r"loom\.tool\.call"),
    Source(flower, r"loom\.tool\.call"),
    Source(error_summaries, r"\[redacted\]", has_words=True),
    Source(processes, r"LOOM_HOME="),
    Source(trace, r"tool\.execute"),
    Source(exported, r"tool\.execute"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    place = tmp_path_factory.mktemp("canary")
    keys = {
        "ANTHROPIC_API_KEY": f"sk-ant-api03-{planted('provider')}",
        "LOOM_KEY": planted("client"),
        "LOOM_WEBHOOK_SECRET": "whsec_" + base64.b64encode(planted("webhook").encode()).decode(),
        "LOOM_SECRET_CRM": planted("crm"),
        "AWS_SECRET_ACCESS_KEY": planted("aws"),
        "LOOM_TRACE_HEADERS": f"x-api-key={planted('collector')}",
    }
    judges = {"members": [{"name": "own", "type": "python", "criteria": "judges.py:fails"}]}
    agents = written(place / "agents", {"witness": {"tools": ["handmade.py", "execute_sql"], "judges": judges}})
    (Path(agents) / "judges.py").write_text(JUDGES)
    environ = {
        **keys,
        "LOOM_API_KEYS": f"default={keys['LOOM_KEY']}",
        "LOOM_AGENTS_DIR": agents,
        "LOOM_LOG_FORMAT": "json",
        "LOOM_LOG_LEVEL": "DEBUG",
        "LOOM_ALLOW_PRIVATE_WEBHOOKS": "1",
        "LOOM_PATTERNS_SHIPPED": "0",
    }
    with WebhookReceiver() as collector, MessagesServer() as server:
        environ |= {"ANTHROPIC_BASE_URL": server.url, "LOOM_TRACE_ENDPOINT": f"http://localhost:{collector.port}"}
        yield from seen(System(place / "home", **environ), collector, server, keys)


def seen(loom: System, collector: WebhookReceiver, server: MessagesServer, keys: Mapping[str, str]) -> Iterator[Run]:
    """The run of the turn, on a system that runs until nobody looks any more."""
    with loom as system:
        found = Run(system, collector, keys, {name: planted(name) for name in WORDS})
        with RedisMonitor(embedded_url(system.home)) as monitor:
            witnessed(found, server)
        found.commands = monitor.commands
        yield found


def witnessed(run: Run, server: MessagesServer) -> None:
    """A turn that calls tools, one of which fails, whose judge fails and whose webhook is refused."""
    system, words = run.system, run.words
    # As a driver repeats what it was given: a user's words, and keys that somebody had told the model.
    shop = f"{words['failure']}:password={run.keys['LOOM_SECRET_CRM']} {run.keys['ANTHROPIC_API_KEY']}@north"
    sql = f"SELECT '{words['sql']}' AS word FROM products LIMIT 1"
    with Meeting() as meeting, WebhookReceiver() as receiver:
        calls = [
            WireCall("toolu_meet", "meet", {"port": meeting.port, "name": words["argument"]}),
            WireCall("toolu_fails", "connect", {"shop": shop}),
            WireCall("toolu_sql", "execute_sql", {"sql": sql}),
        ]
        server.then(Say(words["answer"], calls), Say(words["answer"]))
        receiver.answer_with(Answer(status=503, body=words["refusal"].encode()))
        body = {"input": words["question"], "agent": "witness", "webhook": {"url": receiver.url}}
        headers = {"traceparent": TRACEPARENT, "X-Request-Id": "req_canary"}
        turn_id = system.post("/v1/sessions/s1/turns", body, headers).json["id"]
        (guest,) = meeting.guests(1)
        until(lambda: open_calls(system, turn_id) == {"toolu_meet"}, 30, "the other tools are done")
        run.processes = looked_at(system, guest.pid)
        guest.go_on(words["argument"])
        run.turn = system.ended(turn_id)
        until(lambda: refused(system), 30, "the webhook is refused")


def open_calls(system: System, turn_id: str) -> set[str]:
    return {call["id"] for call in system.turn(turn_id)["tool_calls"] if call["status"] in ("pending", "running")}


def refused(system: System) -> bool:
    return [each["last_status"] for each in system.get("/v1/deliveries").json["data"]] == [503]


def looked_at(system: System, tool: int) -> dict[str, str]:
    """The supervisor, its children, and theirs; the tool that runs is one of them."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = dict(map(int, line.split()) for line in listed.splitlines())
    found, names = {system.state["pid"]}, {pid: name for name, pid in system.children.items()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    assert tool in found
    assert len(found) > len(names) + 2  # two programs of tools: users' own, and those of backends
    texts = {}
    for pid in found:
        folder = Path(f"/proc/{pid}")
        if folder.exists():
            parts = (folder / "cmdline").read_bytes() + b"\0" + (folder / "environ").read_bytes()
            texts[f"{names.get(pid, 'of a worker')} {pid}"] = parts.replace(b"\0", b"\n").decode(errors="replace")
    return texts


def secrets_of(run: Run) -> list[str]:
    """What must be nowhere; of a webhook secret also what it stands for, of a header what is secret of it."""
    webhook = base64.b64decode(run.keys["LOOM_WEBHOOK_SECRET"].removeprefix("whsec_")).decode()
    return [*run.keys.values(), webhook, run.keys["LOOM_TRACE_HEADERS"].partition("=")[2]]


def test_the_turn_has_used_all_that_was_planted(run: Run) -> None:
    assert run.turn["status"] == "completed"
    assert [call["status"] for call in run.turn["tool_calls"]] == ["completed", "failed", "completed"]
    told = json.dumps(run.turn)
    assert [name for name in ("question", "argument", "failure", "sql", "answer") if run.words[name] not in told] == []
    # By design: readers of a turn's events get the answer from Redis, as the value of its stream.
    assert run.words["answer"] in " ".join(part for command in run.commands for part in command)


@pytest.mark.parametrize("source", SOURCES, ids=[source.texts.__name__ for source in SOURCES])
def test_neither_keys_nor_a_user_s_words_are_found_where_they_do_not_belong(run: Run, source: Source) -> None:
    found = list(source.texts(run))
    assert any(re.search(source.proof, text) for _, text in found)
    wanted = [*secrets_of(run), *([] if source.has_words else run.words.values())]
    assert [(name, one) for name, text in found for one in wanted if one in text] == []


def lines(run: Run, *names: str) -> list[Json]:
    """What processes logged, oldest first."""
    files = [run.system.home / "logs" / f"{name}.log" for name in names]
    return sorted((line for file in files for line in records(file.read_text())), key=lambda line: line["time"])


WORKERS = ("worker-1", "worker-2", "worker-3")


def test_each_process_of_loom_logs_one_json_object_a_line(run: Run) -> None:
    for name in ("web", *WORKERS, "beat", "flower"):
        found = lines(run, name)
        assert found != []
        assert [line for line in found if not {"time", "level", "logger", "message"} <= line.keys()] == []
        assert [key for line in found for key in line if key not in (*IDS, "time", "level", "logger", "message")] == []


def test_the_lines_of_a_turn_tell_its_story_with_its_trace_and_its_spans(run: Run) -> None:
    turn_id = run.turn["id"]
    story = [line for line in lines(run, "web", *WORKERS) if line.get("turn") == turn_id]
    told = [line["message"] for line in story]
    assert told[0] == "turn.accepted"
    assert {"tool.completed", "tool.failed", "judge.dead", "turn.completed"} <= set(told)
    assert told.index("tool.failed") < told.index("turn.completed")
    assert any(text.startswith("webhook.pending") for text in told)
    assert {line.get("trace_id") for line in story} == {TRACEPARENT.split("-")[1]} == {run.turn["trace_id"]}
    assert {line["session"] for line in story if "delivery" not in line} == {"s1"}

    spans = {line["message"]: line["span_id"] for line in story}
    assert spans["turn.accepted"] == spans["turn.completed"] == span_id_of(turn_id)
    (failed,) = [line for line in story if line["message"] == "tool.failed"]
    (listed,) = run.system.get("/v1/errors").json["data"]
    assert (failed["call"], failed["tool_name"], failed["error_id"]) == ("toolu_fails", "connect", listed["id"])
    assert failed["span_id"] == span_id_of(turn_id, "tool", "toolu_fails")
    assert failed["task"].startswith("loom.tool.call|")


def test_a_request_s_lines_have_its_id(run: Run) -> None:
    (accepted,) = [line for line in lines(run, "web") if line["message"] == "turn.accepted"]
    (ended,) = [line for line in lines(run, *WORKERS) if line["message"] == "turn.completed"]
    assert accepted["request"] == ended["request"] == "req_canary"
