"""How the answers of several agents become one. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from loom_worker.core.values.workflows import WRITTEN_MERGES, MergeStrategy
from loom_worker.workflows.readings import leading_number, normalized
from loom_worker.workflows.sequences import Scene
from loom_worker.workflows.steps import Question, Steps, Stopped, ask

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
