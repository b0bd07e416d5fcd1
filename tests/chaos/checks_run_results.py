"""I19: what a run asks and what it gives is what its workflow says."""

from collections.abc import Iterator

from tests.chaos.facts import Facts
from tests.chaos.marks import replies_in
from tests.chaos.records import Evidence
from tests.chaos.run_facts import Row, RunFact
from tests.chaos.run_rules import DueEnd, DueQuestion, Sheets, played
from tests.chaos.verdict import Violation
from tests.chaos.workflow_files import SPECS


def check_runs_played(_evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I19: a run asks what its workflow asks, nothing more and nothing less, and its result follows from the answers.

    The harness plays the workflow itself (run_rules.py) with the outputs in the run's journal. Every stage of the
    journal must come up, be put to the agent it should, and quote exactly the outputs it should, whole and in order. A
    run that is completed, or was stopped by its own rules, has all stages that come up, and the status, reason and
    ``merged_output`` that the harness arrives at. Another one has failed with a stage, or was cancelled.
    """
    for run in facts.runs:
        sheets = Sheets(_answers(run), _decisions(run), run.row["workflow"])
        result = played(SPECS[run.row["workflow"]], sheets)
        flaws = [f"{key} was asked, and its workflow does not ask it" for key in run.by_key if key not in sheets.asked]
        for key, question in sheets.asked.items():
            if key in run.by_key:
                flaws += (f"{key} {flaw}" for flaw in _question(run.by_key[key], question, facts))
        if run.row["completed_ms"] is not None:
            flaws += _ending(run, result, sheets)
        yield from (Violation("I19", f"{run.name}: {flaw}") for flaw in flaws)


def _answers(run: RunFact) -> dict[str, str]:
    return {stage["key"]: stage["output_text"] for stage in run.asked if stage["status"] == "completed"}


def _decisions(run: RunFact) -> dict[str, str]:
    return {stage["key"]: stage["decision"] for stage in run.stages if stage["decision"] is not None}


def _question(stage: Row, question: DueQuestion, facts: Facts) -> Iterator[str]:
    if stage["agent_id"] != question.agent:
        yield f"was put to {stage['agent_id']}, not to {question.agent}"
    turn = facts.by_id.get(stage["turn_id"] or "")
    prompt = stage["prompt"] if turn is None else turn.row["input"]
    if prompt is None:
        return  # see check_stage_turns
    wanted = [name for text in question.quotes for name in replies_in(text)]
    if (found := replies_in(prompt)) != wanted:
        yield f"quotes {_names(found)}, and should quote {_names(wanted)}"
    place = 0
    for text in question.quotes:
        place = prompt.find(text, place)
        if place < 0:
            yield f"does not quote {text[:80]!r} as it was said, or not in its place"
            break
        place += len(text)
    yield from (f"does not say {text[:80]!r}" for text in question.says if text not in prompt)


def _names(replies: list[tuple[str, int]]) -> str:
    return ", ".join(f"{mark}.{nth}" for mark, nth in replies) or "nothing"


def _ending(run: RunFact, result: DueEnd | None, sheets: Sheets) -> Iterator[str]:
    if run.row["cancel"] is not None and run.status == "cancelled":
        return
    missing = [key for key in sheets.asked if key not in run.by_key]
    if missing:
        yield f"ended {run.status}, and did not ask {', '.join(missing)}"
        return
    if result is None:
        broken = {run.by_key[key]["reason"] for key in sheets.asked if run.by_key[key]["status"] != "completed"}
        if run.status != "failed" or run.row["reason"] not in broken:
            yield f"is {run.status} ({run.row['reason']}), and stages of it ended {sorted(map(str, broken))}"
        return
    if (run.status, run.row["reason"]) != (result.status, result.reason):
        yield f"is {run.status} ({run.row['reason']}), and should be {result.status} ({result.reason})"
    elif result.output is not None and run.row["merged_output"] != result.output:
        yield f"gives {run.row['merged_output']!r}, and its answers come to {result.output!r}"
