"""The scripted demo model carries out every statement of the library on the sample shop."""

import pytest

from loom_worker.patterns.render import for_message
from loom_worker.values.chat import ChatMessage
from loom_worker.values.patterns import Pattern, PatternMatch
from tests.support.sample_shop import TODAY, copy_shop
from tests.unit.llm.test_scripted import SQL, reply, request, run, said


@pytest.mark.parametrize("pattern", SQL, ids=[pattern.id for pattern in SQL])
def test_the_demo_model_answers_by_every_pattern_of_the_shop(pattern: Pattern) -> None:
    context = f"{for_message(PatternMatch(pattern, 1.0))}\n\nToday is {TODAY}."
    messages, shop = [ChatMessage("user", pattern.intents[0], context=context)], copy_shop()
    while (answer := reply(request(*messages))).tool_uses:
        messages += [said(answer), run(answer, shop)]
    assert f"({pattern.id})" in answer.text
    assert "I have no answer" not in answer.text
