"""Hold idle and dripping sockets until standard input ends: `python -m bench.attack PORT SOURCE COUNT`.

A process of its own, so that it takes no time of the one that measures. Says `ready` when all are open; what the server
closes is opened again in the next round.
"""

import select
import sys

from tests.support.sockets import sockets

HEAD = b"GET /v1/sessions HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
ROUND_S = 5.0


def main() -> None:
    """Half of the sockets say nothing, half send a byte of a head in each round."""
    port, source, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    with sockets(port, source) as idle, sockets(port, source) as dripping:
        idle.open(count // 2)
        dripping.open(count // 2, HEAD)
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], ROUND_S)[0]:
            dripping.drip()
            dripping.open(dripping.forget_closed(), HEAD)
            idle.open(idle.forget_closed())


if __name__ == "__main__":
    main()
