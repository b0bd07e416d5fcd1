"""Results of tools: large ones as downloads, never as something a browser would run; and errors."""

import re

from flask import Response, request
from pydantic import Field

from loom_worker.core.values.tools import DataReference, ErrorFilter, StoredError
from web.answers import json_answer, known_id, page_answer
from web.caller import caller
from web.operation import Operation, Views
from web.problems import ProblemDetails, Refused
from web.query import PeriodQuery, Text
from web.schemas import CUT, TEXT, list_of, record

CHUNK_BYTES = 64 * 1024
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})", re.IGNORECASE)
_ENDINGS = {"application/json": "json", "text/csv": "csv", "text/plain": "txt"}


class _ErrorQuery(PeriodQuery):
    session: Text | None = Field(None, description="Of this session only.")
    tool: Text | None = Field(None, description="Of the tool of this name only.")


ERROR = record(
    "Error",
    "A failed tool call, or why a turn failed: one line, and all that is kept. Secrets are taken out.",
    "id object=error session_id turn_id span_id tool_name timestamp:time short_summary raw_error",
    StoredError,
    also=CUT,
    span_id="text? Where in the turn's trace; null for errors of older versions.",
    tool_name="text? null: not a call, but the turn itself failed.",
    short_summary={"type": "string", "maxLength": 100},
    raw_error={
        "type": "object",
        "properties": {"message": TEXT, "code": TEXT, "detail": TEXT},
        "required": ["message"],
    },
)


class ErrorViews(Views, tag="results"):
    """The views under ``/v1/errors``, for who looks after a workspace."""

    @Operation("GET /v1/errors", list_of(ERROR))
    def list(self, asked: _ErrorQuery) -> Response:
        """List errors of tools, the newest first."""
        wanted = ErrorFilter(session_id=asked.session, tool=asked.tool, since_ms=asked.since, until_ms=asked.until)
        errors = self.service.agent_errors
        return page_answer(errors.page(caller().tenant, wanted, limit=asked.limit, after=asked.after))

    @Operation("GET /v1/errors/{error_id}", ERROR)
    def get(self, error_id: str) -> Response:
        """Look at a tool's whole error."""
        return json_answer(self.service.agent_errors.get(caller().tenant, known_id(error_id, "error")).as_json())


class BlobViews(Views, tag="results"):
    """The view of ``/v1/blobs/{ref}``; HEAD comes with GET."""

    @Operation(
        "GET /v1/blobs/{ref}",
        {200: None, 206: None, 304: None},
        problems=(416,),
        headers=("Range", "If-Range", "If-None-Match"),
        media_type="*/*",
    )
    def download(self, ref: str) -> Response:
        """Download a tool's large result, whole or a range of it, in the media type the tool gave it."""
        reference, data = self.service.references.open(caller().tenant, ref)
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
