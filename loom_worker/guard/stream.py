"""Redacts a text that comes piece by piece, without letting pass half of what must not be seen."""

import re
from collections.abc import Collection

from loom_worker.guard.findings import Finding, scan
from loom_worker.guard.redact import marker_of

CONTEXT_CHARS = 300
"""Of what was passed on are kept to be searched with the rest: a word before a number tells what it is."""
MOST_HELD_CHARS = 4_096
"""Of what may yet become a finding. Of a longer one, such as a key file, only its beginning and end are kept."""
_END_CHARS = 1_024


class StreamFilter:
    """A filter for one text; its answers together are the redacted text."""

    def __init__(self, kinds: Collection[str]) -> None:
        """Filter nothing yet.

        Args:
            kinds: what is taken out, of SENSITIVE.
        """
        self._kinds = kinds
        self._text = ""
        """What is kept: some that was passed on already, then what is held back."""
        self._passed = 0
        """Characters of it that were passed on."""
        self.found: list[str] = []
        """The kinds of what was taken out, in order."""

    def feed(self, piece: str) -> str:
        """Take the next piece; return what can be seen by now, often nothing."""
        self._text += piece
        findings = scan(self._text, self._kinds)
        return self._pass_on(findings, _safe_end(self._text, findings))

    def end(self) -> str:
        """There is no more; return the rest."""
        return self._pass_on(scan(self._text, self._kinds), len(self._text))

    def _pass_on(self, findings: Collection[Finding], end: int) -> str:
        parts, at = [], self._passed
        for each in findings:
            if each.end > at and each.end <= end:
                parts += [self._text[at : max(at, each.start)], marker_of(each.kind)]
                self.found.append(each.kind)
                at = each.end
        end = max(end, at)
        parts.append(self._text[at:end])
        self._forget(end)
        return "".join(parts)

    def _forget(self, passed: int) -> None:
        """Keep no more than is needed."""
        dropped = max(0, passed - CONTEXT_CHARS)
        self._text, self._passed = self._text[dropped:], passed - dropped
        if len(self._text) - self._passed > MOST_HELD_CHARS:
            begin = self._passed + CONTEXT_CHARS
            self._text = self._text[:begin] + self._text[-_END_CHARS:]


def _safe_end(text: str, findings: Collection[Finding]) -> int:
    """Up to where nothing can become part of a finding, whatever follows."""
    end = len(text)
    for found in (_UNFINISHED.search(text), _LOOSE_KEY.search(text)):
        if found:
            end = min(end, found.start())
    seen = len(text.rstrip())
    for each in reversed(tuple(findings)):
        if each.end >= seen or each.start < end < each.end:
            end = min(end, each.start)
    return end


_UNFINISHED = re.compile(r"(?:(?<!\S)\S*\d\S*[ \t\n]{1,2}){0,12}\S*[ \t]?$|-----BEGIN(?![\s\S]*-----END[^-\n]*-----)")
"""The last word, with groups of digits before it: a number goes on, and a word behind it may tell what it is."""
_LOOSE_KEY = re.compile(r"(?<![A-Za-z0-9/+])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])(?=[\s\S]{0,230}$)")
"""Forty characters are an AWS secret key if an id of such a key follows soon."""
