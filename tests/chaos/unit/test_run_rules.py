"""The harness' own reading of workflows, with answers that are easy to follow."""

from collections.abc import Mapping

import pytest

from tests.chaos.run_rules import DueEnd, Sheets, played
from tests.chaos.workflow_files import SPECS

VOTES = {
    "votes.0": "Well.\nVOTE: red\nCONFIDENCE: 0.9",
    "votes.1": "Well.\nVOTE: blue\nCONFIDENCE: 60%",
    "votes.2": "Well.\nVOTE: blue\nCONFIDENCE: 0.6",
}
SPLIT = {**VOTES, "votes.2": "Well.\nVOTE: green\nCONFIDENCE: 1"}
FORK = {"agents.0": "One", "agents.1": "Two", "agents.2": "Two"}
ROUNDS = {f"rounds.{round_n}.agents.{n}": f"{round_n}-{n}" for round_n in (0, 1) for n in (0, 1, 2)}
CHAIN = {
    "stages.0": 'First\n{"n":1}',
    "stages.1": "Second",
    "stages.1.validation": "yes",
    "stages.2": "Third",
    "stages.3": "Fourth",
}
LOOP = {
    "iterations.0.stages.0": "a",
    "iterations.0.stages.1": "b",
    "iterations.0.stages.2": "c\nRESTART work: more",
    "iterations.1.stages.1": "d",
    "iterations.1.stages.2": "e",
}


@pytest.mark.parametrize(
    ("workflow", "answers", "output"),
    [
        ("chain", CHAIN, "Fourth"),
        ("told-all", {f"stages.{n}": str(n) for n in range(3)}, "2"),
        ("fork-concatenate", FORK, "[ada]\nOne\n\n[bob]\nTwo\n\n[cay]\nTwo"),
        ("fork-first", FORK, "One"),
        ("fork-voting", {**FORK, "agents.1": "Two <!!!!!.!>"}, "Two <!!!!!.!>"),
        ("fork-best", {**FORK, "merge": "3 is good"}, "Two"),
        ("fork-summary", {**FORK, "merge": "All in all"}, "All in all"),
        ("side-concatenate", {f"tasks.{n}": str(n) for n in range(3)}, "[ada]\n0\n\n[bob]\n1\n\n[cay]\n2"),
        ("choice", {"condition": "I say\nfork", "branch.agents.0": "F", "branch.agents.1": "G"}, "F"),
        (
            "choice",
            {"condition": "x", "condition.retry.1": "pipe", "branch.stages.0": "P", "branch.stages.1": "Q"},
            "Q",
        ),
        ("again", LOOP, "e"),
        ("talk", {**ROUNDS, "merge": "We agree"}, "We agree"),
        ("poll-majority", VOTES, "blue"),
        ("poll-weighted", {**VOTES, "votes.2": "VOTE: blue\nCONFIDENCE: 0.2", "judge": "None"}, "red"),
        ("poll-judged", {**VOTES, "judge": "Red it is"}, "Red it is"),
        ("poll-shared", VOTES, "blue"),
        ("poll-majority", {**SPLIT, "votes.2": "?", "votes.2.retry.1": VOTES["votes.1"]}, "blue"),
        ("desk", {"entrypoint": "Done"}, "Done"),
    ],
)
def test_a_workflow_gives_what_follows_from_the_answers(workflow: str, answers: Mapping[str, str], output: str) -> None:
    sheets = Sheets(answers, {"stages.2.approval": "approve"}, workflow)
    assert played(SPECS[workflow], sheets) == DueEnd("completed", None, output)
    assert sheets.asked.keys() - {"stages.2.approval"} == answers.keys() - UNASKED[workflow]


UNASKED: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(SPECS, frozenset()),
    "poll-weighted": frozenset({"judge"}),
}


@pytest.mark.parametrize(
    ("workflow", "answers", "end"),
    [
        ("fork-best", {**FORK, "merge": "I like all"}, DueEnd("failed", "invalid-output", "I like all")),
        ("strict", {"condition": "neither"}, DueEnd("failed", "no-branch", "neither")),
        ("poll-majority", SPLIT, DueEnd("incomplete", "no-consensus", None)),
        (
            "chain",
            {"stages.0": "no JSON", "stages.0.retry.1": '{"n":"one"}'},
            DueEnd("failed", "invalid-output", '{"n":"one"}'),
        ),
        (
            "again",
            {f"iterations.{n}.stages.{m}": "x\nRESTART draft: more" for n in range(3) for m in range(3)},
            DueEnd("incomplete", "iterations", "x\nRESTART draft: more"),
        ),
    ],
)
def test_a_workflow_stops_where_it_must(workflow: str, answers: Mapping[str, str], end: DueEnd) -> None:
    assert played(SPECS[workflow], Sheets(answers, {}, workflow)) == end


def test_a_person_may_have_an_output_revised_once() -> None:
    answers = {**CHAIN, "stages.2.revision.1": "Better"}
    gates = {"stages.2.approval": "revise", "stages.2.approval.2": "approve"}
    sheets = Sheets(answers, gates, "chain")
    assert played(SPECS["chain"], sheets) == DueEnd("completed", None, "Fourth")
    assert sheets.asked["stages.2.approval.2"].quotes == ("Better",)
    assert sheets.asked["stages.3"].quotes == (CHAIN["stages.0"], "Second", "Better")
    rejected = Sheets(answers, {**gates, "stages.2.approval.2": "revise"}, "chain")
    assert played(SPECS["chain"], rejected) == DueEnd("failed", "rejected", "Better")


def test_what_has_no_answer_is_waited_for() -> None:
    sheets = Sheets({"agents.0": "One"}, {}, "fork-first")
    assert played(SPECS["fork-first"], sheets) is None
    assert list(sheets.asked) == ["agents.0", "agents.1", "agents.2"]


def test_what_was_said_is_quoted_to_those_who_come_later() -> None:
    sheets = Sheets({**ROUNDS, "merge": "We agree"}, {}, "talk")
    played(SPECS["talk"], sheets)
    assert sheets.asked["rounds.0.agents.1"].quotes == ()
    assert sheets.asked["rounds.1.agents.1"].quotes == ("0-0", "0-2")
    assert sheets.asked["merge"].quotes == ("1-0", "1-1", "1-2")


def test_a_new_iteration_is_told_why_and_keeps_what_was_before_the_stage() -> None:
    sheets = Sheets(LOOP, {}, "again")
    played(SPECS["again"], sheets)
    asked = sheets.asked["iterations.1.stages.1"]
    assert (asked.quotes, asked.says) == (("a",), ("more",))
    assert "iterations.1.stages.0" not in sheets.asked
