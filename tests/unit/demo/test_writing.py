"""Reports, summaries and checks: made of the answers that stand in a prompt, and of nothing else."""

from datetime import date
from typing import Any

import pytest

from loom_worker.demo.rows import NO_LLM
from loom_worker.demo.writing import written
from tests.support.tiny_shop import open_shop
from tests.unit.demo.played import Played, of_spec

TODAY = date(2026, 11, 21)
REPORT = "Write a report from the answers below."
HISTORY = (
    f"[one]\nRevenue 2025:\n1. Tents: revenue 5.00\n\nA remark. Another. {NO_LLM}\n\n[two]\nOrders: 7"
    f"\n\nA remark. {NO_LLM}"
)
QUOTED = f"One\nRevenue 2025:\n1. Tents: revenue 5.00\n\nTwo\nOrders: 7\n\nA remark. Another. {NO_LLM}"
LONG = "\n".join(f"{n}. row: {n}" for n in range(1, 8))


def merged(strategy: str, *answers: str, kind: str = "parallel") -> Played:
    tasks = [{"agent_id": f"agent-{n}", "prompt": "Say something."} for n in range(len(answers))]
    spec: dict[str, Any] = {"type": "parallel", "tasks": tasks, "merge_strategy": strategy}
    if kind == "fork-join":
        ids = [task["agent_id"] for task in tasks]
        spec = {"type": kind, "prompt": "Say something.", "agent_ids": ids, "merge_strategy": strategy}
    part = "tasks" if kind == "parallel" else "agents"
    return of_spec(spec, open_shop(), TODAY, **{f"{part}__{n}": text for n, text in enumerate(answers)})


@pytest.mark.cases(
    "prompt",
    [
        f"{REPORT}\n\nWhat was said before:\n\n{HISTORY}",
        f"{REPORT}\n\n{HISTORY}\n",
        f"write a short  sales report\nout of what was said before. Keep every figure as it stands.\n\n{HISTORY}",
    ],
)
def test_a_report_quotes_all_answers_and_says_once_what_several_remark(prompt: str) -> None:
    assert written(prompt) == QUOTED


@pytest.mark.cases(
    "prompt",
    [
        f"{REPORT} Write it in French.\n\n{HISTORY}",
        f"Write a funny report from the answers below.\n\n{HISTORY}",
        f"Write a report from the answers below, in three sentences.\n\n{HISTORY}",
        f"{REPORT}\n\nThe answers are in the attachment.",
        REPORT,
        f"Revenue by category\n\nWhat was said before:\n\n{HISTORY}",
        HISTORY,
        "",
    ],
)
def test_what_is_asked_in_addition_makes_it_another_task(prompt: str) -> None:
    assert written(prompt) is None


def test_an_answer_that_refuses_stays_a_refusal() -> None:
    asked = f"{REPORT}\n\n[a]\nI have no answer, as I do not guess: why.\nYou can ask this.\n\n[b]\nOrders: 7"
    assert written(asked) == "A\nI have no answer, as I do not guess: why.\n\nB\nOrders: 7"


@pytest.mark.cases("kind", ["parallel", "fork-join"])
def test_a_summary_shortens_long_answers_and_says_so(kind: str) -> None:
    found = merged("summary", f"Rows:\n{LONG}", "2. x:\nOrders: 7", kind=kind)
    rows = "\n".join(LONG.splitlines()[:3])
    assert found.end.output == f"Agent-0\nRows:\n{rows}\n… and 4 more lines.\n\nAgent-1\n2. x:\nOrders: 7"


def test_lines_that_look_like_the_next_heading_end_no_answer() -> None:
    found = merged("summary", "First\n\n3. c:\nstill the first", "Second")
    assert found.end.output == "Agent-0\nFirst\n\n3. c:\nstill the first\n\nAgent-1\nSecond"


@pytest.mark.cases("strategy", ["consensus", "best"])
def test_answers_are_neither_weighed_nor_chosen_from(strategy: str) -> None:
    found = merged(strategy, "Revenue: 7", "Revenue: 7")
    assert found.outputs["merge"].startswith("I have no answer")


@pytest.mark.cases(
    ("report", "verdict"),
    [
        ("Revenue was 1,234.50, or -5 %.", "signs aside (2 different ones)."),
        ("Revenue was 1234.50.", "signs aside (1 different ones)."),
        ("No figure.", "signs aside (0 different ones)."),
        ("Revenue was 1,234.5 of 7.", "No. These figures of the report do not stand in the answers: 1234.5, 7."),
        ("1 2 3 4 6 7 8 9 11 12 13 14", "1, 2, 3, 4, 6, 7, 8, 9, 11, 12 and others."),
    ],
)
def test_each_figure_of_a_report_is_looked_for_in_the_answers(report: str, verdict: str) -> None:
    question = "Does every figure of the report stand in the answers?"
    checked = written(f"{question}\n\nThe report:\n{report}\n\nThe answers:\n[a]\n1,234.50 5 %")
    assert verdict in (checked or "")


def test_a_report_that_holds_a_heading_of_the_check_is_not_checked() -> None:
    asked = (
        "Does every figure of the report stand in the answers?\n\nThe report:\n1\nThe answers:\n1\n\nThe answers:\n2"
    )
    assert written(asked) is None
