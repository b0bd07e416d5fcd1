"""What turns that have ended take, counted once."""

from loom_worker.memory.layers import chat_tokens
from loom_worker.memory.results import Sizes, bounded
from tests.unit.memory.talk import called, count, said, stored, user


def counting(counted: list[str]) -> Sizes:
    def heard(text: str) -> int:
        counted.append(text)
        return count(text)

    return Sizes(heard)


def test_a_turn_is_counted_once() -> None:
    counted: list[str] = []
    past, turn = counting(counted), stored((user("How many?"), said("42")))
    first = past.of_turn(turn, budget_tokens=100)
    assert first.tokens == chat_tokens([message.chat for message in turn], count)
    counted.clear()
    assert past.of_turn(turn, budget_tokens=100) == first
    assert counted == []


def test_a_turn_whose_results_are_too_large_is_sent_with_stubs() -> None:
    turn = stored((user("Look"), *called("x " * 5_000), *called("y " * 5_000), said("Done")))
    past, chats = Sizes(count), [message.chat for message in turn]
    size = past.of_turn(turn, budget_tokens=6_000)
    sent = past.sent(turn, size, budget_tokens=6_000)
    assert not size.is_whole
    assert sent == bounded(chats, budget_tokens=6_000, count=count) != tuple(chats)
    assert size.tokens == chat_tokens(sent, count)


def test_another_budget_or_another_form_of_its_results_is_another_size() -> None:
    past = Sizes(count)
    turn = stored((user("Look"), *called("x " * 5_000), *called("y " * 5_000), said("Done")))
    longer = stored((user("Look"), *called("x " * 5_001), *called("y " * 5_000), said("Done")))
    sizes = {past.of_turn(turn, budget_tokens=budget).tokens for budget in (6_000, 60_000)}
    assert len(sizes | {past.of_turn(longer, budget_tokens=60_000).tokens}) == 3
