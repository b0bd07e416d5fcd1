"""Large results as downloads: whole or in ranges, never as something a browser would run."""

import re
from typing import TYPE_CHECKING

from flask import Response, request

from loom_worker.core.values.tools import DataReference
from web.answers import Route
from web.caller import caller
from web.problems import ProblemDetails, Refused

if TYPE_CHECKING:
    from loom_worker.service.service import Service

CHUNK_BYTES = 64 * 1024
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})", re.IGNORECASE)
_ENDINGS = {"application/json": "json", "text/csv": "csv", "text/plain": "txt"}


class BlobViews:
    """The view of ``/v1/blobs/{ref}``."""

    def __init__(self, service: "Service") -> None:
        self._service = service

    def routes(self) -> tuple[Route, ...]:
        """Where the view is mounted; HEAD comes with GET."""
        return (Route("GET", "/v1/blobs/<ref>", self.download),)

    def download(self, ref: str) -> Response:
        """Send a result's bytes, or the range of them that is asked for."""
        reference, data = self._service.references.open(caller().tenant, ref)
        headers = {
            "ETag": f'"{reference.checksum}"',
            "Accept-Ranges": "bytes",
            "Content-Disposition": f'attachment; filename="{ref}.{_ENDINGS.get(reference.content_type, "bin")}"',
            # What a tool gave may be a page with scripts; whatever a browser makes of it, it runs nothing of ours.
            "Content-Security-Policy": "default-src 'none'; sandbox",
        }
        if request.if_none_match.contains_weak(reference.checksum):  # RFC 9110, 13.1.2: compared weakly
            return Response(status=304, headers=headers)
        wanted = _range_wanted(reference, len(data))
        start, end = wanted or (0, len(data))
        headers["Content-Length"] = str(end - start)
        if wanted:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        kind = reference.content_type
        shown = f"{kind}; charset=utf-8" if kind.startswith("text/") else kind
        chunks = (data[at : min(at + CHUNK_BYTES, end)] for at in range(start, end, CHUNK_BYTES))
        return Response(chunks, 206 if wanted else 200, headers, content_type=shown)


def _range_wanted(reference: DataReference, size_bytes: int) -> tuple[int, int] | None:
    """Start and end of the single range that is asked for; None: all of it.

    Several ranges, other units and what cannot be read are left out of account, as RFC 9110 (14.2) allows; so is a
    range of another version (If-Range), which can only be one that this ETag does not name.

    Raises:
        Refused: 416, nothing of the range is there.
    """
    found = _RANGE.fullmatch(request.headers.get("Range", "").replace(" ", ""))
    if found is None or request.headers.get("If-Range", f'"{reference.checksum}"') != f'"{reference.checksum}"':
        return None
    first, last = found.groups()
    if not (first or last) or (first and last and int(first) > int(last)):
        return None
    start = int(first) if first else max(0, size_bytes - int(last))
    end = min(int(last) + 1, size_bytes) if first and last else size_bytes
    if start >= size_bytes:
        headers = {"Content-Range": f"bytes */{size_bytes}"}
        raise Refused(ProblemDetails(416, "range-not-satisfiable", f"the result has {size_bytes} bytes", {}, headers))
    return start, end
