"""Files of clients, tools and URLs: looked at, stored, read for models, and removed once no session has them.

Bytes are written before their row, so that a crash in between leaves bytes alone, which ``References.tidy`` finds.
"""

import base64
import binascii
import hashlib
import io
import logging
import re
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import BinaryIO

from loom_worker.blobs.tier import UnwritableBlob
from loom_worker.core import crash_points
from loom_worker.core.errors import Flaw, Invalid, LoomError, NotFound, Rejected, Unavailable
from loom_worker.core.settings import Settings
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.media import FILE_ID, IMAGES, File, InputPart, Media, new_file_id, plain_name, ref_of
from loom_worker.core.values.tenants import Tenant, user_of, workspace_of
from loom_worker.core.values.tools import Caller, Outcome
from loom_worker.core.values.turns import Turn
from loom_worker.guard.net.address import target
from loom_worker.guard.net.fetch import Fetching, fetch
from loom_worker.store.database import Database
from loom_worker.store.files import GONE, FileRows
from loom_worker.tools.file_kinds import kind_of
from loom_worker.tools.references import References

log = logging.getLogger(__name__)

MOST_TEXT_BYTES = 1024 * 1024
"""Size of a text file in a message, as of any text in one."""
MOST_IMAGES = 10
"""Images that are taken out of one tool's result."""
_IMAGE = re.compile(rf"data:({'|'.join(IMAGES)});base64,([A-Za-z0-9+/]{{40,}}={{0,2}})")


@dataclass(slots=True, eq=False)
class Files:
    """All files of an installation."""

    rows: FileRows
    references: References
    """Which share the disk with them."""
    settings: Settings
    _after: str = ""
    """Where the next look for files that can go begins."""

    @classmethod
    def of(cls, settings: Settings, database: Database, references: References) -> "Files":
        """Make it; nothing is opened yet."""
        return cls(FileRows(database), references, settings)

    def scratch(self) -> BinaryIO:
        """A file without a name for what is just coming in."""
        folder = self.references.folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return tempfile.TemporaryFile(dir=folder)
        except OSError as error:
            raise Unavailable("The folder that keeps files cannot be written.", "storage-full") from error

    def add(self, tenant: Tenant, file: BinaryIO, name: str, declared: str | None = None) -> File:
        """Keep a file that no session uses yet.

        Args:
            declared: see ``kind_of``.

        Raises:
            Invalid: it is of no kind that is taken, or broken.
            Conflict: the workspace has no room for it.
            Unavailable: the disk has none.
        """
        found = self.looked_at(file, name, declared, workspace=workspace_of(tenant), user=user_of(tenant))
        self._store(found, file)
        try:
            self.rows.add(found, most_bytes=self.settings.limits.workspace_file_bytes)
        except Rejected:
            self._drop(found.id)
            raise
        return found

    def looked_at(
        self,
        file: BinaryIO,
        name: str,
        declared: str | None = None,
        *,
        workspace: str,
        user: str | None = None,
        file_id: str = "",
    ) -> File:
        """What is known of a file from its bytes, which nothing keeps yet; file_id: empty: a new one."""
        name, moment_ms = plain_name(name), now_ms()
        kind = kind_of(file, name, declared)
        size_bytes = file.seek(0, io.SEEK_END)
        file.seek(0)
        return File(
            file_id or new_file_id(now_ms=moment_ms, chance=secrets.randbits(80)),
            workspace,
            name,
            kind.content_type,
            size_bytes,
            hashlib.file_digest(file, "sha256").hexdigest(),  # type: ignore[arg-type]  # it takes any binary file
            moment_ms,
            user,
            kind.width,
            kind.height,
            kind.pages,
        )

    def open(self, tenant: Tenant, file_id: str) -> tuple[File, bytes]:
        """A tenant's file and its bytes; NotFound: there is none, or its bytes are lost (slug ``blob-lost``)."""
        found = self.get(tenant, file_id)
        data = self._bytes(found)
        if not data:
            raise NotFound("The file's bytes are lost.", "blob-lost")
        return found, data

    def get(self, tenant: Tenant, file_id: str) -> File:
        """A tenant's file; NotFound: there is none of that id."""
        if FILE_ID.fullmatch(file_id) is None:
            raise NotFound(GONE.format(file_id[:60]))
        return self.rows.get(tenant, file_id)

    def remove(self, tenant: Tenant, file_id: str) -> None:
        """Remove a file; where a conversation has it, a line is left in its place. NotFound: there is none."""
        self.rows.remove(tenant, self.get(tenant, file_id).id)
        self._drop(file_id)

    def read(self, file_id: str) -> bytes:
        """The bytes that a message names; none if they are gone."""
        found = self.rows.named(file_id)
        return b"" if found is None else self._bytes(found)

    def looked_up(self, tenant: Tenant, parts: tuple[InputPart, ...]) -> tuple[InputPart, ...]:
        """Parts with what is known of their files; nothing is stored.

        Raises:
            Invalid: a file is of no kind that is taken, broken, not an image where one is asked for, too long as a
                text, or there is none of that id (slug ``file-not-found``); with the part's pointer.
        """
        return tuple(self._looked_up(tenant, place, part) for place, part in enumerate(parts))

    def _looked_up(self, tenant: Tenant, place: int, part: InputPart) -> InputPart:
        try:
            if part.data is not None:
                file, name = io.BytesIO(part.data), part.name or part.type
                workspace, user = workspace_of(tenant), user_of(tenant)
                found = self.looked_at(file, name, part.media_type, workspace=workspace, user=user)
                return _known(part, found, lambda: part.data or b"")
            if part.file_id is not None:
                found = self.get(tenant, part.file_id)
                return _known(part, found, lambda: self._bytes(found))
            if part.url is not None:
                target(part.url, allow_private=self.settings.files.allow_private)
        except NotFound as error:
            raise Invalid(str(error), (Flaw(f"/input/{place}/file_id", str(error)),), "file-not-found") from error
        except Invalid as error:
            raise Invalid(str(error), (Flaw(f"/input/{place}", str(error)),), error.slug or "invalid") from error
        return part

    @contextmanager
    def kept(self, parts: tuple[InputPart, ...]) -> Iterator[None]:
        """Store the bytes that came with parts, whose rows come with the turn's; remove them if that is refused.

        Raises:
            Unavailable: the disk is full.
        """
        came = [(part.file, part.data) for part in parts if part.file and part.data is not None]
        try:
            for file, data in came:
                self._store(file, io.BytesIO(data))
                crash_points.reached("web.file_stored")
            yield
        except LoomError:
            self._drop(*(file.id for file, _ in came))
            raise

    def fetched(self, turn: Turn, place: int) -> InputPart:
        """A part of a turn with the file that its URL names, which is stored under an id that follows from its place.

        Raises:
            Rejected, Transient: it cannot be had, or is of no kind that is taken.
        """
        part, by = turn.parts[place], self.settings.files
        chance = int.from_bytes(hashlib.sha256(f"{turn.id}.{place}".encode()).digest()[:10])
        file_id = new_file_id(now_ms=turn.created_ms, chance=chance)
        found = self.rows.named(file_id)  # a worker that died may have fetched it
        if found is None or not (data := self._bytes(found)):
            data = fetch(part.url or "", Fetching(by.most_bytes, "LOOM_ALLOW_PRIVATE_FILES=1", by.allow_private))
            name = part.name or (part.url or "").partition("?")[0]
            found = self.looked_at(
                io.BytesIO(data), name, part.media_type, workspace=turn.workspace, user=turn.user, file_id=file_id
            )
            self._add(found, data, turn.lane, turn.session_id)
        return _known(part, found, lambda: data)

    def taken_out(self, outcome: Outcome, caller: Caller) -> Outcome:
        """A tool's result with a line in the place of each image, which it holds as a ``data:`` URL in base64."""
        if outcome.status != "completed" or "data:image/" not in outcome.content:
            return outcome
        media: list[Media] = []

        def kept(found: re.Match[str]) -> str:
            try:
                data = base64.b64decode(found[2], validate=True)
                name = f"{caller.call_id}-{len(media) + 1}.{found[1].partition('/')[2]}"
                file = self.looked_at(io.BytesIO(data), name, workspace=caller.workspace)
                if file.media is None or len(media) == MOST_IMAGES:
                    raise Rejected("no image, or one too many")
                self._add(file, data, caller.lane, caller.session_id)
            except (binascii.Error, Rejected, Unavailable) as error:
                log.warning("an image in a result is not kept: %s", error)
                return f"[{found[1]}, {len(found[2]) * 3 // 4} bytes, not kept]"
            media.append(file.media)
            return file.media.stub

        content = _IMAGE.sub(kept, outcome.content)
        return replace(outcome, content=content, media=tuple(media))

    def tidy(self, moment_ms: int, *, limit: int = 1_000) -> int:
        """Remove files that no session has any more; return how many."""
        gone, self._after = self.rows.take_abandoned(after=self._after, now_ms=moment_ms, limit=limit)
        self._drop(*gone)
        return len(gone)

    def _add(self, file: File, data: bytes, lane: str, session_id: str) -> None:
        self._store(file, io.BytesIO(data))
        most_bytes = self.settings.limits.workspace_file_bytes
        self.rows.add(replace(file, session_id=session_id), most_bytes=most_bytes, lane=lane)

    def _store(self, file: File, data: BinaryIO) -> None:
        """Write the bytes; results that nobody needs any more make room for them."""
        if not self.references.has_room(file.size_bytes):
            raise Unavailable("The disk for results and files is full (LOOM_BLOB_DISK_BYTES).", "storage-full")
        data.seek(0)
        try:
            self.references.stores.disk.put(ref_of(file.id), data)
        except UnwritableBlob as error:
            raise Unavailable(f"The file cannot be stored: {error}.", "storage-full") from error

    def _bytes(self, file: File) -> bytes:
        data = self.references.stores.disk.get(ref_of(file.id), most_bytes=file.size_bytes) or b""
        if hashlib.sha256(data).hexdigest() == file.checksum:
            return data
        log.error("%s cannot be read: its bytes are lost or damaged", file.id)
        return b""

    def _drop(self, *ids: str) -> None:
        self.references.stores.disk.drop(map(ref_of, ids))


def _known(part: InputPart, file: File, read: Callable[[], bytes]) -> InputPart:
    """A part with its file; of a text with what it says."""
    part = replace(part, file=file, media=file.media, file_id=None if part.url else file.id)
    if part.type == "image" and (file.media is None or file.media.pages):
        raise Invalid(f"{file.name!r} is no image but {file.content_type}: send it as a part of the type file.")
    if file.media is not None:
        return part
    if file.size_bytes > MOST_TEXT_BYTES:
        text = f"The text {file.name!r} has {file.size_bytes:,} bytes; one in a message may have {MOST_TEXT_BYTES:,}."
        raise Invalid(text, (), "message-too-large")
    return replace(part, text=read().decode("utf-8-sig", "replace"))
