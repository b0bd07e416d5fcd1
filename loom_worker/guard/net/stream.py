"""One HTTP request to an address that was checked, whose answer is read while it comes."""

import contextlib
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from urllib3.response import BaseHTTPResponse

from loom_worker import __version__
from loom_worker.guard.net.address import Target
from loom_worker.guard.net.dial import Deadline
from loom_worker.guard.net.http import FAILURES, HttpRequest, NoResponse, connected, reason

_PIECE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class OpenAnswer:
    """An answer whose body is still to come; close it."""

    status: int
    headers: Mapping[str, str]
    """Looked up in any case."""
    response: BaseHTTPResponse
    deadline: Deadline
    handle: socket.socket
    """A second handle of the connection: TLS takes over the first one."""
    opened: contextlib.ExitStack

    def chunks(self) -> Iterator[bytes]:
        """The body, as it arrives; NoResponse: it broke off, or the deadline came."""
        try:
            if getattr(self.response, "chunked", False):
                yield from self.response.read_chunked(decode_content=False)
            else:
                while piece := self.response.read1(_PIECE_BYTES, decode_content=False):
                    yield piece
        except FAILURES as error:
            raise NoResponse(reason(error, self.deadline), True) from error
        if self.deadline.is_over:  # a shutdown at the deadline looks like the end of a body of unknown length
            raise NoResponse(reason(TimeoutError(), self.deadline), True)

    def close(self) -> None:
        """Drop the connection."""
        self.opened.close()

    def hang_up(self) -> None:
        with contextlib.suppress(OSError):  # it may be closed by now
            self.handle.shutdown(socket.SHUT_RDWR)


def open_request(
    target: Target,
    addresses: Sequence[str],
    request: HttpRequest,
    *,
    deadline: Deadline,
    before_sending: Callable[[], None],
) -> OpenAnswer:
    """Connect to one of the addresses, which the caller has checked, and send the request under the target's name.

    Args:
        before_sending: called once there is a connection, and before the first byte; what it raises ends the request.

    Raises:
        NoResponse: in our own words, never in the server's.
    """
    is_sent = False
    with contextlib.ExitStack() as opened:
        try:
            connection = opened.enter_context(connected(target, addresses, deadline))
            handle = opened.enter_context(connection.sock.dup())
            before_sending()
            is_sent = True
            headers = {"Host": target.authority, "User-Agent": f"Loom/{__version__}", **request.headers}
            connection.request(
                request.method,
                request.path,
                body=request.body,
                headers=headers,
                preload_content=False,
                decode_content=False,
            )
            response = connection.getresponse()
        except FAILURES as error:
            raise NoResponse(reason(error, deadline), is_sent) from error
        opened.callback(response.close)
        return OpenAnswer(response.status, response.headers, response, deadline, handle, opened.pop_all())
    raise AssertionError  # an ExitStack that swallows nothing returns or raises above
