"""Functions that judge, in real child processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_worker.core.errors import BadFile, JudgeFailed
from loom_worker.core.values.json import Json
from loom_worker.core.values.judges import PanelMember
from loom_worker.core.values.tools import Caller, Outcome, Tool
from loom_worker.judge.checks import Opinion
from loom_worker.judge.llm import Case
from loom_worker.judge.python_judges import PythonJudges, judging_function
from loom_worker.tools import child_main
from loom_worker.tools.custom import ToolFiles
from loom_worker.tools.execution import call_tool
from loom_worker.tools.pool import Pool

CASE = Case("turn_1", "How many?", "There are 42.", (("sql", "42"),))
CALLER = Caller("lane", "s1", "default", "turn_1", "judge")
FILE = '''
import time

def short(answer: str, question: str) -> dict:
    """An answer is short."""
    return {"score": 0.25, "critique": f"{question} -> {answer}"}

def known(answer: str, tool_results: list[dict]) -> bool:
    """The answer has what the tools returned."""
    return all(each["content"] in answer for each in tool_results)

def pair(answer: str) -> list:
    """A score and a critique."""
    return [0.5, "Half."]

def odd(answer: str) -> str:
    """No score."""
    return "very good"

def high(answer: str) -> float:
    """More than there is."""
    return 80

def broken(answer: str) -> float:
    """Fails."""
    return 1 / 0

def hanging(answer: str) -> float:
    """Never returns."""
    time.sleep(3600)

def greedy(answer: str, secrets: str) -> float:
    """Asks for what no judge is given."""
    return 1.0
'''


class Children:
    """Runs functions in child processes, as a worker does."""

    def __init__(self) -> None:
        self.pool = Pool(child_main.command(), most=2, environ={})

    def run(self, tool: Tool, arguments: Json, caller: Caller) -> Outcome:
        return call_tool(tool, arguments, caller, timeout_s=30.0, pool=self.pool, max_bytes=100_000)


@pytest.fixture
def judges(tmp_path: Path) -> Iterator[PythonJudges]:
    (tmp_path / "judges.py").write_text(FILE, encoding="utf-8")
    children = Children()
    yield PythonJudges(ToolFiles(), children)  # type: ignore[arg-type]  # of an executor only run() is used
    children.pool.close()


def judged(judges: PythonJudges, folder: Path, name: str, *, timeout_s: float = 30.0) -> Opinion:
    member = PanelMember("mine", "python", f"judges.py:{name}", timeout_s=timeout_s)
    return judges.opinion(member, folder, CASE, CALLER)


def test_a_function_is_given_what_it_asks_for_and_its_score_is_read(judges: PythonJudges, tmp_path: Path) -> None:
    assert judged(judges, tmp_path, "short") == Opinion(0.25, "How many? -> There are 42.")
    assert judged(judges, tmp_path, "known") == Opinion(1.0)
    assert judged(judges, tmp_path, "pair") == Opinion(0.5, "Half.")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("odd", "no score from 0 to 1"),
        ("high", "no score from 0 to 1"),
        ("broken", "ZeroDivisionError"),
        ("greedy", "'secrets' is none of"),
        ("absent", "there is no 'absent'"),
    ],
)
def test_a_function_that_gives_no_score_is_a_dead_judge(
    judges: PythonJudges, tmp_path: Path, name: str, why: str
) -> None:
    with pytest.raises((JudgeFailed, BadFile), match=why):
        judged(judges, tmp_path, name)


def test_a_function_that_hangs_is_killed_at_its_timeout(judges: PythonJudges, tmp_path: Path) -> None:
    with pytest.raises(JudgeFailed, match="timed out"):
        judged(judges, tmp_path, "hanging", timeout_s=0.2)
    assert judged(judges, tmp_path, "pair") == Opinion(0.5, "Half.")


def test_a_schema_is_checked_in_a_process_that_ends_with_its_time(judges: PythonJudges) -> None:
    schema = {
        "$defs": {
            "e": {
                "anyOf": [
                    {"type": "number"},
                    {"type": "array", "items": {"$ref": "#/$defs/e"}},
                    {"type": "array", "items": {"$ref": "#/$defs/e"}, "maxItems": 5},
                ]
            }
        },
        "$ref": "#/$defs/e",
    }
    bomb = "[" * 20 + '"x"' + "]" * 20
    assert judges.fits("[[1], 2]", schema, CALLER, timeout_s=30.0) == Opinion(1.0)
    found = judges.fits(bomb, schema, CALLER, timeout_s=0.5)
    assert found == Opinion(0.0, "the check of the answer took too much time or memory")


def test_a_pattern_that_grows_without_end_ends_with_the_process_that_reads_it(judges: PythonJudges) -> None:
    schema = {"type": "object", "properties": {"n": {"pattern": "(((((((a?){50}){50}){50}){50}){50}){50}){50}"}}}
    found = judges.fits('{"n": "a"}', schema, CALLER, timeout_s=0.5)
    assert found == Opinion(0.0, "the check of the answer took too much time or memory")


def test_a_target_without_a_name_must_have_one_function(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        'from loom_worker import tool\n@tool\ndef one(answer: str) -> float:\n    """One."""\n    return 1.0\n',
        encoding="utf-8",
    )
    assert judging_function("one.py", tmp_path).spec.name == "one"
    with pytest.raises(JudgeFailed, match="no entry point 'nobody'"):
        judging_function("nobody", tmp_path)
