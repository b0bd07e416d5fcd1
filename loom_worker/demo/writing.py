"""Texts made of the answers that a prompt quotes: a report, a summary, and a check of a report's figures.

Nothing is added to what the answers say. A task in other words than these is refused like any question that no rule
reads.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loom_worker.demo.answer import NO_ANSWER
from loom_worker.demo.prompts import HISTORY, YES_OR_NO
from loom_worker.demo.rows import NO_LLM

_REPORT = re.compile(
    r"write (?:a|the) (?:short )?(?:sales )?report (?:from|out of) (?:the answers|what was said)(?: below| before)?\."
    r"(?: keep every figure as it stands(?:,? and add none)?\.)?",
    re.IGNORECASE,
)
_CHECK = re.compile(
    r"does every figure (?:of|in) the report (?:stand|occur|appear) in the answers\?\n+"
    r"The report:\n(?P<report>.*)\n+The answers:\n(?P<answers>.*)",
    re.IGNORECASE | re.DOTALL,
)
_SUMMARY = "Several agents have answered. Summarise what they say without repeating it. Give the summary alone."
_ANSWERS = "\n\nThe answers:\n\n"
_HISTORY_BEGIN = re.compile(rf"(?:{HISTORY}|\n\s*\n)(?=\[[^\]\n]{{1,140}}\]\n)")
"""Where the answers begin: the engine has put them, or the workflow's file itself."""
_NAMED = re.compile(r"(?:\A|\n\n)\[(?P<label>[^\]\n]{1,140})\]\n")
_NUMBERED = re.compile(
    r"(?:\A|\n\n)(?P<n>\d{1,3})\. (?P<label>\S{1,140}?)(?: was asked: (?P<asked>[^\0]*?)\nIt said)?:\n"
)
_FIGURE = re.compile(r"\d(?:[\d,]*\d)?(?:\.\d+)?")
_SENTENCE_END = re.compile(r"(?<=\.) (?=[A-Z])")
_MOST_LINES = 4
"""Lines of one answer in a summary."""
_MOST_NAMED = 10
"""Figures that a check names."""


@dataclass(frozen=True, slots=True)
class _Source:
    """An answer as a prompt quotes it."""

    label: str
    lines: tuple[str, ...]
    remarks: tuple[str, ...]
    """What the demo model says below its figures, a sentence each."""


def written(text: str) -> str | None:
    """The text that a prompt wants to be made of the answers in it; None if it asks for something else."""
    text = text.strip()
    if (found := _CHECK.fullmatch(text.removesuffix(YES_OR_NO).strip())) is not None:
        is_clear = text.count("\nThe report:\n") == text.count("\nThe answers:\n") == 1
        return _checked(found["report"], found["answers"]) if is_clear else None
    begin = _HISTORY_BEGIN.search(text)
    task, answers = (text[: begin.start()], text[begin.end() :]) if begin else (text, "")
    if _REPORT.fullmatch(" ".join(task.split())):
        sources = [*_sources(_NAMED.finditer(answers), answers)]
        return _quoted(sources) if sources else None
    task, _, answers = text.partition(_ANSWERS)
    is_summary = task.partition("\n\nThe task was:\n")[0].strip() == _SUMMARY
    sources = [*_sources(_in_order(answers), answers)]
    return _quoted(sources, _MOST_LINES) if is_summary and sources else None


def _in_order(answers: str) -> Iterator[re.Match[str]]:
    """The headings 1, 2, 3 … of answers, which may hold numbered lines themselves."""
    wanted = 1
    for found in _NUMBERED.finditer(answers):
        if int(found["n"]) == wanted:
            yield found
            wanted += 1


def _sources(headings: Iterator[re.Match[str]], text: str) -> Iterator[_Source]:
    found = list(headings)
    if not found or found[0].start():
        return
    for heading, end in zip(found, [*(each.start() for each in found[1:]), len(text)], strict=True):
        label = heading["label"].rpartition(":")[2]
        yield _source(label, text[heading.end() : end].strip())


def _source(label: str, text: str) -> _Source:
    if text.startswith(NO_ANSWER):
        return _Source(label, (text.partition("\n")[0],), ())
    body, _, last = text.rpartition("\n\n")
    if not body or not last.endswith(NO_LLM):
        return _Source(label, tuple(text.splitlines()), ())
    remarks = _SENTENCE_END.split(last.removesuffix(NO_LLM).strip())
    return _Source(label, tuple(body.splitlines()), (*filter(None, remarks), NO_LLM))


def _quoted(sources: Sequence[_Source], most_lines: int | None = None) -> str:
    """The answers one below the other, and at the end what any of them remarks, each remark once."""
    has_labels = len({source.label for source in sources}) == len(sources)
    parts = []
    for source in sources:
        kept = source.lines[:most_lines]
        more = len(source.lines) - len(kept)
        left_out = [f"… and {more} more line{'s' if more > 1 else ''}."] if more else []
        parts.append("\n".join([*([source.label.capitalize()] if has_labels else []), *kept, *left_out]))
    remarks = dict.fromkeys(remark for source in sources for remark in source.remarks)
    is_own = remarks.pop(NO_LLM, 0) is None
    last = " ".join([*remarks, *([NO_LLM] if is_own else [])])
    return "\n\n".join([*parts, *([last] if last else [])])


def _checked(report: str, answers: str) -> str:
    """Whether each number of a report is one of the answers', with or without its commas."""
    told, known = _figures(report), _figures(answers)
    wrong = [figure for figure in told if figure not in known]
    if not wrong:
        return f"Yes. Each figure of the report stands in the answers, signs aside ({len(told)} different ones)."
    named = ", ".join(wrong[:_MOST_NAMED]) + (" and others" if len(wrong) > _MOST_NAMED else "")
    return f"No. These figures of the report do not stand in the answers: {named}."


def _figures(text: str) -> dict[str, None]:
    return dict.fromkeys(figure.replace(",", "") for figure in _FIGURE.findall(text))
