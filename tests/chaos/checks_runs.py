"""I18: a run of a workflow that was accepted is kept and ends, and each of its stages is one turn."""

from collections import Counter
from collections.abc import Iterator, Sequence

from loom_worker.core.values.turns import UNFINISHED
from tests.chaos.decisions import flaws_of
from tests.chaos.facts import Facts, TurnFact, grouped
from tests.chaos.records import Evidence
from tests.chaos.run_facts import Row, RunFact
from tests.chaos.run_plan import RUN_TOKENS
from tests.chaos.run_records import RunDecided, RunStarted
from tests.chaos.verdict import Violation

COPIED = ("status", "reason", "error", "usage", "completed_ms")
"""What a stage has of its turn."""
SAME = (
    "key",
    "role",
    "name",
    "agent_id",
    "conversation",
    "session_id",
    "turn_id",
    "output_text",
    "decision",
    "comment",
)
"""What a stage that a retry took over has of the one before."""
TO_REACH_S = 0.05
"""Between a commit and the moment at which its answer is there."""
MAY_FAIL = frozenset({"budget", "provider", "dead"})
"""Reasons that say nothing of the workflow."""


def check_runs_kept(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I18: every 202 is one run of the database, and has ended; all answers to one key name it.

    There is no run that nobody was told of, and none is cancelled that nobody asked to cancel.
    """
    cancelled = {each.run_id for each in evidence.runs.cancelled}
    for started in evidence.runs.started:
        run = facts.run_by_id.get(started.run_id)
        if run is None:
            yield _i18(f"{started.job.name}: {started.run_id} was accepted and is not in the database")
            continue
        yield from (_i18(f"{run.name}: {text}") for text in _flaws_of_acceptance(started, run))
        if run.status == "cancelled" and run.id not in cancelled:
            yield _i18(f"{run.name}: cancelled, and nobody asked for that")
    told = {started.run_id for started in evidence.runs.started}
    for run in facts.runs:
        if run.id not in told:
            yield _i18(f"{run.name}: is in the database, and nobody was told of it")


def _flaws_of_acceptance(started: RunStarted, run: RunFact) -> Iterator[str]:
    if run.row["completed_ms"] is None or run.status in UNFINISHED:
        yield f"accepted, never ended: {run.status}, {', '.join(_open(run)) or 'no stage'} under way"
    if (run.row["workflow"], run.row["retry_of"]) != (started.job.workflow, started.retry_of):
        yield f"was started as {started.job.workflow}, a retry of {started.retry_of}"
    if run.row["metadata"].get("name") != started.job.name:
        yield f"was started as {started.job.name}"
    if strangers := set(started.answers) - {run.id}:
        yield f"the same key was also answered {', '.join(sorted(strangers))}"


def _open(run: RunFact) -> list[str]:
    return [stage["key"] for stage in run.stages if stage["completed_ms"] is None]


def check_stage_turns(_evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I18: each stage that is a question to an agent is one turn, and each turn of a run is one stage.

    No turn stands in two stages, and no key has two. A stage says of its turn what that says itself: agent, session,
    end, and as its output the answer, without what was said before calls of tools. At the end no stage is open.
    """
    for run in facts.runs:
        flaws = [f"has {times} stages {key}" for key, times in _doubled(stage["key"] for stage in run.stages)]
        flaws += [f"{turn_id} is {times} stages" for turn_id, times in _doubled(s["turn_id"] for s in run.asked)]
        flaws += [f"has ended, and its stage {key} has not" for key in _open(run) if run.row["completed_ms"]]
        for stage in run.asked:
            flaws += _turn(run, stage, facts)
        named = {stage["turn_id"] for stage in run.stages if not stage["is_reused"]}
        for turn in facts.turns_by_run.get(run.id, ()):
            if turn.id not in named:
                flaws.append(f"{turn.name} is a turn of it, and none of its stages ({turn.row['metadata']})")
        yield from (_i18(f"{run.name}: {flaw}") for flaw in flaws)
    for run_id in facts.turns_by_run.keys() - facts.run_by_id.keys():
        yield _i18(f"{run_id} has turns and is not in the database")


def _doubled(keys: Iterator[str]) -> Iterator[tuple[str, int]]:
    return ((key, times) for key, times in Counter(keys).items() if times > 1)


def _turn(run: RunFact, stage: Row, facts: Facts) -> Iterator[str]:
    turn = facts.by_id.get(stage["turn_id"])
    if turn is None:
        yield f"its stage {stage['key']} is no turn of the database: {stage['turn_id']}"
        return
    if turn.row["run_id"] != (_first_run(run, stage, facts) if stage["is_reused"] else run.id):
        yield f"its stage {stage['key']} is a turn of {turn.row['run_id']}"
    if turn.row["metadata"].get("stage") != stage["key"]:
        yield f"its stage {stage['key']} is a turn for {turn.row['metadata'].get('stage')}"
    if (turn.row["agent"], turn.row["session_id"]) != (stage["agent_id"], stage["session_id"]):
        yield f"its stage {stage['key']} was put to {turn.row['agent']} in {turn.row['session_id']}"
    if stage["completed_ms"] is None:
        return
    differing = [name for name in COPIED if stage[name] != turn.row[name]]
    if differing:
        yield f"its stage {stage['key']} has another {' and '.join(differing)} than its turn"
    if turn.status == "completed" and stage["output_text"] != answer_of(turn):
        yield f"its stage {stage['key']} has the output {stage['output_text']!r}, the answer is {answer_of(turn)!r}"


def _first_run(run: RunFact, stage: Row, facts: Facts) -> str:
    """Which run asked for a stage that was taken over, perhaps again and again."""
    while stage["is_reused"] and (before := facts.run_by_id.get(run.row["retry_of"])) is not None:
        run, stage = before, before.by_key.get(stage["key"], {"is_reused": False})
    return run.id


def answer_of(turn: TurnFact) -> str | None:
    """The message with which a turn ends."""
    answers = [message["content"] for message in turn.messages if message["role"] == "assistant"]
    return answers[-1] if answers else None


def check_run_cancels(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I18: once a cancel was answered, the run begins no turn any more, and ends as cancelled unless it had ended."""
    for asked in evidence.runs.cancelled:
        run = facts.run_by_id.get(asked.run_id)
        if run is None:
            continue  # see check_runs_kept
        ended_s = (run.row["completed_ms"] or 0) / 1000
        if run.row["cancel"] is None and not 0 < ended_s <= asked.at_s + TO_REACH_S:
            yield _i18(f"{run.name}: its cancel was answered, and it knows nothing of that")
        if run.row["cancel"] is not None and run.status not in ("cancelled", *UNFINISHED):
            yield _i18(f"{run.name}: it was cancelled and is {run.status} ({run.row['reason']})")
        for turn in facts.turns_by_run.get(run.id, ()):
            if turn.row["created_ms"] / 1000 > asked.at_s + TO_REACH_S:
                yield _i18(f"{run.name}: {turn.name} was begun after its cancel was answered")


def check_run_retries(_evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I18: a retry takes over what is completed and not part of what failed, as it was, and does the rest again."""
    for run in facts.runs:
        before = facts.run_by_id.get(run.row["retry_of"] or "")
        if run.row["retry_of"] is None or before is None:
            reused = [stage["key"] for stage in run.stages if stage["is_reused"]]
            yield from (_i18(f"{run.name}: took over {key}, from nowhere") for key in reused)
            continue
        kept = {each["key"]: each for each in before.stages if _is_kept(each, before.row["failed_stage"])}
        for stage in run.stages:
            known = kept.get(stage["key"])
            if stage["is_reused"] and (known is None or [known[name] for name in SAME] != [stage[n] for n in SAME]):
                yield _i18(f"{run.name}: took over {stage['key']}, which {before.id} does not have like that")
        missing = kept.keys() - {stage["key"] for stage in run.stages if stage["is_reused"]}
        yield from (_i18(f"{run.name}: did not take over {key} of {before.id}") for key in sorted(missing))


def _is_kept(stage: Row, failed: str | None) -> bool:
    is_part = failed is not None and f"{stage['key']}.".startswith(f"{failed}.")
    return stage["status"] == "completed" and not is_part


def check_run_decisions(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I18: an approval has the decision that a person gave, once; who decides is told the truth.

    The first decision is answered 200, or 409 where an earlier attempt may have arrived or the run was cancelled; the
    opposite decision is answered 409.
    """
    given = grouped(evidence.runs.decided, lambda each: (each.run_id, each.approval))
    for run in facts.runs:
        for stage in run.stages:
            if stage["role"] == "approval" and not stage["is_reused"]:
                flaws = _decision(run, stage, given.get((run.id, stage["key"]), ()))
                yield from (_i18(f"{run.name}: {stage['key']} {flaw}") for flaw in flaws)


def _decision(run: RunFact, stage: Row, given: Sequence[RunDecided]) -> Iterator[str]:
    if stage["decision"] is not None and stage["decision"] not in [each.verdict for each in given]:
        yield f"is {stage['decision']}, and nobody has said so"
    if len(given) > 1:
        yield f"was shown as waiting after it was decided, {len(given)} times in all"
    for each in given:
        yield from flaws_of(each.answers, each.opposed, may_have_ended=run.row["cancel"] is not None)
        if each.answers[-1] == 200 and stage["decision"] != each.verdict:
            yield f"is {stage['decision']}, and somebody was told that it is {each.verdict}"


def check_run_progress(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I10: the runs did what they set out to do: each that nobody cancelled ended as its job says, all but 1 %.

    It may fail for a reason that has nothing to do with its workflow, as long as few do.
    """
    cancelled = {each.run_id for each in evidence.runs.cancelled}
    jobs = {started.run_id: started.job for started in evidence.runs.started}
    known = jobs.keys() & facts.run_by_id.keys() - cancelled
    last = [each.run_id for each in evidence.runs.polled if each.is_last and each.run_id in known]
    meant = [run_id for run_id in last if jobs[run_id].tokens != RUN_TOKENS[0]]
    ends = {run_id: facts.run_by_id[run_id].row["reason"] or facts.run_by_id[run_id].status for run_id in meant}
    wrong = [run_id for run_id in meant if ends[run_id] != jobs[run_id].ends]
    for run_id in wrong:
        if ends[run_id] not in MAY_FAIL:
            yield Violation("I10", f"{facts.run_by_id[run_id].name} ended {ends[run_id]}, not {jobs[run_id].ends}")
    if len(wrong) > 0.01 * len(meant) + 1:
        yield Violation("I10", f"{len(wrong)} of {len(meant)} runs did not end as they should")


def _i18(text: str) -> Violation:
    return Violation("I18", text)
