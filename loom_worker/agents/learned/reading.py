"""Reading what an optimizer has written: which kind of file it is, what is in it, and whether it is within bounds.

Only JSON is read. A pickled program could run any code while it is read, so it is refused by its first bytes.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from loom_worker.agents.learned import dspy
from loom_worker.core.errors import BadFile
from loom_worker.core.fields import Fields, InvalidField, Place
from loom_worker.core.values.learned import FORMS, Form, Gradient, LearnedLayer, NewVersion

MOST_BYTES = 1_000_000
"""Bytes of a file; the request that brings it must be within the web's own limit, 1 MiB."""
MOST_SIGNATURES = 64
"""Signatures of a layer, with its tuned prompts."""
MOST_DEMONSTRATIONS = 512
MOST_CHARS = 32_000
"""Characters of instructions, of a tuned prompt, of one demonstration."""
MOST_NAME_CHARS = 200
MOST_FEEDBACK = 100
"""Criticisms of one tuned prompt."""
_PICKLED = (".pkl", ".pickle")
_AS_JSON = 'save the program as JSON, program.save("program.json"), which cannot run code when it is read'


def content_of(path: Path) -> Any:
    """The JSON of a file.

    Raises:
        BadFile: it is a pickled program, no JSON, or too large; the text names the file and what to do.
        OSError: it cannot be read.
    """
    if path.is_dir():
        raise BadFile(f"{path}: a folder holds a pickled program, which Loom does not read; {_AS_JSON}")
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if path.suffix in _PICKLED or data.startswith((b"\x80", b"PK\x03\x04")):
        raise BadFile(f"{path}: a pickled program, which Loom does not read; {_AS_JSON}")
    if len(data) > MOST_BYTES:
        raise BadFile(f"{path}: larger than {MOST_BYTES:,} bytes; keep fewer demonstrations")
    try:
        return json.loads(data, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{path}: not JSON: {error}; {_AS_JSON}") from error


def version_of(
    content: Any, *, form: str | None = None, source: str = "", note: str = ""
) -> tuple[NewVersion, tuple[str, ...]]:
    """The layer that a file's JSON holds, and which of its keys were not imported.

    Args:
        form: ``dspy`` or ``textgrad``; None: a list is of TextGrad's kind, a mapping of DSPy's.

    Raises:
        InvalidField: a value cannot be used, or the whole is beyond a limit.
    """
    known: Form = "textgrad" if isinstance(content, list) else "dspy"
    if form is not None and form not in FORMS:
        raise InvalidField((), f"one of {', '.join(FORMS)} is needed, not {form!r}")
    if form not in (None, known):
        needed = "a list of tuned prompts" if form == "textgrad" else "a mapping of predictors by name"
        raise InvalidField((), f"{needed} is needed for {form}")
    if isinstance(content, list):
        roots = [Fields(entry, (n,)) for n, entry in enumerate(content)]
        layer, writer = LearnedLayer(gradients=_gradients(roots)), ""
    else:
        roots = [Fields(content, what="a saved program")]
        layer, writer = dspy.layer_of(roots[0]), dspy.made_with(roots[0])
    _check_sizes(layer)
    left = {path for root in roots for path in (*root.unused(), *(path for path, _ in root.unknown()))}
    warnings = tuple(f"{path}: not imported" for path in sorted(left))
    return NewVersion(layer, known, writer, source, note), warnings


def _gradients(prompts: Iterable[Fields]) -> tuple[Gradient, ...]:
    """Prompts in the format of docs/learned.md: ``[{name, role, value, gradients}]``."""
    found: dict[str, Gradient] = {}
    for each in prompts:
        role = (each.text("role") or "").strip()
        name = (each.text("name") or role).strip()
        if not name:
            raise InvalidField(each.place_of("name"), "a name is needed, or a role in its place")
        if name in found:
            raise InvalidField(each.place_of("name"), f"another prompt has the name {name!r}")
        found[name] = Gradient(name, each.required("value"), role, each.texts("gradients") or ())
    if not found:
        raise InvalidField((), "no tuned prompt is in it")
    return tuple(found.values())


def _check_sizes(layer: LearnedLayer) -> None:
    sections, demonstrations = len(layer.signatures) + len(layer.gradients), len(layer.demonstrations)
    if sections > MOST_SIGNATURES:
        raise InvalidField((), f"at most {MOST_SIGNATURES} signatures or prompts are kept, and here are {sections}")
    if demonstrations > MOST_DEMONSTRATIONS:
        raise InvalidField((), f"at most {MOST_DEMONSTRATIONS} demonstrations are kept, and here are {demonstrations}")
    for place, text, most_chars in _texts(layer):
        if len(text) > most_chars:
            raise InvalidField(place, f"at most {most_chars:,} characters are kept, and here are {len(text):,}")


def _texts(layer: LearnedLayer) -> Iterator[tuple[Place, str, int]]:
    """Every text with its place and the most characters it may have."""
    for signature in layer.signatures:
        yield (signature.name,), signature.name, MOST_NAME_CHARS
        yield (signature.name, "signature", "instructions"), signature.instructions, MOST_CHARS
        described = "".join(f"{each.name}{each.description}" for each in signature.fields)
        yield (signature.name, "signature", "fields"), described, MOST_CHARS
    numbers = dict.fromkeys((each.signature for each in layer.demonstrations), 0)
    for demonstration in layer.demonstrations:
        place = (demonstration.signature, "demos", numbers[demonstration.signature])
        yield place, json.dumps(demonstration.values, ensure_ascii=False), MOST_CHARS
        numbers[demonstration.signature] += 1
    for n, gradient in enumerate(layer.gradients):
        yield (n, "name"), gradient.name, MOST_NAME_CHARS
        yield (n, "value"), gradient.value, MOST_CHARS
        yield (n, "role"), gradient.role, MOST_CHARS
        if len(gradient.feedback) > MOST_FEEDBACK:
            raise InvalidField((n, "gradients"), f"at most {MOST_FEEDBACK} texts are kept")
        yield (n, "gradients"), "".join(gradient.feedback), MOST_CHARS


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON")
