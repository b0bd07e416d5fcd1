"""Files: uploaded as they come in, listed, downloaded, removed; and the parts of a turn's input that name some."""

import base64
import binascii
from typing import Annotated, Any, BinaryIO, Literal, cast
from urllib.parse import quote

from flask import Response, request
from pydantic import Field, model_validator
from werkzeug.datastructures import FileStorage
from werkzeug.formparser import FormDataParser

from loom_worker.core.values.media import File, InputPart
from web.answers import json_answer, known_id, page_answer
from web.caller import caller
from web.check import ABSENT, NOT_BLANK, Given, Model, flawed
from web.operation import NO_CONTENT, Operation, Views
from web.problems import ProblemDetails, Refused, malformed
from web.query import PageQuery, Text
from web.results import CHUNK_BYTES
from web.schemas import list_of, record

FIELD_BYTES = 64 * 1024
"""What a multipart body has beside its file."""
_SOURCES = ("url", "data", "file_id")


def _decoded(given: str) -> bytes:
    try:
        return base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError) as error:
        raise flawed("must be base64, with its padding") from error


class PartMember(Model):
    """A part of the input: a text, or an image or a file by exactly one of `url`, `data` and `file_id`."""

    type: Literal["text", "image", "file"]
    text: str = Field(ABSENT, pattern=NOT_BLANK, description="Of a text alone.")
    url: str = Field(ABSENT, max_length=2048, description="http or https; it is fetched before the model is asked.")
    data: Annotated[Any, Given(str, _decoded)] = Field(ABSENT, description="The bytes in base64.")
    file_id: str = Field(ABSENT, max_length=64, description="Of `POST /v1/files`.")
    media_type: str = Field(ABSENT, max_length=64, description="It only tells one kind of text from another.")
    name: str = Field(ABSENT, max_length=255)

    @model_validator(mode="after")
    def _whole(self) -> "PartMember":
        given = sum(getattr(self, name) is not None for name in _SOURCES)
        if self.type == "text":
            if self.text is None or given or self.media_type or self.name:
                raise flawed("a text has a text, and nothing else")
        elif given != 1 or self.text is not None:
            raise flawed(f"the type {self.type} needs exactly one of {', '.join(_SOURCES)}, and no text")
        return self

    def value(self) -> InputPart:
        """As the service takes it."""
        return InputPart(**{name: getattr(self, name) for name in self.model_fields_set})


Parts = Annotated[list[PartMember], Field(min_length=1, max_length=100)]


class _FileQuery(PageQuery):
    session: Text | None = Field(None, description="Only files that this session uses.")


FILE = record(
    "File",
    "A file of a workspace. It is kept as long as a session uses it, and for a day if none does.",
    "id object=file name content_type size_bytes session_id created_at",
    File,
    content_type="text As its bytes say.",
    session_id="text? The first session that used it.",
)


class FileViews(Views, tag="files"):
    """The views under ``/v1/files``."""

    @Operation(
        "POST /v1/files", {201: FILE}, scope="chat", problems=(409, 413, 415, 422), streams="always", is_upload=True
    )
    def create(self) -> Response:
        """Upload a file as `multipart/form-data`, in the part `file`: a png, jpeg, gif or webp image, a PDF or text."""
        uploaded = self._uploaded()
        try:
            name, declared = uploaded.filename or "unnamed", uploaded.mimetype or None
            kept = self.service.files.add(caller().tenant, cast(BinaryIO, uploaded.stream), name, declared)
        finally:
            uploaded.close()
        return json_answer(kept.as_json(), 201, {"Location": f"/v1/files/{kept.id}"})

    @Operation("GET /v1/files", list_of(FILE))
    def list(self, asked: _FileQuery) -> Response:
        """List files, the newest first."""
        rows = self.service.files.rows
        page = rows.page(caller().tenant, session_id=asked.session, limit=asked.limit, after=asked.after)
        return page_answer(page)

    @Operation("GET /v1/files/{file_id}", FILE)
    def get(self, file_id: str) -> Response:
        """Look at a file."""
        return json_answer(self.service.files.get(caller().tenant, known_id(file_id, "file")).as_json())

    @Operation("GET /v1/files/{file_id}/content", {200: None}, media_type="*/*")
    def content(self, file_id: str) -> Response:
        """Download a file."""
        found, data = self.service.files.open(caller().tenant, known_id(file_id, "file"))
        kind = found.content_type
        headers = {
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(found.name, safe='')}",
            "Content-Length": str(len(data)),
            "Content-Security-Policy": "default-src 'none'; sandbox",  # it may be a page with scripts
        }
        chunks = (data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES))
        return Response(chunks, headers=headers, content_type=f"{kind}; charset=utf-8" if "text/" in kind else kind)

    @Operation("DELETE /v1/files/{file_id}", NO_CONTENT, scope="chat")
    def delete(self, file_id: str) -> Response:
        """Remove a file; a conversation that has it keeps a line in its place."""
        self.service.files.remove(caller().tenant, known_id(file_id, "file"))
        return Response(status=204)

    def _uploaded(self) -> FileStorage:
        """The file of the current request, written to the disk while it comes in.

        Raises:
            Refused: 415, 413 or 400.
        """
        most_bytes = self.service.settings.files.most_bytes
        if request.mimetype != "multipart/form-data":
            detail = "send the file as multipart/form-data, in a part with the name file"
            raise Refused(ProblemDetails(415, "unsupported-media-type", detail, {}, {"Accept": "multipart/form-data"}))
        parser = FormDataParser(
            lambda *_, **__: self.service.files.scratch(),
            max_form_memory_size=FIELD_BYTES,
            max_content_length=most_bytes + FIELD_BYTES,
            max_form_parts=8,
            silent=False,
        )
        try:
            _, fields, files = parser.parse_from_environ(request.environ)
        except ValueError as error:
            raise malformed(f"the body is no multipart/form-data: {error}") from error
        found = [each for _, each in files.items(multi=True)]
        if [each.name for each in found] != ["file"] or fields:
            for each in found:
                each.close()
            raise malformed("the body must have one part, with the name file and a filename")
        if found[0].stream.seek(0, 2) > most_bytes:
            found[0].close()
            detail = f"the file has more than {most_bytes} bytes (LOOM_FILE_BYTES)"
            raise Refused(ProblemDetails(413, "request-entity-too-large", detail))
        return found[0]
