"""JSON as it enters and leaves, and the times inside it."""

import json
from datetime import UTC, datetime
from typing import Any

Json = dict[str, Any]


def rfc3339(moment_ms: int | None) -> str | None:
    """Milliseconds since 1970 as ``2026-11-21T09:30:00.123Z``; None stays None."""
    if moment_ms is None:
        return None
    moment = datetime.fromtimestamp(moment_ms / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment_ms % 1000:03d}Z"


def untagged(value: object) -> str:
    """JSON on one line, without the sign that begins a tag: it cannot end the data that it stands in."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")
