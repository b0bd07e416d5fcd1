"""What a call goes through in a worker: rate, breaker, the tool itself, and what is kept of its outcome."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis

from loom_worker.core import redis_client
from loom_worker.core.errors import Interrupted, ToolFailed
from loom_worker.core.settings_tree import BlobSettings, Settings
from loom_worker.core.stopping import Stopping
from loom_worker.core.text import fence
from loom_worker.core.values.calls import Call
from loom_worker.core.values.chat import ToolSpec
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Caller, Outcome, Rate, Tool
from loom_worker.guard.limits import Breakers, RateLimiter
from loom_worker.llm.tokens import cl100k_tokens
from loom_worker.store.agent_errors import AgentErrors
from loom_worker.store.blobs import BlobRows
from loom_worker.store.database import Database
from loom_worker.tools.error_channel import Failures, error_detail_tool
from loom_worker.tools.execution import ToolExecutor
from loom_worker.tools.files import Files
from loom_worker.tools.pool import Pool
from loom_worker.tools.references import References, stores
from tests.support.valkey import Valkey
from tests.unit.store.made import WORKSPACE, running

CALL = Call("toolu_1", "look", {}, position=0, reply_n=1)


@pytest.fixture
def caller(database: Database) -> Caller:
    turn = running(database).turn
    return Caller(turn.lane, turn.session_id, WORKSPACE, turn.id, "toolu_1", "default")


@pytest.fixture
def executor(
    settings: Settings, database: Database, valkey: redis.Redis, valkey_server: Valkey, tmp_path: Path
) -> Iterator[ToolExecutor]:
    raw = redis_client.client(valkey_server.url, connections=4, decodes=False)
    blobs = BlobSettings(folder=tmp_path / "blobs")
    pool = Pool(("false",), most=1, environ={})
    yield ToolExecutor(
        settings=settings,
        pool=pool,
        breakers=Breakers(valkey),
        rates=RateLimiter(valkey),
        files=Files.of(settings, database, References(stores(blobs, BlobRows(database), raw), blobs)),
        failures=Failures(AgentErrors(database)),
        stopping=Stopping(1.0),
    )
    pool.close()


def tool(run: Callable[..., object], **facts: Any) -> Tool:
    return Tool(ToolSpec("look", "Looks.", {"type": "object"}), run, **facts)


def fails(_arguments: object, _caller: object) -> str:
    raise ToolFailed("the server is down", "UNAVAILABLE")


def test_after_faults_in_five_sessions_a_tool_is_not_run(executor: ToolExecutor, caller: Caller) -> None:
    broken = tool(fails, group="api")
    run = [replace(caller, lane=f"stage {n}", run_id="run_1") for n in range(9)]
    sessions = [*[caller] * 9, *run, *(replace(caller, lane=f"{caller.lane}-{n}") for n in range(3))]
    assert [executor.run(broken, {}, each).is_fault for each in sessions] == [True] * 21
    ran: list[int] = []
    other_tool_of_it = tool(lambda a, c: ran.append(1), group="api")
    refused = executor.run(other_tool_of_it, {}, caller)
    assert (refused.status, refused.code, ran) == ("failed", "UNAVAILABLE", [])
    assert 0 < executor.open_breakers(["api", "other"])["api"] <= 30
    assert executor.run(tool(lambda a, c: "fine", group="other"), {}, caller).content == "fine"


def test_wrong_arguments_never_open_a_breaker(executor: ToolExecutor, caller: Caller) -> None:
    def refuses(_arguments: object, _caller: object) -> str:
        raise ToolFailed("no such table", "INVALID_INPUT")

    for _ in range(9):
        executor.run(tool(refuses, group="db"), {}, caller)
    assert executor.open_breakers(["db"]) == {}


def test_loom_s_own_tools_have_no_breaker(executor: ToolExecutor, caller: Caller) -> None:
    for _ in range(6):
        executor.run(tool(fails), {}, caller)
    assert executor.run(tool(lambda a, c: "fine"), {}, caller).content == "fine"


def test_a_worker_that_stops_says_nothing_of_a_tool(executor: ToolExecutor, caller: Caller) -> None:
    limited = tool(lambda a, c: "fine", rate=Rate(1, 60.0), group="slow")
    assert executor.run(limited, {}, caller).content == "fine"
    refused = executor.run(limited, {}, caller)
    assert (refused.status, refused.code, refused.is_fault) == ("failed", "UNAVAILABLE", False)
    soon = replace(limited, rate=Rate(1, 2.0), group="soon")
    executor.run(soon, {}, caller)
    stopping = Stopping(1.0)
    stopping.ask()
    with pytest.raises(Interrupted):
        replace(executor, stopping=stopping).run(soon, {}, caller)


def test_a_large_result_costs_fewer_than_a_hundred_tokens_with_its_fence(
    executor: ToolExecutor, caller: Caller, database: Database
) -> None:
    rows = ",".join(f'[{n},"Customer {n} of the shop",{n * 1.5}]' for n in range(10_000))
    text = f'{{"columns":["id","name","revenue"],"rows":[{rows}]}}'
    done = executor.with_outcome(CALL, Outcome("completed", text, "application/json"), caller)
    assert done.status == "completed"
    assert done.ref is not None
    assert f"[Large dataset stored: {done.ref}]" in str(done.content)
    assert cl100k_tokens(fence(caller.turn_id, str(done.content))) < 100
    assert executor.references.read(done.ref, caller)[1].decode() == text


def test_a_small_result_stays_as_it_is_but_for_what_nobody_sees(executor: ToolExecutor, caller: Caller) -> None:
    done = executor.with_outcome(CALL, Outcome("completed", "4\u202e2\u200b"), caller)
    assert (done.content, done.ref) == ("42", None)


def test_a_store_that_is_full_costs_the_rest_of_a_result_and_says_so(
    executor: ToolExecutor, caller: Caller, database: Database, valkey_server: Valkey, tmp_path: Path
) -> None:
    full = BlobSettings(folder=tmp_path / "full", disk_bytes=10)
    raw = redis_client.client(valkey_server.url, connections=4, decodes=False)
    references = References(stores(full, BlobRows(database), raw), full)
    small = replace(executor, files=Files.of(executor.settings, database, references))
    done = small.with_outcome(CALL, Outcome("completed", "x" * 50_000), caller)
    assert done.ref is None
    assert len(str(done.content)) <= executor.settings.tools.reference_bytes
    assert "only the beginning of 50.0 KB is shown" in str(done.content)


def test_a_call_keeps_when_its_process_ran_and_when_its_error_was_stored(
    executor: ToolExecutor, caller: Caller
) -> None:
    process = {"pid": 7, "at": [1, 2]}
    done = executor.with_outcome(CALL, Outcome("completed", "4", process=process), caller)
    assert done.trace == {"process": process}
    assert executor.with_outcome(CALL, Outcome("completed", "4"), caller).trace is None
    failed = executor.with_outcome(CALL, Outcome("failed", "no", process=process), caller)
    assert failed.trace is not None
    assert failed.trace["process"] == process
    began_us, ended_us = failed.trace["error_stored"]
    assert began_us <= ended_us


@pytest.mark.cases(
    "error_id, trace",
    [
        (" {} ", {"error_read": {"error_id": "{}"}}),
        ("err_20261121_230334_abc123", {"error_read": {"error_id": "err_20261121_230334_abc123"}}),
        ("no id\x1b", {}),
    ],
)
def test_a_call_keeps_when_it_read_the_error_store(
    executor: ToolExecutor, caller: Caller, database: Database, error_id: str, trace: Json
) -> None:
    _, kept = executor.failures.keep(caller, "look", Outcome("failed", "no"))
    outcome = executor.run(error_detail_tool(AgentErrors(database)), {"error_id": error_id.format(kept)}, caller)
    known = executor.with_outcome(CALL, outcome, caller).trace or {}
    known.pop("error_stored", None)
    for read in known.values():
        began_us, ended_us = read.pop("at")
        assert began_us <= ended_us
    assert known == {name: {"error_id": read["error_id"].format(kept)} for name, read in trace.items()}


def test_a_failure_is_told_in_a_line_with_the_id_of_the_whole(
    executor: ToolExecutor, caller: Caller, database: Database
) -> None:
    outcome = Outcome("failed", "ValueError: password=hunter22 is wrong\nand more", detail="Traceback …", is_fault=True)
    done = executor.with_outcome(CALL, outcome, caller)
    assert done.status == "failed"
    assert str(done.content).startswith("Tool 'look' failed: ")
    assert f"[Error ID: {done.error_id}]" in str(done.content)
    assert "hunter22" not in str(done.content)
    kept = AgentErrors(database).get(WORKSPACE, str(done.error_id))
    assert kept.raw_error["detail"] == "Traceback …"
