"""The repository's own files, as the tests of its documentation read them."""

import re
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
PROMISE = (
    "A turn that was answered 202 is never lost by the death of any process. Turns of one session take effect one at a "
    "time, in the order in which they were accepted. A turn's effect on the conversation happens exactly once; LLM "
    "calls, tool calls and webhooks happen at least once, and repeats are rare and bounded."
)
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`([^`\n]+)`")


@cache
def files() -> list[Path]:
    """Every file that is, or is about to be, in the repository."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [ROOT / name for name in listed if (ROOT / name).is_file()]


def pages() -> list[Path]:
    """Every page of documentation."""
    return [path for path in files() if path.suffix == ".md"]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def block_after(name: str, marker: str) -> str:
    """The fenced block of a page that follows an HTML comment beginning with these words."""
    _, found, rest = text(name).partition(f"<!-- {marker}")
    assert found, f"{name} has no comment {marker!r}"
    block = FENCED.search(rest)
    assert block is not None, f"{name}: nothing follows {marker!r}"
    return block[2]


def command_lines(page: str) -> list[str]:
    """What a page tells to type: inline code, and the lines of its blocks (behind ``$`` where output stands too)."""
    prose = FENCED.sub("", page)
    lines = [line for _, body in FENCED.findall(page) for line in body.splitlines()]
    return CODE.findall(prose) + [line.strip().removeprefix("$ ").removeprefix("> ") for line in lines]
