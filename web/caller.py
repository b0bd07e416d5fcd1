"""Who asks: key, request id and trace of the current request."""

import re
from dataclasses import dataclass
from typing import cast

from flask import g
from werkzeug.datastructures import Headers

from loom_worker.core.values.api_keys import KeyHolder
from loom_worker.core.values.ids import new_id
from loom_worker.core.values.spans import new_traceparent
from loom_worker.core.values.tenants import Tenant
from loom_worker.core.values.traces import NO_TRACE, TurnTrace
from web.connection_limits import ADDRESS

_REQUEST_ID = re.compile(r"[\x20-\x7e]{1,128}")
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


@dataclass(frozen=True, slots=True)
class ApiCaller:
    """What the views need to know of the one who asks."""

    holder: KeyHolder
    request_id: str
    traceparent: str
    trace: TurnTrace = NO_TRACE
    """When the request came, and whether the traceparent is the client's own."""
    address: str = ""
    """Address of the client, as far as trusted proxies tell it."""

    @property
    def workspace(self) -> str:
        """The workspace of the key; ``tenant`` says how much of it may be read and changed."""
        return self.holder.workspace

    @property
    def tenant(self) -> Tenant:
        """Whose data the request may read and change."""
        return self.holder.tenant

    @property
    def holders(self) -> tuple[str, str]:
        """Whom a slot to wait in is counted for."""
        return f"workspace {self.workspace}", f"{ADDRESS}{self.address}"


def caller() -> ApiCaller:
    """The caller of the current request; set before any view runs."""
    return cast(ApiCaller, g.caller)


def request_id_of(headers: Headers) -> str:
    """The client's ``X-Request-Id`` if it is 1-128 printable ASCII characters, else a new one."""
    given = headers.get("X-Request-Id", "")
    return given if _REQUEST_ID.fullmatch(given) else new_id("req_")


def is_unsampled(traceparent: str) -> bool:
    """True where its flags say that the client records no trace of the request."""
    return not int(traceparent.split("-")[3], 16) & 1


def traceparent_of(headers: Headers) -> str:
    """The client's ``traceparent`` if it is valid, else the root of a new, sampled trace.

    W3C Trace Context, 3.2: version ff, all-zero ids and anything behind the flags in version 00 are invalid.
    """
    given = headers.get("traceparent", "")
    parts = _TRACEPARENT.fullmatch(given) if len(given) <= 256 else None
    if parts is not None:
        version, trace_id, parent_id, _, rest = parts.groups()
        has_ids = trace_id != "0" * 32 and parent_id != "0" * 16
        if version != "ff" and has_ids and not (version == "00" and rest):
            return given
    return new_traceparent()
