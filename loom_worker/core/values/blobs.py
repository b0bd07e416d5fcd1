"""A large result that is kept apart from the conversation."""

from dataclasses import dataclass, field
from typing import Literal

from loom_worker.core.values.json import Json, rfc3339


@dataclass(frozen=True, slots=True)
class DataReference:
    """What is known of a large result; its bytes are elsewhere."""

    id: str
    """``ref_`` and 32 hexadecimal digits, by chance: nobody can guess one."""
    workspace: str
    session_id: str
    turn_id: str
    tool: str
    size_bytes: int
    """Of the original bytes."""
    stored_bytes: int
    """Of what is kept, compressed or not."""
    checksum: str
    """SHA-256 of the original bytes, in hexadecimal."""
    compressed: bool
    content_type: str
    stored_at_ms: int
    location: Literal["memory", "disk"] = "disk"
    """Where it was found last; what is in memory is on disk, too."""
    metadata: Json = field(default_factory=dict)
    """What the preview says, as values: shape, columns, rows."""

    def as_json(self) -> Json:
        """The reference for programs."""
        return {
            "id": self.id,
            "object": "data_reference",
            "session_id": self.session_id,
            "turn_id": self.turn_id,
            "tool": self.tool,
            "size_bytes": self.size_bytes,
            "stored_bytes": self.stored_bytes,
            "location": self.location,
            "checksum": self.checksum,
            "compressed": self.compressed,
            "content_type": self.content_type,
            "metadata": self.metadata,
            "stored_at": rfc3339(self.stored_at_ms),
        }
