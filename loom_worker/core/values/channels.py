"""Where users write from and read: the channel of a turn, and who of a channel is which user."""

from dataclasses import dataclass
from typing import Literal

from loom_worker.core.values.json import Json, rfc3339

ChannelFormat = Literal["markdown", "plain"]
LEAST_CHARS, MOST_CHARS = 40, 1_000_000
"""Characters of one message in a channel: less than an SMS of one part (70), and more than any channel takes."""


@dataclass(frozen=True, slots=True)
class Channel:
    """Where the answer to a turn is read, such as a chat program."""

    name: str
    format: ChannelFormat = "markdown"
    """What the channel shows: Markdown, or plain text alone."""
    max_chars: int | None = None
    """Unicode characters of one message; None: as many as one likes."""

    def as_json(self) -> Json:
        """As turns show it and as it is stored."""
        return {"name": self.name, "format": self.format, "max_chars": self.max_chars}


@dataclass(frozen=True, slots=True)
class Pairing:
    """Who somebody of a channel is: a user of the workspace."""

    id: str
    """``pair_…``."""
    workspace: str
    channel: str
    identity: str
    """As the channel names the person."""
    user: str
    created_ms: int

    def brief(self) -> "Pairing":
        return self

    def as_json(self) -> Json:
        return {
            "id": self.id,
            "object": "pairing",
            "channel": self.channel,
            "identity": self.identity,
            "user": self.user,
            "created_at": rfc3339(self.created_ms),
        }
