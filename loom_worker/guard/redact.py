"""Removes secrets and what identifies a person from text before it is kept or shown. Pure, and linear in the text."""

import re
from collections.abc import Collection, Sequence

from loom_worker.core.values.guardrails import SENSITIVE
from loom_worker.guard.findings import Finding, scan

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
