"""The parts of a pattern that are more than texts: parameters, templates, examples, common errors, rules.

Each reader takes what stands under the key and its place, and returns the part with the keys it has no field for.
"""

from collections.abc import Iterator
from typing import Any

from loom_worker.core.values.json import Json
from loom_worker.core.values.patterns import CommonError, Example, Parameter, Template
from loom_worker.patterns import aliases
from loom_worker.patterns.aliases import Keys, Sorted, sort
from loom_worker.patterns.fields import MISSING, Misfit, Place, filling, kind, mapping, prose, text, truth


def parameters(value: Any, place: Place) -> tuple[tuple[Parameter, ...], Json]:
    """Read a list of mappings or names, or a mapping of names."""
    read: list[Parameter] = []
    extra: Json = {}
    for where, name, body in _named(value, place, aliases.PARAMETER):
        fields = sort({"name": body} if _is_text(body) and name is None else _body(body, where), aliases.PARAMETER)
        parameter = _parameter(fields, where, name)
        if any(parameter.name == other.name for other in read):
            raise Misfit(where, f"there is another parameter {parameter.name}")
        read.append(parameter)
        extra |= {parameter.name: fields.extra} if fields.extra else {}
    return tuple(read), extra


def _parameter(fields: Sorted, where: Place, name: str | None) -> Parameter:
    values = fields.values
    default = values.get("default")
    return Parameter(
        name=_required(fields, "name", where) if name is None or "name" in values else name,
        type=text(values.get("type"), _at(where, fields, "type")) or "string",
        is_required=truth(values.get("required"), _at(where, fields, "required")),
        description=text(values.get("description"), _at(where, fields, "description")),
        example=filling(values.get("example"), _at(where, fields, "example")),
        default=None if default is None else filling(default, _at(where, fields, "default")),
    )


def templates(value: Any, place: Place) -> tuple[dict[str, Template], Json]:
    """Read a mapping of names, a list, or a single text (under another key than templates a mapping, too)."""
    is_plural = aliases.is_known(place[-1], {"templates": ()})
    if _is_text(value) or (not is_plural and isinstance(value, dict) and _is_single(value)):
        value = {"template" if is_plural else str(place[-1]): value}
    read: dict[str, Template] = {}
    extra: Json = {}
    for where, given, body in _named(value, place, aliases.TEMPLATE):
        fields = sort({"content": body} if _is_text(body) else _body(body, where), aliases.TEMPLATE)
        own = text(fields.values.get("name"), _at(where, fields, "name")) if given is None else given
        name = own or f"template_{len(read) + 1}"
        if name in read:
            raise Misfit(where, f"there is another template {name}")
        read[name] = _template(fields, where)
        named = {"name": fields.values["name"]} if given is not None and "name" in fields.values else {}
        extra |= {name: named | fields.extra} if named or fields.extra else {}
    return read, extra


def _template(fields: Sorted, where: Place) -> Template:
    values = fields.values
    body = values.get("content")
    if not isinstance(body, str) or not body.strip():
        raise Misfit(where, f"a text is needed, or a mapping with content or sql, not {kind(body)}")
    required, _ = parameters(values.get("required_parameters"), _at(where, fields, "required_parameters"))
    return Template(
        text=body.strip(),
        description=text(values.get("description"), _at(where, fields, "description")),
        required_parameters=tuple(parameter.name for parameter in required),
        output_format=prose(values.get("output_format")),
    )


def _is_single(value: Json) -> bool:
    """Whether a mapping is one template rather than names with a template each."""
    named = sort(value, aliases.TEMPLATE)
    return isinstance(named.values.get("content"), str) and not any(isinstance(v, dict) for v in named.extra.values())


def examples(value: Any, place: Place) -> tuple[tuple[Example, ...], Json]:
    """Read a list of mappings or texts, a mapping of names, or a single one of them."""
    read: list[Example] = []
    extra: Json = {}
    for where, name, body in _several(value, place, aliases.EXAMPLE):
        fields = sort(_body(body, where) if isinstance(body, dict) else {"description": body}, aliases.EXAMPLE)
        if fields.extra:
            extra[str(len(read))] = fields.extra
        read.append(_example(fields, where, name))
    return tuple(read), extra


def _example(fields: Sorted, where: Place, name: str | None) -> Example:
    values = dict(fields.values)
    if isinstance(values.get("description"), dict) and "parameters" not in values:
        values["parameters"] = values.pop("description")
    given = values.get("parameters", {})
    return Example(
        name=text(values.get("name"), _at(where, fields, "name")) or name or "",
        description=prose(values.get("description")),
        parameters=mapping(given, _at(where, fields, "parameters")),
        expected_result=prose(values.get("expected_result")),
        notes=prose(values.get("notes")),
    )


def common_errors(value: Any, place: Place) -> tuple[tuple[CommonError, ...], Json]:
    """Read a list of mappings or texts, or a mapping of errors to their solutions."""
    read: list[CommonError] = []
    extra: Json = {}
    for where, name, body in _several(value, place, aliases.COMMON_ERROR):
        key = "error" if name is None else "solution"
        fields = sort(_body(body, where) if isinstance(body, dict) else {key: body}, aliases.COMMON_ERROR)
        if fields.extra:
            extra[str(len(read))] = fields.extra
        values = fields.values
        error = prose(values.get("error")) or name
        if not error:
            raise Misfit((*where, "error"), MISSING)
        read.append(CommonError(error, prose(values.get("cause")), prose(values.get("solution"))))
    return tuple(read), extra


def rules(value: Any, place: Place) -> str:
    """Read one rule or several, each a text or {condition, action, rationale}, as a line each."""
    entries = value if isinstance(value, list) else [] if value is None else [value]
    return "\n".join(_rule(entry, place) for entry in entries)


def _rule(value: Any, place: Place) -> str:
    if not isinstance(value, dict):
        return text(value, place)
    fields = sort(value, aliases.RULE)
    condition, action, rationale = (prose(fields.values.get(key)) for key in aliases.RULE)
    if not action:
        raise Misfit((*place, "action"), MISSING)
    told = f"When {condition}: {action}" if condition else action
    told = told if told.endswith((".", "!", "?")) else f"{told}."
    return " ".join([told, *([rationale] if rationale else []), *map(prose, [fields.extra] if fields.extra else [])])


def _named(value: Any, place: Place, keys: Keys) -> Iterator[tuple[Place, str | None, Any]]:
    """Place, name and body of each part; the name is None where the body has to tell it."""
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
        raise Misfit(place, f"a list or a mapping is needed, not {kind(value)}")


def _several(value: Any, place: Place, keys: Keys) -> Iterator[tuple[Place, str | None, Any]]:
    """As ``_named``, for parts of which there may be a single one without list or name."""
    is_one = isinstance(value, dict) and any(aliases.is_known(key, keys) for key in value)
    return _named([value] if is_one or _is_text(value) else value, place, keys)


def _body(value: Any, where: Place) -> Json:
    """A part's mapping; of a name alone the text behind it describes it."""
    if value is None or _is_text(value):
        return {} if value is None else {"description": value}
    return mapping(value, where)


def _is_text(value: Any) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)


def _at(where: Place, fields: Sorted, key: str) -> Place:
    return (*where, fields.written.get(key, key))


def _required(fields: Sorted, key: str, where: Place) -> str:
    value = text(fields.values.get(key), _at(where, fields, key))
    if not value:
        raise Misfit(_at(where, fields, key), MISSING)
    return value
