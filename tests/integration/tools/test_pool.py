import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from loom_worker.backends.sql import SqlBackend
from loom_worker.core.errors import Interrupted
from loom_worker.core.isolation import process_env
from loom_worker.core.values.ids import now_us
from loom_worker.core.values.tools import Outcome
from loom_worker.tools import child_main, targets
from loom_worker.tools.outcome import BUSY, DIED, NO_PROCESS
from loom_worker.tools.pool import Pool, Program
from tests.support.callers import CALLER
from tests.support.processes import is_alive
from tests.support.until import AT_ONCE_S, until

pytestmark = pytest.mark.takes(6)

HERE = Path(__file__).parent
TOOLS = {tool.spec.name: tool for tool in targets.tools("naughty.py", HERE)}
TIMED_OUT = Outcome("timeout", "timed out after 0.5 s", is_fault=True)
SECRET = {"ANTHROPIC_API_KEY": "k", "LOOM_API_KEYS": "k", "LOOM_WEBHOOK_SECRET": "k", "LOOM_SECRET_CRM": "k"}


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    environ = {**os.environ, **SECRET, "LOOM_HOME": "/x", "MY_OWN": "mine", "PGPASSWORD": "p"}
    pool = Pool(child_main.command(), most=4, environ=process_env.inherited(environ, ("MY_OWN",)))
    yield pool
    pool.close()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


def run(pool: Pool, name: str, timeout_s: float = 20.0, max_bytes: int = 20_000_000, **arguments: object) -> Outcome:
    return pool.run(TOOLS[name], arguments, CALLER, timeout_s=timeout_s, max_bytes=max_bytes)


def told(note: Path) -> list[int]:
    """The processes that a tool said are at work."""
    until(note.exists, 20, "the tool began")
    return [int(word) for word in note.read_text().split()]


def gone(pid: int) -> None:
    until(lambda: not is_alive(pid), 10, f"the end of process {pid}")


def test_a_result_comes_back_and_the_same_child_serves_again(pool: Pool) -> None:
    first, second = run(pool, "pid"), run(pool, "pid")
    assert first == second == Outcome("completed", first.content, "application/json")
    assert first.content != str(os.getpid())


def test_it_is_told_when_a_call_ran_and_in_which_process(pool: Pool) -> None:
    before_us = now_us()
    found = run(pool, "pid")
    assert found.process is not None
    assert str(found.process["pid"]) == found.content
    began_us, ended_us = found.process["at"]
    assert before_us <= began_us <= ended_us <= now_us()


def test_a_tool_cannot_make_up_when_it_ran() -> None:
    pool, before_us = Pool(child_main.command(), most=1, environ=os.environ), now_us()
    try:
        honest, lying = run(pool, "pid"), run(pool, "lie")
        assert honest.process is not None
        assert lying.process is not None
        assert lying.process["pid"] == honest.process["pid"]
        began_us, ended_us = lying.process["at"]
        assert before_us <= began_us <= ended_us <= now_us()
    finally:
        pool.close()


def test_a_failure_comes_back_whole(pool: Pool) -> None:
    found = run(pool, "fail", text="é" * 3000, code="UNAVAILABLE")
    assert (found.content, found.code, found.is_fault) == ("é" * 3000, "UNAVAILABLE", True)
    assert "in fail" in found.detail
    assert not run(pool, "fail", text="x", code="INVALID_INPUT").is_fault


def test_large_results_and_any_characters_come_through(pool: Pool) -> None:
    found = run(pool, "text", times=220_000)
    assert found.content == "für s1 日本 😀 \ufffd\n" * 220_000
    assert len(found.content.encode()) > 5_000_000


@pytest.mark.heavy
def test_large_arguments_come_through(pool: Pool) -> None:
    assert run(pool, "fail", text="x" * 3_000_000, code="INVALID_INPUT").content == "x" * 3_000_000


def test_a_hang_in_c_is_ended(pool: Pool, tmp_path: Path) -> None:
    assert run(pool, "hang_in_c", 0.5, note=str(tmp_path / "n")) == TIMED_OUT
    gone(told(tmp_path / "n")[0])


@pytest.mark.heavy
def test_a_hang_in_a_socket_is_ended(pool: Pool, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = run(pool, "hang_in_a_socket", 0.5, note=str(tmp_path / "n"), port=server.getsockname()[1])
    assert found == TIMED_OUT
    gone(told(tmp_path / "n")[0])


@pytest.mark.heavy
def test_what_a_tool_started_ends_with_it_and_nothing_can_be_ignored(pool: Pool, tmp_path: Path) -> None:
    assert run(pool, "hang_stubbornly", 1.0, note=str(tmp_path / "n")).status == "timeout"
    for pid in told(tmp_path / "n"):
        gone(pid)


def test_a_fork_that_comes_back_disturbs_nothing(pool: Pool, tmp_path: Path) -> None:
    copy = int(run(pool, "fork", note=str(tmp_path / "n")).content)
    assert copy > 0
    (tmp_path / "n.go").touch()
    gone(copy)
    assert run(pool, "text", times=1).content.startswith("für s1")


def test_a_death_is_noticed_at_once_though_a_copy_holds_the_pipes(pool: Pool, tmp_path: Path) -> None:
    began_s = time.monotonic()
    found = run(pool, "die_with_a_copy_alive", 60.0, note=str(tmp_path / "n"))
    assert (found.status, found.content, found.is_fault) == ("failed", DIED, True)
    assert "exit status is 3" in found.detail
    assert time.monotonic() - began_s < AT_ONCE_S
    for pid in told(tmp_path / "n"):
        gone(pid)


def test_a_crash_is_a_fault_that_names_its_signal_and_the_next_call_has_a_new_child(pool: Pool) -> None:
    found = run(pool, "crash")
    assert (found.content, found.is_fault) == (DIED, True)
    assert f"status is {-signal.SIGSEGV}" in found.detail
    assert run(pool, "pid").status == "completed"


def test_nothing_a_tool_prints_reaches_the_protocol(pool: Pool) -> None:
    assert run(pool, "shout").content == "''"
    assert run(pool, "pid").status == "completed"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the address space")
def test_a_memory_bomb_ends_in_its_child(pool: Pool) -> None:
    found = run(pool, "swallow", memory=3 << 30)
    assert (found.status, found.content, found.is_fault) == ("failed", "MemoryError", True)
    assert run(pool, "swallow", memory=1 << 20).content == str(1 << 20)


def test_a_child_knows_what_is_harmless_or_named_and_no_other_variable(pool: Pool) -> None:
    assert {run(pool, "environment", variable=name).content for name in (*SECRET, "PGPASSWORD")} == {"null"}
    assert run(pool, "environment", variable="PATH").content == os.environ["PATH"]
    assert run(pool, "environment", variable="MY_OWN").content == "mine"
    assert run(pool, "environment", variable="LOOM_HOME").content == "/x"


def test_a_child_that_worked_for_a_backend_serves_no_tool_of_a_user_and_makes_room_for_one(tmp_path: Path) -> None:
    look = SqlBackend(f"sqlite:///{tmp_path / 'no.db'}").tools()[0]
    pool = Pool(
        child_main.command(),
        most=1,
        environ=os.environ,
        for_backends=Program("backends", child_main.command(), {**os.environ, "ONLY": "backends"}),
    )
    try:
        pool.run(look, {}, CALLER, timeout_s=20.0, max_bytes=1000)
        of_backend = pool._idle[0].pid
        first = run(pool, "pid").content
        assert int(first) != of_backend
        gone(of_backend)
        assert run(pool, "environment", variable="ONLY").content == "null"
        assert run(pool, "pid").content == first
    finally:
        pool.close()


def test_calls_run_at_once_each_in_a_process_of_its_own(
    pool: Pool, tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    met = [threads.submit(run, pool, "meet", note=str(tmp_path), others=4) for _ in range(4)]
    assert [each.result().content for each in met] == ["met"] * 4


def busy(pool: Pool, threads: ThreadPoolExecutor, note: Path, timeout_s: float = 60.0) -> Future[Outcome]:
    """A child at work."""
    call = threads.submit(run, pool, "hang_in_c", timeout_s, note=str(note))
    told(note)
    return call


@pytest.fixture
def single() -> Iterator[Pool]:
    pool = Pool(child_main.command(), most=1, environ=os.environ, idle_s=0.02)
    yield pool
    pool.close()


@pytest.mark.heavy
def test_waiting_for_a_free_child_has_an_end_and_is_no_fault_of_the_tool(
    single: Pool, tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    hanging = busy(single, threads, tmp_path / "n", timeout_s=2.0)
    assert run(single, "pid", 0.05) == Outcome("failed", BUSY, code="UNAVAILABLE")
    waiting = threads.submit(run, single, "pid")
    assert hanging.result().status == "timeout"
    assert waiting.result().status == "completed"


def test_closing_ends_what_is_at_work_and_calls_it_interrupted(
    single: Pool, tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    hanging = busy(single, threads, tmp_path / "n")
    waiting = threads.submit(run, single, "pid")
    single.close()
    for call in (hanging, waiting):
        with pytest.raises(Interrupted):
            call.result()
    with pytest.raises(Interrupted):
        run(single, "pid")
    gone(told(tmp_path / "n")[0])


def test_an_idle_child_that_died_is_replaced_without_anybody_noticing(single: Pool) -> None:
    first = int(run(single, "pid").content)
    os.kill(first, signal.SIGKILL)
    gone(first)
    assert int(run(single, "pid").content) != first


@pytest.mark.heavy
def test_idle_children_end_after_a_while_but_for_the_one_used_last(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    pool = Pool(child_main.command(), most=2, environ=os.environ, idle_s=0.5)
    try:
        for call in [threads.submit(run, pool, "meet", note=str(tmp_path), others=2) for _ in range(2)]:
            call.result()
        pids = [int(path.name) for path in tmp_path.iterdir()]
        until(lambda: sum(map(is_alive, pids)) == 1, 10, "the end of one of two children")
        [left] = filter(is_alive, pids)
        assert int(run(pool, "pid").content) == left
    finally:
        pool.close()


def test_a_program_that_cannot_be_started_or_talks_nonsense_is_a_failure() -> None:
    absent = Pool(["/nonesuch/python"], most=1, environ={})
    found = run(absent, "pid")
    assert (found.status, found.content, found.code) == ("failed", NO_PROCESS, "UNAVAILABLE")
    assert run(absent, "pid") == found  # its place was given back
    noisy = Pool([sys.executable, "-c", "print('hello, world', flush=True); input()"], most=1, environ={})
    assert run(noisy, "pid").content == DIED
    for pool in (absent, noisy):
        pool.close()


@pytest.mark.heavy
def test_nothing_outlives_a_worker_that_is_killed(tmp_path: Path) -> None:
    note = tmp_path / "n"
    worker = f"""
import os, tests.integration.tools.test_pool as made
made.run(made.Pool(made.child_main.command(), most=1, environ=os.environ), {"hang_stubbornly"!r}, note={str(note)!r})
"""
    with subprocess.Popen([sys.executable, "-c", worker], cwd=HERE.parents[2]) as running:
        pids = told(note)
        assert all(map(is_alive, pids))
        running.kill()
    for pid in pids:
        gone(pid)


@pytest.mark.heavy
def test_a_child_that_hangs_in_c_does_not_outlive_its_worker_either(tmp_path: Path) -> None:
    note = tmp_path / "n"
    worker = f"""
import os, threading, tests.integration.tools.test_pool as made
pool = made.Pool(made.child_main.command(), most=1, environ=os.environ)
threading.Thread(target=made.run, args=(pool, "pid")).run()  # started by a thread that is gone by then
made.run(pool, "hang_in_c", 60.0, note={str(note)!r})
"""
    with subprocess.Popen([sys.executable, "-c", worker], cwd=HERE.parents[2]) as running:
        pid = told(note)[0]
        running.kill()
    gone(pid)


def test_a_child_outlives_the_thread_that_started_it(single: Pool) -> None:
    found: list[Outcome] = []
    thread = threading.Thread(target=lambda: found.append(run(single, "pid")))
    thread.start()
    thread.join()
    assert run(single, "pid") == found[0]
