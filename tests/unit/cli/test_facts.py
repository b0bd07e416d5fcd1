"""`loom facts` against the real front end over the real service."""

import json
from pathlib import Path

from click.testing import CliRunner, Result

from loom_worker.cli.main import main
from loom_worker.core.values.tenants import WorkspaceUser
from tests.support.cli_server import asked_by_commands
from tests.support.web_stage import WebStage
from tests.unit.store.facts_made import session_of, states


def test_facts_are_listed_corrected_and_forgotten(stage: WebStage, tmp_path: Path) -> None:
    lane = session_of(stage.database, WorkspaceUser("default", "maria"), "s1")
    for at, triple in enumerate(("user|lives in|Berlin", "user|lives in|Paris")):
        states(stage.database, lane, triple, at=at)
    with asked_by_commands(stage, tmp_path) as env:

        def loom(*arguments: str) -> Result:
            return CliRunner().invoke(main, ["facts", *arguments], env=env)

        listed = loom("list", "maria").output
        assert ("Paris" in listed, "Berlin" in listed) == (True, False)
        assert "Berlin" in loom("list", "maria", "--status", "closed", "--topic", "live").output
        [paris] = json.loads(loom("list", "maria", "--json").output)["data"]
        made = loom("correct", "maria", paris["id"], "--object", "Lyon").output.strip()
        assert made.endswith("user lives in Lyon")
        assert "say what" in loom("correct", "maria", paris["id"]).output
        assert "forgotten" in loom("forget", "maria", made.partition(":")[0]).output
        assert "Lyon" not in loom("list", "maria").output
        failed = loom("forget", "maria", "fact_1")
        assert (failed.exit_code, "no fact" in failed.output) == (1, True)
