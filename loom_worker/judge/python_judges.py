"""Judges that run in child processes, as tools do: functions of users, and JSON Schemas."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from loom_worker.core.errors import JudgeFailed
from loom_worker.core.values.json import Json
from loom_worker.core.values.judges import PanelMember
from loom_worker.core.values.tools import Caller, Tool
from loom_worker.judge import checks
from loom_worker.judge.checks import Opinion
from loom_worker.judge.llm import Case
from loom_worker.tools import custom, targets
from loom_worker.tools.custom import ToolFiles
from loom_worker.tools.execution import ToolExecutor
from loom_worker.tools.outcome import DIED

GROUP = "loom.judges"
"""The entry-point group; each entry point names a function."""
GIVEN = ("answer", "question", "tool_results")
"""What a function may ask for, by the names of its parameters."""


@dataclass(frozen=True, slots=True)
class PythonJudges:
    """All functions that judge, of all agents."""

    files: ToolFiles
    executor: ToolExecutor

    def opinion(self, member: PanelMember, folder: Path, case: Case, caller: Caller) -> Opinion:
        """What a function makes of an answer.

        Raises:
            BadFile: it cannot be loaded.
            JudgeFailed: it failed, took too long, or gave no score.
            Interrupted: the worker stops.
        """
        function = judging_function(str(member.criteria), folder, read=self.files.tools)
        given: Json = {
            "answer": case.answer,
            "question": case.question,
            "tool_results": [{"tool": name, "content": text} for name, text in case.results],
        }
        wanted = function.spec.input_schema["properties"]
        arguments = {name: given[name] for name in GIVEN if name in wanted}  # type: ignore[operator]  # checked above
        outcome = self.executor.run(replace(function, timeout_s=member.timeout_s), arguments, caller)
        if outcome.status != "completed":
            raise JudgeFailed(outcome.content)
        return _read(outcome.content)

    def fits(self, answer: str, schema: Json, caller: Caller, *, timeout_s: float = 10.0) -> Opinion:
        """What a JSON Schema makes of an answer; one that makes the check take too long does not pass."""
        function = replace(_schema_check(), timeout_s=timeout_s)
        outcome = self.executor.run(function, {"answer": answer, "schema": schema}, caller)
        if outcome.status == "timeout" or outcome.content == DIED:
            return Opinion(0.0, "the check of the answer took too much time or memory")
        if outcome.status != "completed":
            raise JudgeFailed(outcome.content)
        return _read(outcome.content)


@cache
def _schema_check() -> Tool:
    [function] = targets.tools(f"{checks.__name__}:{checks.fits.__name__}", Path())
    return function


def judging_function(
    target: str, folder: Path, *, read: Callable[[str, Path], tuple[Tool, ...]] = custom.checked
) -> Tool:
    """The function of a target, as a tool.

    Args:
        target: ``file.py:name``, ``package.module:name``, or the name of an entry point of GROUP.
        folder: that files are relative to.
        read: returns the tools of a target, or raises BadFile.
    """
    found = read(_resolved(target), folder)
    if len(found) != 1:
        raise JudgeFailed(f"{target}: {len(found)} functions; name one of them, as in {target}:name")
    properties = found[0].spec.input_schema.get("properties", {})
    foreign = [name for name in properties if name not in GIVEN] if isinstance(properties, dict) else []
    if foreign:
        raise JudgeFailed(f"{target}: the parameter {foreign[0]!r} is none of {', '.join(GIVEN)}")
    return found[0]


def _resolved(target: str) -> str:
    if any(sign in target for sign in "./:"):
        return target
    found = next(iter(entry_points(group=GROUP, name=target)), None)
    if found is None:
        raise JudgeFailed(f"there is no entry point {target!r} in the group {GROUP}")
    return found.value


def _read(content: str) -> Opinion:
    """A function returns a score, true or false, ``[score, critique]`` or ``{score, critique}``."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise JudgeFailed("The function gave no score from 0 to 1.") from error
    match value:
        case {"score": score, **others}:
            critique = others.get("critique", "")
        case [score, critique]:
            pass
        case score:
            critique = ""
    if not isinstance(score, int | float) or not 0 <= score <= 1:
        raise JudgeFailed("The function gave no score from 0 to 1.")
    return Opinion(float(score), str(critique or ""))
