import json
import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from loom_worker.core.isolation import process_env
from loom_worker.core.values.chat import ToolUse
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Outcome
from loom_worker.tools import child_main
from loom_worker.tools.custom import GROUP, load
from loom_worker.tools.declare import Options
from loom_worker.tools.execution import call_tool
from loom_worker.tools.pool import Pool
from loom_worker.tools.registry import Registry
from tests.support.callers import CALLER
from tests.unit.docs.pages import block_after, text

PAGE = "docs/tools.md"


@dataclass
class Example:
    """The tools of the page, as an agent has them."""

    registry: Registry
    pool: Pool

    def run(self, name: str, arguments: Json) -> Outcome:
        prepared = self.registry.prepared(ToolUse("toolu_1", name, arguments))
        tool = self.registry.get(name)
        assert tool is not None
        assert prepared.error is None
        return call_tool(tool, prepared.arguments, CALLER, timeout_s=30.0, pool=self.pool, max_bytes=10_000)


@pytest.fixture
def example(tmp_path: Path) -> Iterator[Example]:
    (tmp_path / "convert.py").write_text(block_after(PAGE, "tool"), encoding="utf-8")
    found = load(["convert.py"], tmp_path)
    assert found.problems == ()
    pool = Pool(child_main.command(), most=1, environ=os.environ)
    yield Example(Registry(found.tools), pool)
    pool.close()


def test_the_example_works_through_registry_pool_and_child(example: Example) -> None:
    found = example.run("convert", {"amount": "10", "currency": "EUR", "to": "USD"})
    assert (found.status, json.loads(found.content)) == ("completed", {"amount": 10.8, "currency": "USD"})
    assert json.loads(example.run("convert", {"amount": 108, "currency": "USD"}).content)["amount"] == 100
    assert example.run("refund", {"order_id": 7}).content == "Order 7 is paid back (s1, no reason given)."


def test_the_examples_failures_are_what_the_page_says(example: Example) -> None:
    refused = example.run("convert", {"amount": -1, "currency": "EUR"})
    assert (refused.status, refused.content, refused.code) == ("failed", "amount must not be negative", "INVALID_INPUT")
    flaw = example.registry.prepared(ToolUse("t", "convert", {"amount": "ten", "currency": "EUR"})).error
    assert flaw is not None
    assert f"`{flaw}`" in text(PAGE)


def test_the_example_is_declared_as_the_page_says(example: Example) -> None:
    convert, refund = example.registry.get("convert"), example.registry.get("refund")
    assert convert is not None
    assert refund is not None
    assert (convert.is_read_only, convert.is_repeatable, convert.timeout_s) == (True, True, 5.0)
    assert (refund.is_read_only, refund.is_idempotent, refund.needs_approval) == (False, False, True)
    assert [spec.name for spec in example.registry.specs(read_only=True)] == ["convert"]
    assert "caller" not in str(refund.spec.input_schema)


def test_the_pages_other_examples_are_valid() -> None:
    assert "convert.py" in yaml.safe_load(block_after(PAGE, "agent"))["spec"]["tools"]
    assert GROUP in tomllib.loads(block_after(PAGE, "entry point"))["project"]["entry-points"]


def test_every_option_has_a_row_and_every_variable_that_tools_inherit_is_named() -> None:
    page = text(PAGE)
    rows = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| `")]
    assert rows == ["`@tool(…)`", *(f"`{option}`" for option in Options.__annotations__)]
    prefixes = {f"{prefix}*" for prefix in (*process_env.INHERITED_PREFIXES, *process_env.DRIVERS)}
    assert [name for name in process_env.INHERITED | prefixes if f"`{name}`" not in page] == []
