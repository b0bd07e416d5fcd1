"""Redacts a text that comes piece by piece, without letting pass half of what must not be seen."""

import re
from collections.abc import Collection

from loom_worker.guard.findings import Finding, marker_of, scan

CONTEXT_CHARS = 300
"""Characters of what was passed on that are kept to be searched with the rest: a word before a number tells what it
is."""
MOST_HELD_CHARS = 4_352
"""Characters of what may yet become a finding: more than an element such as ``<password>`` holds in its longest form.
Of a longer finding, such as a key file, only the beginning and the end are kept."""
MOST_UNKNOWN_CHARS = 256
"""Characters of a run without spaces that begins like no finding of great length: a key's needed part, an address and a
number are shorter. Base64 and languages that write no spaces go on streaming."""
_END_CHARS = 1_024


class StreamFilter:
    """A filter for one text; its answers together are the redacted text."""

    def __init__(self, kinds: Collection[str]) -> None:
        """Args: kinds: what is taken out, of SENSITIVE, or rules as ``scan`` takes them."""
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
                self.found += (each.kind, *each.others)
                at = each.end
        end = max(end, at)
        parts.append(self._text[at:end])
        self._forget(end)
        return "".join(parts)

    def _forget(self, passed: int) -> None:
        dropped = max(0, passed - CONTEXT_CHARS)
        self._text, self._passed = self._text[dropped:], passed - dropped
        if len(self._text) - self._passed > MOST_HELD_CHARS:
            self._shorten()

    def _shorten(self) -> None:
        """Take out the middle of a long finding that goes on: a marker will stand for all of it."""
        begin = self._passed + CONTEXT_CHARS
        text = self._text[:begin] + self._text[-_END_CHARS:]
        if all(
            any(each.start <= self._passed and each.end == len(searched) for each in scan(searched, self._kinds))
            for searched in (self._text, text)
        ):
            self._text = text


def _safe_end(text: str, findings: Collection[Finding]) -> int:
    """Up to where nothing can become part of a finding, whatever follows."""
    end = max(_certain_end(text), len(text) - MOST_HELD_CHARS)
    seen = len(text.rstrip())
    for each in reversed(tuple(findings)):
        if each.end >= seen or each.start < end < each.end:
            end = min(end, each.start)
    return end


def _certain_end(text: str) -> int:
    """Where what is not finished begins; no finding reaches from there to before it."""
    unfinished = _UNFINISHED_BACKWARDS.match(text[::-1])
    end = len(text) - (unfinished.end() if unfinished else 0)
    if len(text) - end > MOST_UNKNOWN_CHARS:
        long = _LONG.search(text, end)
        end = min(len(text) - MOST_UNKNOWN_CHARS, max(end, long.start() - MOST_UNKNOWN_CHARS) if long else len(text))
    found = (pattern.search(text) for pattern in (_LOOSE_KEY, _OPEN_ELEMENT, _OPEN_KEY_FILE, _OPEN_IBAN))
    return min([end, *(match.start() for match in found if match)])


# Possessive, for words of digits can be parted in so many ways that a search that fails would never end.
_UNFINISHED_BACKWARDS = re.compile(r"\s{0,2}+\S*+(?:\s{1,2}+(?:[^\s\d]*+\d\S*+|[^\w\s]{1,2}+(?=\s))){0,24}+")
"""The last word, with groups of digits before it: a number goes on, and a word behind it may tell what it is."""
_LONG = re.compile(r"://|@|eyj|pass|pwd|secret|credential|key|token|authorization|cookie|bearer|basic", re.IGNORECASE)
"""In the beginning of a finding that may need more than MOST_UNKNOWN_CHARS to be known for one."""
_LOOSE_KEY = re.compile(r"(?<![A-Za-z0-9/+])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])(?=[\s\S]{0,230}$)")
"""Forty characters are an AWS secret key if an id of such a key follows soon."""
_OPEN_ELEMENT = re.compile(
    r"(?:pass(?:word|wd|phrase)|pwd|secret|credentials?|key|token)>[^<>\n\0]*+<?$", re.IGNORECASE
)
_OPEN_KEY_FILE = re.compile(
    r"-----(?:B(?:E(?:G(?:I(?:N(?: [A-Z0-9 ]{0,40}-{0,5})?)?)?)?)?)?$"
    r"|-----BEGIN [A-Z0-9 ]{1,40}-----(?:[^-\0]|-(?!----))*+(?:-----(?:E(?:N(?:D(?: [^-\n\0]{0,64}-{0,4})?)?)?)?)?$"
)
"""Until its last line has ended, which belongs to it."""
_OPEN_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}\d\d(?: ?[A-Za-z0-9]){0,30} ?$")
"""Its groups of letters are words like any other."""
