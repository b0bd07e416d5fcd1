"""A folder as text for the system prompt: the same bytes for the same names. Pure."""

from collections import Counter

from loom_worker.backends.documents.folder import FolderListing
from loom_worker.core.text import one_line

MAX_NAMES = 40
MAX_CHARS = 4000
"""Of the names together: some 1,000 tokens."""


def overview(folder_name: str, listing: FolderListing) -> str:
    """How many documents of which kind there are, and the first of their names."""
    names = [entry.name for entry in listing.entries if not entry.flaw]
    kinds = Counter(entry.kind for entry in listing.entries if not entry.flaw)
    counted = ", ".join(
        f"{count} {kind}" for kind, count in sorted(kinds.items(), key=lambda item: (-item[1], item[0]))
    )
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
