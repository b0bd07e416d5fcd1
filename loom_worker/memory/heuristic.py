"""A summary without a model: the sentences that say most for their length, in the order of the conversation. Pure.

What a sentence says is the sum over its words of how rare they are in the whole, more for names, numbers and
identifiers. A word counts once, so what was said twice is taken once. Decisions, preferences and promises count more,
questions less. Every step takes time in proportion to the text. What is known of English (a few words) helps with
English and does nothing in other languages.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import chain, groupby
from math import log
from typing import NamedTuple

from loom_worker.core.text import longest
from loom_worker.core.values.chat import ChatMessage, ToolOutcome
from loom_worker.core.values.sessions import Message
from loom_worker.core.words import STOP_WORDS, UNSPACED
from loom_worker.memory.layers import Count
from loom_worker.memory.results import call_text, references

READ_CHARS = 150_000
"""Characters of a text, two thirds of them its beginning and one its end: what is between is found by search alone."""
PIECE_CHARS = 240
"""Longer sentences are taken in parts."""
NOTE_CHARS = 100
"""Characters of the beginning of a tool's result."""
FIGURES_WITHIN = 10_000
"""Characters of a tool's result in which its figures are looked for."""
RANKED = 300
"""Pieces, the best ones, that are weighed against what was taken before; the others follow as they stand alone."""
TOKEN_CHARS = 12
"""Text of words has no longer tokens than this in the mean, and mostly four characters."""
MORE_TRIES = 8
"""Pieces that are tried, one by one, for the room that the best ones left."""
FRAME = 40
"""Characters added to the length of each sentence when it is weighed: a short exclamation says little by itself."""
FREE = 4
"""Pieces of one message that count fully; each further one counts less, or a table would push out all else."""
PROPER, PLAIN, SHORT, GRAMMAR = 2.0, 1.0, 0.5, 0.1
"""Weights of words, in addition to their rarity: names, numbers and identifiers; others; those of up to three letters,
mostly stop words in any language; English stop words, greetings and agreement."""
TOLD, ASKED = 1.15, 0.6
"""Weights of a sentence that decides, prefers or promises something, and of one that asks."""

_SPEAKERS = {"user": "User", "assistant": "Assistant", "tool": "Tool"}
_SPEAKER = re.compile(r"([^\W\d_][\w ]{0,30}): ")
# The end of a sentence, but not the dot of "e.g.", of an initial or of a title.
_END = re.compile(
    r"([.!?…]['\"”’)\]]{0,3})(?<!\.\w\.)(?<!\b[A-Z]\.)(?<!\bMr\.)(?<!\bMs\.)(?<!\bMrs\.)(?<!\bDr\.)(?<!\bSt\.)(?<!\bvs\.)"
    r"\s{1,8}|([。！？])"
)
_PART = re.compile(rf".{{1,{PIECE_CHARS}}}(?=\s|$)|.{{1,{PIECE_CHARS}}}")
_WORD = re.compile(r"[^\W_]+(?:['’.,:/@#_-][^\W_]+)*")
_TELLS = re.compile(
    r"\b(?:decid|agree|prefer|favou?rite|promis|allerg|deadline|(?:will|won['’]t|must|always|never|instead|remember|"
    r"don['’]t|because)\b)|['’]ll\b",
    re.IGNORECASE,
)
_IDLE = STOP_WORDS | frozenset(
    "again ever here now really quite well oh wow hey hi hello thanks thank sure yeah ok okay great good nice cool "
    "awesome amazing glad sorry".split()
)
_FIGURE = re.compile(
    r"\b(\w{0,30}?(?:count|total|sum)\w{0,30})\"?\s{0,4}[:=]\s{0,4}\"?(-?\d(?:[\d.,]{0,30}\d)?)", re.IGNORECASE
)
_BRACKETS = re.compile(r"[{}\[\]]+")


class _Line(NamedTuple):
    speaker: str
    text: str
    is_note: bool = False
    """It stays whole: the short note of a tool call or its result."""


@dataclass(frozen=True, slots=True)
class _Piece:
    place: int
    line: int
    speaker: str
    text: str


def summarize(messages: Sequence[Message], *, most_tokens: int, count: Count) -> str:
    """The parts of a conversation that say most, each with who said it; at most so many tokens, perhaps none."""
    lines = (line for message in messages for line in _lines(message.chat))
    return _selected(lines, most_tokens=most_tokens, count=count)


def shorten(text: str, *, most_tokens: int, count: Count) -> str:
    """The parts of a text that say most, at most so many tokens; its lines may begin with who speaks."""
    return _selected(map(_told_line, _read(text).splitlines()), most_tokens=most_tokens, count=count)


def _told_line(line: str) -> _Line:
    speaker = _SPEAKER.match(line)
    return _Line(speaker[1], line[speaker.end() :]) if speaker else _Line("", line)


def _lines(chat: ChatMessage) -> Iterator[_Line]:
    if chat.text:
        yield _Line(_SPEAKERS[chat.role], _read(chat.text))
    yield from (_Line("Call", call_text(use.name, use.arguments), is_note=True) for use in chat.tool_uses)
    yield from (_Line("Result", _result(outcome), is_note=True) for outcome in chat.outcomes)


def _read(text: str) -> str:
    third = READ_CHARS // 3
    return text if len(text) <= READ_CHARS else f"{text[: 2 * third]}\n{text[-third:]}"


def _result(outcome: ToolOutcome) -> str:
    """How a result begins, its totals, and under which reference the whole is kept."""
    head = outcome.content[:FIGURES_WITHIN]
    note = _note(_BRACKETS.sub(" ", head.replace('"', "")))
    figures = [f"{name} {value}" for name, value in _FIGURE.findall(head)[:3] if name not in note]
    stored = [found for found in references(head)[:1] if found not in note]
    name = f"{outcome.name} failed" if outcome.is_error else outcome.name
    return f"{name}: {'; '.join([note, *figures, *stored])}"


def _note(text: str) -> str:
    line = " ".join(text[: 4 * NOTE_CHARS].split())
    return line if len(line) <= NOTE_CHARS else line[:NOTE_CHARS].rsplit(" ", 1)[0] + " …"


def _selected(lines: Iterable[_Line], *, most_tokens: int, count: Count) -> str:
    pieces = list(_pieces(lines))
    most_chars = TOKEN_CHARS * max(0, most_tokens)
    whole = _rendered(pieces)
    if len(whole) <= most_chars and count(whole) <= most_tokens:
        return whole
    return _fitting(_ranked(pieces, most_chars=most_chars), lambda text: count(text) <= most_tokens)


def _pieces(lines: Iterable[_Line]) -> Iterator[_Piece]:
    seen: set[str] = set()
    for number, line in enumerate(lines):
        for sentence in [line.text] if line.is_note else _sentences(line.text):
            key = sentence.casefold()
            if key not in seen:
                seen.add(key)
                yield _Piece(len(seen), number, line.speaker, sentence)


def _sentences(text: str) -> Iterator[str]:
    parts = (part for line in text.splitlines() for part in _END.sub(_broken, line).split("\n"))
    for part in parts:
        yield from filter(None, (" ".join(piece.split()) for piece in _PART.findall(part)))


def _broken(end: re.Match[str]) -> str:
    return f"{end[1] or end[2]}\n"


def _ranked(pieces: Sequence[_Piece], *, most_chars: int) -> list[_Piece]:
    """The pieces by what each adds to those before it, for its length, until there are so many characters."""
    worth = _weights(pieces)
    order = _best_first(pieces, worth)
    ranked: list[_Piece] = []
    chars = 0
    for at in chain(_by_gain(order[:RANKED], worth), order[RANKED:]):
        if chars > most_chars:
            break
        ranked.append(pieces[at])
        chars += len(pieces[at].text)
    return ranked


def _best_first(pieces: Sequence[_Piece], worth: list[dict[str, float]]) -> list[int]:
    """The places of the pieces, the best first; what is one of many of its line is made worth less."""

    def order() -> list[int]:
        sums = [sum(each.values()) for each in worth]
        return sorted(range(len(worth)), key=lambda at: (-sums[at], at))

    of_line: Counter[int] = Counter()
    for at in order():
        of_line[pieces[at].line] += 1
        too_many = of_line[pieces[at].line] - FREE
        if too_many > 0:
            worth[at] = {word: value / (1 + too_many) for word, value in worth[at].items()}
    return order()


def _by_gain(order: Sequence[int], worth: Sequence[dict[str, float]]) -> Iterator[int]:
    """The best sentence, then the one that adds most to it, and so on."""
    covered: set[str] = set()

    def loss(at: int) -> float:
        return -sum(value for word, value in worth[at].items() if word not in covered)

    heap = [(loss(at), at) for at in order]
    heapify(heap)
    while heap:
        _, at = heappop(heap)
        now = loss(at)
        if heap and now > heap[0][0]:  # less than it was, as others said some of it: again to its place
            heappush(heap, (now, at))
            continue
        covered.update(worth[at])
        yield at


def _weights(pieces: Sequence[_Piece]) -> list[dict[str, float]]:
    words = [dict(_words(piece.text)) for piece in pieces]
    holding = Counter(word for each in words for word in each)
    rarity = {number: log(1 + len(pieces) / number) for number in set(holding.values())}
    scales = [_stance(piece.text) / (len(piece.text) + FRAME) for piece in pieces]
    return [
        {word: scale * value * rarity[holding[word]] for word, value in each.items()}
        for scale, each in zip(scales, words, strict=True)
    ]


def _words(text: str) -> Iterator[tuple[str, float]]:
    for place, word in enumerate(_WORD.findall(text)):
        if not word.isascii() and UNSPACED.search(word):
            yield from ((word[at : at + 2], SHORT) for at in range(max(1, len(word) - 1)))
        else:
            yield word.lower(), _value(word, is_first=place == 0)


def _value(word: str, *, is_first: bool) -> float:
    lower = word.lower()
    if lower in _IDLE or re.split("['’]", lower, maxsplit=1)[0] in _IDLE:
        return GRAMMAR
    if (not word.isalpha() and any(sign in word for sign in "0123456789@/_")) or not (word.islower() or is_first):
        return PROPER
    return PLAIN if len(word) > 3 else SHORT


def _stance(text: str) -> float:
    if text.endswith(("?", "？")):
        return ASKED
    return TOLD if _TELLS.search(text) else 1.0


def _fitting(ranked: Sequence[_Piece], fits: Callable[[str], bool]) -> str:
    """As many of the best as fit, and of those behind them some that still do."""
    most = longest(len(ranked), lambda number: fits(_rendered(ranked[:number])))
    taken = list(ranked[:most])
    for piece in ranked[most + 1 : most + 1 + MORE_TRIES]:
        if fits(_rendered([*taken, piece])):
            taken.append(piece)
    if taken or not ranked:
        return _rendered(taken)
    text = _rendered(ranked[:1])
    return text[: longest(len(text), lambda end: fits(text[:end]))].rstrip()


def _rendered(pieces: Iterable[_Piece]) -> str:
    ordered = sorted(pieces, key=lambda piece: piece.place)
    turns = [list(group) for _, group in groupby(ordered, key=lambda piece: piece.speaker or piece.line)]
    texts = (" ".join(piece.text for piece in said) for said in turns)
    return "\n".join(
        f"{said[0].speaker}: {text}" if said[0].speaker else text for said, text in zip(turns, texts, strict=True)
    )
