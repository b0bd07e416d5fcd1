"""I13: each test breaks a good run in one way, or does what is allowed."""

import hashlib
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loom_worker.blobs.blobs import packed
from loom_worker.blobs.disk import DiskTier
from loom_worker.core.values.tools import DataReference
from loom_worker.core.values.turns import Ending
from loom_worker.store.blobs import BlobRows
from loom_worker.store.calls import Calls
from loom_worker.turn.state import TurnState
from tests.chaos.checker import check
from tests.chaos.records import Effect, Injection, ModelCall
from tests.chaos.unit.made import NOW_MS, WORKSPACE, Run, assert_found

REF = "ref_" + "0123456789abcdef" * 2
TEXT = "a line of the report\n" * 1_000
SHA256 = hashlib.sha256(TEXT.encode()).hexdigest()
PREVIEW = f"[Large dataset stored: {REF}]"


@pytest.fixture
def kept(run: Run) -> Run:
    """The good run with a fifth turn that made a large result."""
    work = run.asked(TurnState.begin(run.accepted("T00005 tools=report")).matched("", "", ()))
    rows = Calls(run.database)
    (sent,) = rows.send(work.claim, work.open_calls, now_ms=NOW_MS)
    taken = rows.claim(work.turn.id, sent.position, sent.sends, worker="w1", now_ms=NOW_MS, durable=True)
    assert taken is not None
    run.effects.append(Effect("report", taken.arguments["nonce"], run.now_s(), sha256=SHA256))
    _keep(run, work)
    done = replace(taken, status="completed", content=PREVIEW, ref=REF, finished_ms=NOW_MS + 5)
    rows.close(work.turn.id, done)
    work = run.asked(work.with_calls([done]))
    run.ended(work, Ending("completed", output_text=work.said))
    return run


def test_a_large_result_that_is_kept_breaks_no_promise(kept: Run) -> None:
    assert check(kept.evidence()) == ()


def test_a_large_result_without_a_reference_is_found(kept: Run) -> None:
    kept.sql("UPDATE calls SET ref = NULL WHERE name = 'report'")
    assert_found(kept.evidence(), "I13", "has no reference")


def test_while_the_disk_is_full_a_large_result_may_be_without_a_reference(kept: Run) -> None:
    kept.sql("UPDATE calls SET ref = NULL WHERE name = 'report'")
    at_s = kept.effects[-1].at_s
    evidence = kept.evidence(injections=(Injection("full", "disk", at_s - 1, at_s + 1),))
    assert not [each for each in check(evidence) if each.invariant == "I13"]


def test_a_reference_that_the_database_does_not_know_is_found(kept: Run) -> None:
    kept.sql("DELETE FROM blobs")
    assert_found(kept.evidence(), "I13", f"{REF} is not in the database")


def test_a_reference_of_another_turn_is_found(kept: Run) -> None:
    kept.sql("UPDATE blobs SET turn_id = ?", kept.id_of("T00001"))
    assert_found(kept.evidence(), "I13", "is another turn's")


def test_a_file_that_is_gone_is_found(kept: Run) -> None:
    _file(kept).unlink()
    assert_found(kept.evidence(), "I13", f"{REF} cannot be read")


@pytest.mark.parametrize("data", [b"no frame", b""])
def test_a_file_that_cannot_be_unpacked_is_found(kept: Run, data: bytes) -> None:
    _file(kept).write_bytes(data)
    assert [each for each in check(kept.evidence()) if each.invariant == "I13"]


def test_a_file_with_other_bytes_than_the_tool_gave_is_found(kept: Run) -> None:
    other = packed(TEXT.replace("line", "lane").encode())
    assert other is not None
    _file(kept).write_bytes(other)
    assert_found(kept.evidence(), "I13", "has the SHA-256")


def test_a_row_with_another_checksum_is_found(kept: Run) -> None:
    kept.sql("UPDATE blobs SET checksum = 'beef'")
    assert_found(kept.evidence(), "I13", "the row has beef")


def test_a_request_with_the_whole_result_in_it_is_found(kept: Run) -> None:
    calls = tuple(_resaid(kept.calls, PREVIEW + TEXT))
    assert_found(kept.evidence(model_calls=calls), "I13", f"characters of {REF} in it")


def test_a_request_without_the_reference_is_found(kept: Run) -> None:
    calls = tuple(_resaid(kept.calls, "[Large dataset stored]"))
    assert_found(kept.evidence(model_calls=calls), "I13", f"without its reference {REF}")


def _keep(run: Run, work: TurnState) -> None:
    data = TEXT.encode()
    frame = packed(data)
    assert frame is not None
    DiskTier(run.settings.home / "blobs").put(REF, frame)
    reference = DataReference(
        REF, WORKSPACE, "s1", work.turn.id, "report", len(data), len(frame), SHA256, True, "text/plain", NOW_MS
    )
    assert BlobRows(run.database).insert(reference, lane=work.turn.lane, most_bytes=1_000_000)


def _file(run: Run) -> Path:
    digits = REF.removeprefix("ref_")
    return run.settings.home / "blobs" / digits[:2] / digits[2:4] / digits


def _resaid(calls: list[ModelCall], content: str) -> Iterator[ModelCall]:
    """The requests; what they say of the large result is something else."""
    for call in calls:
        body: dict[str, Any] = deepcopy(call.body)
        for message in body["messages"]:
            for block in message["content"] if isinstance(message["content"], list) else ():
                if block["type"] == "tool_result" and REF in str(block["content"]):
                    block["content"] = content
        yield replace(call, body=body)
