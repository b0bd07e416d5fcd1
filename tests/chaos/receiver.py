"""A receiver of webhooks on loopback, as a process: verifies signatures and logs every request.

    python -m tests.chaos.receiver --port 9100 --log hooks.jsonl --secret whsec_… --seed 7

Its first line on standard output is its URL (``--port 0``: a free port); SIGTERM ends it. ``read(path)`` gives the
log as Hooks, also while it is being written.

The path of a webhook's URL says what it is answered; anything may follow the first part (``/ok/T00042``):

- ``/ok``: 204 · ``/slow``: 200 after SLOW_S · ``/redirect``: 302 to ``/trap``, which nobody should follow
- ``/gone``: 410 · ``/down``: the connection is closed without an answer · ``/hang``: nothing for HANG_S
- ``/flaky``: each webhook id gets one or two times 503 or no answer, by the seed, then 200
- ``/error``: 500 each time

``POST /mode/<name>`` (name: any of these) makes all answers like that one's until ``POST /mode/`` ends it; neither is
logged. Signatures are Standard Webhooks 1.0.0 (``v1``), checked here without any of Loom's code.
"""

import argparse
import asyncio
import base64
import hashlib
import hmac
import json
import random
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tests.chaos.asyncio_http import Asked, Connection, Log, announce, read_log, serve
from tests.chaos.records import Hook

SLOW_S = 0.5
HANG_S = 60.0
MOST_SKEW_S = 300
"""A timestamp further off than this is refused, as the specification advises."""


class Receiver:
    """Answers webhooks and logs them."""

    def __init__(self, log: Log, *, secret: str, seed: int = 0, skew_s: float = MOST_SKEW_S) -> None:
        """
        Args:
            secret: ``whsec_…``, of all webhooks.
            skew_s: how far a timestamp may be off; a run that turns clocks allows more.
        """
        self._log, self._secret, self._seed, self._skew_s = log, secret, seed, skew_s
        self._seen: Counter[str] = Counter()
        self._mode = ""

    async def answer(self, asked: Asked, connection: Connection) -> None:
        """Serve one request; it is logged before it is answered, for the sender acts on the answer."""
        first, _, rest = asked.path.lstrip("/").partition("/")
        if first == "mode":
            self._mode = rest
            connection.whole(200, b"")
            return
        mode = self._mode or first
        if mode in {"slow", "hang"}:
            status = 200 if mode == "slow" else 0
            self._write(asked, status)
            await asyncio.sleep(SLOW_S if mode == "slow" else HANG_S)
        else:
            status = self._status(mode, asked.headers.get("webhook-id", ""))
            self._write(asked, status)
        self._reply(status, connection)

    def _status(self, mode: str, webhook_id: str) -> int:
        fixed = {"redirect": 302, "gone": 410, "down": 0, "error": 500}
        if mode != "flaky":
            return fixed.get(mode, 204)
        self._seen[webhook_id] += 1
        dice = random.Random(f"{self._seed}:{webhook_id}")
        failures = [dice.choice((503, 0)) for _ in range(dice.randint(1, 2))]
        nth = self._seen[webhook_id]
        return failures[nth - 1] if nth <= len(failures) else 200

    def _write(self, asked: Asked, status: int) -> None:
        self._log.write(
            {
                "id": asked.headers.get("webhook-id", ""),
                "body": base64.b64encode(asked.body).decode(),
                "at_s": asked.at_s,
                "is_signed": is_signed(asked.headers, asked.body, self._secret, skew_s=self._skew_s),
                "status": status,
                "path": asked.path,
            }
        )

    @staticmethod
    def _reply(status: int, connection: Connection) -> None:
        if status == 0:
            connection.close()
        else:
            connection.whole(status, b"", {"location": "/trap"} if status == 302 else None)


def is_signed(headers: Mapping[str, str], body: bytes, secret: str, *, skew_s: float = MOST_SKEW_S) -> bool:
    """True if one of the signatures is the secret's, for this id, time and body, and the time is near."""
    webhook_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not webhook_id or not timestamp.isdecimal() or abs(time.time() - int(timestamp)) > skew_s:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.digest(key, f"{webhook_id}.{timestamp}.".encode() + body, hashlib.sha256)
    right = "v1," + base64.b64encode(digest).decode()
    return any(hmac.compare_digest(right, given) for given in headers.get("webhook-signature", "").split(" "))


def read(path: Path) -> tuple[Hook, ...]:
    """All requests, in order of arrival."""
    return tuple(
        Hook(
            id=line["id"],
            turn_id=_turn_id(body := base64.b64decode(line["body"])),
            body=body,
            at_s=line["at_s"],
            is_signed=line["is_signed"],
            status=line["status"],
        )
        for line in read_log(path)
    )


def _turn_id(body: bytes) -> str:
    try:
        return str(json.loads(body)["data"]["id"])
    except (ValueError, KeyError, TypeError):
        return ""


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description="A receiver of webhooks on loopback that logs and misbehaves.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--secret", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--skew-s", type=float, default=MOST_SKEW_S, help="how far a timestamp may be off")
    given = parser.parse_args()
    receiver = Receiver(Log(given.log), secret=given.secret, seed=given.seed, skew_s=given.skew_s)
    asyncio.run(serve(receiver.answer, port=given.port, is_listening=announce))


if __name__ == "__main__":
    main()
