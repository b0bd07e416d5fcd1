"""What a provider adds to the texts of a request."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Frame:
    """The provider's own tokens, as is usual, by what they come with; measured on recordings (``bench.tokens``)."""

    tools: int
    """Its text about tools, once where there are any."""
    tool: int = 12
    """Around each tool."""
    request: int = 3
    message: int = 3
    call: int = 42
    """A tool call with its result, beside their texts and their two messages."""
