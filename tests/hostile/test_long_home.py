"""A home whose path is too long for a socket, on a machine with other users."""

import os
from pathlib import Path

import pytest

from loom_worker.core.socket_folder import embedded_socket
from tests.support.messages_server import MessagesServer
from tests.support.system import System, plain_agent

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(30)]
NOBODY = 65_534


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder for somebody else")
def test_loom_serves_from_a_long_home_and_refuses_a_socket_folder_of_somebody_elses(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 30) / "home"
    home.parent.mkdir()
    agents = plain_agent(tmp_path / "agents")
    with MessagesServer() as server, System(home, ANTHROPIC_BASE_URL=server.url, LOOM_AGENTS_DIR=agents) as system:
        folder = embedded_socket(home).parent
        assert system.ended(system.submit("s", "hello"))["status"] == "completed"
        assert system.run("doctor").returncode == 0
        assert system.run("status").returncode == 0
        os.chown(folder, NOBODY, NOBODY)
        refused = system.run("status")
        assert refused.returncode == 2
        assert f"{folder}, for the socket of the embedded server, belongs to another user" in refused.stderr
        os.chown(folder, 0, 0)
        system.stop()
        assert not folder.exists()
