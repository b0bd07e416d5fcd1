"""The block of memory in a request: it stands at the head of the first user message."""

MEMORY = (
    "What is known of this conversation",
    "Tables whose columns",
    "References of large results",
    "Summary of the conversation",
)
"""How it may begin."""


def is_memory(text: str) -> bool:
    """True for the block of memory, whose text is of no question."""
    return text.startswith(MEMORY)
