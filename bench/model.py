"""A model behind HTTP: an asyncio server of the Messages API in a process of its own, as slow as it is told to be."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from bench.system import OVER_HTTP
from loom_worker.llm import tokens

ROOT = Path(__file__).parents[1]
MODEL = "claude-sonnet-4-5"


@dataclass(frozen=True)
class ModelServer:
    """One that runs."""

    url: str
    pid: int

    @property
    def environ(self) -> dict[str, str]:
        """What makes a Loom ask it."""
        return {**OVER_HTTP, "ANTHROPIC_BASE_URL": self.url}


@contextmanager
def model_server(latency_s: float = 0.0) -> Iterator[ModelServer]:
    """Run one; a question may say more, see tests/chaos/model_server.py.

    Args:
        latency_s: before each reply.
    """
    with tempfile.TemporaryDirectory(prefix="loom-bench-model-") as folder:
        options = ("--log", f"{folder}/log", "--latency-s", str(latency_s))
        command = [sys.executable, "-m", "tests.chaos.model_server", *options]
        server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            yield ModelServer(server.stdout.readline().strip(), server.pid)
        finally:
            server.terminate()
            server.communicate()


def question(n: int, directives: str = "") -> str:
    """The n-th question to this model; equal numbers are the same turn to it."""
    return f"T{n:05d} {directives}"


def counted(body: dict[str, Any]) -> int:
    """Input tokens of a request, as a provider's usage would say them."""
    placed = [*body.get("tools", ()), *body.get("system", ()), *(b for m in body["messages"] for b in m["content"])]
    return round(sum(_count(json.dumps(block)) for block in placed))


@lru_cache(4096)
def _count(text: str) -> float:
    return tokens.count(text, MODEL) * tokens.typical(MODEL)
