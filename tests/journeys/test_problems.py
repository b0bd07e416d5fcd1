"""A start with agents that cannot work: it says so, and serves all others."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.system import System
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(10)]

SALES = """\
apiVersion: loom/v1
kind: Agent
metadata: {name: sales}
spec:
  llm: {modle: claude}
  tools:
    - list_tables
    - exec_sql
"""
BROKEN = "agent:\n  name: broken\n  tools: [a,\n"


@pytest.fixture
def agents(tmp_path: Path) -> Path:
    folder = tmp_path / "agents"
    folder.mkdir()
    (folder / "sales.yaml").write_text(SALES, encoding="utf-8")
    (folder / "other.yaml").write_text(BROKEN, encoding="utf-8")
    return folder


@pytest.fixture
def system(tmp_path: Path, agents: Path) -> Iterator[System]:
    with System(tmp_path / "home", LOOM_AGENTS_DIR=str(agents), LOOM_MODLE="claude") as system:
        yield system


def test_a_start_says_with_its_ready_line_what_cannot_work_and_serves_what_can(system: System, agents: Path) -> None:
    until(lambda: "Stop it with Ctrl-C" in system.output, 60, "the screen")
    screen = system.output.partition("Loom is ready after ")[2].splitlines()
    assert screen[0].endswith(" s, with 3 problems and 1 warning:")
    assert screen[1] == ("  problem  LOOM_MODLE: no such setting; did you mean LOOM_MODEL? rename it, or take it away")
    assert screen[2].startswith(f"  problem  {agents}/other.yaml:3: the bracket that is opened here is not closed")
    assert screen[3] == (
        f"  problem  {agents}/sales.yaml:8: agent sales: spec.tools[1]: there is no tool 'exec_sql'; did you mean "
        "execute_sql?"
    )
    assert (
        screen[4] == f"  warning  {agents}/sales.yaml:5: agent sales: spec.llm.modle: unknown key; did you mean model?"
    )
    refused = system.post("/v1/sessions/one/turns", {"input": "Hi.", "agent": "broken"})
    assert refused.status == 422
    assert f"its file is broken: {agents}/other.yaml:3: " in refused.json["detail"]
    assert system.post("/v1/sessions/two/turns", {"input": "Hi.", "agent": "sales"}).status == 202
