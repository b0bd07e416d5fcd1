"""A process for one turn's last attempt: should the turn kill it, it takes no neighbour with it.

Its parent holds the lane's lease and waits for it. Secrets come as a JSON object on standard input, where no other
process sees them. Exit status 0: the turn has ended, or waits. Monitors are told so as if the parent had run it.
"""

import json
import os
import sys

from loom_worker.core import log_context, logs
from loom_worker.core.isolation import process_env
from loom_worker.core.settings import from_env
from loom_worker.guard.findings import redacted
from loom_worker.lanes.lanes import Lease
from loom_worker.lanes.lease_renewer import HeldLease
from loom_worker.runtime import build
from loom_worker.tasks.app import app
from loom_worker.turn.entrypoints import serve_claim


def main(lane: str, token: str, turn_id: str, fence: str, node: str) -> int:
    """Run the turn that the parent claimed.

    Args:
        node: the parent's name among Celery's workers; empty: it is none.
    """
    settings = from_env({**os.environ, **json.load(sys.stdin)})
    logs.set_up(settings.log, redacted)
    own = process_env.keep_to_itself(settings, process_env.of_worker(("turn",)))
    process = build.alone(own, node=node.partition("@")[0])
    worker = process.worker.turns
    claim = worker.claims.resume(turn_id, fence=int(fence))
    if claim is None:
        return 1
    log_context.begin({"request": claim.turn.request_id, **log_context.turn_ids(claim.turn)})
    try:
        serve_claim(claim, HeldLease(Lease(lane, token, claim.turn.seq), renewed_s=0.0), worker)
        if node:
            process.worker.events.send_rest(app, node=node)
    finally:
        process.components.metrics.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
