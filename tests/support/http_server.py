"""A local HTTP server that answers as a test tells it to."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Exchange(BaseHTTPRequestHandler):
    """One request; the test's function writes the answer."""

    protocol_version = "HTTP/1.1"
    extra: tuple[tuple[str, str], ...] = ()
    """Further headers of the next answer."""

    def answer(self, status: int, body: bytes, *, content_type: str = "application/json") -> None:
        """A whole answer."""
        self.send_response(status)
        for name, value in (("Content-Type", content_type), *self.extra):
            self.send_header(name, value)
        self.extra = ()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin_chunked(self) -> None:
        """The head of an event stream."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def chunk(self, piece: bytes) -> None:
        """One piece of it; an empty one ends it."""
        self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        self.wfile.flush()

    def cut(self) -> None:
        """Close the connection in the middle of the answer."""
        self.close_connection = True
        self.wfile.flush()

    def body(self) -> bytes:
        """What the client sent."""
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def log_message(self, format: str, *args: object) -> None:
        """Tests say what matters."""


@contextmanager
def serving(answer: Callable[[Exchange], None]) -> Iterator[str]:
    """The URL of a server that hands each request to ``answer``."""
    methods = {f"do_{method}": lambda exchange: answer(exchange) for method in ("GET", "POST", "DELETE")}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Exchange,), methods))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
