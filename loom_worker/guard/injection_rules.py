"""How people put it who try to give a model other instructions: rules over words in lower case.

Each looks for an order together with what it is about, such as to ignore and instructions, so that either alone passes.
They stand in ``injection_rules.txt``.
"""

import re
from pathlib import Path

Rule = tuple[frozenset[str], re.Pattern[str]]
"""Beginnings of words of which a text must hold one, which are looked for first and fast; and the rule."""


def _read(text: str, parts: dict[str, str]) -> tuple[Rule, ...]:
    """Read entries, each on a line and the indented ones after it: ``word,word ~ pattern``, and ``NAME ~ part``."""
    rules = []
    for line in re.sub(r"\n    ", "", text).splitlines():
        if line and not line.startswith("# "):
            words, pattern = re.sub(r"{([A-Z]+)}", lambda name: parts[name[1]], line).split(" ~ ", 1)
            if words.isupper():
                parts[words] = pattern
            else:
                rules.append((frozenset(words.split(",")), re.compile(pattern)))
    return tuple(rules)


_ALL, _IN_RESULTS = Path(__file__).with_name("injection_rules.txt").read_text("utf-8").split("# [in results alone]\n")
_PARTS: dict[str, str] = {}
RULES = _read(_ALL, _PARTS)
RESULT_RULES = _read(_IN_RESULTS, _PARTS)
"""Rules for what tools return alone, where an order has no business; a user may say such things."""
