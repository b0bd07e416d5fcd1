"""What is found in a text (secrets, what identifies a person, prompt injection), and its removal before text is kept.

Pure, and linear in the text.
"""

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from loom_worker.core.values.guardrails import ACTIONS, INJECTION, SENSITIVE
from loom_worker.guard.injection import injections
from loom_worker.guard.personal import cards, emails, ibans, ips, ssns
from loom_worker.guard.phones import phones
from loom_worker.guard.secrets import secrets

_FINDERS: Mapping[str, Callable[[str], Iterator[tuple[int, int]]]] = {
    "secret": secrets,
    "card": cards,
    "ssn": ssns,
    "iban": ibans,
    "phone": phones,
    "email": emails,
    "ip": ips,
    INJECTION: injections,
}


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A stretch of a text."""

    start: int
    end: int
    kind: str
    """One of KINDS."""
    others: tuple[str, ...] = ()
    """Kinds of findings that became part of this one."""


def scan(text: str, kinds: Collection[str] = SENSITIVE) -> tuple[Finding, ...]:
    """All findings in order; those that overlap become one, of the kind that begins first, which names the others.

    Args:
        kinds: what to look for, of KINDS. With the rules of a stage, the kind with the strictest action counts instead.
    """
    found = sorted(set(_found(text, kinds)))
    merged: list[Finding] = []
    for each in found:
        if not merged or each.start >= merged[-1].end:
            merged.append(each)
        elif not (
            each.kind == "email" and text.startswith("@", merged[-1].end)
        ):  # a URL's password and its host are no e-mail address
            last = merged[-1]
            kind = max(last.kind, each.kind, key=lambda one: _strictness(one, kinds))
            others = tuple(sorted({last.kind, each.kind, *last.others} - {kind}))
            merged[-1] = Finding(last.start, max(each.end, last.end), kind, others)
    return tuple(merged)


def _found(text: str, kinds: Collection[str]) -> Iterator[Finding]:
    plain, places = undisguised(text)
    for kind in kinds:
        searched = text if places or kind == INJECTION else plain
        yield from (Finding(*place, kind) for place in _FINDERS[kind](searched))
        if places and kind != INJECTION:
            yield from (Finding(places[start], places[end], kind) for start, end in _FINDERS[kind](plain))


def _strictness(kind: str, kinds: Collection[str]) -> int:
    return ACTIONS.index(kinds[kind]) if isinstance(kinds, Mapping) else 0


def undisguised(text: str) -> tuple[str, list[int]]:
    """The plain form, and for each of its characters, and its end, where that begins in the text itself.

    If both forms have the same length, so do all places, and the list is empty.
    """
    parts, places, at = list[str](), list[int](), 0
    for match in (_ESCAPE if text.isascii() else _DISGUISED).finditer(text):
        shown = _plain(match[0])
        parts += [text[at : match.start()], shown]
        places += [*range(at, match.start()), *[match.start()] * len(shown)]
        at = match.end()
    plain = "".join([*parts, text[at:]])
    return plain, [] if len(plain) == len(text) else [*places, *range(at, len(text) + 1)]


def _plain(disguised: str) -> str:
    """One character, or none."""
    if disguised.startswith("\\"):
        name = disguised.lstrip("\\")
        return chr(int(name[1:], 16)) if name[0] == "u" else {"n": "\n", "r": "\r", "t": "\t"}.get(name, name)
    if disguised[0].isdecimal():
        return str(unicodedata.decimal(disguised))
    return unicodedata.normalize("NFKC", disguised) if "\uff01" <= disguised <= "\uff5e" else _OTHERS.get(disguised, "")


_SPACES, _DASHES = "\u00a0\u2002\u2003\u2007\u2008\u2009\u200a\u202f\u3000", "\u2010\u2011\u2012\u2013\u2014\u2212"
_OTHERS = {**dict.fromkeys(_SPACES, " "), **dict.fromkeys(_DASHES, "-")}
_ESCAPE = re.compile(r"\\{1,3}(?:u00[2-7][0-9A-Fa-f]|/|(?<=\d\\|\\\\)[nrt](?=\d))")
_DISGUISED = re.compile(
    r"[\u00ad\u034f\u180e\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff]+|[\uff0b-\uff0f\uff20-\uff3a\uff3f\uff41-\uff5a]"
    rf"|(?![0-9])\d|[{_SPACES}{_DASHES}](?<=\d.)(?=[\d(])|{_ESCAPE.pattern}"
)
"""Each stands for one character, a run of unseen ones for none. Spaces and dashes count only between digits."""


SECRET = "[redacted]"  # noqa: S105 - replaces one
MARKER = re.compile(r"\[redacted(?: [a-z]{1,10})?\]")
"""Replaces anything that was removed, such as ``[redacted email]``."""
KEPT_OUT = frozenset(SENSITIVE) - {"ip"}
"""What errors and logs never hold. Addresses of hosts stay, for those who must find out which one did not answer."""
ROUNDS = 4
"""A text is searched again while its rest still matches; after that, a stretch that matches is removed as a whole."""
_GAP = "\0"
"""Stands for a marker while the rest is searched: no pattern matches across it."""


def marker_of(kind: str) -> str:
    """What stands in the place of a finding."""
    return SECRET if kind == "secret" else f"[redacted {kind}]"


def redacted(text: str, kinds: Collection[str] = KEPT_OUT) -> str:
    """Replace each secret by a marker; what was redacted before does not change.

    NUL, which no store of ours can carry, becomes U+FFFD.

    Args:
        kinds: what is removed, of SENSITIVE.
    """
    markers = MARKER.findall(text)
    rest = MARKER.sub(_GAP, text.replace(_GAP, "\ufffd"))
    for _ in range(ROUNDS):
        found = scan(rest, kinds)
        if not found:
            return _filled(rest, markers)
        rest, markers = _taken(rest, found, markers)
    return _filled(_GAP.join(SECRET if scan(stretch, kinds) else stretch for stretch in rest.split(_GAP)), markers)


def _filled(rest: str, markers: list[str]) -> str:
    parts = rest.split(_GAP)
    return "".join(part for pair in zip(parts, [*markers, ""], strict=True) for part in pair)


def _taken(rest: str, found: Sequence[Finding], markers: list[str]) -> tuple[str, list[str]]:
    """Replace findings, which contain no gaps, by gaps; also the markers of all gaps, in their order."""
    parts: list[str] = []
    kept: list[str] = []
    old = iter(markers)
    begin = 0
    for each in found:
        parts += [rest[begin : each.start], _GAP]
        kept += [next(old) for _ in range(rest.count(_GAP, begin, each.start))] + [marker_of(each.kind)]
        begin = each.end
    return "".join([*parts, rest[begin:]]), [*kept, *old]
