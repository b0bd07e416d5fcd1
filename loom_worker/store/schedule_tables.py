"""The table of schedules, which belongs to the same schema as those of ``schema``."""

from sqlalchemy import BigInteger, Boolean, Column, Integer, String, Table, Text

from loom_worker.store.table_parts import METADATA

schedules = Table(  # what is known of each; what it is, its file says
    "schedules",
    METADATA,
    Column("name", String(255), primary_key=True),
    Column("plan", Text, nullable=False),  # for which the cursor holds
    Column("cursor_ms", BigInteger, nullable=False),  # due times up to this one are dealt with
    Column("enabled", Boolean),  # the operator's word
    Column("last_ms", BigInteger),  # the due time that was last begun
    Column("last_id", String(40)),  # the run or turn that was last begun; it may be gone
    Column("error", Text),
    Column("error_ms", BigInteger),
    Column("skipped", Integer, nullable=False, server_default="0"),
    Column("missed", Integer, nullable=False, server_default="0"),
)
