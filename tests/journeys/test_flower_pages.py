"""Flower as a person sees it: each page in a real browser, with its rows, and with links that lead somewhere."""

import threading
from collections.abc import Iterator

import pytest

from tests.journeys.test_flower import call_of, shown
from tests.support.browser import Browser, needs_chromium
from tests.support.flower_client import FlowerClient
from tests.support.messages_server import Hang, MessagesServer, Say
from tests.support.messages_wire import WireCall
from tests.support.system import System
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(20), needs_chromium]


@pytest.fixture
def flower(system: System) -> Iterator[FlowerClient]:
    with FlowerClient.of(system.state["flower_url"], system.home) as client:
        yield client


@pytest.fixture
def browser(system: System) -> Iterator[Browser]:
    with Browser(user="loom", password=(system.home / "flower.password").read_text().strip()) as browser:
        yield browser


def row(browser: Browser, table: str, *cells: str) -> list[str]:
    """The row of a table of the open page that has these cells, once it is there; the page shows no error."""
    found = until(lambda: [each for each in browser.rows(table) if {*cells} <= {*each}], 20, f"a row {cells}")
    assert browser.failures == []
    return found[0]


def broken(browser: Browser, flower: FlowerClient) -> dict[str, int]:
    """The open page's links into Flower that lead nowhere."""
    inside = [link.removeprefix(flower.url) for link in browser.links() if link.startswith(flower.url)]
    assert len(inside) >= 4
    return {link: status for link in inside if (status := flower.ask(link).status) != 200}


def test_each_page_of_flower_shows_its_rows_and_each_of_its_links_leads_somewhere(
    server: MessagesServer, system: System, flower: FlowerClient, browser: Browser
) -> None:
    server.then(Say("", [WireCall("toolu_count", "count", {"n": 1})]), Say("Two."))
    turn_id = system.ended(system.submit("pages-good", "Count.", agent="payer"))["id"]
    worker, call_id = shown(flower, turn_id)["worker"], call_of(flower, turn_id)["uuid"]

    browser.open(f"{flower.url}/tasks")
    turn = row(browser, "#tasks-table", turn_id)
    assert turn[:5] == ["loom.turn.run", turn_id, "SUCCESS", repr((turn_id, "pages-good")), "completed"]
    assert (turn[-1], row(browser, "#tasks-table", call_id)[0]) == (worker, "loom.tool.call")
    assert broken(browser, flower) == {}
    browser.click('[data-task-state="STARTED"]')
    until(lambda: turn not in browser.rows("#tasks-table"), 20, "the button leaves what has ended out")
    browser.open(f"{flower.url}/task/{call_id}")
    assert [each for each in (turn_id, "toolu_count", "SUCCESS") if each not in browser.text()] == []
    assert (browser.failures, broken(browser, flower)) == ([], {})
    for path in ("/", "/workers"):
        browser.open(flower.url + path)
        assert row(browser, "#workers-table", worker)[1] == "Online"
        assert broken(browser, flower) == {}
    browser.open(f"{flower.url}/broker")
    assert row(browser, "#queue-table", "workflow")[1].isdigit()
    assert broken(browser, flower) == {}


def test_each_tab_of_a_worker_shows_its_rows_and_what_it_runs_now_leads_to_the_list_of_tasks(
    server: MessagesServer, system: System, flower: FlowerClient, browser: Browser
) -> None:
    release = threading.Event()
    server.then(Hang(release, b"", after_bytes=0))
    turn_id = system.submit("pages-hang", "Wait.")
    worker = shown(flower, turn_id, "STARTED")["worker"]

    def looked() -> bool:
        browser.open(f"{flower.url}/worker/{worker}")
        return any("loom.turn.run" in each and "False" in each for each in browser.rows("#tab-tasks table"))

    until(looked, 20, "Flower shows the message")
    rows = {"pool": "Worker PID", "broker": "Transport", "queues": "turn", "tasks": "loom.turn.run"}
    rows |= {"limits": "loom.turn.run", "config": "timezone", "system": "maxrss", "other": "uptime"}
    for tab, first in rows.items():
        browser.click(f"#worker-tab-{tab}")
        row(browser, f"#tab-{tab}.active table", first)
    assert broken(browser, flower) == {}
    assert browser.evaluate("document.querySelectorAll('button[id^=worker-], button[id^=task-]').length") == 0
    assert system.post(f"/v1/turns/{turn_id}/cancel").status == 202
    release.set()
    system.ended(turn_id)
