from pathlib import Path

import pytest
from click.testing import CliRunner

from loom_worker.cli.main import main


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LOOM_BACKEND_URL", "no url at all"),
        ("LOOM_BACKEND_URL", "mssql://reader:hidden@host/shop"),
        ("LOOM_WEBHOOK_SECRET", "whsec_hidden"),
    ],
)
def test_a_value_that_no_turn_could_use_is_refused_at_the_start(tmp_path: Path, name: str, value: str) -> None:
    home = tmp_path / "home"
    done = CliRunner().invoke(main, ["prepare"], env={"LOOM_HOME": str(home), name: value})
    assert done.exit_code == 2
    assert name in done.output
    assert "hidden" not in done.output
    assert not home.exists()
