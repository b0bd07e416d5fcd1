"""Is the process alive, and can it do its work?"""

from typing import TYPE_CHECKING

from flask import Response

from web.answers import Route, json_answer
from web.connection_limits import ConnectionLimiter
from web.problems import RETRY_S, ProblemDetails, Refused

if TYPE_CHECKING:
    from loom_worker.service.service import Service


class HealthViews:
    """The probes; served to everyone, as load balancers have no key."""

    def __init__(self, service: "Service", limiter: ConnectionLimiter) -> None:
        self._service = service
        self._limiter = limiter

    def routes(self) -> tuple[Route, ...]:
        """Where the probes are mounted."""
        return (Route("GET", "/healthz", self.alive), Route("GET", "/readyz", self.ready))

    def alive(self) -> Response:
        """The process answers; also while it drains."""
        return json_answer({"status": "ok"})

    def ready(self) -> Response:
        """Database, Redis and a worker that takes turns are there, and the process does not drain."""
        missing = ("draining",) if self._limiter.is_draining else self._service.health.problems()
        if missing:
            headers = {"Retry-After": str(RETRY_S)}
            raise Refused(ProblemDetails(503, "not-ready", "; ".join(missing), {"reasons": list(missing)}, headers))
        return json_answer({"status": "ready"})
