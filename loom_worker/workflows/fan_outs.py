"""Patterns that ask several agents side by side: fork-join, parallel, debate and swarm. Pure."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loom_worker.core.values.workflows import (
    WRITTEN_MERGES,
    Debate,
    MergeStrategy,
    ParallelTasks,
    Swarm,
    VotingStrategy,
)
from loom_worker.workflows.readings import Vote, leading_number, normalized, vote_of
from loom_worker.workflows.sequences import Scene, repair
from loom_worker.workflows.steps import Answers, Question, Steps, Stopped, ask, ask_all

_TASKS: dict[MergeStrategy, str] = {
    "consensus": (
        "Several agents were given the same task. Write the answer that they can agree on: what they have in common, "
        "and for each point on which they differ the better founded view. Give the answer alone."
    ),
    "summary": "Several agents have answered. Summarise what they say without repeating it. Give the summary alone.",
    "best": "Several agents were given the same task. Which answer is the best? Give its number first, then say why.",
}


@dataclass(frozen=True, slots=True)
class Position:
    """What one agent said."""

    agent_id: str
    text: str
    question: str = ""
    """Where each was asked something else."""


def merged(strategy: MergeStrategy, question: str, opinions: Sequence[Position], merger: str, scene: Scene) -> Steps:
    """One text out of several, in the order of the agents.

    Args:
        question: what they were asked; empty where each was asked something else.
        merger: the agent that writes a merge, or chooses one.
    """
    if strategy in WRITTEN_MERGES:
        return _written(strategy, question, opinions, merger, scene)
    return _composed(strategy, opinions)


def _composed(strategy: MergeStrategy, opinions: Sequence[Position]) -> Steps:
    """A merge that nobody needs to be asked for."""
    yield from ()
    if strategy == "concatenate":
        return "\n\n".join(f"[{opinion.agent_id}]\n{opinion.text}" for opinion in opinions)
    if strategy == "voting":
        return most_common([opinion.text for opinion in opinions])
    return opinions[0].text


def most_common(texts: Sequence[str]) -> str:
    """The answer that was given most often, however it is spelled; of as many the one that was given first."""
    counted = Counter(map(normalized, texts))
    most = max(counted.values())
    return next(text for text in texts if counted[normalized(text)] == most)


def _written(strategy: MergeStrategy, question: str, opinions: Sequence[Position], merger: str, scene: Scene) -> Steps:
    if len(opinions) == 1:
        yield from ()
        return opinions[0].text
    task = f"The task was:\n{question}\n\n" if question else ""
    answers = "\n\n".join(f"{n}. {_introduced(opinion)}" for n, opinion in enumerate(opinions, 1))
    prompt = f"{_TASKS[strategy]}\n\n{task}The answers:\n\n{answers}"
    said = yield from ask(Question(scene.key("merge"), merger, prompt, role="merge"))
    if strategy != "best":
        return said
    number = leading_number(said, most=len(opinions))
    if number is None:
        why = f"{merger} was to name the best of {len(opinions)} answers by its number, and did not."
        raise Stopped("failed", "invalid-output", why, stage=scene.key("merge"), output=said)
    return opinions[number - 1].text


def _introduced(opinion: Position) -> str:
    """What an agent said, with what it was asked if that is not what all were."""
    asked = f" was asked: {opinion.question}\nIt said" if opinion.question else ""
    return f"{opinion.agent_id}{asked}:\n{opinion.text}"


HOW_TO_VOTE = (
    "\n\nGive your reasons, and end with two lines:\nVOTE: your choice, in as few words as possible\n"
    "CONFIDENCE: a number from 0 to 1"
)
OTHERS = "\n\nWhat the others said in the last round:\n\n"
YOUR_TURN = "\n\nAnswer them: say where they are right, where they are wrong, and what you think now."


def fan_out(pattern: ParallelTasks, scene: Scene) -> Steps:
    """Agents side by side, then one text out of their answers."""
    part = "agents" if pattern.type == "fork-join" else "tasks"
    asks = [
        Question(scene.key(part, n), task.agent_id, scene.filled(task.prompt), timeout_s=pattern.timeout_s)
        for n, task in enumerate(pattern.tasks)
    ]
    answers = yield from ask_all(asks)
    is_same = pattern.type == "fork-join"
    opinions = [
        Position(each.agent_id, text, "" if is_same else each.prompt) for each, text in zip(asks, answers, strict=True)
    ]
    question = asks[0].prompt if is_same else ""
    merger = pattern.merge_agent_id or pattern.tasks[0].agent_id
    return (yield from merged(pattern.merge_strategy, question, opinions, merger, scene))


def debate(pattern: Debate, scene: Scene) -> Steps:
    """Round by round, each agent hears what the others said in the last one; a moderator merges the last round."""
    topic, opinions = scene.filled(pattern.topic), [Position(agent, "") for agent in pattern.agent_ids]
    for round_n in range(pattern.rounds):
        asks = [
            Question(
                scene.key("rounds", round_n, "agents", n),
                agent,
                topic + (_others(opinions, n) if round_n else ""),
                conversation=scene.key("agents", n),
            )
            for n, agent in enumerate(pattern.agent_ids)
        ]
        answers = yield from ask_all(asks)
        opinions = [Position(agent, text) for agent, text in zip(pattern.agent_ids, answers, strict=True)]
    merger = pattern.moderator_agent_id or pattern.agent_ids[0]
    return (yield from merged(pattern.merge_strategy, topic, opinions, merger, scene))


def _others(opinions: Sequence[Position], own: int) -> str:
    heard = [f"{opinion.agent_id}:\n{opinion.text}" for n, opinion in enumerate(opinions) if n != own]
    return OTHERS + "\n\n".join(heard) + YOUR_TURN if heard else ""


@dataclass(frozen=True, slots=True)
class Tally:
    """How a vote went."""

    votes: Mapping[str, Sequence[Vote]]
    """By choice."""
    voters: int
    """Who was asked; those whose answer holds no vote abstain, and count."""

    def winner(self, strategy: VotingStrategy, confidence: float) -> str | None:
        """The choice that is decided on, as the first of its voters wrote it; None: nothing is decided.

        A choice needs more than half of the voters, two thirds of them rounded up, all of them, or more than half of
        the confidence (weighted), and a mean confidence of at least ``confidence``.
        """
        if not self.votes:
            return None
        best = max(self.votes.values(), key=lambda votes: _weight(votes) if strategy == "weighted" else len(votes))
        total = sum(map(_weight, self.votes.values()))
        enough: dict[VotingStrategy, bool] = {
            "majority": len(best) > self.voters / 2,
            "supermajority": len(best) >= math.ceil(2 * self.voters / 3),
            "unanimous": len(best) == self.voters,
            "weighted": _weight(best) > total / 2,
        }
        is_sure = _weight(best) >= confidence * len(best) - 1e-9
        return best[0].choice if enough[strategy] and is_sure else None

    def __str__(self) -> str:
        """One line for each choice, the most frequent first, and one for those who abstained."""
        ordered = sorted(self.votes.values(), key=len, reverse=True)
        lines = [f"{v[0].choice}: {len(v)} of {self.voters}, confidence {_weight(v) / len(v):.2f}" for v in ordered]
        silent = self.voters - sum(map(len, ordered))
        return "\n".join([*lines, *([f"without a vote: {silent}"] if silent else [])])


def _weight(votes: Sequence[Vote]) -> float:
    return sum(vote.confidence for vote in votes)


def tally(answers: Sequence[str]) -> Tally:
    """Count the votes in the answers."""
    votes: dict[str, list[Vote]] = {}
    for vote in map(vote_of, answers):
        if vote is not None:
            votes.setdefault(vote.counted_as, []).append(vote)
    return Tally(votes, len(answers))


def swarm(pattern: Swarm, scene: Scene) -> Steps:
    """Agents vote; where the vote decides nothing, a judge does; Stopped: nothing is decided, and there is no judge."""
    question = scene.filled(pattern.question)
    answers = yield from _votes(pattern, question, scene)
    counted = tally(answers)
    winner = counted.winner(pattern.strategy, pattern.confidence_threshold)
    if winner is not None:
        return winner
    if pattern.judge_agent_id is None:
        why = f"The vote decided nothing ({pattern.strategy}, confidence {pattern.confidence_threshold:g}):\n{counted}"
        raise Stopped("incomplete", "no-consensus", why, stage=scene.key("votes"), output=str(counted))
    said = "\n\n".join(f"{agent}:\n{text}" for agent, text in zip(pattern.agent_ids, answers, strict=True))
    prompt = f"A vote did not decide this question:\n{question}\n\n{counted}\n\nThe voters said:\n\n{said}\n\nDecide."
    return (yield from ask(Question(scene.key("judge"), pattern.judge_agent_id, prompt, role="judge")))


def _votes(pattern: Swarm, question: str, scene: Scene) -> Answers:
    """Ask all voters; those whose answer holds no vote are asked again, as often as the file says."""
    answers: list[str] = []
    if pattern.shares_votes:
        for n in range(len(pattern.agent_ids)):
            answers += yield from ask_all([_vote(pattern, n, question + _before(pattern, answers), scene)])
    else:
        answers += yield from ask_all([_vote(pattern, n, question, scene) for n in range(len(pattern.agent_ids))])
    for attempt in range(1, pattern.retry.max_retries + 1):
        silent = [n for n, answer in enumerate(answers) if vote_of(answer) is None]
        asks = [_asked_again(pattern, n, attempt, answers[n], scene) for n in silent]
        anew = (yield from ask_all(asks)) if asks else ()
        for n, answer in zip(silent, anew, strict=True):
            answers[n] = answer
    return tuple(answers)


def _vote(pattern: Swarm, n: int, question: str, scene: Scene) -> Question:
    return Question(scene.key("votes", n), pattern.agent_ids[n], question + HOW_TO_VOTE, role="vote")


def _asked_again(pattern: Swarm, n: int, attempt: int, answer: str, scene: Scene) -> Question:
    prompt = repair(pattern.retry, None, scene.values, answer, "it holds no vote." + HOW_TO_VOTE, attempt)
    key = scene.key("votes", n)
    return Question(f"{key}.retry.{attempt}", pattern.agent_ids[n], prompt, role="vote", conversation=key)


def _before(pattern: Swarm, answers: Sequence[str]) -> str:
    """The votes that were given before, for those who vote one after another."""
    votes = [(pattern.agent_ids[n], vote_of(answer)) for n, answer in enumerate(answers)]
    told = [f"{agent}: {vote.choice} ({vote.confidence:g})" for agent, vote in votes if vote is not None]
    return "\n\nVotes so far:\n" + "\n".join(told) if told else ""
