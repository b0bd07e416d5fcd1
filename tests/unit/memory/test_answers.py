"""A model's answer is read in whatever form it comes, as far as it is whole."""

import json

import pytest

from loom_worker.memory.extract import read
from tests.unit.memory.test_extract import MATERIAL

FACT = '{"subject": "user", "relation": "lives in", "object": "Paris", "message": 1}'
MOVE = f'{{"summary": "A move.", "facts": [{FACT}]}}'
CALL = json.dumps({"name": "answer", "arguments": MOVE})
FORMS = [
    MOVE,
    f"```json\n{MOVE}\n```",
    f"```\n{MOVE}",
    f"Sure! Here is {{the}} JSON, as asked:\n{MOVE}\nHope it {{helps}}.",
    f"<think>Facts are like {FACT.replace('Paris', 'Lyon')}?</think>{MOVE}",
    f"I think the user [12] has moved.\n\n{MOVE}",
    MOVE.replace("1}", "1,},").replace("]}", "],}"),
    MOVE.replace('"', "'"),
    MOVE.replace('"', "'").replace("A move.", "A user\\'s move.").replace("user\\'s ", ""),
    "{'summary': 'A move.', 'facts': [('user', 'lives in', 'Paris', 1)], 'ended': None, 'ok': True}",
    MOVE.replace('"facts"', '// a comment, with "quotes"\n"facts"'),
    MOVE.replace('"facts"', '# a comment\n"facts"'),
    MOVE.replace("1}", "1 /* the first */}"),
    MOVE.replace('"summary"', "summary").replace('"facts"', "facts").replace('"subject"', "subject"),
    MOVE.replace('"Paris"', "Paris"),
    MOVE.replace('", "', '" "'),
    MOVE.replace("1}]}", "1]}"),
    MOVE.removesuffix("]}"),
    MOVE.removesuffix("1}]}"),
    MOVE.replace("]}", ", ...]}"),
    MOVE.replace(' "', " “").replace('"', "”"),
    MOVE.replace('{"', "{„").replace(' "', " „").replace('"', "“"),
    MOVE.replace(": 1", ": NaN"),
    MOVE.replace(": 1", ": m1"),
    f'{{"result": {MOVE}}}',
    f'{{"output": {{"json": {MOVE}}}}}',
    f"[{MOVE}]",
    CALL,
    f"<tool_call>{CALL}</tool_call>",
    f'{{"summary": "A move."}}\n{{"facts": [{FACT}]}}',
    MOVE.replace('"summary"', '"Summary"').replace('"subject"', '"Subject"'),
    MOVE.replace("relation", "predicate").replace("object", "value"),
    MOVE.replace('"facts": [', '"facts": [[').replace("]}", "]]}"),
    MOVE.replace(FACT, '["user", "lives in", "Paris", 1]'),
    MOVE.replace(FACT, '["user", "lives in", "Paris"]'),
    MOVE.replace(FACT, '"user | lives in | Paris | 1"'),
    MOVE.replace(FACT, '"(user; lives in; Paris)"'),
    MOVE.replace(FACT, '"user -> lives in -> Paris"'),
    MOVE.replace(f"[{FACT}]", FACT),
    MOVE.replace(f"[{FACT}]", '{"user": {"lives in": "Paris"}}'),
    MOVE.replace(f"[{FACT}]", '{"user": {"lives in": {"value": "Paris", "message": 1}}}'),
    MOVE.replace(f"[{FACT}]", '{"user": [{"relation": "lives in", "object": "Paris"}]}'),
    MOVE.replace(f"[{FACT}]", '{"user": ["lives in | Paris"]}'),
    MOVE.replace(f"[{FACT}]", f'{{"1": {FACT}}}'),
    MOVE.replace('"relation": "lives in", "object": "Paris"', '"lives in": "Paris"'),
    MOVE.replace('"Paris"', '["Paris"]'),
]
BARE = [f"[{FACT}]", FACT, f"{FACT}\n{FACT.replace('Paris', 'Lyon')}", '[["user", "lives in", "Paris", 1]]']


@pytest.mark.cases("text", FORMS + BARE, ids=str)
def test_a_fact_is_read_in_whatever_form_models_write_it(text: str) -> None:
    found = read(text, MATERIAL)
    assert found is not None
    assert [(each.subject, each.relation, each.object, each.n) for each in found.statements] == [
        ("user", "lives in", "Paris", 10)
    ]
    assert found.summary == ("" if text in BARE else "A move.")


@pytest.mark.cases(
    "rest", ['{"subject": "user", "relation": "moved with", "object": "A', '{"subject": "user", "rel', "{"]
)
def test_of_an_answer_that_is_cut_what_is_whole_is_kept(rest: str) -> None:
    found = read(MOVE.removesuffix("]}") + ", " + rest, MATERIAL)
    assert found is not None
    assert ([each.object for each in found.statements], found.summary) == (["Paris"], "A move.")
    assert set(found.dropped) <= {"unreadable"}


@pytest.mark.cases("text", ["{" * 9_000, "[" * 9_000, '{"summary": "' + "\\" * 9_000, '{"a": {' * 500])
def test_text_that_is_meant_to_choke_a_reader_is_no_answer(text: str) -> None:
    assert read(text, MATERIAL) is None
