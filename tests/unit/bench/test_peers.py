import os
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from bench.figures.peers import HEAD, LOOM, Measured, table
from bench.peers import celery, dbos, restate
from bench.peers.peer import NotInstalled, processes
from bench.processes import family
from tests.support.until import until


def test_the_table_sets_loom_beside_each_peer() -> None:
    found = {"other": Measured(2.0, 4.0, 300.0, 2.0, 1.0), LOOM: Measured(10.0, 20.0, 100.0, 12.0, 1.0, (0.5, 2.0))}
    assert table(found).splitlines() == [
        *HEAD.splitlines(),
        "| other | 2.00 ms | 4.00 ms | 300.0 | 2.00 | 0.0 to 0.0 | 5.00 | 0.33 | 6.00 |",
        "| Loom | 10.0 ms | 20.0 ms | 100.0 | 12.0 | 0.5 to 2.0 |  |  |  |",
    ]


def test_a_peer_that_is_not_installed_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotInstalled, match="npm install"), restate.running():
        pass
    with pytest.raises(NotInstalled, match="pip install dbos"), dbos.running(poll_s=1.0):
        pass


def test_the_processes_of_a_peer_end_with_it_and_their_folder_is_removed() -> None:
    with processes() as started:
        started.start(sys.executable, "-c", "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])")
        (process,) = started._started
        assert started.folder.is_dir()
    assert process.poll() is not None
    assert not started.folder.exists()


def test_a_family_is_a_process_and_all_that_descend_from_it() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as parent:
        until(lambda: len(family([parent.pid])) == 2, 20, "the child runs")
        assert parent.pid in family([parent.pid])
        assert parent.pid in family([os.getpid()])
        parent.communicate(b"\n", timeout=20)


def test_the_interpreters_of_peers_need_none_of_looms_packages() -> None:
    code = "import sys, bench.peers.dbos, bench.peers.restate; print([m for m in sys.modules if 'loom_worker' in m])"
    root = Path(__file__).parents[3]
    told = subprocess.run([sys.executable, "-S", "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert told.stdout == "[]\n"


@pytest.mark.heavy
@pytest.mark.integration
def test_a_turn_of_celery_alone_appends_to_its_session() -> None:
    with celery.running() as peer, httpx2.Client(timeout=30) as http:
        for _ in range(3):
            peer.wait(http, peer.submit(http, "s", "hello"))
        assert peer.cpu_ms() > 0
