"""The parts of a pattern that are more than texts: parameters, templates, examples, common errors, rules.

Each reader takes the value of a key and its place, and returns the part with the keys it has no field for.
"""

from collections.abc import Iterator
from typing import Any

from loom_worker.core.fields import MISSING, InvalidField, Place, kind, present
from loom_worker.core.values.json import Json
from loom_worker.core.values.patterns import CommonError, Example, Parameter, Template
from loom_worker.patterns import aliases
from loom_worker.patterns.aliases import Keys
from loom_worker.patterns.fields import PatternFields, plain, prose, text


def parameters(value: Any, place: Place) -> tuple[tuple[Parameter, ...], Json]:
    """Read a list of mappings or names, or a mapping of names."""
    read: dict[str, Parameter] = {}
    extra: Json = {}
    for name, fields in _parts(value, place, aliases.PARAMETER, bare=("name", "description")):
        parameter = Parameter(
            name=fields.required("name") if name is None or "name" in fields else name,
            type=fields.text("type") or "string",
            is_required=fields.flag("required"),
            description=fields.text("description"),
            example=fields.filling("example"),
            default=fields.filling("default") if "default" in fields else None,
        )
        if parameter.name in read:
            raise InvalidField(fields.place, f"there is another parameter {parameter.name}")
        read[parameter.name] = parameter
        extra |= present(**{parameter.name: fields.sorted.extra or None})
    return tuple(read.values()), extra


def templates(value: Any, place: Place) -> tuple[dict[str, Template], Json]:
    """Read a mapping of names, a list, or a single text (under another key than templates a mapping, too)."""
    is_plural = aliases.is_known(place[-1], {"templates": ()})
    is_one = _is_text(value)
    if isinstance(value, dict) and not is_plural:  # a template, or names with a template each?
        known = aliases.sort(value, aliases.TEMPLATE)
        is_one = isinstance(known.values.get("content"), str) and not any(
            isinstance(body, dict) for body in known.extra.values()
        )
    if is_one:
        value = {"template" if is_plural else str(place[-1]): value}
    read: dict[str, Template] = {}
    extra: Json = {}
    for given, fields in _parts(value, place, aliases.TEMPLATE, bare=("content", "content")):
        name = (fields.text("name") if given is None else given) or f"template_{len(read) + 1}"
        if name in read:
            raise InvalidField(fields.place, f"there is another template {name}")
        content = fields.get("content")
        if not isinstance(content, str) or not content.strip():
            needed = "a text is needed, or a mapping with content or sql"
            raise InvalidField(fields.place, f"{needed}, not {kind(content)}")
        required, _ = parameters(fields.get("required_parameters"), fields.place_of("required_parameters"))
        read[name] = Template(
            text=content.strip(),
            description=fields.text("description"),
            required_parameters=tuple(parameter.name for parameter in required),
            output_format=fields.prose("output_format"),
        )
        own = {"name": fields.get("name")} if given is not None and "name" in fields else {}
        extra |= present(**{name: own | fields.sorted.extra or None})
    return read, extra


def examples(value: Any, place: Place) -> tuple[tuple[Example, ...], Json]:
    """Read a list of mappings or texts, a mapping of names, or a single one of them."""
    read: list[Example] = []
    extra: Json = {}
    for name, fields in _parts(value, place, aliases.EXAMPLE, bare=("description", "description"), is_prose=True):
        extra |= present(**{str(len(read)): fields.sorted.extra or None})
        # Some write the values of the parameters where others describe the example.
        is_filled = isinstance(fields.get("description"), dict) and "parameters" not in fields
        example = Example(
            name=fields.text("name") or name or "",
            description="" if is_filled else fields.prose("description"),
            parameters=plain(fields.mapping("description" if is_filled else "parameters")),
            expected_result=fields.prose("expected_result"),
            notes=fields.prose("notes"),
        )
        read.append(example)
    return tuple(read), extra


def common_errors(value: Any, place: Place) -> tuple[tuple[CommonError, ...], Json]:
    """Read a list of mappings or texts, or a mapping of errors to their solutions."""
    read: list[CommonError] = []
    extra: Json = {}
    for name, fields in _parts(value, place, aliases.COMMON_ERROR, bare=("error", "solution"), is_prose=True):
        extra |= present(**{str(len(read)): fields.sorted.extra or None})
        error = fields.prose("error") or name
        if not error:
            raise InvalidField((*fields.place, "error"), MISSING)
        read.append(CommonError(error, fields.prose("cause"), fields.prose("solution")))
    return tuple(read), extra


def rules(value: Any, place: Place) -> str:
    """Read one rule or several, each a text or {condition, action, rationale}, as a line each."""
    lines: list[str] = []
    for entry in value if isinstance(value, list) else [] if value is None else [value]:
        if not isinstance(entry, dict):
            lines.append(text(entry, place))
            continue
        fields = PatternFields(entry, aliases.RULE, place)
        condition, action, rationale = (fields.prose(key) for key in aliases.RULE)
        if not action:
            raise InvalidField((*place, "action"), MISSING)
        line = f"When {condition}: {action}" if condition else action
        line = line if line.endswith((".", "!", "?")) else f"{line}."
        extra = prose(fields.sorted.extra) if fields.sorted.extra else ""
        lines.append(" ".join(part for part in (line, rationale, extra) if part))
    return "\n".join(lines)


def _named(value: Any, place: Place, keys: Keys) -> Iterator[tuple[Place, str | None, Any]]:
    """Place, name and body of each part; the name is None if the body has to give it."""
    if isinstance(value, dict):
        for name, body in value.items():
            yield (*place, str(name)), str(name), body
    elif isinstance(value, list):
        for n, body in enumerate(value):
            if isinstance(body, dict) and len(body) == 1 and not any(aliases.is_known(key, keys) for key in body):
                [(name, inside)] = body.items()
                yield (*place, n), str(name), inside
            else:
                yield (*place, n), None, body
    elif value is not None:
        raise InvalidField(place, f"a list or a mapping is needed, not {kind(value)}")


def _parts(
    value: Any, place: Place, keys: Keys, *, bare: tuple[str, str], is_prose: bool = False
) -> Iterator[tuple[str | None, PatternFields]]:
    """The name that stands outside of each part, or None, and the part's fields.

    Args:
        bare: the key that a part means which is no mapping: of one without a name, and of one with a name.
        is_prose: such a part may be anything, and a single part stands without a list.
    """
    is_one = isinstance(value, dict) and any(aliases.is_known(key, keys) for key in value)
    several = [value] if is_prose and (is_one or _is_text(value)) else value
    for where, name, body in _named(several, place, keys):
        is_bare = not isinstance(body, dict) and (is_prose or _is_text(body))
        yield name, PatternFields({bare[name is not None]: body} if is_bare else body, keys, where)


def _is_text(value: Any) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)
