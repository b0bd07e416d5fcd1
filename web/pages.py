"""The pages for people and the contract for programs; each stands alone and may load nothing."""

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from flask import Response, current_app

from loom_worker.core.values.json import Json
from web import docs, openapi
from web.answers import encode
from web.operation import Operation, Views

_FOLDER = Path(__file__).parent / "pages"
_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


class PageViews(Views, tag="pages"):
    """``/``, ``/docs`` and ``/openapi.json``."""

    @Operation("GET /openapi.json", scope=None)
    def openapi(self) -> Response:
        """This document."""
        return Response(self._json, content_type="application/json")

    @Operation("GET /docs", scope=None, media_type="text/html")
    def docs(self) -> Response:
        """This document for people."""
        return html_answer(self._html)

    @Operation("GET /", scope=None, media_type="text/html")
    def index(self) -> Response:
        """A page to ask and watch."""
        return html_answer(self._index)

    # Nothing in these changes while the process lives, so each is made once, when first asked for.

    @cached_property
    def _index(self) -> str:
        return (_FOLDER / "index.html").read_text(encoding="utf-8")

    @cached_property
    def _document(self) -> Json:
        served: Mapping[str, Any] = current_app.view_functions
        return openapi.document(view.operation for view in served.values())

    @cached_property
    def _json(self) -> bytes:
        return encode(self._document)

    @cached_property
    def _html(self) -> str:
        return docs.render(self._document)


def html_answer(html: str) -> Response:
    """A page that runs its own inline script and style and nothing else, whatever might get into it."""
    answer = Response(html, content_type="text/html; charset=utf-8")
    answer.headers["Content-Security-Policy"] = content_security_policy(html)
    answer.headers["Referrer-Policy"] = "no-referrer"
    return answer


def content_security_policy(html: str) -> str:
    """The policy that fits a page: its inline parts by their SHA-256 (CSP level 3), its own API, no more."""
    hashes: dict[str, list[str]] = {"script": [], "style": []}
    for kind, text in _INLINE.findall(html):
        digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
        hashes[kind].append(f"'sha256-{digest}'")
    allowed = [f"{kind}-src {' '.join(found)}" for kind, found in hashes.items() if found]
    rest = ["connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"]
    return "; ".join(["default-src 'none'", *allowed, *rest])
