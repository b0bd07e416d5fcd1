"""Messages as they were said; rows are only ever appended."""

from sqlalchemy import func, select

from loom_worker.core.errors import NotFound
from loom_worker.core.values.cutting import FIELD_BYTES
from loom_worker.core.values.pages import Page, no_cursor, page_of
from loom_worker.core.values.sessions import Message
from loom_worker.store import rows
from loom_worker.store.database import Database
from loom_worker.store.schema import messages
from loom_worker.store.sessions import found

# A character more than a list shows, so that a cut text is seen to be one.
_LISTED = [
    func.substr(column, 1, FIELD_BYTES + 1).label("content") if column is messages.c.content else column
    for column in messages.c
]


class Messages:
    """The table of messages."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def page(self, workspace: str, session_id: str, *, limit: int, after: str | None) -> Page[Message]:
        """List a session's messages, oldest first; ``after`` is the id of the last one seen.

        Raises:
            NotFound: the workspace has no such session.
            Invalid: the session has no such message.
        """
        with self._database.read() as tx:
            lane = found(tx, workspace, session_id)["lane"]
            query = select(*_LISTED).where(messages.c.lane == lane).order_by(messages.c.n).limit(limit + 1)
            if after is not None:
                seen = select(messages.c.n).where(messages.c.lane == lane, messages.c.id == after)
                last = tx.execute(seen).scalar()
                if last is None:
                    raise no_cursor(after)
                query = query.where(messages.c.n > last)
            listed = map(rows.message, tx.execute(query).mappings())
            return page_of(listed, limit=limit, cursor=lambda message: message.id)

    def get(self, workspace: str, session_id: str, message_id: str) -> Message:
        """Return one message of a session, whole.

        Raises:
            NotFound: the workspace has no such session, or that has no such message.
        """
        with self._database.read() as tx:
            lane = found(tx, workspace, session_id)["lane"]
            query = select(messages).where(messages.c.lane == lane, messages.c.id == message_id)
            row = tx.execute(query).mappings().first()
        if row is None:
            raise NotFound(f"There is no message {message_id!r}.")
        return rows.message(row)
