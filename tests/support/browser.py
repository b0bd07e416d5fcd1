"""A real Chromium without a window: it opens pages, runs their scripts, and is asked what stands there and to click.

Spoken to by Chromium's own protocol over a pipe, so that no driver is needed and no port is open.
"""

import base64
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from tests.support.until import until

PROGRAM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(PROGRAM is None, reason="no chromium on the PATH (Debian: chromium)")
AS_PIPE = "import os, sys; a, b, *rest = sys.argv[1:]; os.dup2(int(a), 3); os.dup2(int(b), 4); os.execv(rest[0], rest)"
"""Gives Chromium the two ends of the pipe under the numbers that it reads from and writes to."""
OPTIONS = (
    *("--headless", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions"),
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # loopback only
)
CELLS = "[...document.querySelectorAll(%s)].map(row => [...row.cells].map(cell => cell.innerText.trim()))"


class Browser:
    """One page in a Chromium of its own, for ``with``.

    Attributes:
        failures: since ``open``, each answer that was an error, as ``(status, method, URL)``, and each alert that the
            page showed, as ``(0, "alert", text)``.
    """

    def __init__(self, *, user: str, password: str) -> None:
        """Args: user, password: shown to every server, as a person types them once."""
        assert PROGRAM is not None
        self.failures: list[tuple[int, str, str]] = []
        self._numbers, self._methods, self._unread, self._is_loaded = itertools.count(1), dict[str, str](), b"", False
        self._profile = tempfile.TemporaryDirectory(prefix="loom-chromium-", ignore_cleanup_errors=True)
        commands, self._to = os.pipe()
        self._from, answers = os.pipe()
        root = ("--no-sandbox",) if os.geteuid() == 0 else ()
        command = [PROGRAM, *OPTIONS, *root, f"--user-data-dir={self._profile.name}", "about:blank"]
        with (Path(self._profile.name) / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", AS_PIPE, str(commands), str(answers), *command],
                pass_fds=(commands, answers),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        os.close(commands)
        os.close(answers)
        self._session = ""
        page = next(each for each in self._call("Target.getTargets")["targetInfos"] if each["type"] == "page")
        self._session = self._call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        self._call("Page.enable")
        self._call("Network.enable")
        shown = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._call("Network.setExtraHTTPHeaders", headers={"Authorization": f"Basic {shown}"})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
        self._profile.cleanup()

    def open(self, url: str) -> None:
        """Go to a page, and wait until it and its scripts are loaded."""
        self.failures.clear()
        self._is_loaded = False
        assert "errorText" not in self._call("Page.navigate", url=url), url
        until(lambda: self._is_loaded or self._call("Runtime.evaluate", expression="0") is None, 30, f"{url} is loaded")

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression on the page."""
        done = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def click(self, selector: str) -> None:
        """Click on the first element that a CSS selector finds."""
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def text(self) -> str:
        """What the page says."""
        return str(self.evaluate("document.body.innerText"))

    def rows(self, table: str) -> list[list[str]]:
        """The texts of the cells of a table's body, by the CSS selector of the table."""
        found: list[list[str]] = self.evaluate(CELLS % json.dumps(f"{table} tbody tr"))
        return found

    def links(self) -> list[str]:
        """Where the page's links lead, without those that only open a part of it."""
        found: list[str] = self.evaluate("[...document.links].map(link => link.href.split('#')[0])")
        return sorted(set(found))

    def _call(self, method: str, **params: Any) -> Any:
        number = self._send(method, **params)
        while (told := self._read()).get("id") != number:
            self._note(told.get("method"), told.get("params", {}))
        assert "error" not in told, (method, told)
        return told["result"]

    def _send(self, method: str, **params: Any) -> int:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        return number

    def _read(self) -> Any:
        while b"\0" not in self._unread:
            more = os.read(self._from, 1 << 20)
            assert more, f"Chromium has ended: {(Path(self._profile.name) / 'log').read_text()[-2000:]}"
            self._unread += more
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)

    def _note(self, kind: str | None, about: Any) -> None:
        if kind == "Page.loadEventFired":
            self._is_loaded = True
        elif kind == "Page.javascriptDialogOpening":
            self.failures.append((0, "alert", about["message"]))
            self._send("Page.handleJavaScriptDialog", accept=True)  # the page stands still until then
        elif kind == "Network.requestWillBeSent":
            self._methods[about["requestId"]] = about["request"]["method"]
        elif kind == "Network.responseReceived" and about["response"]["status"] >= 400:
            asked = self._methods.get(about["requestId"], "GET")
            self.failures.append((about["response"]["status"], asked, about["response"]["url"]))
