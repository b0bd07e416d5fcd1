"""Puts the web application together."""

import re
from typing import TYPE_CHECKING, cast

from flask import Flask, Response, g, request
from werkzeug.middleware.proxy_fix import ProxyFix

from loom_worker.core import log_context
from loom_worker.core.errors import NotFound
from loom_worker.core.settings_tree import WebSettings
from loom_worker.core.values.ids import now_us
from loom_worker.core.values.traces import TurnTrace
from loom_worker.fronts.a2a.front import CARD_PATH
from web import (
    a2a,
    agents,
    audit,
    auth,
    deliveries,
    events,
    files,
    keys,
    learned,
    memory,
    metrics,
    pages,
    patterns,
    problems,
    rate_limits,
    results,
    runs,
    schedules,
    sessions,
    turns,
    users,
    workspaces,
)
from web.auth import require_scope
from web.caller import ApiCaller, is_unsampled, request_id_of, traceparent_of
from web.connection_limits import ConnectionLimiter
from web.connections import group_of
from web.operation import PARTS_BYTES, Views, operation_of

if TYPE_CHECKING:
    from loom_worker.service.allowances import RateLimits
    from loom_worker.service.keys import Keys
    from loom_worker.service.service import Service

VIEWS: tuple[type[Views], ...] = (
    *(sessions.SessionViews, memory.MemoryViews, turns.TurnViews, events.EventViews, results.ErrorViews),
    *(results.BlobViews, files.FileViews, agents.AgentViews, agents.AgentVersionViews, learned.LearnedViews),
    *(patterns.PatternViews, workspaces.WorkspaceViews, deliveries.DeliveryViews, deliveries.AgentMessageViews),
    *(runs.RunViews, schedules.ScheduleViews, memory.FactViews, keys.KeyViews, users.PairingViews, audit.AuditViews),
    *(users.UserViews, metrics.HealthViews, metrics.MetricsViews, a2a.A2aViews, pages.PageViews),
)
OPERATIONS = tuple(operation for views in VIEWS for operation in views.operations())
"""In the order of the document."""
_STREAMING = tuple(operation for operation in OPERATIONS if operation.streams != "never")
_ENCODED_STEP = re.compile("%(?:2f|5c)", re.IGNORECASE)
_PROBES = frozenset({"/healthz", "/readyz"})
LOGGED = ("session", "turn", "call", "delivery", "key", "run")
"""Ids of log lines that paths name, in routes as ``<turn_id>``."""


def create_app(service: "Service", limiter: ConnectionLimiter | None = None) -> Flask:
    """Build the WSGI application over a service.

    Args:
        limiter: of those who wait; None: one with as many slots as the settings have.
    """
    web = service.settings.web
    app = Flask("web", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = web.max_body_bytes
    # A redirect would turn a POST to //v1/… into something the client did not ask for; 404 is plain.
    app.url_map.merge_slashes = False
    limiter = limiter or ConnectionLimiter(slots=web.max_waiting)
    app.extensions["loom.connection_limiter"] = limiter
    for views in VIEWS:
        views(service, limiter).mount(app)
    app.before_request(lambda: auth.preflight(request, web.cors_origins))
    app.before_request(lambda: _admit(web, service.keys, service.rate_limits, limiter))
    app.after_request(_sign)
    app.after_request(lambda answer: auth.share(answer, request, web.cors_origins))
    app.register_error_handler(Exception, problems.answer)
    if web.trusted_proxies:
        count = web.trusted_proxies
        # Flask documents this very assignment; mypy takes any method for a constant.
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=count, x_proto=count, x_host=count)  # type: ignore[method-assign]
    return app


def most_streamed(file_bytes: int, method: str, path: str, is_large: bool) -> int:
    """The most bytes of a request's body that its view reads while it comes in; 0: it does not.

    Args:
        file_bytes: of an uploaded file.
        is_large: see ``Operation.reads``.
    """
    for each in _STREAMING:
        if each.method == method and each.reads(path, is_large=is_large):
            return file_bytes + files.FIELD_BYTES if each.is_upload else PARTS_BYTES
    return 0


def limiter_of(app: Flask) -> ConnectionLimiter:
    """The limiter of an application, to begin its drain."""
    return cast(ConnectionLimiter, app.extensions["loom.connection_limiter"])


def _admit(web: WebSettings, keys: "Keys", limits: "RateLimits", limiter: ConnectionLimiter) -> None:
    """Name the request, then decide whether it is served."""
    received_us = now_us()
    g.request_id = request_id_of(request.headers)
    g.traceparent = traceparent_of(request.headers)
    named = request.view_args or {}
    log_context.begin({"request": g.request_id, **{name: named.get(f"{name}_id") for name in LOGGED}})
    raw = str(request.environ.get("REQUEST_URI", "")).partition("?")[0]
    if _ENCODED_STEP.search(raw) and not raw.startswith("/v1/patterns/"):
        raise NotFound("an encoded slash is no part of an id")  # it would lead to another operation than was written
    if request.path in _PROBES:
        return
    if request.path == "/metrics":
        auth.require_metrics_reader(request, web, keys)
        return
    if not request.path.startswith(("/v1/", "/a2a/")) or request.path.endswith(f"/{CARD_PATH}"):
        auth.require_page_reader(request, web, keys)
        return
    holder = auth.holder_of(request, web, keys)
    is_theirs = g.traceparent == request.headers.get("traceparent")
    trace = TurnTrace(received_us, has_client_span=is_theirs, is_unsampled=is_unsampled(g.traceparent))
    g.caller = ApiCaller(holder, g.request_id, g.traceparent, trace, group_of(request.remote_addr or ""))
    rate_limits.admit(limits.take_request(holder))
    operation = operation_of(request)
    if operation is not None:
        require_scope(operation, holder, named)
    if limiter.is_draining and request.method == "POST":
        raise problems.busy("draining", "this process is stopping; send the request again")
    if operation is not None:
        operation.require_declared(request)


def _sign(answer: Response) -> Response:
    """Headers that every answer carries."""
    answer.headers["X-Request-Id"] = g.get("request_id", "")
    answer.headers["traceparent"] = g.get("traceparent", "")
    answer.headers["X-Content-Type-Options"] = "nosniff"
    answer.headers.setdefault("Cache-Control", "no-store")
    rate_limits.sign(answer)
    return answer
