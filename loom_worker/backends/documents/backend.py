"""A folder of documents as three tools and an overview: list, search, read. Nothing outside of the folder is read.

Paths that a model gives are only looked up among the names of the index; they never reach the file system.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from loom_worker.backends.documents import index, lookup
from loom_worker.backends.documents.folder import FolderListing
from loom_worker.backends.documents.index import RefreshDeadlines, listing, refresh
from loom_worker.backends.documents.lookup import IndexedFile, numbered, printed
from loom_worker.core.errors import BadSettings, ToolFailed
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.core.text import one_line
from loom_worker.core.values.chat import ToolSpec, object_schema
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Caller, Tool

MAX_LISTED = 100
MAX_FOUND = 20

_PATH = {"type": "string", "maxLength": 1000}
_PREFIX = _PATH | {"description": "Only documents whose path begins so, such as a folder: handbook/"}

LIST_DOCUMENTS = ToolSpec(
    "list_documents",
    "List the documents by path: kind, title, length; those that cannot be read with the reason.",
    object_schema(
        prefix=_PREFIX,
        limit={"type": "integer", "minimum": 1, "maximum": MAX_LISTED, "default": 50},
        offset={"type": "integer", "minimum": 0, "default": 0},
    ),
)
SEARCH_DOCUMENTS = ToolSpec(
    "search_documents",
    "Full-text search in all documents. Returns the passages that fit best, each with path, lines, page (PDF), heading "
    "and snippet; read_document shows what stands around them. Name path and page or lines when you quote.",
    object_schema(
        "query",
        query={
            "type": "string",
            "minLength": 1,
            "maxLength": 2000,
            "description": "Words that the passage would use; any of them may match.",
        },
        limit={"type": "integer", "minimum": 1, "maximum": MAX_FOUND, "default": 8},
        path_prefix=_PREFIX,
    ),
)
READ_DOCUMENT = ToolSpec(
    "read_document",
    "Show a document's text with line numbers (and page marks of a PDF), at most 12 KiB; the end says where to go on.",
    object_schema(
        "path",
        **{
            "path": _PATH | {"minLength": 1, "description": "As list_documents or search_documents give it."},
            "from": {"type": "integer", "minimum": 1, "description": "First line; default: the first."},
            "to": {"type": "integer", "minimum": 1, "description": "Last line; default: as many as fit."},
            "page": {"type": "integer", "minimum": 1, "description": "A page of a PDF, in place of from and to."},
            "skip": {"type": "integer", "minimum": 0, "description": "Characters of the first line to leave out."},
        },
    ),
)


KIND = "documents"
"""Kind of the origin that its tools carry."""


class DocumentsBackend:
    """The tools over one folder; keeps nothing open between calls, and may be used from many threads."""

    def __init__(self, path: Path, index_folder: Path, *, timeout_s: float = 30.0) -> None:
        """Args: timeout_s: of one call; a third of it is spent on files that are new or changed."""
        self._path = path
        self._index_folder = index_folder
        self._timeout_s = timeout_s
        third_s = timeout_s / 3
        self._deadlines = RefreshDeadlines(refresh_s=third_s, file_s=third_s, wait_s=min(third_s, 3.0))

    def check(self) -> None:
        """Look whether the folder is there.

        Raises:
            BadSettings: it is not.
        """
        if not self._path.is_dir():
            raise BadSettings(f"{self._path}: no such folder")

    def tools(self) -> tuple[Tool, ...]:
        """list_documents, search_documents and read_document."""
        runs = ((LIST_DOCUMENTS, self._list), (SEARCH_DOCUMENTS, self._search), (READ_DOCUMENT, self._read))
        return tuple(self._tool(spec, run) for spec, run in runs)

    def close(self) -> None:
        """There is nothing to close: every call opens what it needs."""

    def describe(self) -> str:
        """The folder as text for the system prompt: the same bytes for the same names; no file is opened.

        Raises:
            ToolFailed: the folder cannot be read.
        """
        return overview(self._path.name, listing(self._root(), self._index_folder))

    def _tool(self, spec: ToolSpec, run: Callable[[Json, Caller], object]) -> Tool:
        places = {"path": str(self._path), "index": str(self._index_folder)}
        origin = {"kind": KIND, **places, "timeout_s": self._timeout_s}
        group = f"documents:{self._path.name}"
        return Tool(spec, run, timeout_s=self._timeout_s, group=group, origin=origin)

    def _list(self, arguments: Json, _caller: Caller) -> Json:
        prefix, offset = arguments.get("prefix", ""), arguments.get("offset", 0)
        with self._index() as connection:
            counts = lookup.counts(connection, prefix)
            found = lookup.listed(connection, prefix=prefix, limit=arguments.get("limit", 50), offset=offset)
        result: Json = {"documents": found, "total": counts.total, "unreadable": counts.unreadable}
        if offset + len(found) < counts.total and found:
            result["next_offset"] = offset + len(found)
        return _noted(result, counts.note)

    def _search(self, arguments: Json, _caller: Caller) -> Json:
        prefix, limit = arguments.get("path_prefix", ""), arguments.get("limit", 8)
        with self._index() as connection:
            found = lookup.search(connection, arguments["query"], prefix=prefix, limit=limit)
            return _noted({"passages": found}, lookup.counts(connection).note)

    def _read(self, arguments: Json, _caller: Caller) -> str:
        with self._index(first=arguments["path"]) as connection:
            document = _found(connection, arguments["path"])
            first, last = _range(connection, document, arguments)
            stored = lookup.passages(connection, document, first=first)
            shown = printed(numbered(stored, first=first, last=last, skip=arguments.get("skip", 0)))
        title = f" “{document.title}”" if document.title else ""
        pages = f", {document.pages} pages" if document.pages else ""
        encoding = f", encoding: {document.encoding}" if document.encoding else ""
        head = f"{document.name} ({document.kind}, {document.lines} lines{pages}{encoding}){title}"
        return f"{head}\n{shown.text}\n{_end(document, shown.next_line, shown.next_skip, last)}"

    @contextmanager
    def _index(self, *, first: str = "") -> Iterator[sqlite3.Connection]:
        """The index, brought up to date as far as the time allows; a damaged one is made anew."""
        root = self._root()
        file = index.file_of(root, self._index_folder)
        try:
            with index.connected(file) as connection:
                refresh(connection, root, file, first=lookup.plain(first), deadlines=self._deadlines)
                yield connection
        except index.Damaged as error:
            index.remove(file)
            text = "the index of the documents was damaged and has been removed: call again to have it made anew"
            raise ToolFailed(text, "UNAVAILABLE") from error

    def _root(self) -> Path:
        try:
            return self._path.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise ToolFailed("the folder of documents does not exist", "UNAVAILABLE") from error


def from_origin(origin: Json) -> DocumentsBackend:
    """The backend named by a tool's origin, in the process that runs the tool."""
    return DocumentsBackend(Path(origin["path"]), Path(origin["index"]), timeout_s=origin["timeout_s"])


def _found(connection: sqlite3.Connection, name: str) -> IndexedFile:
    document = lookup.find(connection, name)
    if document is None:
        near = lookup.near(connection, name)
        hint = f"; did you mean {', '.join(near)}?" if near else "; list_documents shows what there is"
        code = "INVALID_INPUT" if _is_no_name(name) else "ERROR_NOT_FOUND"
        raise ToolFailed(f"no such document: {lookup.plain(name)[:200]}{hint}", code)
    if document.flaw:
        raise ToolFailed(f"{document.name} cannot be read: {document.flaw}", "INVALID_INPUT")
    if not document.lines:
        raise ToolFailed(f"{document.name} is not indexed yet: call again in a few seconds")
    return document


def _is_no_name(name: str) -> bool:
    """True for what names no file below the folder, whatever is in it."""
    return name.startswith("/") or "\0" in name or any(part in ("", ".", "..") for part in name.split("/"))


def _range(connection: sqlite3.Connection, document: IndexedFile, arguments: Json) -> tuple[int, int | None]:
    """The first and the last line that are asked for; None: as many as fit."""
    page, first, last = arguments.get("page"), arguments.get("from", 1), arguments.get("to")
    if page is not None:
        lines = lookup.lines_of_page(connection, document, page)
        if lines is None:
            raise ToolFailed(f"{document.name} has no page {page} {_extent(document)}", "INVALID_INPUT")
        return lines
    if first > document.lines or (last is not None and last < first):
        raise ToolFailed(f"{document.name} has no lines {first} to {last or '…'} {_extent(document)}", "INVALID_INPUT")
    return first, last


def _extent(document: IndexedFile) -> str:
    pages = f" on {document.pages} pages" if document.pages else ""
    so_far = ", not all of them indexed yet" if document.is_waiting else ""
    return f"(it has {document.lines} lines{pages}{so_far})"


def _end(document: IndexedFile, next_line: int | None, next_skip: int, last: int | None) -> str:
    if next_line is not None:
        skip = f", skip={next_skip}" if next_skip else ""
        return f"[cut here; go on with from={next_line}{skip}]"
    if last is not None and last < document.lines:
        return f"[lines {last + 1} to {document.lines} follow]"
    if document.is_waiting:
        return "[more pages follow that are not indexed yet; call again]"
    return f"[end; {document.cut}]" if document.cut else "[end]"


def _noted(result: Json, note: str) -> Json:
    return {**result, "note": note} if note else result


MAX_NAMES = 40
MAX_CHARS = 4000
"""Characters of the names together: some 1,000 tokens."""


def overview(folder_name: str, listing: FolderListing) -> str:
    """How many documents of which kind there are, and the first of their names."""
    names = [entry.name for entry in listing.entries if not entry.flaw]
    kinds = Counter(entry.kind for entry in listing.entries if not entry.flaw)
    counted = ", ".join(f"{kinds[kind]} {kind}" for kind in sorted(kinds, key=lambda kind: (-kinds[kind], kind)))
    total = f"{len(names)} document" + ("s" if len(names) != 1 else "")
    lines = [f"Folder of documents {one_line(folder_name)!r}: {total}" + (f" ({counted})." if counted else ".")]
    if unread := len(listing.entries) - len(names):
        lines.append(f"{unread} other files are not read; list_documents says why.")
    if listing.is_cut:
        lines.append("There are more files than are looked at: those beyond are unknown.")
    lines.append("Use search_documents to find passages and read_document to read on; name path and page or lines.")
    shown = _fitting(names)
    lines += shown
    if len(shown) < len(names):
        lines.append(f"… and {len(names) - len(shown)} more")
    return "\n".join(lines)


def _fitting(names: list[str]) -> list[str]:
    shown: list[str] = []
    room = MAX_CHARS
    for name in map(one_line, names[:MAX_NAMES]):
        room -= len(name) + 3
        if room < 0:
            break
        shown.append(f"- {name}")
    return shown
