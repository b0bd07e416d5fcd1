"""Programs that DSPy has saved as JSON (``program.save("x.json")``): their predictors' instructions and demonstrations.

Understood are the files of DSPy 2.4 and later. A saved program has one mapping for each of its predictors, by name;
``lm``, ``traces`` and ``train`` in it are of no use here, and ``lm`` could hold what is nobody's business.
"""

import re
from collections.abc import Iterator

from loom_worker.core.fields import Fields, InvalidField
from loom_worker.core.values.json import Json
from loom_worker.core.values.learned import Demonstration, FieldText, LearnedLayer, Signature

_NOT_LEARNED = ("lm", "traces", "train")
_PLACEHOLDER = re.compile(r"\$\{\w+\}")
"""The description of a field that nobody has described."""
_BOOKKEEPING = ("augmented", "dspy_uuid", "dspy_split")
"""What DSPy adds to a demonstration's own fields."""
_LEGACY = "signature_instructions"
"""Where DSPy 2.4 keeps them."""


def layer_of(program: Fields) -> LearnedLayer:
    """What was learned, in the order of the file.

    Raises:
        InvalidField: a value cannot be used, or no predictor is in it.
    """
    signatures: list[Signature] = []
    demonstrations: list[Demonstration] = []
    for name in program.names():
        if name == "metadata":
            continue
        if not _is_predictor(program.get(name)):
            program.keep(name)  # such as a retriever's settings; the caller reports it
            continue
        predictor = program.under(name)
        signatures.append(_signature(name, predictor))
        demonstrations += _demonstrations(name, predictor)
        for key in _NOT_LEARNED:
            predictor.get(key)
    if not signatures:
        raise InvalidField((), "no predictor is in it, so it is no program that DSPy has saved as JSON")
    return LearnedLayer(tuple(signatures), tuple(demonstrations))


def made_with(program: Fields) -> str:
    """``dspy 3.4.1``; empty where the file does not say."""
    metadata = program.under("metadata")
    versions = metadata.under("dependency_versions")
    versions.names()
    version = versions.text("dspy")
    return f"dspy {version[:40]}" if version else ""


def _is_predictor(value: object) -> bool:
    return isinstance(value, dict) and any(key in value for key in ("signature", "demos", _LEGACY))


def _signature(name: str, predictor: Fields) -> Signature:
    # Chain of thought in DSPy 2.5 has the signature that is sent beside the one that was declared.
    sent = predictor.under("extended_signature" if "extended_signature" in predictor else "signature")
    predictor.under("signature").names()
    fields = []
    for each in sent.each("fields"):
        described = (each.text("description") or each.text("desc") or "").strip()
        prefix = (each.text("prefix") or each.text("name") or "").strip()
        each.names()
        if described and prefix and not _PLACEHOLDER.fullmatch(described):
            fields.append(FieldText(prefix.removesuffix(":"), described))
    instructions = sent.text("instructions") or predictor.text(_LEGACY) or ""
    for key in ("signature_prefix", "extended_signature_instructions", "extended_signature_prefix", _LEGACY):
        predictor.get(key)
    return Signature(name, instructions.strip(), tuple(fields))


def _demonstrations(name: str, predictor: Fields) -> Iterator[Demonstration]:
    for demo in predictor.each("demos"):
        is_augmented = demo.flag("augmented") or False
        values: Json = {key: demo.get(key) for key in demo.names() if key not in _BOOKKEEPING}
        given = {key: value for key, value in values.items() if value is not None}
        if not given:
            raise InvalidField(demo.place, "has no field with a value")
        yield Demonstration(name, given, is_augmented)
