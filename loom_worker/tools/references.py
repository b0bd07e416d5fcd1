"""Large results, stored apart from the conversation, readable by their session, and removed when they expire."""

import logging
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from loom_worker.blobs.blobs import Blobs, Stored
from loom_worker.blobs.derived import DerivedFiles
from loom_worker.blobs.disk import DiskTier
from loom_worker.blobs.memory import MemoryTier
from loom_worker.blobs.tier import DiskFull, LostBlob, UnreadableBlob, UnwritableBlob, is_ref
from loom_worker.core import metrics
from loom_worker.core.errors import NotFound, ToolFailed
from loom_worker.core.settings_tree import BlobSettings
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json
from loom_worker.core.values.tenants import Tenant
from loom_worker.core.values.tools import Caller, DataReference
from loom_worker.store.blobs import BlobRows
from loom_worker.tools.result_rows import Count, content_of, parsed, preview, shape_json

log = logging.getLogger(__name__)

COPIES_SHARE = 0.1
"""Share of the limit of the disk tier (0-1), in addition to it: databases of rows that were queried by SQL."""
ROOM_TRIES = 4
"""Each removes some hundred of the least recently used results."""
EXPIRED, LANES = 200, 200
"""Results removed, and lanes checked, in one call of tidy."""
AGAIN = "call the tool again that made it"
_CONTENT_TYPE = re.compile(r"[a-z]+/[a-z0-9.+-]{1,48}")


@dataclass(frozen=True, slots=True)
class Kept:
    """A stored result, and what the model reads instead."""

    reference: DataReference
    preview: str


@dataclass(frozen=True, slots=True)
class Stores:
    """Where large results are stored."""

    blobs: Blobs
    rows: BlobRows
    disk: DiskTier
    copies: DerivedFiles
    memory: MemoryTier


def stores(settings: BlobSettings, rows: BlobRows, redis: Any) -> Stores:
    """Build the stores; nothing is opened yet.

    Args:
        redis: a redis-py client that does **not** decode responses.
    """
    disk = DiskTier(settings.folder)
    memory = MemoryTier(redis, most_bytes=settings.memory_bytes, ttl_s=settings.ttl_s)
    copies = DerivedFiles(settings.folder / "copies", most_bytes=int(settings.disk_bytes * COPIES_SHARE))
    blobs = Blobs(disk=disk, memory=memory)
    return Stores(blobs, rows, disk, copies, memory)


class References:
    """All large results."""

    def __init__(self, kept_in: Stores, settings: BlobSettings) -> None:
        self.stores = kept_in
        self._settings = settings
        self._shard = secrets.randbelow(256)  # several processes tidy in turn, each from another folder on
        self._lane = ""

    @property
    def folder(self) -> Path:
        """Where the disk tier has its files."""
        return self._settings.folder

    def keep(self, text: str, content_type: str, caller: Caller, *, tool: str, count: Count) -> Kept | None:
        """Store a result apart from the conversation.

        Args:
            count: tokens of a text, for the preview.

        Returns:
            None if there is no room for it or it cannot be written; the model must then read a shortened result.
        """
        data = text.encode("utf-8", "replace")
        content = content_of(parsed(text, content_type), content_type)
        if content_type == "text/plain" or not _CONTENT_TYPE.fullmatch(content_type):
            content_type = {"csv": "text/csv", "text": "text/plain"}.get(content.source, "application/json")
        reference = DataReference(
            id=f"ref_{secrets.token_hex(16)}",
            workspace=caller.workspace,
            session_id=caller.session_id,
            turn_id=caller.turn_id,
            tool=tool,
            size_bytes=len(data),
            stored_bytes=0,
            checksum="",
            compressed=False,
            content_type=content_type,
            stored_at_ms=now_ms(),
            metadata=shape_json(content),
        )
        kept = self._kept(reference, data, caller.lane)
        if kept is None:
            return None
        return Kept(kept, preview(kept.id, content, size_bytes=len(data), count=count))

    def find(self, ref: str, caller: Caller) -> DataReference:
        """The reference of a result of the caller's session, or of one that was passed on to it.

        Raises:
            ToolFailed: this session has no such result; the text says what to do.
        """
        found = self.stores.rows.of_lane(ref, caller.lane) if is_ref(ref) else None
        if found is None:
            shown = ref if len(ref) <= 40 else ref[:39] + "…"
            raise ToolFailed(f"no {shown}: expired, or another session's; {AGAIN}", "ERROR_NOT_FOUND")
        self.stores.rows.touch(ref, now_ms=now_ms())
        return found

    def read(self, ref: str, caller: Caller) -> tuple[DataReference, bytes]:
        """A result of the caller's session, or of one that was passed on to it.

        Raises:
            ToolFailed: this session has no such result, or its data is lost or damaged.
        """
        reference = self.find(ref, caller)
        try:
            return self._read(reference)
        except UnreadableBlob as fault:
            raise ToolFailed(f"{fault}; {AGAIN}", "ERROR_NOT_FOUND") from fault

    def open(self, tenant: Tenant, ref: str) -> tuple[DataReference, bytes]:
        """A result of a tenant's sessions, for clients of the API.

        Raises:
            NotFound: there is no such result, or its data is lost (slug ``blob-lost``) or damaged (``blob-damaged``).
        """
        reference = self.stores.rows.of_tenant(ref, tenant) if is_ref(ref) else None
        if reference is None:
            raise NotFound("There is no such result, or it has expired.")
        self.stores.rows.touch(ref, now_ms=now_ms())
        try:
            return self._read(reference)
        except UnreadableBlob as fault:
            slug = "blob-lost" if isinstance(fault, LostBlob) else "blob-damaged"
            raise NotFound(f"The result cannot be read: {fault}.", slug) from fault

    def tidy(self, moment_ms: int) -> int:
        """Remove some expired results, results of deleted sessions, and files without a row; return how many.

        One call takes some milliseconds; 256 calls check all folders.
        """
        unused_since_ms = moment_ms - int(self._settings.ttl_s * 1000)
        expired = self.stores.rows.take_expired(unused_since_ms=unused_since_ms, limit=EXPIRED)
        abandoned, self._lane = self.stores.rows.take_abandoned(after=self._lane, limit=LANES)
        self._forget([*expired, *abandoned])
        self.stores.copies.expire(before_s=unused_since_ms / 1000)
        # Files without a row, such as those of a process that died between writing the two.
        files = self.stores.disk.refs_in(self._shard, before_s=unused_since_ms / 1000)
        self._shard += 1
        if strays := files - self.stores.rows.known(files):
            self.stores.blobs.drop(strays)
            metrics.LARGE_RESULT_EVENTS.count("strays", by=len(strays))
        return len(expired) + len(abandoned) + len(strays)

    def _kept(self, reference: DataReference, data: bytes, lane: str) -> DataReference | None:
        """Write the bytes first, then the row: if the row is there, so are the bytes."""
        stored = self._stored(reference.id, data)
        if stored is None:
            return None
        whole = replace(
            reference, stored_bytes=stored.stored_bytes, checksum=stored.checksum, compressed=stored.compressed
        )
        for _ in range(ROOM_TRIES):
            if self.stores.rows.insert(whole, lane=lane, most_bytes=self._settings.disk_bytes):
                return whole
            if not self._make_room(whole.stored_bytes):
                break
        log.warning("the store of large results is full: %d bytes are not kept", len(data))
        metrics.LARGE_RESULT_EVENTS.count("store_full")
        self.stores.blobs.drop([reference.id])
        return None

    def _stored(self, ref: str, data: bytes) -> Stored | None:
        """Write bytes; on a full disk remove other results and try once more."""
        try:
            return self.stores.blobs.put(ref, data)
        except DiskFull:
            others = max(0, self.stores.rows.total_bytes() - len(data))
            self._make_room(0, most_bytes=others)
        except UnwritableBlob:
            return None
        try:
            return self.stores.blobs.put(ref, data)
        except UnwritableBlob:
            return None

    def has_room(self, size_bytes: int) -> bool:
        """True if so many bytes more keep within the bound, once results that nobody needs have made room."""
        for _ in range(ROOM_TRIES):
            if self.stores.rows.total_bytes() + size_bytes <= self._settings.disk_bytes:
                return True
            if not self._make_room(size_bytes):
                break
        return False

    def _make_room(self, size_bytes: int, *, most_bytes: int | None = None) -> bool:
        most = self._settings.disk_bytes if most_bytes is None else most_bytes
        if size_bytes > most:
            return False
        gone = self.stores.rows.make_room(size_bytes, most_bytes=most)
        self._forget(gone)
        return bool(gone)

    def _read(self, reference: DataReference) -> tuple[DataReference, bytes]:
        found = self.stores.blobs.read(reference)
        return replace(reference, location=found.location), found.data

    def _forget(self, refs: Iterable[str]) -> None:
        gone = list(refs)
        if gone:
            self.stores.blobs.drop(gone)
            self.stores.copies.drop(gone)
            metrics.LARGE_RESULT_EVENTS.count("expired", by=len(gone))

    def figures(self) -> Json:
        """For ``/metrics``: what is stored now.

        Raises:
            Unavailable: Redis or the database did not answer.
        """
        held = self.stores.memory.usage()
        return {
            "memory_blobs": held.blobs,
            "memory_bytes": held.stored_bytes,
            "disk_bytes": self.stores.rows.total_bytes(),
        }
