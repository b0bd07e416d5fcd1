"""One request to the collector, and what its answer means; whatever the collector does ends within the deadline."""

import socket
from dataclasses import dataclass
from typing import Literal

from loom_worker.core.errors import Invalid, Transient
from loom_worker.core.settings_tree import TraceSettings
from loom_worker.guard.net.address import Deadline, Lookup, resolve_in_time, target
from loom_worker.guard.net.http import HttpRequest, HttpResponse, retry_after_s, send_request

PATH = "/v1/traces"
TIMEOUT_S = 10.0
"""Time of one request: name server, connection, TLS, answer. OpenTelemetry's own exporters have the same default."""
MAX_RESPONSE_BYTES = 64 * 1024
_AGAIN = frozenset({408, 429})
_TYPES = {"json": "application/json", "protobuf": "application/x-protobuf"}

Loss = Literal["unreachable", "unavailable", "refused"]
"""Why spans were not taken: nothing answered, it answered that it cannot now, or that it never will."""


@dataclass(frozen=True, slots=True)
class PostResult:
    """What came of one request."""

    loss: Loss | None = None
    """None: the collector took the spans."""
    detail: str = ""
    """Why it did not, for people."""
    rejected: int = 0
    """Spans of the request that it took otherwise, and threw away."""
    retry_after_s: float | None = None
    """The pause that the collector asks for."""

    @property
    def may_retry(self) -> bool:
        """True if another try may help."""
        return self.loss in ("unreachable", "unavailable")


@dataclass(frozen=True, slots=True)
class Collector:
    """Posts bodies to the address of the settings, which is the operator's own and may be a private one."""

    settings: TraceSettings
    timeout_s: float = TIMEOUT_S
    lookup: Lookup = socket.getaddrinfo

    def post(self, body: bytes, *, now_s: float) -> PostResult:
        """Post an ExportTraceServiceRequest once, without following redirects or using a proxy.

        Args:
            now_s: seconds since 1970; a date in Retry-After counts from it.
        """
        deadline = Deadline(self.timeout_s)
        try:
            base = (self.settings.endpoint or "").rstrip("/")
            receiver = target(base if base.endswith(PATH) else base + PATH, allow_private=True)
            addresses = resolve_in_time(receiver, deadline, allow_private=True, lookup=self.lookup)
            headers = {**self.settings.headers, "Content-Type": _TYPES[self.settings.protocol]}
            # Not compressed: collectors are near, and not every receiver of OTLP unpacks what it gets.
            request = HttpRequest("POST", receiver.path, headers, body)
            response = send_request(receiver, addresses, request, deadline=deadline, max_bytes=MAX_RESPONSE_BYTES)
        except Invalid as error:
            return PostResult("refused", str(error))
        except Transient as error:
            return PostResult("unreachable", str(error))
        return _outcome(response, now_s=now_s)


def _outcome(response: HttpResponse, *, now_s: float) -> PostResult:
    status = response.status
    if 200 <= status < 300:
        from loom_worker.trace.encode import rejected_spans

        return PostResult(rejected=rejected_spans(response.body))
    detail = f"HTTP {status}"
    if status in _AGAIN or status >= 500:
        pause_s = retry_after_s(response.headers.get("Retry-After"), now_s=now_s)
        return PostResult("unavailable", detail, retry_after_s=pause_s)
    if 300 <= status < 400:
        detail += "; redirects are not followed"
    return PostResult("refused", detail)
