"""What DSPy itself saves is imported, and is what sessions are told; `make learn` installs it for this."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from loom_worker.agents.learned.prompt import fitted
from loom_worker.agents.learned.reading import content_of, version_of
from loom_worker.core.errors import BadFile
from loom_worker.core.settings import Settings
from loom_worker.core.values.learned import AS_ACTIVATED
from loom_worker.store.database import Database
from loom_worker.store.learned import AgentOf, LearnedLayers

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.integration,
    pytest.mark.skipif(importlib.util.find_spec("dspy") is None, reason="no DSPy: `make learn` installs and tests it"),
]
AGENT = AgentOf("default", "default")


def test_a_program_that_dspy_has_optimized_and_saved_becomes_a_version(
    tmp_path: Path, settings: Settings, database: Database
) -> None:
    file, folder = tmp_path / "program.json", tmp_path / "program"
    script = Path(__file__).with_name("optimize.py")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DSPY_CACHEDIR": str(tmp_path / "cache")}
    command = [sys.executable, str(script), str(file), str(folder)]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    new, warnings = version_of(content_of(file), source=file.name)
    assert (new.form, warnings) == ("dspy", ())
    assert new.made_with.startswith("dspy 3.")
    layers = LearnedLayers(database)
    layers.add(AGENT, new, now_ms=1)
    layers.activate(AGENT, 1, share=None, now_ms=1)
    version, layer = layers.for_session(AGENT, "lane", AS_ACTIVATED, None)
    assert (version, layer) == (1, new.layer)
    assert layer is not None
    told = fitted(layer, AS_ACTIVATED, version=1, room_tokens=10_000, count=len)
    assert "Sort a customer's message." in told.text
    assert "- Label: refund, order or other" in told.text
    assert "reasoning: It asks for money." in told.text
    assert (told.part.signatures, told.part.demonstrations) == (2, len(layer.demonstrations))
    assert sum(each.is_augmented for each in layer.demonstrations) == 2
    with pytest.raises(BadFile, match="pickled program"):
        content_of(folder)
    with pytest.raises(BadFile, match="pickled program"):
        content_of(folder / "program.pkl")
