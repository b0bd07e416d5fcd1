"""Reading YAML that a person wrote: size, nesting and aliases are checked before anything is built.

The C loader is ten times faster than the pure one and crashes the process at some 30,000 nested brackets. How deep a
text can be is first bounded by its brackets and its longest line, which costs next to nothing; only where that bound is
high is the depth counted from the parser's events. The values are built here, as PyYAML's own constructor takes as long
as the parser.
"""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from loom_worker.core.errors import BadFile
from loom_worker.core.text import one_line

MAX_BYTES = 256 * 1024
"""Largest file that is read, unless its reader allows more."""
MAX_DEPTH = 50
"""Deepest nesting of lists and mappings."""
MAX_ALIASES = 100
"""Most references to anchors in a file."""
MAX_NODES = 100_000
"""Most values of a document, with every alias written out; more in proportion where a file may be larger."""

REASON_CHARS = 300
"""Longest reason: some quote what stands in the file."""

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_HARMLESS_DEPTH = 2000
"""What the C composer nests without danger in any thread; it takes some 270 bytes of stack a level."""
_ANCHOR = re.compile(r"&[\w-]")
_STR, _SEQ, _MAP, _NULL, _BOOL = (f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map", "null", "bool"))
_MERGE, _VALUE = (f"tag:yaml.org,2002:{kind}" for kind in ("merge", "value"))


class Unreadable(BadFile):
    """A file that is not what may be read here; made of path, line (from 1; 0: of the file as a whole) and reason."""

    def __str__(self) -> str:
        line = f":{self.line}" if self.args[1] else ""
        return f"{self.path}{line}: {self.reason}"

    @property
    def path(self) -> Path:
        return Path(self.args[0])

    @property
    def line(self) -> int:
        """Where it is wrong; 1 if that is the whole file."""
        return int(self.args[1]) or 1

    @property
    def reason(self) -> str:
        """One line of text without file and line, at most ``REASON_CHARS`` long."""
        return one_line(str(self.args[2]), REASON_CHARS)


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file, with the lines on which its parts stand."""

    content: Any
    """Plain data; dates are the text they are, as in JSON."""
    line: int
    """Where it begins, from 1."""
    root: yaml.Node
    repeats: tuple[tuple[str, yaml.Mark], ...] = ()
    """Keys that a mapping has a second time; the last one counts."""

    def line_of(self, *path: object) -> int | None:
        """The line of a key or list entry (keys and positions from the root), or None: there is none."""
        found = _at(self.root, path)
        return found[0].start_mark.line + 1 if found else None

    def lines(self) -> dict[str, int]:
        """The line of every key and list entry by its dotted path, such as ``spec.tools[2]``.

        What stands there by an alias or a merge (``<<``) is on the line where it was written.
        """
        found: dict[str, int] = {}
        _locate(self.root, "", found)
        return found

    def as_written(self) -> Any:
        """The content with each value as the text that stands in the file (1.10 is not 1.1); null is None."""
        return _as_written(self.root)

    def nearest_line(self, *path: object) -> int:
        """The line of a part or, if it is not there, of what would be around it."""
        lines = (self.line_of(*path[:length]) for length in range(len(path), 0, -1))
        return next((line for line in lines if line is not None), self.line)

    def repeated(self, *path: object) -> tuple[tuple[str, int], ...]:
        """The keys within a part (no path: in all of it) that stand twice in a mapping, with the line of the second."""
        found = _at(self.root, path) if self.repeats else None
        if found is None:
            return ()
        start, end = found[1].start_mark.index, found[1].end_mark.index
        return tuple((key, mark.line + 1) for key, mark in self.repeats if start <= mark.index < end)


def marked_documents(path: Path, *, most_bytes: int = MAX_BYTES) -> list[Document]:
    """The documents of a file; empty ones are left out.

    Raises:
        Unreadable: the file is too large, too deep, not UTF-8 or not YAML; the text names file and line.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(most_bytes + 1)
            if len(raw) > most_bytes:
                raise Unreadable(path, 0, f"{path.stat().st_size} bytes, at most {most_bytes} are read")
    except OSError as error:
        raise Unreadable(path, 0, error.strerror or str(error)) from error
    return documents_in(raw, path, most_nodes=MAX_NODES * most_bytes // MAX_BYTES)


def documents_in(raw: bytes, path: Path, *, most_nodes: int = MAX_NODES) -> list[Document]:
    """As ``marked_documents``, of bytes that were read already, a few hundred KB; errors name ``path``."""
    try:
        text = raw.decode("utf-8-sig")
        _check_shape(path, text)
        may_alias = "*" in text and _ANCHOR.search(text) is not None
        nodes = [node for node in yaml.compose_all(text, Loader=_Loader) if node is not None]
        documents = [_document(path, node, most_nodes, may_alias=may_alias) for node in nodes]
        return [document for document in documents if document.content is not None]
    except UnicodeDecodeError as error:
        raise Unreadable(path, _line_at(raw, error.start), f"not UTF-8 (byte {error.start})") from error
    except yaml.MarkedYAMLError as error:
        raise Unreadable(path, *_place_of(error, text)) from error
    except yaml.reader.ReaderError as error:
        raise Unreadable(path, _line_at(raw, error.position), error.reason) from error
    except RecursionError as error:
        raise Unreadable(path, 1, f"nested deeper than {MAX_DEPTH}") from error


def _place_of(error: yaml.MarkedYAMLError, text: str) -> tuple[int, str]:
    """Line and reason: what is not closed is on the line where it was opened, and noticed on another."""
    noticed = error.problem_mark.line + 1 if error.problem_mark else 1
    opened = error.context_mark.line + 1 if error.context_mark else noticed
    what = str(error.context or "").removeprefix("while ").partition(" a ")[2]
    if what == "flow node":  # PyYAML names the place where the next node should be
        opened = _open_line(text) or noticed
    if opened == noticed or not what.startswith(("flow ", "quoted ")):
        return noticed, str(error.problem)
    kind = "bracket" if what.startswith("flow ") else "quote"
    return opened, f"the {kind} that is opened here is not closed (line {noticed}: {error.problem})"


def _open_line(text: str) -> int | None:
    """The line of the innermost bracket that is open where the text can be read no further."""
    opened: list[int] = []
    with contextlib.suppress(yaml.YAMLError):
        for event in yaml.parse(text, Loader=_Loader):
            if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
                opened.append(event.start_mark.line + 1 if event.flow_style and event.start_mark else 0)
            elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                opened.pop()
    return opened[-1] if opened and opened[-1] else None


def _line_at(raw: bytes, position: int) -> int:
    return raw.count(b"\n", 0, position) + 1


def _check_shape(path: Path, text: str) -> None:
    """Refuse what nests too deeply or refers too often, before anything is composed."""
    # Two levels a column: a list may stand in the column of its mapping; two a bracket: ``[a: b]`` is a list of a
    # mapping. YAML breaks lines at less than "\n" only in ways that make lines shorter than they are taken for here.
    longest = max(map(len, text.split("\n")))
    is_shallow = 2 * (longest + text.count("[") + text.count("{")) < _HARMLESS_DEPTH
    if is_shallow and (text.count("*") <= MAX_ALIASES or _ANCHOR.search(text) is None):
        return
    depth = aliases = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            depth += 1
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            depth -= 1
        aliases += isinstance(event, yaml.AliasEvent)
        if depth > MAX_DEPTH or aliases > MAX_ALIASES:
            what = f"nested deeper than {MAX_DEPTH}" if depth > MAX_DEPTH else f"more than {MAX_ALIASES} aliases"
            raise Unreadable(path, event.start_mark.line + 1 if event.start_mark else 1, what)


def _document(path: Path, node: yaml.Node, most: int, *, may_alias: bool) -> Document:
    line = node.start_mark.line + 1
    try:
        if may_alias:  # counted first: to merge mappings (``<<``) writes them out at once
            _expanded(node, {}, (), most)
        builder = _Builder(most)
        return Document(builder.value(node, 0), line, node, tuple(builder.repeats))
    except (IndexError, KeyError) as error:  # how PyYAML fails at ``!!int ""`` and ``!!bool maybe``
        raise Unreadable(path, builder.line, "a value does not fit its !! tag") from error
    except ValueError as error:
        raise Unreadable(path, line, str(error)) from error


def _expanded(node: yaml.Node, known: dict[int, int], above: tuple[int, ...], most: int) -> int:
    """How many values a node stands for with every alias written out: a few lines of them can mean billions."""
    if id(node) in above:
        raise ValueError("an alias that contains itself")
    if id(node) not in known:
        known[id(node)] = 1 + sum(_expanded(part, known, (*above, id(node)), most) for part in _parts(node))
        if known[id(node)] > most:
            raise ValueError(_TOO_MANY.format(most))
    return known[id(node)]


_TOO_MANY = "more than {} values once its aliases are written out"


def _parts(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        yield from node.value
    elif isinstance(node, yaml.MappingNode):
        for pair in node.value:
            yield from pair


class _Scalars(yaml.SafeLoader):
    """Builds the values that are not text; dates stay the text they are, and so does a lone ``=``."""


for _tag in ("tag:yaml.org,2002:timestamp", _VALUE):
    _Scalars.add_constructor(_tag, lambda _loader, node: str(node.value))


class _Builder:
    """Turns the nodes of one document into plain data; what an alias stands for is built wherever it is used."""

    def __init__(self, most: int) -> None:
        self.repeats: list[tuple[str, yaml.Mark]] = []
        self.line = 1
        self._most = self._left = most
        self._scalars = _Scalars("")

    def value(self, node: yaml.Node, depth: int) -> Any:
        self._left -= 1
        if self._left < 0:
            raise ValueError(_TOO_MANY.format(self._most))
        if isinstance(node, yaml.ScalarNode):
            self.line = node.start_mark.line + 1
            return node.value if node.tag == _STR else self._scalars.construct_object(node)
        if depth == MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem=f"nested deeper than {MAX_DEPTH}", problem_mark=node.start_mark)
        if node.tag == _MAP and isinstance(node, yaml.MappingNode):
            return self._mapping(node, depth + 1)
        parts = [self.value(part, depth + 1) for part in _parts(node)]
        is_list = node.tag == _SEQ and isinstance(node, yaml.SequenceNode)
        return parts if is_list else self._scalars.construct_object(node, deep=True)

    def _mapping(self, node: yaml.MappingNode, depth: int) -> dict[Any, Any]:
        self._note_repeats(node)
        if any(key.tag in (_MERGE, _VALUE) for key, _ in node.value):
            self._scalars.flatten_mapping(node)
        built: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self.value(key_node, depth)
            if isinstance(key, bool):  # ``yes:`` is a name
                key = key_node.value
            if isinstance(key, (list, dict, set)):
                raise yaml.MarkedYAMLError(problem="a key that is not a single value", problem_mark=key_node.start_mark)
            built[key] = self.value(value_node, depth)
        return built

    def _note_repeats(self, node: yaml.MappingNode) -> None:
        seen: set[object] = set()
        for key, _ in node.value:
            if key.tag != _MERGE and isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    self.repeats.append((key.value, key.start_mark))
                seen.add((key.tag, key.value))


def _locate(node: yaml.Node, path: str, found: dict[str, int]) -> None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = key.value if key.tag in (_STR, _BOOL) else str(_Scalars("").construct_object(key))
            at = f"{path}.{name}" if path else name
            found[at] = key.start_mark.line + 1
            _locate(value, at, found)
    elif isinstance(node, yaml.SequenceNode):
        for place, part in enumerate(node.value):
            found[f"{path}[{place}]"] = part.start_mark.line + 1
            _locate(part, f"{path}[{place}]", found)


def _as_written(node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return {str(key.value): _as_written(value) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [_as_written(part) for part in node.value]
    return None if node.tag == _NULL else str(node.value)


def _at(root: yaml.Node, path: tuple[object, ...]) -> tuple[yaml.Node, yaml.Node] | None:
    """The node that names a place (the key, or the entry itself) and the node that is there."""
    named, node = root, root
    for part in path:
        pairs: Any = ()
        if isinstance(node, yaml.MappingNode):
            pairs = [pair for pair in node.value if pair[0].value == str(part)]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and 0 <= part < len(node.value):
            pairs = [(node.value[part], node.value[part])]
        if not pairs:
            return None
        named, node = pairs[-1]
    return named, node
