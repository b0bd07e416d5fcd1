"""I20: what is told of a run, wherever it is told, is what the database says of it."""

from collections import Counter
from collections.abc import Iterator

from tests.chaos.checks_told import delivery_flaws, differences, parsed
from tests.chaos.facts import Facts, Row, grouped
from tests.chaos.records import Evidence, Hook
from tests.chaos.run_facts import RunFact
from tests.chaos.spent import of_usage, total
from tests.chaos.verdict import Violation

ENDS = frozenset({"run.completed", "run.failed", "run.incomplete", "run.cancelled"})
WHOLE_WHEN_CUT = ("id", "object", "workflow", "status", "reason", "usage", "created_at", "completed_at")
"""Of a webhook that is too long for its receiver."""


def check_run_events(_evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I20: the events of a run are numbered without gaps, begin with its start and end with its end, once.

    Each stage that it did not take over has one event for its beginning and one for its end, in this order, and they
    agree with the stage.
    """
    for run in facts.runs:
        yield from (_i20(f"{run.name}: {flaw}") for flaw in (*_log(run), *_stages(run)))


def _log(run: RunFact) -> Iterator[str]:
    numbers = [event["n"] for event in run.events]
    if numbers != list(range(1, run.row["events"] + 1)):
        yield f"has the events {numbers}, it counts {run.row['events']}"
    kinds = [event["type"] for event in run.events]
    if kinds[:1] != ["run.started"] or kinds.count("run.started") != 1:
        yield f"has {kinds.count('run.started')} events of its start, the first event is {kinds[:1]}"
    ends = [kind for kind in kinds if kind in ENDS]
    due = [f"run.{run.status}"] if run.row["completed_ms"] is not None else []
    if ends != due or kinds[-len(due) :] != (due or kinds):
        yield f"has the ends {ends}, last comes {kinds[-1:]}, and it is {run.status}"


def _stages(run: RunFact) -> Iterator[str]:
    of_stages = (event for event in run.events if not event["type"].startswith("run."))
    told = grouped(of_stages, lambda event: event["data"].get("id", "(nothing)"))
    for stage in run.stages:
        if stage["is_reused"]:
            continue
        events = told.pop(stage["key"], ())
        kinds = [event["type"] for event in events]
        if kinds != _due(stage):
            yield f"tells {kinds} of {stage['key']}, due are {_due(stage)}"
        elif stage["completed_ms"] is not None and not _agrees(events[-1]["data"], stage):
            yield f"tells of {stage['key']} what it does not say itself: {events[-1]['data']}"
    yield from (f"tells of {key}, which is none of its stages" for key in told)


def _due(stage: Row) -> list[str]:
    is_person = stage["role"] == "approval"
    begin = "approval.required" if is_person else "stage.started"
    if stage["completed_ms"] is None:
        return [begin]
    return [begin, "approval.decided" if is_person and stage["decision"] else f"stage.{stage['status']}"]


def _agrees(data: Row, stage: Row) -> bool:
    told, kept = data["output_text"] or "", stage["output_text"] or ""
    is_same = told == kept or (told.endswith("…") and kept.startswith(told[:-1]))
    return is_same and all(data[name] == stage[name] for name in ("status", "reason", "turn_id", "session_id"))


def check_run_shown(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I20: a client that polls a run, or reads its events to the last one, sees what the database has.

    A poll of a run that has ended is the Run made of the final rows. Of the events a client has each one, once, in
    order, however often the stream broke; the data of the last one is that Run.
    """
    for poll in evidence.runs.polled:
        run = facts.run_by_id.get(poll.run_id)
        if run is None:
            yield _i20(f"{poll.run_id} was shown to a client and is not in the database")
        else:
            yield from (
                _i20(f"{run.name}: a client was shown {each}") for each in differences(run.shown, parsed(poll.body))
            )
    for read in evidence.runs.read:
        run = facts.run_by_id.get(read.run_id)
        if run is None:
            yield _i20(f"{read.run_id} was read by a client and is not in the database")
            continue
        yield from (_i20(f"{run.name}: a client has read {flaw}") for flaw in read.flaws)
        *told, last = [(number, kind, data) for number, kind, data in read.events]
        kept = [(event["n"], event["type"], event["data"]) for event in run.events]
        if told != kept[:-1] or last[:2] != kept[-1][:2]:
            yield _i20(f"{run.name}: a client has read {[each[:2] for each in read.events]}")
        yield from (_i20(f"{run.name}: a client has read {each}") for each in differences(run.shown, last[2]))


def check_run_webhooks(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I20: the webhook of a run that has ended arrives at least once, and says how; see also I5."""
    wanted = {started.run_id for started in evidence.runs.started if started.job.hook}
    hooks = grouped(evidence.hooks, lambda hook: hook.id)
    for run in facts.runs:
        due = run.id in wanted and run.row["completed_ms"] is not None
        if len(run.deliveries) != due:
            yield _i20(f"{run.name}: {len(run.deliveries)} webhooks in the outbox instead of {int(due)}")
        for row in run.deliveries:
            own = hooks.get(row["id"], ())
            flaws = [*delivery_flaws(row, own), *(flaw for hook in own for flaw in _told(run, row, hook))]
            yield from (_i20(f"{run.name}: {flaw}") for flaw in flaws)


def _told(run: RunFact, row: Row, hook: Hook) -> Iterator[str]:
    if row["body"].encode() != hook.body:
        yield "a receiver was told another body than the outbox has"
    event = parsed(hook.body)
    data = event.get("data") or {}
    if event.get("type") != f"run.{run.status}":
        yield f"a receiver was told {event.get('type')}, it is {run.status}"
    names = WHOLE_WHEN_CUT if data.get("truncated") else ()
    yield from (f"a receiver was told {each}" for each in differences(run.shown, data, names))


def check_run_books(_evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I20: the end of a run is in the audit once, and each decision; its usage is that of its turns.

    Its trace has one span of the whole run.
    """
    for run in facts.runs:
        yield from (_i20(f"{run.name}: {flaw}") for flaw in _books(run, facts))


def _books(run: RunFact, facts: Facts) -> Iterator[str]:
    ends = [row for row in run.audit if row["action"] == "run.ended"]
    due = int(run.row["completed_ms"] is not None)
    if len(ends) != due:
        yield f"has {len(ends)} rows of its end in the audit instead of {due}"
    yield from (
        f"ended {row['status']} ({row['reason']}), says the audit"
        for row in ends
        if (row["status"], row["reason"], row["agent"]) != (run.status, run.row["reason"], run.row["workflow"])
    )
    decided = sum(row["action"] == "run.decided" for row in run.audit)
    people = sum(stage["decision"] is not None and not stage["is_reused"] for stage in run.stages)
    if decided != people:
        yield f"has {decided} decisions in the audit, and {people} were made"
    spent = total(of_usage(turn.row["usage"]) for turn in facts.turns_by_run.get(run.id, ()))
    if due and of_usage(run.shown["usage"]) != spent:
        yield f"has used {of_usage(run.shown['usage'])}, its turns {spent}"
    spans = Counter(span["body"]["name"] for span in run.spans)
    if due and run.row["traceparent"] and spans["workflow.run"] != 1:
        yield f"has {spans['workflow.run']} spans workflow.run in its trace"


def _i20(text: str) -> Violation:
    return Violation("I20", text)
