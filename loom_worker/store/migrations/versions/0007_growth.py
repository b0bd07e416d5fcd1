"""An answer is kept once, as a message; answers that were stored before stay where they are."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Turns that ended before refer to no message."""
    op.add_column("turns", sa.Column("answer_id", sa.String(40)))
