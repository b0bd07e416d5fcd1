"""Agents with data: a database whose results are too large to send, documents, an HTTP API, a server of tools."""

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.llm.tokens import cl100k_tokens
from tests.integration.backends_rest import api as rest_api
from tests.journeys.conftest import SHOP_SECRET
from tests.support import mcp_servers
from tests.support.agents import add
from tests.support.messages_server import MessagesServer, Say
from tests.support.messages_wire import WireCall
from tests.support.system import Json, System
from tests.support.tool_wire import data, results, tools
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.takes(20)]

ROWS = [
    (n, f"Customer {n % 977}", f"Product {n % 53} of the shop, in blue", n * 3, "2025-06-01") for n in range(10_000)
]


@pytest.fixture(scope="module")
def api() -> Iterator[rest_api.Api]:
    with rest_api.serving() as api:
        yield api


@pytest.fixture(scope="module")
def system(shared_system: System, api: rest_api.Api, tmp_path_factory: pytest.TempPathFactory) -> System:
    folder, agents = Path(shared_system.environ["LOOM_AGENTS_DIR"]), _agents(tmp_path_factory.mktemp("data"), api)
    (folder / "apis").mkdir()
    (folder / "apis" / "shop.yaml").write_bytes(rest_api.FILE.read_bytes())
    for name, spec in agents.items():
        add(folder, name, spec)
    until(lambda: all(f'"{name}"' in shared_system.get("/v1/agents").text for name in agents), 20, "they are known")
    shared_system.settle()
    return shared_system


def _agents(place: Path, api: rest_api.Api) -> dict[str, Json]:
    with closing(sqlite3.connect(place / "orders.db")) as orders, orders:
        orders.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer, product, amount, ordered_on)")
        orders.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", ROWS)
    (place / "handbook").mkdir()
    (place / "handbook" / "leave.md").write_text("# Leave\n\nWho moves house has two days off.\n")
    shop = {
        "type": "rest",
        "url": api.url,
        "openapi": "apis/shop.yaml",
        "operations": ["get_product", "create_order"],
        "allow_private": True,
        "auth": {"type": "header", "header": "X-Key", "secret": "SHOP"},
    }
    sdk = {"command": sys.executable, "args": [str(Path(mcp_servers.__path__[0]) / "sdk.py"), "stdio"]}
    return {
        "orders": {"backend": {"type": "sql", "url": f"sqlite:///{place / 'orders.db'}"}},
        "handbook": {"backend": {"type": "documents", "path": str(place / "handbook")}},
        "shop": {"backend": shop},
        "remote": {"backend": False, "mcp_servers": {"sums": sdk}},
    }


def answered(server: MessagesServer, system: System, agent: str, *calls: tuple[str, Json]) -> list[str]:
    """Ask an agent whose model calls these tools; what the model read of each."""
    wanted = [WireCall(f"toolu_{n}", name, arguments) for n, (name, arguments) in enumerate(calls)]
    server.then(Say("", wanted), Say("Found."))
    turn = system.ended(system.submit(f"{agent}-session", "What do you find?", agent=agent))
    assert (turn["status"], turn["output_text"]) == ("completed", "Found.")
    return [data(block, turn["id"]) for block in results(server.requests[-1])]


@pytest.mark.heavy
def test_ten_thousand_rows_cost_the_model_less_than_100_tokens_and_the_next_question_is_answered_from_them(
    server: MessagesServer, system: System
) -> None:
    sql = "SELECT id, customer, product, amount, ordered_on FROM orders ORDER BY id"
    (preview,) = answered(server, system, "orders", ("execute_sql", {"sql": sql}))
    found = re.search(r"ref_[0-9a-f]{32}", preview)
    assert found is not None
    ref = found[0]
    block = results(server.requests[-1])[0]["content"]
    assert cl100k_tokens(preview) < 100
    assert "10,000 rows x 5 columns" in preview
    assert cl100k_tokens(block) < 100 + 20, "the fence itself costs at most 20"

    total = "SELECT sum(amount) AS total FROM result WHERE customer = 'Customer 7'"
    queried, page, lost = answered(
        server,
        system,
        "orders",
        ("query_tool_result", {"ref": ref, "sql": total}),
        ("get_tool_result", {"ref": ref, "offset": 9_998}),
        ("get_tool_result", {"ref": "ref_" + "0" * 32}),
    )
    assert str(sum(row[3] for row in ROWS if row[1] == "Customer 7")) in queried
    assert (json.loads(page)["total"], "Customer 229" in page) == (10_000, True)
    assert "failed" in lost

    whole = system.get(f"/v1/blobs/{ref}")
    assert [tuple(row) for row in whole.json["rows"]] == ROWS
    assert whole.headers["ETag"].strip('"') == hashlib.sha256(whole.body).hexdigest()
    part = system.get(f"/v1/blobs/{ref}", {"Range": "bytes=1000-1999"})
    assert (part.status, part.body) == (206, whole.body[1000:2000])

    kept = [path for path in (system.home / "blobs").rglob(f"{ref.removeprefix('ref_')}*") if path.is_file()]
    assert len(kept) == 2, "the result, and the database made of it for the query"
    assert system.delete("/v1/sessions/orders-session").status == 204
    assert system.get(f"/v1/blobs/{ref}").status == 404
    until(lambda: not any(path.exists() for path in kept), 20, "the files are gone, too")


def test_an_agent_reads_its_documents(server: MessagesServer, system: System) -> None:
    found, text = answered(
        server,
        system,
        "handbook",
        ("search_documents", {"query": "moving house"}),
        ("read_document", {"path": "leave.md"}),
    )
    assert "leave.md" in found
    assert "two days off" in text
    assert "1 document" in server.requests[-1]["system"][0]["text"]


def test_an_agent_calls_an_api_and_asks_a_person_where_the_document_says_so(
    server: MessagesServer, api: rest_api.Api, system: System
) -> None:
    (product,) = answered(server, system, "shop", ("get_product", {"sku": "red shoe/7"}))
    assert json.loads(product) == {"operation": "get_product", "sku": "red shoe/7"}
    assert api.headers[-1]["x-key"] == SHOP_SECRET
    assert SHOP_SECRET not in str(server.requests[-1])

    order = WireCall("toolu_order", "create_order", {"body": {"lines": [{"sku": "A", "pieces": 1}]}})
    server.then(Say("", [order]), Say("Not ordered."))
    before = len(api.requests)
    turn_id = system.submit("shop-session", "Order it.")
    until(lambda: system.turn(turn_id)["status"] == "requires_action", 20, "it waits for a person")
    system.post(f"/v1/turns/{turn_id}/approvals/toolu_order", {"decision": "reject", "reason": "too dear"})
    assert system.ended(turn_id)["output_text"] == "Not ordered."
    assert len(api.requests) == before


@pytest.mark.heavy
def test_an_agent_has_the_tools_of_an_mcp_server(server: MessagesServer, system: System) -> None:
    total, failed = answered(server, system, "remote", ("sums__add", {"a": 2, "b": 40}), ("sums__fails", {}))
    assert "42" in total
    assert "the shelf is empty" in failed
    assert {"sums__add", "sums__echo"} <= tools(server.requests[-1])
