"""Flower as a person sees it: each page in a real browser, with its rows, and with links that lead somewhere."""

import html
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.test_flower import call_of, shown
from tests.support.flower_client import FlowerClient
from tests.support.messages_server import Hang, MessagesServer, Say
from tests.support.messages_wire import WireCall
from tests.support.system import System
from tests.support.until import until

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH (Debian: chromium)")
pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(40), needs_chromium]


@pytest.fixture
def flower(system: System) -> Iterator[FlowerClient]:
    with FlowerClient.of(system.state["flower_url"], system.home) as client:
        yield client


class Page:
    """A page as headless Chromium shows it once its scripts have run."""

    def __init__(self, flower: FlowerClient, home: Path, path: str) -> None:
        password = (home / "flower.password").read_text().strip()
        url = flower.url.replace("http://", f"http://loom:{password}@") + path
        quiet = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={home.parent / 'chromium'}")
        command = [str(CHROMIUM), *quiet, "--virtual-time-budget=6000", "--dump-dom", url]
        self.text = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
        rows = re.findall(r"<tr\b.*?</tr>", self.text, re.DOTALL)
        self.rows = [[_plain(cell) for cell in re.findall(r"<t[dh]\b.*?</t[dh]>", row, re.DOTALL)] for row in rows]
        inside = {re.sub(r"#.*", "", link) for link in re.findall(r'href="(/[^"]*)"', self.text)} - {"", path}
        assert len(inside) >= 4
        self.broken = {link: status for link in inside if (status := flower.ask(html.unescape(link)).status) != 200}

    def row(self, begins: str) -> list[str]:
        """The one row with a cell that begins so: behind an id stands what copies it."""
        found = [row for row in self.rows if any(cell.startswith(begins) for cell in row)]
        assert (len(found), self.broken) == (1, {}), self.rows
        return found[0]


def _plain(cell: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", cell)).strip()


def test_each_page_of_flower_shows_its_rows_and_each_of_its_links_leads_somewhere(
    server: MessagesServer, system: System, flower: FlowerClient
) -> None:
    server.then(Say("", [WireCall("toolu_count", "count", {"n": 1})]), Say("Two."))
    turn_id = system.ended(system.submit("pages-good", "Count.", agent="payer"))["id"]
    worker, call_id = shown(flower, turn_id)["worker"], call_of(flower, turn_id)["uuid"]
    tasks = Page(flower, system.home, "/tasks")
    turn = tasks.row(repr((turn_id, "pages-good")))
    assert [turn[0], turn[2], turn[4]] == ["loom.turn.run", "SUCCESS", "completed"]
    assert (turn[-1], tasks.row(call_id)[0]) == (worker, "loom.tool.call")
    call = Page(flower, system.home, f"/task/{call_id}")
    assert (call.broken, [each for each in (turn_id, "toolu_count", "SUCCESS") if each not in call.text]) == ({}, [])
    for path in ("/", "/workers"):
        assert Page(flower, system.home, path).row(worker)[1] == "Online"
    assert Page(flower, system.home, "/broker").row("workflow")[1].isdigit()


def test_each_tab_of_a_worker_shows_its_rows_and_what_it_runs_now_leads_to_the_list_of_tasks(
    server: MessagesServer, system: System, flower: FlowerClient
) -> None:
    release = threading.Event()
    server.then(Hang(release, b"", after_bytes=0))
    turn_id = system.submit("pages-hang", "Wait.")
    worker = shown(flower, turn_id, "STARTED")["worker"]

    def looked() -> Page | None:
        page = Page(flower, system.home, f"/worker/{worker}")
        return page if any("loom.turn.run" in row and "False" in row for row in page.rows) else None

    page = until(looked, 60, "Flower shows the message")
    first = {cell for row in page.rows for cell in row}
    assert {"Worker PID", "Transport", "turn", "loom.turn.run", "timezone", "maxrss", "uptime"} <= first
    assert (page.broken, re.findall(r'<button[^>]*id="(?:worker|task)-', page.text)) == ({}, [])
    assert system.post(f"/v1/turns/{turn_id}/cancel").status == 202
    release.set()
    system.ended(turn_id)
