"""A session's context as a picture: a bar for each layer. Pure."""

from collections.abc import Iterator
from typing import NamedTuple

from loom_worker.core.values.json import Json

WIDEST = 60
"""Characters of a line."""
_BAR = 22


class Strokes(NamedTuple):
    """What a bar is drawn with."""

    parts: str
    """A cell filled by one part of len(parts), by two, and so on; the last one is a full cell."""
    empty: str


BLOCKS = Strokes("▏▎▍▌▋▊▉█", "·")
ASCII = Strokes("#", ".")


def strokes_of(encoding: str | None) -> Strokes:
    """Blocks where the terminal can show them, ASCII where it cannot."""
    try:
        (BLOCKS.parts + BLOCKS.empty).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return BLOCKS


def drawn(context: Json, strokes: Strokes) -> Iterator[str]:
    """Lines that show what each layer takes of the input budget.

    Args:
        context: the Context of the HTTP API.
    """
    budget = context["input_budget_tokens"]
    for name, layer in context["layers"].items():
        messages = f"{layer['messages']:>6,} msg" if layer.get("messages") else ""
        yield f"{name:<9}{bar(layer['share'], strokes)} {_figures(layer['tokens'], layer['share'])}{messages}".rstrip()
    used = context["used_tokens"]
    yield f"{used:,} of {budget:,} tokens used ({used / max(budget, 1):.1%})"


def bar(share: float, strokes: Strokes) -> str:
    """A bar of a fixed width; whatever is more than nothing shows, and nothing reaches beyond the end."""
    steps = len(strokes.parts)
    filled = min(_BAR * steps, max(round(share * _BAR * steps), 1 if share > 0 else 0))
    whole, part = divmod(filled, steps)
    cells = strokes.parts[-1] * whole + (strokes.parts[part - 1] if part else "")
    return cells.ljust(_BAR, strokes.empty)


def _figures(tokens: int, share: float) -> str:
    return f"{tokens:>9,} {share:>6.1%}"
