"""The collector of traces as a process, posted to by Loom's own exporter."""

import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_worker.core.settings import TraceSettings
from loom_worker.trace import collector as sender
from loom_worker.trace.encode import Encoder
from tests.chaos import collector
from tests.chaos.unit.served import serving
from tests.unit.trace.made_spans import TRACE_ID, span

SHORT_S = 0.5


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


@pytest.fixture
def url(log: Path) -> Iterator[str]:
    with serving("collector", log) as started:
        yield started


def post(url: str, spans: int, timeout_s: float = 10.0) -> sender.PostResult:
    encoder = Encoder({"service.name": "loom"}, is_json=False)
    body = encoder.body([encoder.encoded(span(n, name=f"n {n}")) for n in range(spans)])
    return sender.Collector(TraceSettings(url), timeout_s=timeout_s).post(body, now_s=time.time())


def set_mode(url: str, mode: str) -> None:
    urllib.request.urlopen(urllib.request.Request(f"{url}/mode/{mode}", b""), timeout=5).close()


@pytest.mark.parametrize("spans", [1, 100])
def test_what_is_taken_is_logged(url: str, log: Path, spans: int) -> None:
    assert post(url, spans) == sender.PostResult()
    (export,) = collector.read(log)
    assert export.spans == tuple((TRACE_ID, span(n).span_id, f"n {n}") for n in range(spans))
    assert export.size_bytes > 50 * spans


@pytest.mark.parametrize(
    ("mode", "loss"),
    [("down", "unreachable"), ("hang", "unreachable"), ("drip", "unreachable"), ("error", "unavailable")],
)
def test_it_misbehaves_until_it_is_told_to_stop(url: str, log: Path, mode: str, loss: str) -> None:
    set_mode(url, mode)
    assert post(url, 1, SHORT_S).loss == loss
    assert list(collector.read(log)) == []
    set_mode(url, "")
    assert post(url, 1) == sender.PostResult()
