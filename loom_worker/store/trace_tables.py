"""The tables of traces and of figures, which belong to the same schema as those of ``schema``."""

from sqlalchemy import BigInteger, Column, Float, ForeignKey, Index, Integer, String, Table, Text

from loom_worker.store.table_parts import JSON_OR_NULL, METADATA

spans = Table(  # what a turn's journal does not tell: webhook attempts, compressions, spans that tools make themselves
    "spans",
    METADATA,
    Column("n", Integer, primary_key=True, autoincrement=True),
    Column("turn_id", ForeignKey("turns.id", ondelete="CASCADE"), nullable=False),
    Column("added_ms", BigInteger, nullable=False),
    Column("body", JSON_OR_NULL, nullable=False),
    Index("spans_by_turn", "turn_id"),
)

trace_outbox = Table(  # what is still to be exported; empty unless there is somewhere to export to
    "trace_outbox",
    METADATA,
    Column("n", Integer, primary_key=True, autoincrement=True),
    # No foreign keys, for these would need indexes, and every turn's end would write three pages more instead of one;
    # an entry of a turn that is gone is taken and dropped.
    Column("turn_id", String(40), nullable=False),
    Column("span_n", Integer),  # of ``spans``; null: all spans that the turn's journal tells
    Column("added_ms", BigInteger, nullable=False),
    Column("held_until_ms", BigInteger, nullable=False, server_default="0"),  # an exporter has it until then
)

metric_values = Table(  # what was counted since this database was made, by all processes together
    "metric_values",
    METADATA,
    Column("series", Text, primary_key=True),  # name and labels
    Column("value", Float, nullable=False),
)
