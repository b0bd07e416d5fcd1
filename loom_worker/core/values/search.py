"""What a search of a session finds."""

from dataclasses import dataclass

from loom_worker.core.values.chat import Role
from loom_worker.core.values.json import Json


@dataclass(frozen=True, slots=True)
class Excerpt:
    """What is shown of one message of a passage."""

    message_id: str
    turn_id: str
    role: Role
    text: str
    """At most 200 characters, on one line: of the hit its snippet, of those beside it how they begin."""

    def as_json(self) -> Json:
        """The message of a passage in the HTTP API."""
        return {"message_id": self.message_id, "turn_id": self.turn_id, "role": self.role, "text": self.text}


@dataclass(frozen=True, slots=True)
class Hit:
    """A message that was found."""

    message_id: str
    turn_id: str
    role: Role
    snippet: str
    """At most 200 characters of it, around what was looked for; plain text on one line."""
    score: float
    """Larger is better; to be compared within one search alone."""
    passage: tuple[Excerpt, ...] = ()
    """The message and up to two on each side of it, in the order of the conversation."""

    def as_json(self) -> Json:
        """The hit of the HTTP API."""
        return {
            "message_id": self.message_id,
            "turn_id": self.turn_id,
            "role": self.role,
            "snippet": self.snippet,
            "score": self.score,
            "passage": [excerpt.as_json() for excerpt in self.passage],
        }
