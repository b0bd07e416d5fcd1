"""The pages for people and the contract for programs; each stands alone and may load nothing."""

import base64
import hashlib
import re
from functools import cache
from pathlib import Path

from flask import Response

from web import docs, openapi
from web.answers import Route, encode

_FOLDER = Path(__file__).parent / "pages"
_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


class PageViews:
    """``/``, ``/docs`` and ``/openapi.json``."""

    def routes(self) -> tuple[Route, ...]:
        """Where the pages are mounted."""
        return (
            Route("GET", "/", self.index),
            Route("GET", "/docs", self.docs),
            Route("GET", "/openapi.json", self.openapi),
        )

    def index(self) -> Response:
        """A page to ask and watch."""
        return html_answer(_index_page())

    def docs(self) -> Response:
        """The contract for people."""
        return html_answer(_docs_page())

    def openapi(self) -> Response:
        """The contract for programs."""
        return Response(_contract(), content_type="application/json")


# Nothing in these changes while the process lives, so each is made once, when first asked for.


@cache
def _index_page() -> str:
    return (_FOLDER / "index.html").read_text(encoding="utf-8")


@cache
def _docs_page() -> str:
    return docs.render(openapi.document())


@cache
def _contract() -> bytes:
    return encode(openapi.document())


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
