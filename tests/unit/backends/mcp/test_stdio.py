import asyncio
import logging
from contextlib import nullcontext
from itertools import count

import pytest

from loom_worker.backends.mcp.stdio import MAX_LINES, MOST_AT_ONCE, Flood, Said


def heard(said: Said, *pieces: bytes) -> None:
    async def listen() -> None:
        reader = asyncio.StreamReader()
        for piece in pieces:
            reader.feed_data(piece)
        reader.feed_eof()
        await said.listen(reader)

    asyncio.run(listen())


def test_standard_error_is_logged_with_the_name_and_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    said = Said("git", ("s3cret",))
    heard(said, b"using s3cr", b"et now\n\xff\x1b[31mred\n", b"the end")
    assert caplog.messages == [
        "MCP server git: using *** now",
        "MCP server git: \ufffd[31mred",
        "MCP server git: the end",
    ]
    assert said.last == "the end"


def test_a_talkative_server_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    heard(Said("git"), b"x" * 5000 + b"\n", b"line\n" * 10_000)
    assert len(caplog.messages) == MAX_LINES + 1
    assert max(map(len, caplog.messages)) < 400
    assert "left out" in caplog.messages[-1]


def test_lines_that_are_no_messages_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    said = Said("git")
    for _ in range(100):
        said.stray(b"Starting...\n")
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(("per_s", "is_flood"), [(90, False), (150, True), (100_000, True)])
def test_a_flood_is_noticed_however_slowly_it_is_read_and_a_stream_is_not(
    monkeypatch: pytest.MonkeyPatch, per_s: int, is_flood: bool
) -> None:
    now = count(100.0, 1 / per_s)
    monkeypatch.setattr("loom_worker.backends.mcp.stdio.time.monotonic", lambda: next(now))
    flood = Flood()
    for _ in range(MOST_AT_ONCE):
        flood.count()
    with pytest.raises(ValueError, match="answer nothing") if is_flood else nullcontext():
        for _ in range(10 * MOST_AT_ONCE):
            flood.count()
