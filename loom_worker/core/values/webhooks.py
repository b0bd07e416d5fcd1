"""Webhooks: where the end of a turn or a run is reported, and in which form."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

WebhookFormat = Literal["loom", "a2a", "a2a-0.3"]
"""loom: the turn as the HTTP API shows it · a2a, a2a-0.3: a task of the Agent2Agent protocol 1.0 or 0.3."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where the end of a turn is reported."""

    url: str
    secret: str | None = None
    """``whsec_…``; None: the workspace's default."""
    format: WebhookFormat = "loom"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with each delivery in addition to those that every delivery has; they may hold the receiver's secret."""
    name: str | None = None
    """The client's own id of it; None: it gave none."""

    @classmethod
    def stored(cls, url: str | None, secret: str | None, form: str | None) -> "Webhook | None":
        """The webhook of three columns; None if there is none."""
        return None if url is None else cls(url, secret, **json.loads(form or "{}"))

    @property
    def form(self) -> str | None:
        """Format, headers and name as their column holds them, the same text for the same values; None: as usual."""
        if self.format == "loom" and not self.headers and self.name is None:
            return None
        return json.dumps({"format": self.format, "headers": dict(self.headers), "name": self.name}, sort_keys=True)
