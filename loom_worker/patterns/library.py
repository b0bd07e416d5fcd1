"""The pattern library: YAML files under one folder, read into patterns; what cannot be read is told, not fatal."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from loom_worker.errors import BadFile
from loom_worker.values.json import Json
from loom_worker.values.patterns import Parameter, Pattern
from loom_worker.yaml_files import read_documents

_SUFFIXES = (".yaml", ".yml")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_SCALARS = (str, int, float, bool)
_TEXTS = ("title", "description", "category", "difficulty", "backend_type")
_LISTS = ("use_cases", "intents", "related_patterns")
_KNOWN = frozenset({"name", *_TEXTS, *_LISTS, "parameters", "templates", "best_practices"})


@dataclass(frozen=True, slots=True)
class Library:
    """What a folder of pattern files gave."""

    patterns: tuple[Pattern, ...]
    """In the order of their files, each id once."""
    problems: tuple[str, ...]
    """Why files or patterns were left out, each as ``file:line: reason``."""


def packaged_root() -> Path:
    """The folder of the patterns that ship with Loom: inside the package when installed, else the repository's own."""
    here = Path(__file__).resolve().parent
    inside = here / "library_files"
    return inside if inside.is_dir() else here.parents[1] / "patterns"


def load(root: Path) -> Library:
    """Read every ``root/<library>/**/*.yaml`` (and ``.yml``), several documents per file.

    A pattern's id is its folder under the root and its name, ``sql/top_n``. A file, document or pattern that
    cannot be used is left out and named in ``problems``; the rest loads.
    """
    patterns: dict[str, Pattern] = {}
    problems: list[str] = []
    if not root.is_dir():
        return Library((), (f"{root}: no such folder",))
    for path in _files(root):
        for item in _read(path, root):
            if isinstance(item, str):
                problems.append(item)
            elif item.pattern.id in patterns:
                first = patterns[item.pattern.id].source
                problems.append(f"{item.where}: {item.pattern.id} is already defined in {first}; this one is left out")
            else:
                patterns[item.pattern.id] = item.pattern
    return Library(tuple(patterns.values()), tuple(problems))


@dataclass(frozen=True, slots=True)
class _Found:
    pattern: Pattern
    where: str


def _files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.suffix in _SUFFIXES and path.is_file())


def _read(path: Path, root: Path) -> Iterator[_Found | str]:
    """Give each pattern of a file, or the text of what is wrong with it."""
    folder = path.parent.relative_to(root).as_posix()
    if folder == ".":
        yield f"{path}:1: a pattern file belongs in a library folder, such as {root / 'sql' / path.name}"
        return
    try:
        documents = read_documents(path)
    except BadFile as error:
        yield str(error)
        return
    for line, document in documents:
        where = f"{path}:{line}"
        try:
            yield _Found(_pattern(document, folder=folder, source=path.relative_to(root).as_posix()), where)
        except (BadFile, ValueError) as error:  # ValueError: a hexadecimal number too long to be written in digits
            yield f"{where}: {error}"


def _pattern(document: Any, *, folder: str, source: str) -> Pattern:
    """Build one pattern; BadFile, without file and line, says what is wrong."""
    fields = _mapping(document, "a pattern")
    if "kind" in fields and "name" not in fields:
        raise BadFile(f"kind: {fields['kind']} is not read as a pattern; only flat ones (name, category, …) are")
    name = _required(fields, "name")
    if not _NAME.fullmatch(name):
        raise BadFile(f"name: {name!r} may hold letters, digits, '_', '-' and '.' only")
    _required(fields, "category")
    texts = {key: _text(fields.get(key), key) for key in _TEXTS}
    lists = {key: _texts(fields.get(key), key) for key in _LISTS}
    return Pattern(
        id=f"{folder}/{name}",
        name=name,
        title=texts["title"] or name.replace("_", " ").capitalize(),
        description=texts["description"],
        category=texts["category"],
        difficulty=texts["difficulty"],
        backend_type=texts["backend_type"],
        use_cases=lists["use_cases"],
        intents=lists["intents"],
        related_patterns=lists["related_patterns"],
        parameters=_parameters(fields.get("parameters")),
        templates=_templates(fields.get("templates")),
        best_practices="\n".join(_texts(fields.get("best_practices"), "best_practices")),
        extra=_extra(fields),
        source=source,
    )


def _parameters(value: Any) -> tuple[Parameter, ...]:
    entries = [] if value is None else value
    if not isinstance(entries, list):
        raise BadFile(f"parameters: a list is needed, not {_kind(value)}")
    return tuple(_parameter(_mapping(entry, f"parameters[{n}]"), f"parameters[{n}]") for n, entry in enumerate(entries))


def _parameter(fields: Json, where: str) -> Parameter:
    default = fields.get("default")
    return Parameter(
        name=_required(fields, "name", f"{where}."),
        type=_text(fields.get("type"), f"{where}.type") or "string",
        is_required=fields.get("required") is True,
        description=_text(fields.get("description"), f"{where}.description"),
        example=_value(fields.get("example"), f"{where}.example"),
        default=None if default is None else _value(default, f"{where}.default"),
    )


def _templates(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    return {str(name): _template(body, f"templates.{name}") for name, body in _mapping(value, "templates").items()}


def _template(body: Any, where: str) -> str:
    if isinstance(body, dict):
        body = body.get("content", body.get("sql"))
    if not isinstance(body, str) or not body.strip():
        raise BadFile(f"{where}: a text is needed, or a mapping with content or sql, not {_kind(body)}")
    return body.strip()


def _extra(fields: Json) -> Json:
    """What Pattern has no field for, what stands beside a template's text included."""
    extra = {str(key): value for key, value in fields.items() if key not in _KNOWN}
    beside = {
        str(name): {key: value for key, value in body.items() if key not in ("content", "sql")}
        for name, body in (fields.get("templates") or {}).items()
        if isinstance(body, dict) and len(body) > 1
    }
    return {**extra, "templates": beside} if beside else extra


def _mapping(value: Any, where: str) -> Json:
    if not isinstance(value, dict):
        raise BadFile(f"{where}: a mapping is needed, not {_kind(value)}")
    return value


def _required(fields: Json, key: str, prefix: str = "") -> str:
    text = _text(fields.get(key), prefix + key)
    if not text:
        raise BadFile(f"{prefix}{key} is missing")
    return text


def _text(value: Any, where: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, _SCALARS):
        raise BadFile(f"{where}: a text is needed, not {_kind(value)}")
    return str(value).strip()


def _texts(value: Any, where: str) -> tuple[str, ...]:
    entries = value if isinstance(value, list) else [] if value is None else [value]
    return tuple(_text(entry, f"{where}[{n}]") for n, entry in enumerate(entries))


def _value(value: Any, where: str) -> str:
    """A default or example as it stands in a template: ISO dates, true and false in lower case, lists with commas."""
    if isinstance(value, list):
        return ", ".join(
            _value(entry, where) if not isinstance(entry, list) else _text(entry, where) for entry in value
        )
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, date) else _text(value, where)


def _kind(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__
