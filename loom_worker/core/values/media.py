"""Files that people and tools give: what is known of each, and the line that stands for it in a text."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from loom_worker.core.text import one_line
from loom_worker.core.values.json import Json, rfc3339

IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
PDF = "application/pdf"
FILE_ID = re.compile(r"file_[0-9a-f]{32}")
NAME_CHARS = 100
"""Characters of a file's name that are kept."""


def new_file_id(*, now_ms: int, chance: int) -> str:
    """An id of 12 hexadecimal digits of time, by which ids sort, and 20 that nobody guesses; chance: 80 bits."""
    return f"file_{now_ms:012x}{chance:020x}"


def ref_of(file_id: str) -> str:
    """Under which the blob tier has its bytes; backwards, as folders are named by the first digits."""
    return f"ref_{file_id.removeprefix('file_')[::-1]}"


def file_id_of(ref: str) -> str:
    """The file whose bytes lie under a reference, if it is one of a file."""
    return f"file_{ref.removeprefix('ref_')[::-1]}"


def plain_name(name: str) -> str:
    """A name without folders, line ends, and what may end the line that stands for its file."""
    last = re.split(r"[/\\]", name)[-1]
    return one_line(re.sub(r"[\[\]<>\x00]", "_", last), NAME_CHARS).lstrip(".") or "unnamed"


@dataclass(frozen=True, slots=True)
class Media:
    """An image or a PDF that a model is shown; its bytes are elsewhere."""

    file_id: str
    media_type: str
    name: str
    size_bytes: int
    width: int = 0
    height: int = 0
    """In pixels; 0 of what is no image."""
    pages: int = 0
    tokens: int = 0
    """The most that it takes of the model that is asked; 0: not counted yet."""

    @property
    def kind(self) -> str:
        """What a model must be able to see for it, as the catalog of models says it: ``images`` or ``files``."""
        return "files" if self.pages else "images"

    @property
    def stub(self) -> str:
        """What stands for it in the text, and is sent where the model cannot see it."""
        pages = "1 page" if self.pages == 1 else f"{self.pages} pages"
        kind, size = ("image", f"{self.width}x{self.height}") if self.width else ("file", pages)
        return f"[{kind} {self.name}, {size}, {self.file_id}]"


def pieces(text: str, media: Sequence[Media], read: Callable[[str], bytes]) -> Iterator[str | tuple[Media, bytes]]:
    """A text cut where its media stand, in order; one whose bytes are gone (``read`` gives none) stays a line."""
    for each in media:
        if data := read(each.file_id):
            before, found, after = text.partition(each.stub)
            if found:
                yield before
                text = after
            yield each, data
    yield text


@dataclass(frozen=True, slots=True)
class File:
    """A stored file, without its bytes."""

    id: str
    workspace: str
    name: str
    content_type: str
    """As its bytes say."""
    size_bytes: int
    checksum: str
    """SHA-256 of the bytes, in hexadecimal."""
    created_ms: int
    user: str | None = None
    """For whom the key acts with which it was sent; None: for nobody in particular."""
    width: int = 0
    height: int = 0
    pages: int = 0
    session_id: str | None = None
    """The first session that used it; None: none did yet."""

    @property
    def media(self) -> Media | None:
        """As a model is shown it; None: it is a text."""
        if self.content_type not in (*IMAGES, PDF):
            return None
        return Media(self.id, self.content_type, self.name, self.size_bytes, self.width, self.height, self.pages)

    def as_json(self) -> Json:
        return {
            "id": self.id,
            "object": "file",
            "name": self.name,
            "content_type": self.content_type,
            "size_bytes": self.size_bytes,
            "session_id": self.session_id,
            "created_at": rfc3339(self.created_ms),
        }

    def brief(self) -> "File":
        return self


@dataclass(frozen=True, slots=True)
class InputPart:
    """One part of what a user says."""

    type: Literal["text", "image", "file"]
    text: str = ""
    """What a text part says, or a text file as far as it was looked at."""
    url: str | None = None
    file_id: str | None = None
    name: str | None = None
    media_type: str | None = None
    media: Media | None = None
    data: bytes | None = field(default=None, repr=False)
    """What the client sent itself, until that is stored."""
    file: File | None = None
    """What it names, once that was looked up."""

    @property
    def said(self) -> str:
        """What stands for it in the message's text."""
        if self.type == "text":
            return self.text
        if self.media is not None:
            return self.media.stub
        if self.file is None:
            return f"[{self.type} {plain_url(self.url or '')}, not fetched]"
        return f"[file {self.file.name}, {self.file.id}]\n{self.text}\n[end of {self.file.name}]"

    @property
    def shown_name(self) -> str:
        """The name, or the URL, that stands in the message's text; empty for a text."""
        return self.file.name if self.file else self.url or ""

    def as_row(self) -> Json:
        """As a turn keeps it; ``of_row`` reads it."""
        media = None if self.media is None else asdict(self.media)
        return {**self.as_json(), "media": media}

    @classmethod
    def of_row(cls, row: Json) -> "InputPart":
        """What as_row wrote."""
        return cls(**{**row, "media": Media(**row["media"]) if row["media"] else None})

    def as_json(self) -> Json:
        """As it was given, but for the bytes, in whose place their file stands."""
        if self.type == "text":
            return {"type": "text", "text": self.text}
        given = {"url": self.url} if self.url else {"file_id": self.file_id}
        return {"type": self.type, **given, **({"name": self.name} if self.name else {})}


def media_of(parts: Iterable[InputPart]) -> tuple[Media, ...]:
    """The images and PDFs among them that are known already."""
    return tuple(part.media for part in parts if part.media)


def joined(parts: Iterable[InputPart]) -> str:
    """The text in which all of them stand."""
    return "\n\n".join(part.said for part in parts)


def plain_url(url: str) -> str:
    """A URL as it stands in a text, without its query, which may hold a secret."""
    return one_line(re.sub(r"[\[\]<>]", "_", url.partition("?")[0]), 200)
