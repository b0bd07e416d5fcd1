"""A model's answer is read in whatever form it comes, as far as it is whole."""

import json

import pytest

from loom_worker.memory.extract import read
from tests.unit.memory.test_extract import MATERIAL

FACT = '{"subject": "user", "relation": "lives in", "object": "Paris", "message": 1}'
MOVE = f'{{"summary": "A move.", "facts": [{FACT}]}}'
CALL = json.dumps({"name": "answer", "arguments": MOVE})
FENCED = (f"```json\n{MOVE}\n```", f"```\n{MOVE}", f"Here is {{the}} JSON:\n{MOVE}\nHope it {{helps}}.", f"[{MOVE}]")
CHANGES = [
    *(('"', "'"), ("1}", "1,},"), ("]}", "],}"), ("1}]}", "1]}"), ('"Paris"', "Paris"), ('", "', '" "')),
    *(("1", "m1"), (": 1", ": NaN"), (", ", ",\n\t"), ("subject", "Subject"), ("relation", "predicate")),
    *(("object", "value"), ("[", "[["), (' "Paris"', ' ["Paris"]'), ("1}]", '1}, ...], "ended": None')),
    *(('"facts"', '// a comment, with "quotes"\n"facts"'), ('"summary": "A', '# a comment\nsummary: "A')),
    (', "message"', '/* he said so */, "message"'),
    ('"relation": "lives in", "object": "Paris"', '"lives in": "Paris"'),
]
"""What is written otherwise in the usual answer, and how."""
FACTS = [
    *('["user", "lives in", "Paris", 1]', '["user", "lives in", "Paris"]', "('user', 'lives in', 'Paris')"),
    *('"user | lives in | Paris | 1"', '"(user; lives in; Paris)"', '"user -> lives in -> Paris"'),
]
ALL_FACTS = [
    *(FACT, '{"user": {"lives in": "Paris"}}', '{"user": {"lives in": {"value": "Paris", "message": 1}}}'),
    *('{"user": [{"relation": "lives in", "object": "Paris"}]}', '{"user": ["lives in | Paris"]}', f'{{"1": {FACT}}}'),
]
FORMS = [
    *(MOVE, *FENCED, *(MOVE.replace(usual, other) for usual, other in CHANGES)),
    *(MOVE.replace(FACT, fact) for fact in FACTS),
    *(MOVE.replace(f"[{FACT}]", facts) for facts in ALL_FACTS),
    *(MOVE.removesuffix(end) for end in ("}", "]}", "}]}", "1}]}")),
    f"<think>Facts are like {FACT.replace('Paris', 'Lyon')}?</think>{MOVE}",
    f"I think the user [12] has moved.\n\n{MOVE}",
    MOVE.replace(' "', " “").replace('"', "”"),
    MOVE.replace('{"', "{„").replace(' "', " „").replace('"', "“"),
    *(f'{{"result": {MOVE}}}', f'{{"output": {{"json": {MOVE}}}}}', CALL, f"<tool_call>{CALL}</tool_call>"),
    f'{{"summary": "A move."}}\n{{"facts": [{FACT}]}}',
    f'Draft: {{"summary": "Something.", "facts": []}}\nAnswer: {MOVE}',
    f'{{"summary": "A move."}}\n{FACT}',
    MOVE.replace('"facts"', '"key_facts"').replace('"A move."', '["A move."]'),
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


@pytest.mark.cases("rest", ['{"subject": "user", "relation": "is", "object": "A', '{"subject": "user", "rel', "{"])
def test_of_an_answer_that_is_cut_what_is_whole_is_kept(rest: str) -> None:
    found = read(MOVE.removesuffix("]}") + ", " + rest, MATERIAL)
    assert found is not None
    assert ([each.object for each in found.statements], found.summary) == (["Paris"], "A move.")
    assert set(found.dropped) <= {"unreadable"}


@pytest.mark.cases("text", ["{" * 9_000, "[" * 9_000, '{"summary": "' + "\\" * 9_000, '{"a": {' * 500])
def test_text_that_is_meant_to_choke_a_reader_is_no_answer(text: str) -> None:
    assert read(text, MATERIAL) is None
