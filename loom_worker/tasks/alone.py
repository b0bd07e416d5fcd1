"""A process for one turn's last attempt: should the turn kill it, it takes no neighbour with it.

Its parent holds the lane's lease and waits for it. Exit status 0: the turn has ended, or waits.
"""

import sys

from loom_worker import wiring
from loom_worker.lanes.keeper import Hold
from loom_worker.lanes.lanes import Lease
from loom_worker.settings import from_env
from loom_worker.turn.serve import serve_claim


def main(lane: str, token: str, turn_id: str, fence: str) -> int:
    """Run the turn that the parent claimed."""
    loom = wiring.alone(from_env())
    claim = loom.claims.resume(turn_id, fence=int(fence))
    if claim is None:
        return 1
    serve_claim(claim, Hold(Lease(lane, token, claim.turn.seq), renewed_s=0.0), loom)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
