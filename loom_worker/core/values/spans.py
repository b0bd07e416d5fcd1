"""The ids of spans: of the parts of a turn that its trace and its errors name."""

from hashlib import blake2b


def span_id_of(turn_id: str, *part: str) -> str:
    """The id of a span as W3C Trace Context has it: 16 hexadecimal digits.

    It follows from what the span stands for, so that every process that names it, and whoever goes on with the turn
    after a crash, gives it the same id.

    Args:
        part: of the turn, such as ``("tool", call_id)``; empty: the whole turn.
    """
    return blake2b("\0".join((turn_id, *part)).encode(), digest_size=8).hexdigest()
