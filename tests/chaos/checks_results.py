"""I13: a large result is kept apart, whole, and the conversation has a preview of it."""

import hashlib
from collections.abc import Iterator, Mapping, Set
from pathlib import Path

import zstandard

from tests.chaos.facts import Facts, Row, TurnFact, grouped
from tests.chaos.records import Effect, Evidence, Json
from tests.chaos.verdict import Violation
from tests.support.messages_rules import blocks

PREVIEW_CHARS = 2_000
"""More than a preview with its fence has, and less than any large result."""
AROUND_S = 2.0
"""Before and after a disk was full a result may not have found its place."""


def check_results(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I13: each large result that is stored has a reference, and behind that the very bytes that the tool gave.

    The row of the reference belongs to the turn, its file is there, unpacks, and has the SHA-256 that the tool itself
    wrote down. Only where the disk was full is a result shortened instead.
    """
    given = grouped(evidence.effects, lambda effect: effect.nonce)
    for turn in facts.turns:
        for call in turn.calls:
            if call.name not in evidence.large_tools or call.status != "completed":
                continue
            seen = given.get(call.arguments["nonce"], ())
            if call.ref is not None:
                flaws = _kept(evidence.home, turn, facts.blobs.get(call.ref), {effect.sha256 for effect in seen})
                yield from (_i13(f"{turn.name}: {call.ref} {flaw}") for flaw in flaws)
            elif not any(_was_full(evidence, effect) for effect in seen):
                yield _i13(f"{turn.name}: the large result of {call.id} has no reference")


def stored(home: Path, row: Row) -> bytes | None:
    """What is behind a reference, by its row; None: it cannot be read."""
    digits = row["id"].removeprefix("ref_")
    try:
        data = (home / "blobs" / digits[:2] / digits[2:4] / digits).read_bytes()
        return zstandard.ZstdDecompressor().stream_reader(data).read() if row["compressed"] else data
    except (OSError, zstandard.ZstdError):
        return None


def _kept(home: Path, turn: TurnFact, row: Row | None, sums: Set[str]) -> Iterator[str]:
    if row is None:
        yield "is not in the database"
        return
    if row["turn_id"] != turn.id:
        yield f"is another turn's, {row['turn_id']}"
    data = stored(home, row)
    if data is None:
        yield "cannot be read"
        return
    found = hashlib.sha256(data).hexdigest()
    if found not in sums or found != row["checksum"]:
        yield f"has the SHA-256 {found}, the row has {row['checksum']}, the tool gave {', '.join(sorted(sums))}"


def _was_full(evidence: Evidence, effect: Effect) -> bool:
    full = (each for each in evidence.injections if each.kind == "full")
    return any(each.at_s - AROUND_S <= effect.at_s <= each.until_s + AROUND_S for each in full)


def check_previews(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I13: no request has a large result in it, but its preview, with the reference that the database has."""
    refs = {call.id: call.ref for turn in facts.turns for call in turn.calls if call.ref is not None}
    looked: set[int] = set()
    for asked in evidence.turn_calls:
        for message in asked.body["messages"]:
            if id(message) not in looked:  # equal messages of a log are one object
                looked.add(id(message))
                yield from (_i13(f"{asked.mark}: request {asked.number} {flaw}") for flaw in _shown(message, refs))


def _shown(message: Json, refs: Mapping[str, str]) -> Iterator[str]:
    for block in blocks(message["content"]):
        ref = refs.get(block.get("tool_use_id", ""))
        if block["type"] != "tool_result" or ref is None:
            continue
        content = str(block.get("content", ""))
        if len(content) > PREVIEW_CHARS:
            yield f"has {len(content)} characters of {ref} in it"
        if ref not in content:
            yield f"has the result {block['tool_use_id']} without its reference {ref}"


def _i13(text: str) -> Violation:
    return Violation("I13", text)
