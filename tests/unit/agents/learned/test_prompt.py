"""A layer as a part of the system text: within its room, in the same bytes, the least helpful left out first."""

from loom_worker.agents.learned.prompt import HEAD, fitted, whole
from loom_worker.core.values.learned import (
    AS_ACTIVATED,
    Demonstration,
    FieldText,
    Gradient,
    LearnedLayer,
    LearnedPart,
    LearnedPolicy,
    Signature,
)

ONE = LearnedLayer(
    (Signature("sort", "Sort the message.", (FieldText("Label", "refund or order"),)),),
    tuple(Demonstration("sort", {"message": f"text {n}", "label": "refund"}) for n in range(3)),
)
TWO = LearnedLayer(
    (Signature("sort", "Sort."), Signature("reply", "Reply.")),
    tuple(Demonstration(name, {"n": n}) for name in ("sort", "reply") for n in range(3)),
)


def text_of(layer: LearnedLayer, room: int = 10_000, policy: LearnedPolicy = AS_ACTIVATED) -> tuple[str, LearnedPart]:
    """In a room of so many characters."""
    found = fitted(layer, policy, version=2, room_tokens=room, count=len)
    assert len(found.text) <= max(room, 0)
    return found.text, found.part


def test_instructions_fields_and_examples_are_told_in_this_order() -> None:
    text, part = text_of(ONE)
    assert text == (
        f"{HEAD}\n\nSort the message.\n\nFields:\n- Label: refund or order\n\n"
        "<example>\nmessage: text 0\nlabel: refund\n</example>\n\n"
        "<example>\nmessage: text 1\nlabel: refund\n</example>\n\n"
        "<example>\nmessage: text 2\nlabel: refund\n</example>"
    )
    assert part == LearnedPart(2, signatures=1, demonstrations=3)


def test_the_last_examples_are_left_out_first_and_counted() -> None:
    all_of_it = len(text_of(ONE)[0])
    text, part = text_of(ONE, all_of_it - 1)
    assert "text 1" in text
    assert "text 2" not in text
    assert (part.demonstrations, part.left_out_demonstrations, part.left_out_signatures) == (2, 1, 0)


def test_each_signature_has_its_first_example_before_any_has_its_second() -> None:
    both = len(text_of(TWO)[0])
    seen = [text_of(TWO, room)[1].demonstrations for room in range(both + 1)]
    assert sorted(set(seen)) == list(range(7))
    text, _ = text_of(TWO, seen.index(2))
    sort, reply = text.split("## reply")
    assert (sort.count("n: 0"), reply.count("n: 0"), text.count("n: 1")) == (1, 1, 0)


def test_instructions_are_left_out_as_a_whole_and_take_all_examples_with_them() -> None:
    text, part = text_of(TWO, len(HEAD) + 20)
    assert text == f"{HEAD}\n\nSort."
    assert part == LearnedPart(2, 1, 0, left_out_signatures=1, left_out_demonstrations=6)
    assert text_of(TWO, 5) == ("", LearnedPart(2, 0, 0, 2, 6))
    assert text_of(TWO, -5)[0] == ""


def test_an_agent_names_the_signatures_that_are_its_own() -> None:
    text, part = text_of(TWO, policy=LearnedPolicy(signatures=("reply", "gone")))
    assert "Reply." in text
    assert "Sort." not in text
    assert (part.signatures, part.demonstrations) == (1, 3)


def test_a_tuned_prompt_is_told_without_what_was_criticized() -> None:
    layer = LearnedLayer(gradients=(Gradient("prompt", "Name the label.", "role", ("It was too short.",)),))
    text, part = text_of(layer)
    assert text == f"{HEAD}\n\nName the label."
    assert part.signatures == 1


def test_nested_values_are_json_and_invisible_characters_are_taken_out() -> None:
    shown = whole(LearnedLayer((Signature("a", "b\u200b"),), (Demonstration("a", {"rows": [{"é": None}], "n": 2}),)))
    assert shown == f'{HEAD}\n\nb\n\n<example>\nrows: [{{"é": null}}]\nn: 2\n</example>'


def test_a_layer_that_says_nothing_adds_nothing() -> None:
    assert whole(LearnedLayer()) == ""
    assert text_of(LearnedLayer((Signature("a"),)))[0] == ""
