"""Requests that the served OpenAPI document allows, and such that it does not: nothing is a 5xx or undocumented."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.system import System

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(70)]

SEARCH_S = int(os.environ.get("SEARCH_S", "60"))
"""How long requests are sent; `make hostile` gives ten minutes."""
CONFIG = """
[checks]
enabled = false
not_a_server_error.enabled = true
status_code_conformance.enabled = true
content_type_conformance.enabled = true
response_schema_conformance.enabled = true

[[operations]]
include-path-regex = "/events$"
[operations.checks]
response_schema_conformance.enabled = false
"""
"""Its reader takes the data of an event for text, where the document describes the JSON in it."""


def test_each_answer_is_one_that_the_document_describes(tmp_path: Path) -> None:
    config = tmp_path / "schemathesis.toml"
    config.write_text(CONFIG)
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run"]
    with System(tmp_path / "home") as loom:
        options = ["--seed", "39", "--max-time", str(SEARCH_S), "--continue-on-failure"]
        quiet = ["--no-shrink", "--request-timeout", "30", "--no-color", "--warnings", "off"]
        run = subprocess.run(
            [*command, f"{loom.url}/openapi.json", *options, *quiet],
            cwd=tmp_path, capture_output=True, text=True, timeout=10 * SEARCH_S, check=False,
        )  # fmt: skip
    assert run.returncode == 0, run.stdout[-20_000:] + run.stderr
    assert re.search(r"Tested: [89]\d", run.stdout)
