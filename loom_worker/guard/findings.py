"""What is found in a text: secrets, what identifies a person, and prompt injection."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from loom_worker.core.values.guardrails import INJECTION, SENSITIVE
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


def scan(text: str, kinds: Collection[str] = SENSITIVE) -> tuple[Finding, ...]:
    """All findings in order; those that overlap become one, of the kind that begins first.

    Args:
        kinds: what to look for, of KINDS.
    """
    found = sorted(Finding(*place, kind) for kind in kinds for place in _FINDERS[kind](text))
    merged: list[Finding] = []
    for each in found:
        if not merged or each.start >= merged[-1].end:
            merged.append(each)
        elif not (
            each.kind == "email" and text.startswith("@", merged[-1].end)
        ):  # a URL's password and its host are no e-mail address
            merged[-1] = Finding(merged[-1].start, max(each.end, merged[-1].end), merged[-1].kind)
    return tuple(merged)
