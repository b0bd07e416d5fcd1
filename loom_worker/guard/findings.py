"""What is found in a text: secrets, what identifies a person, and prompt injection."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from loom_worker.core.values.guardrails import ACTIONS, INJECTION, SENSITIVE
from loom_worker.guard.disguise import undisguised
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
