"""Any change to a chain of audit rows is found, and its first broken place named."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.values.audit import (
    NOT_RUN,
    START,
    AuditEntry,
    Link,
    approval_decisions,
    first_break,
    hash_of,
    tool_counts,
)
from loom_worker.core.values.calls import Call

ENTRY = AuditEntry(workspace="acme", at_ms=1, action="turn.ended")
CALL = Call("toolu_1", "pay", {"amount": 7}, 0, 1, status="completed", sends=1)
TEXTS = [name for name in AuditEntry.__slots__ if name not in ("at_ms", "tokens", "cost_nano", "duration_ms")]
FIGURES = ("tokens", "cost_nano", "duration_ms")

Row = dict[str, Any]


def chain(entries: list[AuditEntry]) -> list[Row]:
    rows: list[Row] = []
    for seq, entry in enumerate(entries, start=1):
        row = {**entry.columns(), "seq": seq, "previous_hash": rows[-1]["hash"] if rows else START}
        rows.append({**row, "hash": hash_of(row)})
    return rows


def head(rows: list[Row]) -> Link:
    return Link(rows[-1]["seq"], rows[-1]["hash"])


texts = st.none() | st.text(max_size=8)
entries = st.builds(
    lambda user, session, tokens, at_ms: replace(ENTRY, user=user, session_id=session, tokens=tokens, at_ms=at_ms),
    texts,
    texts,
    st.none() | st.integers(0, 9),
    st.integers(0, 9),
)
chains = st.lists(entries, min_size=1, max_size=6).map(chain)
foreign = st.none() | st.text(max_size=4) | st.integers(-3, 9) | st.binary(max_size=4) | st.floats(allow_nan=False)


@given(chains)
def test_a_chain_that_nobody_touched_holds(rows: list[Row]) -> None:
    assert first_break(rows, "acme", Link(), head(rows)) is None


@given(chains, st.data())
def test_any_other_value_in_any_column_is_found(rows: list[Row], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(rows) - 1))
    name = data.draw(st.sampled_from(sorted(rows[place])))
    value = data.draw(foreign.filter(lambda new: (type(new), new) != (type(rows[place][name]), rows[place][name])))
    if isinstance(value, float) and value == rows[place][name]:
        return  # SQLite stores 5.0 as 5 in a column of integers
    ends = head(rows)
    rows[place] = {**rows[place], name: value}
    found = first_break(rows, "acme", Link(), ends)
    assert found is not None
    assert found.seq == place + 1


@given(chains, st.data())
def test_a_row_that_is_removed_is_found(rows: list[Row], data: st.DataObject) -> None:
    ends = head(rows)
    place = data.draw(st.integers(0, len(rows) - 1))
    del rows[place]
    found = first_break(rows, "acme", Link(), ends)
    assert found is not None
    assert found.seq == place + 1


@given(chains.filter(lambda rows: len(rows) > 1), st.data())
def test_rows_in_another_order_are_found(rows: list[Row], data: st.DataObject) -> None:
    ends = head(rows)
    other = data.draw(st.permutations(rows).filter(lambda order: order != rows))
    assert first_break(other, "acme", Link(), ends) is not None
    renumbered = [{**row, "seq": seq} for seq, row in enumerate(other, start=1)]
    assert first_break(renumbered, "acme", Link(), ends) is not None


@given(chains, entries)
def test_a_row_that_is_appended_without_the_head_is_found(rows: list[Row], entry: AuditEntry) -> None:
    ends = head(rows)
    more = {**entry.columns(), "seq": ends.seq + 1, "previous_hash": ends.hash}
    assert first_break([*rows, {**more, "hash": hash_of(more)}], "acme", Link(), ends) is not None


@given(chains)
def test_what_follows_rows_that_were_pruned_still_holds(rows: list[Row]) -> None:
    for kept in range(len(rows) + 1):
        start = Link() if kept == len(rows) else Link(rows[-1 - kept]["seq"], rows[-1 - kept]["hash"])
        assert first_break(rows[len(rows) - kept :], "acme", start, head(rows)) is None


@given(st.dictionaries(st.sampled_from(TEXTS), foreign, max_size=4), st.dictionaries(st.sampled_from(TEXTS), foreign))
def test_rows_with_different_columns_have_different_hashes(one: Row, other: Row) -> None:
    def known(row: Row) -> set[tuple[str, str, str]]:
        return {(name, type(value).__name__, repr(value)) for name, value in row.items() if value is not None}

    assert (hash_of(one) == hash_of(other)) == (known(one) == known(other))


def test_a_column_that_is_added_later_leaves_older_hashes_as_they_are() -> None:
    row = chain([ENTRY])[0]
    assert hash_of({**row, "added_later": None}) == row["hash"]


def test_tools_are_counted_by_name_and_outcome() -> None:
    calls = (CALL, replace(CALL, status="failed"), replace(CALL, name="look"))
    assert tool_counts(calls) == (
        {"name": "look", "calls": 1, "outcomes": {"completed": 1}},
        {"name": "pay", "calls": 2, "outcomes": {"completed": 1, "failed": 1}},
    )


def test_the_name_of_a_tool_that_never_ran_is_not_kept() -> None:
    [counted] = tool_counts((replace(CALL, name="my name is Maria", sends=0, status="failed"),))
    assert counted["name"] == NOT_RUN


def test_what_a_person_said_is_kept_without_the_arguments() -> None:
    calls = (replace(CALL, approval="rejected", sends=0), replace(CALL, name="look"))
    assert approval_decisions(calls) == ({"kind": "approval", "name": "pay", "outcome": "rejected"},)
    assert tool_counts(calls)[1]["name"] == "pay"
