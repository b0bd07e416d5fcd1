"""References as the tests of blobs need them."""

import hashlib
import secrets
from typing import Any

from loom_worker.blobs.blobs import Stored
from loom_worker.core.values.tools import DataReference

BOUND = 10_000
"""Bytes of the memory tier."""


def new_ref() -> str:
    return f"ref_{secrets.token_hex(16)}"


def reference(ref: str, data: bytes, stored: Stored | None = None, **fields: Any) -> DataReference:
    """What a row says of these bytes."""
    made = {
        "id": ref,
        "workspace": "acme",
        "session_id": "s1",
        "turn_id": "turn_1",
        "tool": "look",
        "size_bytes": len(data),
        "stored_bytes": stored.stored_bytes if stored else len(data),
        "checksum": stored.checksum if stored else hashlib.sha256(data).hexdigest(),
        "compressed": stored.compressed if stored else False,
        "content_type": "text/plain",
        "stored_at_ms": 1_800_000_000_000,
    }
    return DataReference(**{**made, **fields})
