"""The real front end over a stage's service, as the commands find it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from click.testing import Result

from tests.support.web_stage import WebStage
from web.serve import HttpServer

Loom = Callable[..., Result]


@contextmanager
def asked_by_commands(stage: WebStage, home: Path) -> Iterator[dict[str, str | None]]:
    """Serve on loopback; the environment in which commands ask this server."""
    server = HttpServer(stage.service)
    server.start()
    try:
        yield {"LOOM_HOME": str(home), "LOOM_URL": f"http://127.0.0.1:{server.port}", "LOOM_API_KEYS": None}
    finally:
        server.drain(grace_s=2)
        server.stop()


def ids(result: Result) -> list[str]:
    """The first column of the table, from the bottom up: the oldest first."""
    assert result.exit_code == 0, result.output
    return [line.split()[0] for line in reversed(result.stdout.splitlines()[1:])]
