"""I4 and I5: what clients and receivers were told is what the database says, and each was told."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loom_worker.core.values.turns import UNFINISHED
from tests.chaos.facts import Facts, Row, TurnFact, grouped
from tests.chaos.records import Evidence, Hook
from tests.chaos.verdict import Violation

WHOLE_WHEN_CUT = ("id", "object", "seq", "status", "usage", "attempt", "timings", "created_at", "completed_at")
"""Fields that a webhook too long for its receiver still has as they are; of texts it has a beginning."""
ASKING = "turn.requires_action"
UNCHANGING = ("id", "object", "session_id", "seq", "created_at")


def check_shown(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I4: every final answer to a poll, and every webhook, is the turn as the database has it at the end.

    Polls are compared as JSON with the Turn made of the final rows. A webhook's body must be the bytes of its outbox
    row; its ``type`` names the final status, and its ``data`` is that Turn too. A body that had to be cut
    (``truncated``) has the short fields unchanged, and of the answer a beginning.
    """
    for poll in evidence.polled:
        turn = facts.by_id.get(poll.turn_id)
        if turn is None:
            yield _i4(f"{poll.turn_id} was shown to a client and is not in the database")
        else:
            yield from (
                _i4(f"{turn.name}: a client was shown {text}") for text in differences(turn.shown, parsed(poll.body))
            )
    deliveries = {row["id"]: row for row in facts.deliveries}
    for hook in evidence.hooks:
        if hook.turn_id in facts.run_by_id:
            continue  # see checks_run_told.py
        turn = facts.by_id.get(hook.turn_id)
        if turn is None:
            yield _i4(f"{hook.turn_id or 'a turn without id'} was told to a receiver and is not in the database")
            continue
        yield from (_i4(f"{turn.name}: a receiver was told {text}") for text in _told(turn, hook, deliveries))


def _told(turn: TurnFact, hook: Hook, deliveries: dict[str, Row]) -> Iterator[str]:
    row = deliveries.get(hook.id)
    if row is not None and row["body"].encode() != hook.body:
        yield "another body than the outbox has"
    event = parsed(hook.body)
    if event.get("type") == ASKING:
        yield from _asked(turn, event.get("data") or {})
        return
    if event.get("type") != f"turn.{turn.status}":
        yield f"{event.get('type')}, it is {turn.status}"
    data = event.get("data") or {}
    yield from _cut_differences(turn, data) if data.get("truncated") else differences(turn.shown, data)


def _asked(turn: TurnFact, data: Row) -> Iterator[str]:
    """A question to a person is a turn as it was then: of it only what never changes can be compared."""
    then = {**turn.shown, "status": "requires_action"}
    yield from differences(then, data, (*UNCHANGING, "status"))
    waiting = {call["id"] for call in data.get("tool_calls") or () if call.get("approval") == "waiting"}
    asked = {call.id for call in turn.calls if call.approval is not None}
    if not data.get("truncated") and (not waiting or waiting - asked):
        yield f"that {sorted(waiting)} wait for a person, {sorted(asked)} did"


def check_read(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I4: who reads a turn's events to the last one has the turn's text, whatever happened meanwhile.

    The deltas since the last ``turn.retrying`` or ``output_text.commentary`` are ``output_text``, unless the turn was
    rolled back; ids have no gaps.
    """
    for read in evidence.read:
        turn = facts.by_id.get(read.turn_id)
        if turn is None:
            yield _i4(f"{read.turn_id} was read by a client and is not in the database")
            continue
        text = turn.row["output_text"] or ""
        if read.text != text and turn.row["reason"] != "rollback":
            yield _i4(f"{turn.name}: a client has read {read.text[-100:]!r}, the database has {text[-100:]!r}")
        yield from (_i4(f"{turn.name}: a client has read {flaw}") for flaw in read.flaws)


def differences(kept: Row, shown: Mapping[str, Any], names: Sequence[str] = ()) -> Iterator[str]:
    """Name each field that differs from the database, with both values.

    Args:
        names: the fields that are compared; none: all.
    """
    for name in names or sorted({*kept, *shown}):
        told, known = shown.get(name, "(nothing)"), kept.get(name, "(nothing)")
        if told != known:
            yield f"{name} {str(told)[:200]!r}, the database has {str(known)[:200]!r}"


def _cut_differences(turn: TurnFact, data: Row) -> Iterator[str]:
    yield from differences(turn.shown, data, WHOLE_WHEN_CUT)
    whole, cut = turn.shown["output_text"] or "", data.get("output_text") or ""
    if cut != whole and not (cut.endswith("…") and whole.startswith(cut[:-1])):
        yield from differences(turn.shown, data, ("output_text",))


def parsed(body: bytes) -> Row:
    """A body as a JSON object, an empty one if it is none."""
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def check_webhooks(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I5: each webhook arrives at least once, always with the same id and a valid signature, or is visibly given up.

    A turn that wanted one has, once it has ended, one row in the outbox, and one more for each reply of the model that
    asked a person; any other has none. At rest a row is
    ``delivered`` (and the receiver answered a signed request of that id with 2xx), ``disabled`` (and it answered 410)
    or ``dead``; one that is still ``pending`` is a violation, so a run has to replay what it wants to see delivered.
    Whatever reached the receiver is signed and has the id of that turn's row.
    """
    wanted = {sent.turn_id for sent in evidence.submitted if sent.has_webhook}
    hooks = grouped(evidence.hooks, lambda hook: hook.id)
    for hook in evidence.hooks:
        if not hook.is_signed:
            yield _i5(f"{hook.turn_id}: request {hook.id or 'without id'} is not validly signed")
    for turn in facts.turns:
        yield from (_i5(f"{turn.name}: {text}") for text in _outbox(turn, turn.id in wanted))
        for row in turn.deliveries:
            yield from (_i5(f"{turn.name}: {text}") for text in delivery_flaws(row, hooks.get(row["id"], ())))
    yield from _strangers(hooks, facts)


def _outbox(turn: TurnFact, is_wanted: bool) -> Iterator[str]:
    if is_wanted and turn.row["webhook_url"] is None:
        yield "its webhook was forgotten when it was accepted"
    has_one = turn.row["webhook_url"] is not None
    questions = sum(parsed(row["body"].encode()).get("type") == ASKING for row in turn.deliveries)
    if questions != has_one * turn.questions:
        yield f"{questions} questions to a person in the outbox instead of {has_one * turn.questions}"
    ends, due = len(turn.deliveries) - questions, int(has_one and turn.status not in UNFINISHED)
    if ends != due:
        yield f"{ends} webhooks in the outbox instead of {due}"


def delivery_flaws(row: Row, hooks: Sequence[Hook]) -> Iterator[str]:
    """What is wrong with a row of the outbox at rest, by what the receiver got for it."""
    answers = [hook.status for hook in hooks if hook.is_signed]
    if row["status"] == "delivered" and not any(200 <= status < 300 for status in answers):
        yield f"{row['id']} is marked as delivered, the receiver answered {answers}"
    elif row["status"] == "disabled" and 410 not in answers:
        yield f"{row['id']} is disabled, the receiver answered {answers}"
    elif row["status"] not in {"delivered", "disabled", "dead"}:
        yield f"{row['id']} is still {row['status']} after {row['attempts']} attempts"


def _strangers(hooks: Mapping[str, Sequence[Hook]], facts: Facts) -> Iterator[Violation]:
    owners = {row["id"]: row["run_id"] or row["turn_id"] for row in facts.deliveries}
    for webhook_id, group in hooks.items():
        for turn_id in sorted({hook.turn_id for hook in group}):
            if owners.get(webhook_id) != turn_id:
                yield _i5(f"{turn_id}: told under id {webhook_id!r}, which is not its own in the outbox")


def _i4(text: str) -> Violation:
    return Violation("I4", text)


def _i5(text: str) -> Violation:
    return Violation("I5", text)
