"""What a SKILL.md must hold, by the specification of agentskills.io, and Loom's extensions under ``metadata``.

As in the format's reference validator, every value is read as the text that stands in the file (a version 1.10 is not
1.1), and names may have lower-case letters of any script. What others write and the format does not allow loads if its
meaning is clear, as the specification asks; ``Skill.warnings`` names it, and ``notes`` what else is not read.
"""

import hashlib
import re
import textwrap
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import yaml

from loom_worker.core.errors import BadFile
from loom_worker.core.fields import Fields, InvalidField
from loom_worker.core.text import one_line
from loom_worker.core.values.skills import Skill, Trigger
from loom_worker.core.yaml_files import MAX_BYTES, Document, documents_in
from loom_worker.skills.folder import listed, read

FILE = "SKILL.md"
FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
"""All that the format knows."""
_TEXTS = ("description", "license", "compatibility")
MAX_NAME, MAX_DESCRIPTION, MAX_COMPATIBILITY = 64, 1024, 500
MAX_KEYWORDS, MAX_KEYWORD_CHARS = 100, 100
MAX_METADATA_CHARS = 16_384
"""Characters of all values under ``metadata`` together; Loom's own bound."""
ADVISED_LINES = 500
"""Lines of a body: what the format recommends at most."""
MAX_USED_NAME = 200
"""Characters of a name that loads, though the format allows no more than ``MAX_NAME``."""
ONLY_IN = "gateway:workspace"
_TRIGGER, _KEYWORDS = ("metadata", "gateway:trigger"), ("metadata", "gateway:keywords")
_EXTENSIONS = (_TRIGGER[1], _KEYWORDS[1], ONLY_IN)
_FRONTMATTER = re.compile(r"\A(---[ \t]*\n.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_USABLE = re.compile(r"[^\W_](?:[\w. -]*[^\W_])?")
_KEY = re.compile(r"""("[^"]+"|'[^']+'|\w[\w.:-]*?)[ \t]*:(?=[ \t]|$)""")
"""A field at the beginning of a line."""
_BLOCK_MARK = re.compile(r"\A[|>][-+\d]*[ \t]+")
_TOOL = re.compile(r"[^\s,()]+(?:\([^()]*\))?")
_COMMA = re.compile("[,，、;；]")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse(path: Path) -> Skill:
    """Read one SKILL.md, with the list of the files next to it.

    Raises:
        BadFile: it cannot be read, or breaks a rule of the format; ``file:line: reason``.
    """
    folder = path.absolute().parent
    try:
        raw = read(folder, (path.name,), most_bytes=MAX_BYTES)
        return replace(skill_from(raw, where=path, folder=folder), files=without_itself(listed(folder, ()).files))
    except OSError as error:
        raise BadFile(f"{path}: {error.strerror}") from error


def skill_from(raw: bytes, *, where: Path, folder: Path | None) -> Skill:
    """Build a skill, without its list of files, from what SKILL.md holds; BadFile: ``file:line: reason``.

    Args:
        where: how the file is named in errors and warnings.
        folder: where it lies; its last part should be the skill's name. None: it will lie in one of its name.
    """
    front = _front(raw, where)
    try:
        metadata = _metadata(front)
        name = _name(front)
        return Skill(
            name=name,
            description=front.fields.required("description"),
            body=front.body,
            folder=folder or Path(name),
            license=front.text("license"),
            compatibility=front.text("compatibility"),
            allowed_tools=_allowed_tools(front),
            metadata=metadata,
            trigger=_trigger(metadata),
            keywords=_keywords(metadata),
            digest=hashlib.sha256(raw).hexdigest(),
            warnings=tuple(_warnings(front, name, folder)),
        )
    except InvalidField as error:
        raise BadFile(front.about(error.reason, *map(str, error.place))) from error


def notes(path: Path) -> tuple[str, ...]:
    """A skill's warnings, and what of it is not read or has no effect: ``file:line: reason`` each."""
    skill = parse(path)
    front = _front(read(skill.folder, (path.name,), most_bytes=MAX_BYTES), path)
    found = list(skill.warnings)
    found += [front.about("no field of the format, not read", key) for key in front.fields.names() if key not in FIELDS]
    own = [key for key in skill.metadata if key.startswith("gateway:") and key not in _EXTENSIONS]
    found += [front.about("is not read", "metadata", key) for key in own]
    if skill.keywords and skill.trigger != "keyword":
        found.append(front.about(f"has no effect with trigger {skill.trigger}", *_KEYWORDS))
    lines = skill.body.count("\n") + 1
    if lines > ADVISED_LINES:
        found.append(f"{path}: {lines} lines; move what is not always needed to references/, at {ADVISED_LINES} lines")
    return tuple(found)


def is_skill_name(name: str) -> bool:
    """True for 1-64 lower-case letters and digits, with single hyphens between them."""
    is_spelled = all(char.isalnum() or char == "-" for char in name) and name == name.lower()
    return 0 < len(name) <= MAX_NAME and is_spelled and name.strip("-") == name and "--" not in name


def without_itself(files: tuple[str, ...]) -> tuple[str, ...]:
    """The files but SKILL.md."""
    return tuple(file for file in files if file != FILE)


@dataclass(frozen=True, slots=True)
class _Front:
    where: Path
    document: Document
    fields: Fields
    """All values as they are written."""
    body: str
    needs_quotes: tuple[str, ...] = ()
    """Fields that are no valid YAML, and are read as if their texts were quoted."""

    def about(self, what: str, *path: str) -> str:
        return f"{self.where}:{self.document.nearest_line(*path)}: {one_line(path[-1])}: {what}"

    def text(self, key: str) -> str:
        return (self.fields.text(key) or "").strip()


def _front(raw: bytes, where: Path) -> _Front:
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise BadFile(f"{where}: not UTF-8 (byte {error.start})") from error
    found = _FRONTMATTER.match(text)
    if found is None:
        what = "is not closed by a line ---" if text.startswith("---") else "is missing: the first line must be ---"
        raise BadFile(f"{where}:1: the frontmatter {what}")
    front, body = found[1], text[found.end() :].strip("\n").rstrip()
    document, quoted = None, tuple[str, ...]()
    with suppress(BadFile):
        document = _document(front, where)
    if document is None or not document.content.get("description"):
        front, quoted = _mended(front, where)
        document = _document(front, where)
    written = document.as_written()
    texts = {key: _flat(written[key]) for key in _TEXTS if isinstance(written.get(key), (list, dict))}
    return _Front(where, document, Fields(written | texts), body, quoted)


def _mended(front: str, where: Path) -> tuple[str, tuple[str, ...]]:
    """The frontmatter with the texts of fields that are not YAML in quotes, and the names of these fields.

    Fields that are not read are emptied. Every line keeps its number.
    """
    lines, quoted, seen = ["---"], list[str](), set[str]()
    for name, block in _blocks(textwrap.dedent(front.partition("\n")[2])):
        given = block
        if name not in FIELDS:
            kept = f"{name[:200]}:" if name not in seen else ""
            given = [(kept if _KEY.fullmatch(kept) else "") + "\n" * (len(block) - 1)]
        elif name not in seen and (given := _as_yaml(block, where)) != block:
            quoted.append(name)
        seen.add(name)
        lines += given
    return "\n".join(lines), tuple(quoted)


def _blocks(text: str) -> Iterator[tuple[str, list[str]]]:
    name, block = "", list[str]()
    for line in text.split("\n"):
        if found := _KEY.match(line):
            if block:
                yield name, block
            name, block = found[1].strip("\"'"), []
        block.append(line)
    yield name, block


def _as_yaml(block: list[str], where: Path) -> list[str]:
    """The lines of one field as YAML: as they are, without tabs, or their text in quotes."""
    for tried in (block, [line.expandtabs(2) for line in block]):
        with suppress(BadFile):
            values = [*_document("\n".join(tried), where).content.values()]
            if len(values) == 1 and (values[0] is not None or "#" not in block[0]):  # else all of it were a comment
                return tried
    inner = "\n".join(block[1:]).expandtabs(2)
    if re.fullmatch(r"metadata[ \t]*:\s*(\s#.*)?", block[0]) and len(inner) <= 2 * MAX_METADATA_CHARS:
        fields = list(_blocks(textwrap.dedent(inner)))
        if any(name for name, _ in fields):
            known = [_as_yaml(each, where) if name else each for name, each in fields]
            return [block[0], *(f"  {line}" for lines in known for line in lines)]
    key = _KEY.match(block[0])
    place = key.end() if key else 0
    others = [] if block[0].startswith("name:") else block[1:]
    parts = (line.strip() for line in (block[0][place:], *others) if not line.startswith("#"))
    text = _BLOCK_MARK.sub("", " ".join(filter(None, parts)))
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1].replace('\\"', '"')
    text = text.replace("'", "''")
    return [f"{block[0][:place]} '{text}'" + "\n" * (len(block) - 1)]


def _document(front: str, where: Path) -> Document:
    documents = documents_in(front.encode(), where)
    # Size, nesting and aliases are safe from here on.
    if len(documents) != 1 or not isinstance(documents[0].content, dict):
        raise BadFile(f"{where}:1: the frontmatter must be fields, each as name: value")
    if "*" in front and any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(front, Loader=_Loader)):
        raise BadFile(f"{where}:1: the frontmatter has an alias (*), which the format has no use for")
    for key, line in documents[0].repeated():
        raise BadFile(f"{where}:{line}: {one_line(key)} stands there twice")
    return documents[0]


def _name(front: _Front) -> str:
    """The name as it is used: spaces, which no call of a skill could have, are hyphens."""
    name = unicodedata.normalize("NFKC", front.fields.required("name"))
    if not _USABLE.fullmatch(name) or len(name) > MAX_USED_NAME:
        what = f"{one_line(name)!r}: letters, digits and single hyphens between them are needed, at most {MAX_NAME}"
        raise InvalidField(("name",), what)
    return "-".join(name.split())


def _warnings(front: _Front, name: str, folder: Path | None) -> Iterator[str]:
    """What the format does not allow, though its meaning is clear."""
    written = unicodedata.normalize("NFKC", front.text("name"))
    if not is_skill_name(written):
        used = "" if written == name else f"; it is used as {name!r}"
        rule = f"the format has lower-case letters, digits and single hyphens, at most {MAX_NAME}"
        yield front.about(f"{written!r}: {rule}{used}", "name")
    if folder is not None and unicodedata.normalize("NFKC", folder.name) != name:
        yield front.about(f"{name!r} is not the name of its folder, {folder.name!r}", "name")
    for key, most in (("description", MAX_DESCRIPTION), ("compatibility", MAX_COMPATIBILITY)):
        if (length := len(front.text(key))) > most:
            yield front.about(f"{length} characters, the format has at most {most}", key)
    if not isinstance(front.fields.get("metadata"), dict | None):
        yield front.about("is not read: fields are needed, each as name: value", "metadata")
    if isinstance(tools := front.fields.get("allowed-tools"), dict) or {list, dict} & {*map(type, tools or ())}:
        yield front.about("a text is needed, or a list of texts; what is none is taken for one name", "allowed-tools")
    for key in front.needs_quotes:
        yield front.about("no valid YAML, so it is read as plain text: put quotes around it", key)


def _allowed_tools(front: _Front) -> tuple[str, ...]:
    """Tools as they are named, such as ``Bash(git:*)``; by spaces, and by commas or as a list, as others write them."""
    value = front.fields.get("allowed-tools")
    if isinstance(value, (list, dict)):  # ``Bash: git`` stays one name, which no tool has
        return tuple(dict.fromkeys(filter(None, map(_flat, value if isinstance(value, list) else [value]))))
    names = (tool.strip("[]\"'-") for tool in _TOOL.findall(front.text("allowed-tools")))
    return tuple(dict.fromkeys(filter(None, names)))


def _metadata(front: _Front) -> dict[str, str]:
    value = front.fields.get("metadata") or {}
    # Without gateway:workspace, other workspaces could use the skill.
    if not isinstance(value, dict) and re.search(r"gateway[\s\"']*[:\\]", _flat(value)):
        raise InvalidField(("metadata",), "fields are needed, each as name: value")
    found = {key: _flat(inside) for key, inside in value.items()} if isinstance(value, dict) else {}
    size_chars = sum(len(key) + len(value) for key, value in found.items())
    if size_chars > MAX_METADATA_CHARS:
        raise InvalidField(("metadata",), f"{size_chars} characters, at most {MAX_METADATA_CHARS} are read")
    return found


def _flat(value: Any) -> str:
    """A value as one text; lists and mappings, which the format does not allow there, have commas between theirs."""
    if isinstance(value, list):
        return ", ".join(map(_flat, value))
    if isinstance(value, dict):
        return ", ".join(f"{key.strip()}: {_flat(inside)}" for key, inside in value.items())
    return "" if value is None else str(value).strip()


def _trigger(metadata: Mapping[str, str]) -> Trigger:
    wanted = metadata.get(_TRIGGER[1], "").casefold() or "model"
    known: dict[str, Trigger] = {trigger: trigger for trigger in get_args(Trigger)}
    if wanted not in known:
        raise InvalidField(_TRIGGER, f"{wanted[:40]!r} is none of auto, manual, keyword, model")
    if wanted == "keyword" and not metadata.get(_KEYWORDS[1]):
        raise InvalidField(_TRIGGER, "keyword needs gateway:keywords")
    return known[wanted]


def _keywords(metadata: Mapping[str, str]) -> tuple[str, ...]:
    """By commas if there are any, so that a keyword can have several words; else by spaces."""
    text = metadata.get(_KEYWORDS[1], "")
    parts = _COMMA.split(text) if _COMMA.search(text) else text.split()
    words = tuple(dict.fromkeys(word for part in parts if (word := " ".join(part.split()))))
    if len(words) > MAX_KEYWORDS or any(len(word) > MAX_KEYWORD_CHARS for word in words):
        most = f"at most {MAX_KEYWORDS} of at most {MAX_KEYWORD_CHARS} characters are allowed"
        raise InvalidField(_KEYWORDS, most)
    return words
