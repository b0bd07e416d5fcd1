"""What is counted over all workspaces beside the queue: what waits for people, what went wrong, what is kept."""

from sqlalchemy import func, select

from loom_worker.core.values.json import Json
from loom_worker.store.database import Database
from loom_worker.store.schema import agent_errors, blobs, turns, unfinished

HOUR_MS = 3600 * 1000


def figures(database: Database, *, now_ms: int) -> Json:
    """Turns that wait for a person, errors of tools in the last hour, large results that are kept.

    Raises:
        Unavailable: the database did not answer.
    """
    asking = select(func.count()).where(unfinished(), turns.c.status == "requires_action")
    failed = select(func.count()).where(agent_errors.c.at_ms > now_ms - HOUR_MS)
    kept = select(func.count()).select_from(blobs)
    with database.read() as tx:
        return {
            "awaiting_approval": tx.execute(asking).scalar_one(),
            "errors_last_hour": tx.execute(failed).scalar_one(),
            "large_results": tx.execute(kept).scalar_one(),
        }
