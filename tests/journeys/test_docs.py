"""Every command of the pages, as a user would type it, on one Loom that runs."""

import base64
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_worker.core.isolation.home_secrets import home_token
from loom_worker.demo.workflows import shipped_workflows
from tests.support.files_made import png
from tests.support.system import PLAIN, START_S, System
from tests.unit.docs.pages import FENCED, ROOT, pages

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on the PATH")
pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(150), needs_curl]

NOT_RUN = {
    r"^make |^python3? -m |pip install|^npm|^PATH=|^docker|^honcho|^export|ollama |^OLLAMA|bench ": "installs",
    r"loom up|^loom (stop|prepare|move)|^mv |^rm |^cp |^\.ci": "stops or replaces the Loom that the others need",
    r"redis-cli|valkey-cli|promtool|^sqlite3|^psql|^createdb|^pg_": "a program that not every machine has",
    r"approv|loom runs reject|/retry|loom runs retry": "needs what waits or failed: test_approvals",
    r"\$FACT|\$DELIVERY|\$ERROR|\$REF|agent-messages/|messages replay|rollback": "needs a fault",
    r"loom agents (versions|diff|activate)": "needs a changed agent: test_agent_versions",
    r"home\.token": "there is a first key already: test_keys",
    r"workflow run news|workflow run checked|skill install": "names a file of the reader's own",
    r"users delete|users/(maria|\$USER_ID)$|learned/\$VERSION": "needs what another command made or removed",
}
"""Commands that are not run here, and why."""
LAST = (r"-X DELETE .*(runs/\$RUN|sessions/maria-42)$", r"-X POST \S*/v1/sessions ")
"""They take away what others look at, or make it: run behind all others, in this order."""


def commands(page: Path) -> Iterator[str]:
    """What a page tells to type in its blocks, commands of several lines as one."""
    for language, body in FENCED.findall(re.sub(r"^ +", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)):
        lines = body.splitlines() if language in ("sh", "console") else ()
        whole = ""
        for line in lines:
            if whole or language == "sh" or line.startswith("$ "):
                whole += line.removeprefix("$ ")
                if whole.endswith("\\") or whole.count("'") % 2:
                    whole += "\n"
                elif whole:
                    yield whole
                    whole = ""


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a user of a Loom, with what the pages name."""
    (bin_ := tmp_path / "bin").mkdir()
    curl = f'#!/bin/sh\nexec {shutil.which("curl")} --fail-with-body -H "Authorization: Bearer $LOOM_KEY" "$@"\n'
    (bin_ / "curl").write_text(curl)
    (bin_ / "curl").chmod(0o755)
    shutil.copytree(shipped_workflows(), tmp_path / "workflows")
    (tmp_path / "patterns").symlink_to(ROOT / "patterns")
    (tmp_path / "program.json").write_text('{"self": {"demos": [], "signature": {"instructions": "Be brief."}}}')
    (tmp_path / "agents").mkdir()
    weekly = "  schedule: {cron: '0 9 * * 1', input: hello}\n"
    (tmp_path / "agents" / "a.yaml").write_text(PLAIN.format(name="sales-analyst") + weekly)
    (tmp_path / "backup").mkdir()
    folders = {f"LOOM_{name.upper()}_DIR": str(tmp_path / name) for name in ("agents", "workflows")}
    with System(tmp_path / ".loom", LOOM_PROVIDER="scripted", **folders) as system:
        turn = system.ended(system.submit("maria-42", "How many customers are there?", user="m"))
        (tmp_path / "shelf.png").write_bytes(png())
        image = {"type": "image", "data": base64.b64encode(png()).decode()}
        shown = system.turn(system.submit("maria-42", [image]))["input"][0]
        run = system.post("/v1/workflows/sales-report/runs", {}).json["id"]
        pairing = system.post("/v1/pairings", {"channel": "sms", "identity": "+1555", "user": "m"}).json["id"]
        names = {"TURN": turn["id"], "RUN": run, "PAIRING": pairing, "AGENT": "default", "WORKSPACE": "default"}
        names |= {
            "SESSION": "maria-42",
            "FILE": shown["file_id"],
            "MESSAGE": system.messages("maria-42")[0]["id"],
            "USER_ID": "m",
            "SCHEDULE": "agent:sales-analyst",
        }
        names["VERSION"] = system.get("/v1/agents/default/versions").json["data"][0]["version"]
        token = {"Authorization": f"Bearer {home_token(system.home).text}"}
        admin = system.post("/v1/keys", {"name": "a", "scopes": ["admin"]}, token).json["secret"]
        path = os.pathsep.join((str(bin_), str(Path(sys.executable).parent), os.environ["PATH"]))
        yield {**system.environ, **names, "PATH": path, "LOOM_KEY": admin, "HOME": str(tmp_path), "URL": system.url}


def test_every_command_of_the_pages_succeeds(shell: dict[str, str], tmp_path: Path) -> None:
    shown = [page for page in pages() if page.parent == ROOT / "docs" or page.name == "README.md"]
    typed = list({each: page for page in shown if page.name != "runbook.md" for each in commands(page)}.items())
    typed.sort(key=lambda each: next((n for n, last in enumerate(LAST, 1) if re.search(last, each[0])), 0))
    failed = []
    for command, page in typed:
        if any(re.search(each, command) for each in NOT_RUN):
            continue
        known = re.sub(
            r"\bkey_\w{20,}|\$KEY", "$(loom keys create k --json | grep -o key_[0-9a-z]* | head -1)", command
        )
        known = re.sub(r"\b(turn|run)_\w{20,}", lambda found: f"${found[1].upper()}", known)
        known = known.replace("http://127.0.0.1:8000", shell["URL"]).replace(" /backup", f" {tmp_path}/backup")
        line, how = ["bash", "-c", known], {"env": shell, "cwd": tmp_path, "timeout": START_S}
        done = subprocess.run(line, capture_output=True, stdin=subprocess.DEVNULL, check=False, **how)
        failed += [f"{page.name}: {known}: {(done.stdout + done.stderr)[:300]!r}"] * bool(done.returncode)
    assert not failed, "\n".join(failed)
    assert [each for each in NOT_RUN if not any(re.search(each, command) for command, _ in typed)] == []
