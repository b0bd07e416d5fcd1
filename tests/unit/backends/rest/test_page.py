from pathlib import Path

from loom_worker.agents.load import load
from loom_worker.backends.rest.backend import RestBackend
from tests.unit.docs.pages import block_after

PAGE = "docs/backend-rest.md"


def test_the_pages_agent_has_the_tools_that_the_page_tells_of(tmp_path: Path) -> None:
    (tmp_path / "apis").mkdir()
    (tmp_path / "apis" / "orders.yaml").write_text(block_after(PAGE, "document"), encoding="utf-8")
    (tmp_path / "agent.yaml").write_text(block_after(PAGE, "agent"), encoding="utf-8")
    agents = load(tmp_path)
    assert agents.problems == ()
    backend = agents.agents["orders"].backend
    assert backend is not None
    made = RestBackend(backend, secret="s3cret", folder=tmp_path, timeout_s=30)
    assert made.describe().splitlines()[1:] == [
        "cancel_order(id): Cancel an order",
        "get_order(id): One order with its lines",
        "list_orders(status?, limit?): Orders, the newest first",
    ]
    assert [tool.spec.name for tool in made.tools() if tool.needs_approval] == ["cancel_order"]
