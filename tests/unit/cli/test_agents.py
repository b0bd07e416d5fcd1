"""`loom agents` against the real front end over the real service."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from loom_worker.cli.main import main
from loom_worker.core.values.agent_versions import seen
from loom_worker.store.agent_versions import AgentVersions
from tests.support.cli_server import asked_by_commands
from tests.support.web_stage import WebStage

Loom = Callable[..., Result]


@pytest.fixture
def loom(stage: WebStage, tmp_path: Path) -> Iterator[Loom]:
    """`loom agents …`, asking a server on loopback; the agent has three versions."""
    rows = AgentVersions(stage.database)
    for prompt in ("one", "two", "three"):
        raw = {"agent": {"name": "default", "system_prompt": prompt}}
        rows.record([seen("default", "1", raw)], rows.newest(), now_ms=1)
    with asked_by_commands(stage, tmp_path) as env:
        yield lambda *arguments: CliRunner().invoke(main, ["agents", *arguments], env=env)


def test_versions_are_listed_shown_and_compared(loom: Loom) -> None:
    lines = loom("versions", "default").output.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["VERSION", "ACTIVE"],
        ["1-3", "true"],
        ["1-2", "false"],
        ["1", "false"],
    ]
    assert "two" in loom("show", "default@1-2").output
    text = loom("diff", "default", "1", "latest").output
    assert "-  system_prompt: one" in text
    assert "+  system_prompt: three" in text
    assert loom("diff", "default", "1", "1").output == "1 and 1 say the same\n"


def test_one_is_activated_and_rolled_back_to_the_first(loom: Loom) -> None:
    assert loom("rollback", "default").output == "default@1-2 (production)\n"
    assert loom("rollback", "default", "--all-sessions").output == "default@1 (production), 0 sessions moved to it\n"
    first = loom("rollback", "default")
    assert first.exit_code != 0
    assert "no version of default before the active one" in first.output
    assert loom("activate", "default", "1-3", "--as", "canary", "--share", "0.1").output == "default@1-3 (canary)\n"
    assert loom("activate", "default", "latest").output == "default@1-3 (canary)\n"
    unknown = loom("activate", "default", "9")
    assert unknown.exit_code != 0
    assert "There is no version '9' of the agent 'default'" in unknown.output
