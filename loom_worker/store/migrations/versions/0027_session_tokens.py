"""Tokens that open one session for a browser."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    """A new table; there were no tokens."""
    op.create_table(
        "session_tokens",
        sa.Column("hash", sa.String(64), primary_key=True),
        sa.Column("lane", sa.String(40), sa.ForeignKey("sessions.lane", ondelete="CASCADE"), nullable=False),
        sa.Column("made_by", sa.String(40), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_ms", sa.BigInteger, nullable=False),
    )
    op.create_index("session_tokens_by_lane", "session_tokens", ["lane"])
