"""When L1 is too full, and which messages leave it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.agents.memory import MARKS
from loom_worker.core.values.chat import ChatMessage
from loom_worker.core.values.memory import Level, MemoryPolicy, MemoryState, Shares, Spend
from loom_worker.memory.layers import chat_tokens
from loom_worker.memory.layers import turns as turns_of
from loom_worker.memory.pressure import (
    LEFT,
    MOST_L1_MESSAGES,
    L1Room,
    batch,
    kept_tokens,
    l1_room,
    l1_tokens,
    l2_is_full,
    pressure,
)
from loom_worker.memory.results import Sizes
from tests.unit.memory.talk import called, conversations, count, said, stored, turns, user

DEFAULT = MemoryPolicy()
BY_NUMBER = MemoryPolicy(max_l1_messages=10, batches=(4, 6, 8), **MARKS)
BALANCED = MemoryPolicy(
    max_l1_messages=8, min_l1_messages=4, normal_at=None, warning_at=0.60, critical_at=0.75, batches=(3, 5, 7)
)


def room(allowance_tokens: int) -> L1Room:
    """L1's allowance, where it is half of the input budget."""
    return l1_room(2 * allowance_tokens, policy=BY_NUMBER, most_tokens=10_000_000)


ROOMY = room(10_000_000)
"""More tokens than any conversation here fills."""

policies = st.builds(
    MemoryPolicy,
    max_l1_messages=st.none() | st.integers(2, 12),
    min_l1_messages=st.integers(0, 6),
    normal_at=st.sampled_from([None, 0.5, 0.7]),
    batches=st.none() | st.tuples(st.integers(1, 4), st.integers(4, 6), st.integers(6, 8)),
)


def exchanges(number: int, text: str = "") -> tuple[list[ChatMessage], ...]:
    """So many turns of a question and an answer."""
    return tuple([user(f"{text}question {n}"), said(f"{text}answer {n}")] for n in range(number))


@pytest.mark.cases(
    ("policy", "tokens", "level"),
    [
        (DEFAULT, 0, None),
        (DEFAULT, 849, None),
        (DEFAULT, 850, "normal"),
        (DEFAULT, 900, "warning"),
        (DEFAULT, 950, "critical"),
        (BY_NUMBER, 699, None),
        (BY_NUMBER, 700, "normal"),
        (BY_NUMBER, 799, "normal"),
        (BY_NUMBER, 800, "warning"),
        (BY_NUMBER, 849, "warning"),
        (BY_NUMBER, 850, "critical"),
        (DEFAULT, 5000, "critical"),
        (BALANCED, 599, None),
        (BALANCED, 600, "warning"),
        (BALANCED, 749, "warning"),
        (BALANCED, 750, "critical"),
    ],
)
def test_the_marks_are_shares_of_l1s_own_allowance(policy: MemoryPolicy, tokens: int, level: Level | None) -> None:
    assert pressure(tokens, 4, allowance_tokens=1000, policy=policy) == level


@pytest.mark.cases(
    ("policy", "messages", "level"),
    [
        (DEFAULT, MOST_L1_MESSAGES, None),
        (DEFAULT, MOST_L1_MESSAGES + 1, "normal"),
        (replace(BY_NUMBER, max_l1_messages=5_000), MOST_L1_MESSAGES + 1, "normal"),
        (BY_NUMBER, 10, None),
        (BY_NUMBER, 11, "normal"),
        (BY_NUMBER, 20, "normal"),
        (BY_NUMBER, 21, "critical"),
        (BALANCED, 8, None),
        (BALANCED, 9, "normal"),
        (BALANCED, 17, "critical"),
    ],
)
def test_many_messages_are_pressure_however_short_they_are(
    policy: MemoryPolicy, messages: int, level: Level | None
) -> None:
    assert pressure(0, messages, allowance_tokens=1000, policy=policy) == level


def test_any_token_is_too_much_where_l1_has_no_share() -> None:
    assert pressure(1, 1, allowance_tokens=0, policy=DEFAULT) == "critical"
    assert pressure(0, 0, allowance_tokens=0, policy=DEFAULT) is None
    none = replace(BY_NUMBER, shares=Shares(l1=0))
    found = batch(stored(*exchanges(4)), room=room(0), policy=none, sizes=Sizes(count))
    assert found is not None
    assert len(found.messages) == 4


@pytest.mark.parametrize(
    ("share", "level", "messages"), [(0.72, "normal", 4), (0.82, "warning", 6), (0.9, "critical", 8)]
)
def test_the_fuller_l1_is_the_more_leaves_it(share: float, level: Level, messages: int) -> None:
    history = stored(*exchanges(7))
    tokens = l1_tokens(history, room=ROOMY, sizes=Sizes(count))
    roomy = replace(BY_NUMBER, max_l1_messages=50)
    found = batch(history, room=room(int(tokens / share)), policy=roomy, sizes=Sizes(count))
    assert found is not None
    assert (found.level, found.messages) == (level, history[:messages])


@pytest.mark.cases("share", [0.85, 0.92, 0.97, 1.3])
def test_by_default_one_batch_takes_no_more_than_brings_l1_down_to_its_part_of_the_first_mark(share: float) -> None:
    history = stored(*exchanges(40))
    tokens = l1_tokens(history, room=ROOMY, sizes=Sizes(count))
    allowance = int(tokens / share)
    found = batch(history, room=room(allowance), policy=DEFAULT, sizes=Sizes(count))
    assert found is not None
    rest = history[len(found.messages) :]
    turn_before = found.messages[-2:]
    most = LEFT["normal"] * 0.85 * allowance
    assert l1_tokens(rest, room=ROOMY, sizes=Sizes(count)) <= most
    assert l1_tokens((*turn_before, *rest), room=ROOMY, sizes=Sizes(count)) > most


def test_the_window_decides_and_not_ten_messages() -> None:
    history = stored(*exchanges(40))
    tokens = l1_tokens(history, room=ROOMY, sizes=Sizes(count))
    assert batch(history, room=room(2 * tokens), policy=DEFAULT, sizes=Sizes(count)) is None
    by_number = batch(history, room=room(2 * tokens), policy=BY_NUMBER, sizes=Sizes(count))
    assert by_number is not None
    assert len(by_number.messages) == 8


def test_a_file_that_names_batches_has_half_of_the_input_budget_whatever_others_leave() -> None:
    assert l1_room(7_200, policy=BY_NUMBER, most_tokens=48_000).beside(5_000) == L1Room(3_600, 2_160)
    assert l1_room(180_000, policy=BY_NUMBER, most_tokens=48_000) == L1Room(48_000, 54_000)
    assert l1_room(180_000, policy=BY_NUMBER, most_tokens=200_000).allowance_tokens == 90_000
    assert l1_room(28_800, policy=BY_NUMBER, most_tokens=48_000, typical=0.75) == L1Room(19_200, 8_640)


@pytest.mark.cases(
    ("budget", "taken", "allowance"),
    [(28_800, 3_000, 25_800), (28_800, 19_000, 9_800), (28_800, 30_000, 9_600), (180_000, 6_000, 64_000)],
)
def test_what_the_other_layers_leave_is_l1s_up_to_its_setting_in_usual_tokens(
    budget: int, taken: int, allowance: int
) -> None:
    given = l1_room(budget, policy=DEFAULT, most_tokens=48_000, typical=0.75)
    assert given.beside(taken).allowance_tokens == allowance
    assert given.beside(taken - 1_000).beside(1_000) == given.beside(taken)


def test_shares_that_make_less_than_all_keep_the_rest_for_the_turn() -> None:
    narrow = replace(DEFAULT, shares=Shares(rom=0.1, kernel=0.1, l1=0.3, l2=0.1))
    assert l1_room(10_000, policy=narrow, most_tokens=48_000).beside(1_000).allowance_tokens == 5_000


@pytest.mark.cases(("spend", "allowance"), [("thrifty", 12_000), ("normal", 48_000), ("full", 174_000)])
def test_the_agents_spend_bounds_l1_in_a_large_window(spend: Spend, allowance: int) -> None:
    policy = replace(DEFAULT, spend=spend)
    assert l1_room(180_000, policy=policy, most_tokens=48_000).beside(6_000).allowance_tokens == allowance
    assert l1_room(10_000, policy=policy, most_tokens=48_000).beside(1_000).allowance_tokens <= 9_000


def test_what_compression_keeps_is_taken_off_l1s_room() -> None:
    state = MemoryState(l2_text="x" * 100, schemas=({"name": "t", "text": "y" * 20},), refs=("ref_1",))
    assert kept_tokens(state, count) == 125


def test_more_messages_than_a_turn_reads_leave_however_short_they_are() -> None:
    history = stored(*exchanges(MOST_L1_MESSAGES // 2 + 1))
    found = batch(history, room=ROOMY, policy=DEFAULT, sizes=Sizes(count))
    assert found is not None
    assert len(history) - len(found.messages) == int(LEFT["normal"] * MOST_L1_MESSAGES)


def test_a_batch_is_rounded_up_to_whole_turns() -> None:
    history = stored([user("1"), *called("one"), said("1")], [user("2"), *called("two"), said("2")], *exchanges(3))
    found = batch(history, room=ROOMY, policy=replace(BY_NUMBER, batches=(5, 6, 8)), sizes=Sizes(count))
    assert found is not None
    assert found.messages == history[:8]


def test_fewer_leave_where_the_least_that_l1_keeps_would_be_touched() -> None:
    history = stored(
        [user("1"), said("1")], [user("2"), *called("a"), *called("b"), *called("c"), said("2")], *exchanges(1)
    )
    found = batch(history, room=ROOMY, policy=replace(BY_NUMBER, max_l1_messages=5), sizes=Sizes(count))
    assert found is not None
    assert found.messages == history[:2]


@pytest.mark.parametrize("least", [0, 4])
def test_the_newest_turn_never_leaves(least: int) -> None:
    only = stored([user("1"), *(chat for n in range(9) for chat in called("x" * 99, first=n))])
    policy = replace(DEFAULT, min_l1_messages=least)
    assert batch(only, room=room(10), policy=policy, sizes=Sizes(count)) is None
    assert batch((), room=room(10), policy=policy, sizes=Sizes(count)) is None


def test_results_count_as_they_are_sent() -> None:
    turn = [user("go"), *(chat for n in range(8) for chat in called("x" * 1000, first=n))]
    sent = l1_tokens(stored(turn, turn), room=room(5000), sizes=Sizes(count))
    assert sent < 2 * chat_tokens(turn, count) - 10_000
    assert l1_tokens(stored(turn), room=ROOMY, sizes=Sizes(count)) == chat_tokens(turn, count)


@given(conversations, policies, st.integers(0, 5000))
def test_a_batch_is_the_oldest_whole_turns_and_the_rest_is_untouched(
    said_so_far: list[list[ChatMessage]], policy: MemoryPolicy, allowance: int
) -> None:
    history = stored(*said_so_far)
    found = batch(history, room=room(allowance), policy=policy, sizes=Sizes(count))
    assert found == batch(history, room=room(allowance), policy=policy, sizes=Sizes(count))
    if found is None:
        return
    gone, rest = found.messages, history[len(found.messages) :]
    assert gone + rest == history
    assert turns_of(gone) + turns_of(rest) == turns_of(history)
    assert gone
    assert turns_of(rest)[-1:] == turns_of(history)[-1:]
    assert len(rest) >= policy.min_l1_messages


@given(st.lists(turns, min_size=1, max_size=12), policies, st.integers(0, 5000))
def test_whatever_is_said_l1_never_grows_beyond_its_marks_but_for_what_it_must_keep(
    stream: list[list[ChatMessage]], policy: MemoryPolicy, allowance: int
) -> None:
    everything = stored(*stream)
    first = 0
    for end in range(1, len(stream) + 1):
        so_far = everything[: sum(map(len, stream[:end]))]
        while found := batch(so_far[first:], room=room(allowance), policy=policy, sizes=Sizes(count)):
            first += len(found.messages)
        l1 = so_far[first:]
        oldest, *others = turns_of(l1)
        tokens = l1_tokens(l1, room=room(allowance), sizes=Sizes(count))
        is_calm = pressure(tokens, len(l1), allowance_tokens=allowance, policy=policy) is None
        assert is_calm or not others or len(l1) - len(oldest) < policy.min_l1_messages
        assert len(l1) <= max(policy.max_l1_messages or MOST_L1_MESSAGES, len(oldest) + policy.min_l1_messages)


@pytest.mark.cases(
    ("tokens", "allowance", "is_full"),
    [(5000, 18_000, False), (5001, 18_000, True), (800, 800, False), (801, 800, True), (0, 0, False)],
)
def test_l2_is_full_above_its_most_tokens_or_its_share(tokens: int, allowance: int, is_full: bool) -> None:
    assert l2_is_full(tokens, policy=DEFAULT, allowance_tokens=allowance) is is_full
