"""A tool that hunts for keys: own and others' environment, memory, command lines, descriptors, Loom's files."""

import base64
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_worker.core.isolation import landlock
from tests.hostile import hunter
from tests.support import as_user
from tests.support.agents import written
from tests.support.flower_client import FlowerClient
from tests.support.messages_server import MessagesServer, Say
from tests.support.messages_wire import WireCall
from tests.support.system import TURN_S, Json, System
from tests.support.until import until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows processes in /proc"),
    pytest.mark.heavy,
    pytest.mark.takes(55),
]

NOT_FOR_TOOLS = (
    *("webhook.secret", "flower.password", "valkey.conf", "home.token", "loom.db", "up.json"),
    *("web.log", "worker-3.log", "appendonly.aof.manifest"),
)

LOOMS_OWN = 65533
"""The user that Loom runs as; other tests run databases as nobody."""


def planted() -> str:
    return f"planted-{secrets.token_hex(12)}"


def runner(place: Path) -> tuple[str, ...]:
    """What Loom is run by: as a user of its own where we are root, else as ourselves."""
    if os.geteuid() != 0:
        return ()
    os.chown(place, LOOMS_OWN, -1)
    (place / "spare").mkdir()
    return (sys.executable, as_user.__file__, str(LOOMS_OWN), str(place / "spare"))


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that the user can reach; pytest's own are closed to all but us."""
    folder = Path(tempfile.mkdtemp(prefix="loom-", dir="/tmp"))
    try:
        command = (*runner(folder), sys.executable, "-c", "import json, subprocess, click, loom_worker, web")
        tried = subprocess.run(command, capture_output=True, text=True, check=False)
        if tried.returncode:
            pytest.skip(f"another user cannot run this installation: {tried.stderr.strip()[-300:]}")
        shutil.rmtree(folder / "spare", ignore_errors=True)
        yield folder
    finally:
        shutil.rmtree(folder)


def started(place: Path, server: MessagesServer, **environ: str) -> System:
    """Loom as that user, with keys planted wherever one can be set."""
    agents = written(place / "agents", {"hunter": {"backend": False, "tools": ["hunter.py"]}})
    shutil.copy(hunter.__file__, agents)
    keys = {
        "ANTHROPIC_API_KEY": planted(),
        "AWS_SECRET_ACCESS_KEY": planted(),
        "LOOM_API_KEYS": f"team={planted()}",
        "LOOM_SECRET_CRM": planted(),
        "THEIR_OWN_TOKEN": planted(),
    }
    system = System(place / "home", ANTHROPIC_BASE_URL=server.url, LOOM_AGENTS_DIR=agents, **keys, **environ)
    system.run_by = runner(place)
    return system


def hunted(system: System, server: MessagesServer) -> Json:
    """What the tool brought home from a turn."""
    server.then(Say("", [WireCall("toolu_1", "hunt", {})]), Say("Looked."))
    key = system.environ["LOOM_API_KEYS"].partition("=")[2]
    body = {"input": "Look around.", "agent": "hunter"}
    answer = system.post("/v1/sessions/s1/turns", body, headers={"Authorization": f"Bearer {key}"})
    assert answer.status == 202, answer.text

    def ended() -> bool:
        return system.rows("SELECT status FROM turns")[0][0] in ("completed", "failed", "incomplete")

    until(ended, TURN_S, "the turn has ended")
    ((status, content),) = system.rows("SELECT status, content FROM calls")
    assert status == "completed", content
    told: Json = json.loads(content)
    return told


@pytest.mark.parametrize("is_confined", [True, False])
def test_a_tool_finds_no_key_wherever_it_looks(place: Path, is_confined: bool) -> None:
    if is_confined and not landlock.version():
        pytest.skip("this kernel has no Landlock, or it is switched off: files cannot be kept from a tool")
    signs = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    # Confined, it must not find the secret either that Loom makes and keeps in a file.
    chosen = {"LOOM_CONFINE_TOOLS": "1"} if is_confined else {"LOOM_CONFINE_TOOLS": "0", "LOOM_WEBHOOK_SECRET": signs}
    if is_confined:  # so that what it finds of the embedded server's password is seen, too
        conf = place / "home" / "valkey.conf"
        conf.parent.mkdir(mode=0o700)
        conf.write_text(f"requirepass {planted()}\n")
        for path in (conf, conf.parent):
            os.chown(path, LOOMS_OWN if os.geteuid() == 0 else -1, -1)
    with MessagesServer() as server, started(place, server, **chosen) as system:
        told = hunted(system, server)
        children = system.children
        left = {name: _keys(Path(f"/proc/{pid}/environ")) for name, pid in children.items()}
        assert [name for name, pid in children.items() if _keys(Path(f"/proc/{pid}/cmdline"))] == []
        with FlowerClient.of(system.state["flower_url"], system.home) as flower:
            pages = [flower.page(path) for path in ("/api/workers?refresh=1", "/workers", "/broker")]
        assert (re.findall(hunter.KEY, "".join(pages).encode()), "loom.turn.run" in pages[0]) == ([], True)
    # Loom itself has them, or there would be nothing to find.
    assert server.headers[-1]["authorization"] == f"Bearer {system.environ['ANTHROPIC_API_KEY']}"
    assert told["found"] == []
    assert told["server"] == ["-NOAUTH"] * 3 + ["+OK"]
    assert told["made"] is not is_confined
    assert told["attached"] == ([] if is_confined else [children["valkey"]])
    seen = [name for name in NOT_FOR_TOOLS if name in told["readable"]]
    assert seen == [] if is_confined else "loom.db" in seen
    # Nor is one left in what root sees of a process's environment: each has forgotten its own.
    theirs = system.environ["THEIR_OWN_TOKEN"]
    assert {name: [key for key in keys if key != theirs] for name, keys in left.items()} == {name: [] for name in left}
    assert [name for name in ("beat", "flower", "valkey") if left[name]] == []
    kept = [path for path in system.home.rglob("*") if path.is_file() and _keys(path)]
    assert sorted(path.name for path in kept) == (["valkey.conf", "webhook.secret"] if is_confined else [])


def _keys(path: Path) -> list[str]:
    return [key.decode() for key in re.findall(hunter.KEY, path.read_bytes())]
