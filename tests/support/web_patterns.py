"""Two patterns in the library of a web stage, and what came of them."""

from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

from loom_worker.core.values.chat import Usage
from loom_worker.core.values.patterns import Effect, Pattern, PatternUse
from loom_worker.patterns.library import load
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.patterns import enter_uses
from tests.support.pattern_files import write
from tests.support.web_stage import WebStage

_RANKING = """\
# What sells.
name: sql
patterns:



  - name: top_n
    title: Best of each kind
    description: Ranks things and keeps the first few.
    category: ranking
    backend_type: sql
    intents: [which products sold best, top ten customers]
    templates:
      plain: {text: "SELECT {{x}} FROM t", required_parameters: [x]}
    since: null
"""
_NOTES = """\
name: notes
title: Release notes
category: Writing
intents: [write release notes, was hat sich geändert, 変更点をまとめて]
"""


def _patterns() -> tuple[Pattern, ...]:
    with TemporaryDirectory() as folder:
        return load(_written(Path(folder))).patterns


def _written(root: Path) -> Path:
    return write(root, sql__ranking=_RANKING, writing__en__notes=_NOTES)


TOP, NOTES = _patterns()


def write_library(stage: WebStage) -> None:
    """Put TOP and NOTES into the library of a stage that has not been asked for patterns yet."""
    _written(stage.patterns)


def keep_effect(stage: WebStage, workspace: str, pattern_id: str, digest: str, effect: Effect) -> None:
    """Store what came of a pattern; the first use costs all of it."""
    ends = [True] * effect.succeeded + [False] * effect.failed
    ends += [None] * (effect.uses - len(ends))
    assert effect.last_ms is not None
    use = PatternUse(pattern_id, digest, "matched")
    with stage.database.write(lock=WHOLE) as tx:
        for n, is_success in enumerate(ends):
            spent = Usage() if n else Usage(input_tokens=effect.tokens, cost_usd=Decimal(str(effect.cost_usd)))
            enter_uses(tx, workspace, [use], is_success=is_success, spent=spent, now_ms=effect.last_ms)
