"""What goes wrong with a server, in words for a model and in kinds for us."""

from collections.abc import Iterator

CODE = -32099
"""Of errors that we answer ourselves in the server's stead; the last of those JSON-RPC leaves to implementations."""
EXPIRED, UNREACHABLE, REFUSED = "expired", "unreachable", "refused"


class Lost(Exception):
    """The session is over; str() says why."""


class Expired(Lost):
    """The server forgot the session before it looked at the request: a new session may ask again."""


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors of a group, which is what the SDK's task groups raise; of any other error, itself."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaves(each)
    else:
        yield error


def said(error: BaseException) -> str:
    """What an error says, or at least what it is."""
    first = next(leaves(error))
    return str(first).split("\n")[0] or type(first).__name__
