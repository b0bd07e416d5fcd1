import json
import logging
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.errors import NotFound, ToolFailed, Unavailable
from loom_worker.core.values.sessions import NewSession
from loom_worker.core.values.tools import Caller, Outcome
from loom_worker.llm.tokens import cl100k_tokens
from loom_worker.store.agent_errors import AgentErrors, NewAgentError
from loom_worker.store.database import Database
from loom_worker.store.sessions import Sessions
from loom_worker.tools.error_channel import (
    DETAIL_BYTES,
    FALLBACK_CHARS,
    NOTHING_SAID,
    READ_CHARS,
    TEXT_BYTES,
    TOLD_TOKENS,
    Failures,
    error_detail_tool,
    error_line,
    raw_error,
    shortened,
    summary,
)

NOW_MS = 1_732_230_214_000
ERROR_ID = "err_20241121_230334_abc123"
SECRET = "hunter2"
TRACE = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    g()\nValueError: no such column: naem\n'


@pytest.fixture
def errors(database: Database) -> AgentErrors:
    return AgentErrors(database)


def caller(database: Database, session: str = "s1") -> Caller:
    """On behalf of a new session."""
    lane = Sessions(database).create("acme", NewSession(id=session), now_ms=NOW_MS).lane
    return Caller(lane, session, "acme", "turn_1", "call_1")


def failed(content: str, code: str | None = None, detail: str = "") -> Outcome:
    return Outcome("failed", content, code=code, detail=detail)


class Flaky(AgentErrors):
    """A store that does not answer at first."""

    def __init__(self, database: Database, failures: int) -> None:
        super().__init__(database)
        self.left = failures
        self.asked = 0

    def store(self, new: NewAgentError, *, now_ms: int) -> str:
        self.asked += 1
        if self.asked <= self.left:
            raise Unavailable("The database is locked by another program.")
        return super().store(new, now_ms=now_ms)


@pytest.mark.cases(
    ("message", "code", "expected"),
    [
        ("Syntax error near 'FROM'\nQuery: SELECT", "SQL_ERROR", "Code SQL_ERROR: Syntax error near 'FROM'"),
        ("connection timeout after 30 seconds\nTCP handshake failed", None, "connection timeout after 30 seconds"),
        ("Short error", None, "Short error"),
        ("x" * 100, None, "x" * 100),
        ("x" * 101, None, "x" * 99 + "…"),
        ("y" * 300, "INVALID_INPUT", "Code INVALID_INPUT: " + "y" * 79 + "…"),
        ("\r\n \n\tthe  second\x0bline", None, "the second"),
        ("a\u2028b", None, "a"),
        ("a\u202eb\x1b[31mc\0", None, "ab [31mc\ufffd"),
        (TRACE, None, "ValueError: no such column: naem"),
        ("\ud800", None, "\ufffd"),
        ("", None, NOTHING_SAID),
        (" \n\u200b\n", "UNAVAILABLE", f"Code UNAVAILABLE: {NOTHING_SAID}"),
    ],
)
def test_a_summary_is_the_first_line_behind_its_code(message: str, code: str | None, expected: str) -> None:
    assert summary(message, code) == expected


@given(st.text(), st.sampled_from([None, "INVALID_INPUT", "DATABASE_ERROR"]))
def test_a_summary_is_one_visible_line_of_at_most_100_characters(message: str, code: str | None) -> None:
    short = summary(message, code)
    assert 1 <= len(short) <= 100
    assert len(short.splitlines()) == 1
    assert not any(unicodedata.category(char)[0] == "C" for char in short)


def test_a_secret_at_the_edge_of_a_summary_is_taken_out_before_it_is_cut() -> None:
    for padding in range(60, 100):
        short = summary(f"{'x' * padding} postgresql://app:{SECRET}@db/x")
        assert "hunt" not in short


def test_a_letter_keeps_its_accents_when_a_text_is_cut() -> None:
    assert shortened("ab" + "e\u0301\u0323" + "cdef", 5) == "ab…"
    assert shortened("\u0301" * 9, 5) == "…"


DENSE = {
    "prose": "The connection to the server was refused while the third part of the answer was read. " * 40,
    "sql": "SELECT a.id, SUM(b.total_price_eur) AS t FROM sales.orders a JOIN x.y b ON a.id=b.id WHERE c>='2024' " * 40,
    "hex": "0x7fe4c0de91ab3f" * 200,
    "symbols": "!?#~|}{][;:/\\^%$" * 200,
    "base64": "Zq7Tn5Xw2+k9Rb4/c8Mh1Js6pQy0" * 110,
    "chinese": "无法连接到数据库服务器请检查网络设置" * 200,
    "thai": "ไม่สามารถเชื่อมต่อกับเซิร์ฟเวอร์ได้" * 100,
    "emoji": "🧨🪤🦠🧿" * 800,
    "rare": "𓀀𒀀𐤀ᚠ" * 800,
    "trace": TRACE * 30,
}


@pytest.mark.cases("kind", DENSE)
@pytest.mark.cases("tool", ["sql_query", "mcp_warehouse__list_recent_shipments_by_country"])
def test_an_error_of_3000_characters_costs_the_model_at_most_60_tokens(kind: str, tool: str) -> None:
    for code in (None, "INVALID_INPUT"):
        text = error_line(tool, summary(DENSE[kind][:3000], code), ERROR_ID)
        assert cl100k_tokens(text) <= TOLD_TOKENS
        assert text.startswith(f"Tool '{tool}' failed: ")
        assert text.endswith(f" [Error ID: {ERROR_ID}]")


def test_ordinary_prose_is_told_with_all_of_its_summary() -> None:
    line = summary(DENSE["prose"])
    assert (
        error_line("sql_query", summary(DENSE["prose"]), ERROR_ID)
        == f"Tool 'sql_query' failed: {line} [Error ID: {ERROR_ID}]"
    )


def test_a_name_of_many_tokens_leaves_some_of_the_summary() -> None:
    text = error_line("q7_" * 21, summary("no such column: naem, nearest: name"), ERROR_ID)
    assert "no such column:" in text
    assert ERROR_ID in text


def test_a_failure_is_kept_whole_and_told_in_a_line(
    database: Database, errors: AgentErrors, caplog: pytest.LogCaptureFixture
) -> None:
    who, whole = (
        caller(database),
        failed(f"no column naem\npassword={SECRET}", "INVALID_INPUT", f"{TRACE}token={SECRET}"),
    )
    with caplog.at_level(logging.INFO, "loom_worker.tools.error_channel"):
        text, error_id = Failures(errors, clock_ms=lambda: NOW_MS).keep(who, "look", whole)
    assert error_id is not None
    assert text == f"Tool 'look' failed: Code INVALID_INPUT: no column naem [Error ID: {error_id}]"
    kept = errors.get("acme", error_id)
    assert (kept.tool_name, kept.turn_id, kept.at_ms) == ("look", "turn_1", NOW_MS)
    assert kept.raw_error == {
        "message": "no column naem\npassword=[redacted]",
        "code": "INVALID_INPUT",
        "detail": f"{TRACE}token=[redacted]",
    }
    told = vars(caplog.records[0])
    assert (told["msg"], told["error_id"], told["tool_name"]) == ("error_stored", error_id, "look")
    assert SECRET not in json.dumps(kept.as_json())


def test_a_timeout_is_told_and_kept_like_a_failure(database: Database, errors: AgentErrors) -> None:
    late = Outcome("timeout", "timed out after 30 s", is_fault=True)
    text, error_id = Failures(errors).keep(caller(database), "look", late)
    assert text == f"Tool 'look' failed: timed out after 30 s [Error ID: {error_id}]"


def test_storing_is_tried_twice(database: Database) -> None:
    flaky = Flaky(database, failures=1)
    _, error_id = Failures(flaky).keep(caller(database), "look", failed("no"))
    assert (flaky.asked, error_id is not None) == (2, True)


def test_a_failure_that_cannot_be_kept_is_told_in_500_characters(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    flaky = Flaky(database, failures=9)
    long = f"first\nsecond password={SECRET} " + "x" * 3000
    text, error_id = Failures(flaky).keep(caller(database), "look", failed(long, "INVALID_INPUT"))
    assert (flaky.asked, error_id) == (2, None)
    said = text.removeprefix("Tool 'look' failed: ")
    assert len(said) == FALLBACK_CHARS
    assert said.startswith("Code INVALID_INPUT: first\nsecond password=[redacted] xx")
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2


@pytest.mark.parametrize("content", ["", "short"])
def test_without_a_store_there_is_no_id(database: Database, content: str) -> None:
    text, error_id = Failures(None).keep(caller(database), "look", failed(content))
    assert (text, error_id) == (f"Tool 'look' failed: {content or NOTHING_SAID}", None)


def test_a_failure_of_a_deleted_session_is_told_all_the_same(database: Database, errors: AgentErrors) -> None:
    who = caller(database)
    Sessions(database).delete("acme", "s1")
    assert Failures(errors).keep(who, "look", failed("no")) == ("Tool 'look' failed: no", None)


def test_of_a_long_error_the_middle_is_left_out_and_that_is_said() -> None:
    raw = raw_error(failed("begin " + "é" * TEXT_BYTES + " end", detail="x" * 10_000_000 + "end"))
    for text in raw.values():
        assert len(text.encode()) <= TEXT_BYTES
        assert "bytes left out" in text
        assert text.endswith("end")
    assert raw["message"].startswith("begin é")
    assert "code" not in raw


def test_where_a_very_long_text_was_not_looked_through_nothing_of_it_is_kept() -> None:
    half = READ_CHARS // 2
    text = "x" * (half - 20) + f" password={SECRET * 3}" + "y" * READ_CHARS
    assert SECRET[:3] not in raw_error(failed(text))["message"]


def detail(errors: AgentErrors, who: Caller, error_id: object) -> dict[str, object]:
    answer = error_detail_tool(errors).run({"error_id": error_id}, who)
    assert isinstance(answer, dict)
    return answer


def test_the_model_reads_the_whole_of_an_error(database: Database, errors: AgentErrors) -> None:
    who = caller(database)
    _, error_id = Failures(errors, clock_ms=lambda: NOW_MS).keep(who, "look", failed("a\nb", "DATABASE_ERROR", TRACE))
    assert detail(errors, who, f" {error_id}\n") == {
        "error_id": error_id,
        "timestamp": "2024-11-21T23:03:34.000Z",
        "tool_name": "look",
        "short_summary": "Code DATABASE_ERROR: a",
        "raw_error": {"message": "a\nb", "code": "DATABASE_ERROR", "detail": TRACE},
    }


@pytest.mark.parametrize("piece", ["x", "é\n", '"\\', "\x01", "🧨"])
def test_what_the_model_reads_of_a_long_error_is_no_large_result(
    database: Database, errors: AgentErrors, piece: str
) -> None:
    who = caller(database)
    _, error_id = Failures(errors).keep(who, "look", failed(f"begin {piece * 30_000} end", detail=piece * 20_000))
    answer = detail(errors, who, error_id)
    size_bytes = len(json.dumps(answer, ensure_ascii=False).encode())
    assert DETAIL_BYTES * 0.9 < size_bytes <= DETAIL_BYTES + 100
    assert answer["is_cut"] is True
    assert str(answer["raw_error"]).count("bytes left out") == 2


def test_no_session_reads_an_error_of_another(database: Database, errors: AgentErrors) -> None:
    _, error_id = Failures(errors).keep(caller(database), "look", failed("secret"))
    with pytest.raises(ToolFailed) as raised:
        detail(errors, caller(database, "s2"), error_id)
    assert raised.value.code == "ERROR_NOT_FOUND"
    assert len(str(raised.value)) <= 80


@pytest.mark.parametrize(
    "error_id", ["", "err_1", f"{ERROR_ID}x", f"{ERROR_ID} OR 1=1", "err_٢٠٢٤١١٢١_230334_abc123", 7]
)
def test_what_is_no_error_id_is_said_so(errors: AgentErrors, error_id: object) -> None:
    with pytest.raises(ToolFailed) as raised:
        detail(errors, Caller("lane", "s1", "acme", "turn_1", "call_1"), error_id)
    assert raised.value.code == "INVALID_INPUT"


def test_a_store_that_does_not_answer_is_a_database_error(database: Database) -> None:
    class Silent(AgentErrors):
        def get_in_lane(self, lane: str, error_id: str) -> None:  # type: ignore[override]
            raise Unavailable("The database is locked by another program.")

    with pytest.raises(ToolFailed) as raised:
        detail(Silent(database), caller(database), ERROR_ID)
    assert raised.value.code == "DATABASE_ERROR"


def test_the_tool_may_be_called_again_and_changes_nothing(errors: AgentErrors) -> None:
    tool = error_detail_tool(errors)
    assert (tool.spec.name, tool.is_idempotent, tool.is_bounded, tool.is_read_only) == (
        "get_error_detail",
        True,
        True,
        True,
    )


def test_an_error_of_a_lane_without_session_is_not_found(errors: AgentErrors) -> None:
    with pytest.raises(NotFound):
        errors.get_in_lane("none", ERROR_ID)


@pytest.mark.parametrize("is_fault", [True, False])
@pytest.mark.parametrize("is_kept", [True, False])
def test_the_log_names_a_failure_and_has_none_of_its_text(
    database: Database, errors: AgentErrors, caplog: pytest.LogCaptureFixture, *, is_kept: bool, is_fault: bool
) -> None:
    text = f"no such customer: Ada; password={SECRET}"
    outcome = Outcome("failed", text, detail=f"Traceback\nSELECT 'Ada' at db/{SECRET}", is_fault=is_fault)
    with caplog.at_level(logging.DEBUG):
        _, error_id = Failures(errors if is_kept else None).keep(caller(database), "execute_sql", outcome)
    assert [getattr(each, "error_id", None) for each in caplog.records] == ([error_id] if is_kept else [])
    assert [found for found in ("Ada", SECRET) if found in caplog.text] == []


@pytest.mark.parametrize("code", ["A\nB", "X" * 500, "A\u2028B\u202e"])
def test_no_code_breaks_the_line_or_hides_the_message(code: str) -> None:
    line = summary("no such column", code)
    assert len(line.splitlines()) == 1
    assert line.endswith(": no such column")
