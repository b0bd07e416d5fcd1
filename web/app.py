"""Puts the web application together."""

import re
from typing import TYPE_CHECKING, cast

from flask import Flask, Response, g, request
from werkzeug.middleware.proxy_fix import ProxyFix

from loom_worker.core import log_context
from loom_worker.core.errors import NotFound
from loom_worker.core.settings import WebSettings
from loom_worker.core.values.ids import now_us
from loom_worker.core.values.traces import TurnTrace
from loom_worker.fronts.a2a.front import CARD_PATH
from web import auth, problems, rate_limits
from web.a2a import A2aViews
from web.agent_messages import AgentMessageViews
from web.agent_versions import AgentVersionViews
from web.audit import AuditViews
from web.auth import require_scope
from web.blobs import BlobViews
from web.caller import ApiCaller, is_unsampled, request_id_of, traceparent_of
from web.catalog import CatalogViews
from web.connection_limits import ConnectionLimiter
from web.connections import group_of
from web.errors import ErrorViews
from web.events import EventViews
from web.facts import FactViews
from web.keys import KeyViews
from web.learned import LearnedViews
from web.memory import MemoryViews
from web.metrics import HealthViews, MetricsViews
from web.pages import PageViews
from web.pairings import PairingViews
from web.patterns import PatternViews
from web.query import operation_of, require_declared_parameters
from web.runs import RunViews
from web.schedules import ScheduleViews
from web.sessions import SessionViews
from web.turns import TurnViews
from web.users import UserViews
from web.workspaces import WorkspaceViews

if TYPE_CHECKING:
    from loom_worker.service.keys import Keys
    from loom_worker.service.rate_limits import RateLimits
    from loom_worker.service.service import Service

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
    views = (
        SessionViews(service),
        MemoryViews(service),
        TurnViews(service, limiter),
        EventViews(service, limiter),
        RunViews(service, limiter),
        A2aViews(service, limiter),
        ScheduleViews(service),
        LearnedViews(service),
        ErrorViews(service),
        KeyViews(service),
        PairingViews(service),
        AuditViews(service),
        UserViews(service),
        FactViews(service),
        BlobViews(service),
        CatalogViews(service),
        AgentVersionViews(service),
        AgentMessageViews(service),
        PatternViews(service),
        WorkspaceViews(service),
        HealthViews(service, limiter),
        MetricsViews(service),
        PageViews(),
    )
    for route in (route for each in views for route in each.routes()):
        app.add_url_rule(route.path, f"{route.method} {route.path}", route.view, methods=[route.method])
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
    require_scope(operation_of(request), holder, named)
    if limiter.is_draining and request.method == "POST":
        raise problems.busy("draining", "this process is stopping; send the request again")
    require_declared_parameters(request)


def _sign(answer: Response) -> Response:
    """Headers that every answer carries."""
    answer.headers["X-Request-Id"] = g.get("request_id", "")
    answer.headers["traceparent"] = g.get("traceparent", "")
    answer.headers["X-Content-Type-Options"] = "nosniff"
    answer.headers.setdefault("Cache-Control", "no-store")
    rate_limits.sign(answer)
    return answer
