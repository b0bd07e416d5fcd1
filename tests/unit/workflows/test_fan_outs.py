"""Agents side by side: how their answers are merged, and how their votes count."""

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.values.workflows import (
    Debate,
    MergeStrategy,
    OutputRetries,
    ParallelTasks,
    Pattern,
    Swarm,
    Task,
    VotingStrategy,
)
from loom_worker.workflows.decide import play
from loom_worker.workflows.fan_outs import most_common, tally
from loom_worker.workflows.sequences import Scene
from loom_worker.workflows.steps import Gate, Question, StageAnswer, Stopped

Answers = Mapping[str, str] | Callable[[Question], str]


def played(pattern: Pattern, answers: Answers) -> tuple[str, list[Question]]:
    """The result, and what was asked."""
    steps, asked = play(pattern, Scene({"input": "x"})), []
    say = answers if callable(answers) else lambda ask: answers[ask.key]
    try:
        wanted = next(steps)
        while True:
            assert not isinstance(wanted, Gate)
            asked += wanted
            wanted = steps.send(tuple(StageAnswer(say(ask)) for ask in wanted))
    except StopIteration as ended:
        return ended.value, asked


def fork(strategy: MergeStrategy, *agents: str, merger: str | None = None) -> ParallelTasks:
    tasks = tuple(Task(agent, "Which?") for agent in agents)
    return ParallelTasks("fork-join", tasks, strategy, merger)


SAID = {"agents.0": "Blue.", "agents.1": "red", "agents.2": " blue", "merge": "2"}


@pytest.mark.parametrize(
    ("strategy", "merged"),
    [
        ("concatenate", "[anna]\nBlue.\n\n[ben]\nred\n\n[carl]\n blue"),
        ("first", "Blue."),
        ("voting", "Blue."),
        ("summary", "2"),
        ("consensus", "2"),
        ("best", "red"),
    ],
)
def test_answers_are_merged_as_the_strategy_says(strategy: MergeStrategy, merged: str) -> None:
    result, asked = played(fork(strategy, "anna", "ben", "carl"), SAID)
    assert result == merged
    assert [ask.key for ask in asked[:3]] == ["agents.0", "agents.1", "agents.2"]
    assert [ask.agent_id for ask in asked[3:]] == (["anna"] if strategy in ("summary", "consensus", "best") else [])


def test_a_written_merge_knows_the_task_and_every_answer_and_is_made_by_whom_the_file_names() -> None:
    _, asked = played(fork("summary", "anna", "ben", merger="carl"), SAID)
    merge = asked[-1]
    assert (merge.agent_id, merge.role) == ("carl", "merge")
    assert all(part in merge.prompt for part in ("Which?", "1. anna:\nBlue.", "2. ben:\nred"))


def test_a_merge_of_different_tasks_tells_what_each_was_asked() -> None:
    tasks = (Task("anna", "How many?"), Task("anna", "How much?"))
    _, asked = played(ParallelTasks("parallel", tasks, "summary"), {"tasks.0": "1", "tasks.1": "2", "merge": "m"})
    assert "1. anna was asked: How many?\nIt said:\n1" in asked[-1].prompt
    assert "2. anna was asked: How much?\nIt said:\n2" in asked[-1].prompt


def test_one_answer_needs_nobody_to_merge_it() -> None:
    assert played(fork("best", "anna"), SAID)[0] == "Blue."


def test_a_best_answer_that_is_not_named_is_not_made_up() -> None:
    with pytest.raises(Stopped) as caught:
        played(fork("best", "anna", "ben"), {**SAID, "merge": "Both have merits."})
    assert (caught.value.status, caught.value.reason, caught.value.stage) == ("failed", "invalid-output", "merge")


@given(st.lists(st.sampled_from(["a", "B", "b.", "c"]), min_size=1))
def test_the_most_common_answer_is_one_that_was_given_and_none_was_given_more_often(texts: list[str]) -> None:
    counts: dict[str, int] = {}
    for text in texts:
        counts[text.strip(".").lower()] = counts.get(text.strip(".").lower(), 0) + 1
    won = most_common(texts)
    assert won in texts
    assert counts[won.strip(".").lower()] == max(counts.values())


def test_each_debater_hears_the_others_of_the_last_round_and_goes_on_in_its_own_session() -> None:
    said: dict[str, str] = {"merge": "Peace."}
    said |= {f"rounds.{n}.agents.{m}": f"view {n}{m}" for n in range(2) for m in range(2)}
    result, asked = played(Debate("Why?", ("anna", "ben"), 2, "consensus", "carl"), said)
    assert result == "Peace."
    second = [ask for ask in asked if ask.key.startswith("rounds.1")]
    assert [ask.conversation for ask in second] == ["agents.0", "agents.1"]
    assert "ben:\nview 01" in second[0].prompt
    assert "view 00" not in second[0].prompt
    assert asked[-1].agent_id == "carl"
    assert "anna:\nview 10" in asked[-1].prompt


def vote(choice: str, confidence: float = 1.0) -> str:
    return f"VOTE: {choice}\nCONFIDENCE: {confidence}"


A, B, SILENT = vote("a"), vote("b"), "I do not know."


@pytest.mark.cases(
    ("strategy", "answers", "winner"),
    [
        ("majority", [A, A, B], "a"),
        ("majority", [A, B], None),
        ("majority", [A, SILENT], None),  # who abstains counts
        ("supermajority", [A, A, B], "a"),
        ("supermajority", [A, A, B, B], None),
        ("supermajority", [A, A, A, B], "a"),  # ceil(8/3) = 3
        ("supermajority", [A, A, A, B, B], None),  # ceil(10/3) = 4
        ("unanimous", [A, A, A], "a"),
        ("unanimous", [A, A, B], None),
        ("unanimous", [A, A, SILENT], None),
        ("weighted", [vote("a", 0.9), vote("b", 0.3), vote("b", 0.4)], "a"),
        ("weighted", [vote("a", 0.6), vote("b", 0.6)], None),
        ("majority", [SILENT, SILENT], None),
    ],
)
def test_a_vote_decides_as_its_strategy_says(strategy: VotingStrategy, answers: list[str], winner: str | None) -> None:
    assert tally(answers).winner(strategy, 0.0) == winner


def test_a_winner_whose_voters_are_not_sure_enough_does_not_win() -> None:
    unsure = tally([vote("a", 0.6), vote("a", 0.8)])
    assert unsure.winner("unanimous", 0.7) == "a"
    assert unsure.winner("unanimous", 0.71) is None


def swarm(**fields: object) -> Swarm:
    return Swarm("Which?", ("anna", "ben", "carl"), **fields)  # type: ignore[arg-type]


def test_a_vote_that_decides_nothing_goes_to_the_judge_who_knows_all_of_it() -> None:
    said = {"votes.0": A, "votes.1": B, "votes.2": SILENT, "judge": "b it is"}
    result, asked = played(swarm(judge_agent_id="dora"), said)
    assert result == "b it is"
    assert all(part in asked[-1].prompt for part in ("a: 1 of 3", "without a vote: 1", SILENT))


def test_a_vote_that_decides_nothing_and_has_no_judge_leaves_the_count() -> None:
    with pytest.raises(Stopped) as caught:
        played(swarm(), {"votes.0": A, "votes.1": B, "votes.2": SILENT})
    assert (caught.value.status, caught.value.reason) == ("incomplete", "no-consensus")
    assert caught.value.output == "a: 1 of 3, confidence 1.00\nb: 1 of 3, confidence 1.00\nwithout a vote: 1"


def test_who_gave_no_vote_is_asked_again_and_nobody_else() -> None:
    said = {"votes.0": A, "votes.1": SILENT, "votes.2": A, "votes.1.retry.1": A}
    result, asked = played(swarm(strategy="unanimous", retry=OutputRetries(1)), said)
    assert (result, [ask.key for ask in asked[3:]]) == ("a", ["votes.1.retry.1"])


def test_shared_votes_are_given_one_after_another() -> None:
    said = {"votes.0": A, "votes.1": B, "votes.2": A}
    _, asked = played(swarm(shares_votes=True), said)
    assert "Votes so far" not in asked[0].prompt
    assert "anna: a (1)" in asked[1].prompt
    assert "ben: b (1)" in asked[2].prompt
