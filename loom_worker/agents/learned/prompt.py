"""What an agent is told of its learned layer: instructions and examples, as a part of its system text. Pure."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import Any

from loom_worker.core.text import clean, longest
from loom_worker.core.values.learned import Demonstration, LearnedLayer, LearnedPart, LearnedPolicy

HEAD = (
    "What follows was learned from earlier answers: instructions to follow, and examples of good answers. The examples "
    "are not part of the conversation."
)


@dataclass(frozen=True, slots=True)
class LearnedText:
    """A layer as text, and what of it is in it."""

    text: str
    part: LearnedPart


@dataclass(frozen=True, slots=True)
class _LearnedSection:
    name: str
    head: str
    demonstrations: tuple[Demonstration, ...] = ()


def fitted(
    layer: LearnedLayer, policy: LearnedPolicy, *, version: int, room_tokens: int, count: Callable[[str], int]
) -> LearnedText:
    """As much of a layer as its room takes; the same arguments give the same bytes.

    Instructions are never cut, for half of one may say the opposite: a signature is in it as a whole, or left out, the
    last ones first. Only then come demonstrations, the first of every signature before the second of any.

    Args:
        policy: says which signatures are the agent's own.
        room_tokens: what the text may take.
        count: tokens of a text.
    """
    sections = _sections(layer, policy)
    examples = [len(section.demonstrations) for section in sections]
    told = longest(len(sections), lambda kept: count(_text(_bare(sections[:kept]))) <= room_tokens)
    shown = 0
    if told == len(sections):
        shown = longest(sum(examples), lambda kept: count(_text(_with_first(sections, kept))) <= room_tokens)
    text = _text(_with_first(sections, shown) if shown else _bare(sections[:told]))
    part = LearnedPart(version, told, shown, len(sections) - told, sum(examples) - shown)
    return LearnedText(text, part)


def whole(layer: LearnedLayer) -> str:
    """All of a layer as text, for people to read and compare."""
    return _text(_sections(layer, LearnedPolicy()))


def _sections(layer: LearnedLayer, policy: LearnedPolicy) -> list[_LearnedSection]:
    """In the order of the file; of an agent that names its own, in the order in which it names them."""
    found: dict[str, _LearnedSection] = {}
    for each in layer.signatures:
        described = "\n".join(f"- {one.name}: {one.description}" for one in each.fields)
        parts = (each.instructions, f"Fields:\n{described}" if described else "")
        demonstrations = tuple(one for one in layer.demonstrations if one.signature == each.name)
        found[each.name] = _LearnedSection(each.name, "\n\n".join(filter(None, parts)), demonstrations)
    for prompt in layer.gradients:
        found[prompt.name] = _LearnedSection(prompt.name, prompt.value)
    if policy.signatures is None:
        return list(found.values())
    return [found[name] for name in policy.signatures if name in found]


def _bare(sections: Sequence[_LearnedSection]) -> list[_LearnedSection]:
    return [replace(section, demonstrations=()) for section in sections]


def _with_first(sections: Sequence[_LearnedSection], kept: int) -> list[_LearnedSection]:
    """The sections with so many of their demonstrations: one of each in turn."""
    in_turn = zip_longest(*([(n, each) for each in range(len(s.demonstrations))] for n, s in enumerate(sections)))
    chosen = [one for one in chain.from_iterable(in_turn) if one is not None][:kept]
    most = [sum(1 for n, _ in chosen if n == number) for number in range(len(sections))]
    return [replace(s, demonstrations=s.demonstrations[: most[n]]) for n, s in enumerate(sections)]


def _text(sections: Sequence[_LearnedSection]) -> str:
    """All sections; empty if none says anything. A name is given where there are several."""
    parts = []
    for section in sections:
        examples = "\n\n".join(map(_example, section.demonstrations))
        texts = (f"## {section.name}" if len(sections) > 1 else "", section.head, examples)
        parts.append("\n\n".join(filter(None, texts)))
    said = [part for part in parts if part]
    return clean("\n\n".join([HEAD, *said])) if said else ""


def _example(demonstration: Demonstration) -> str:
    lines = "\n".join(f"{name}: {_shown(value)}" for name, value in demonstration.values.items())
    return f"<example>\n{lines}\n</example>"


def _shown(value: Any) -> str:
    return value.strip() if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
