"""The scripted demo model carries out the statements of the library on the sample shop."""

import json

import pytest

from loom_worker.core.values.patterns import Pattern, PatternMatch
from loom_worker.demo.pattern_queries import choose, pattern_answer, read_queries
from loom_worker.demo.slots import Slots
from loom_worker.patterns.render import for_message
from tests.support.demo_model import call
from tests.support.sample_shop import copy_shop
from tests.unit.demo.test_scripted import SQL

pytestmark = [pytest.mark.heavy, pytest.mark.takes(5)]

NOTHING = Slots(None, (), "")


@pytest.mark.parametrize("pattern", SQL, ids=[pattern.id for pattern in SQL])
def test_the_demo_model_answers_by_every_pattern_of_the_shop(pattern: Pattern) -> None:
    tasks = read_queries(for_message(PatternMatch(pattern, 1.0)))
    found = choose(tasks, pattern.title.lower(), NOTHING)
    assert found is not None
    task = found[0]
    result = json.loads(call(copy_shop(), "execute_sql", {"sql": task.query(NOTHING)}))
    assert f"({pattern.id})" in pattern_answer(task, NOTHING, result)
