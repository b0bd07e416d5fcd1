"""What a run must have asked and given, by the harness' own reading of its workflow. Pure.

It plays the spec of workflow_files.py with the answers that the database has, as a person would who has all sheets of
paper on the table. It has nothing in common with Loom's own code for this, and knows only what our workflows use.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from tests.chaos.marks import UNSPOKEN
from tests.chaos.workflow_files import Spec

PLACE = re.compile(r"\{\{(previous|history|output|feedback)\}\}")


@dataclass(frozen=True)
class DueQuestion:
    """Something that must have been asked."""

    agent: str
    """Of an approval, whose output it is about."""
    quotes: tuple[str, ...]
    """The outputs that stand in it, in their order."""
    says: tuple[str, ...] = ()
    """Other texts that stand in it."""


@dataclass(frozen=True)
class DueEnd:
    """How a run must end."""

    status: str
    reason: str | None
    output: str | None
    """None: it is not known."""


class _Unanswered(Exception):
    """What is asked next has no answer."""


class _Stopped(Exception):
    """The run ends without a result of its own."""


@dataclass
class Sheets:
    """All that was answered, and what was asked for it."""

    answers: Mapping[str, str]
    """Outputs of completed stages, by key."""
    decisions: Mapping[str, str]
    """Of people, by key of the approval."""
    workflow: str = ""
    asked: dict[str, DueQuestion] = field(default_factory=dict)

    def ask(self, *questions: tuple[str, DueQuestion]) -> list[str]:
        """Ask side by side."""
        self.asked.update(questions)
        if any(key not in self.answers for key, _ in questions):
            raise _Unanswered
        return [self.answers[key] for key, _ in questions]

    def one(self, key: str, agent: str, quotes: Sequence[str] = (), *says: str) -> str:
        """Ask one agent."""
        return self.ask((key, DueQuestion(agent, tuple(quotes), says)))[0]

    def decided(self, key: str, agent: str, output: str) -> str:
        """Ask a person."""
        self.asked[key] = DueQuestion(agent, (output,))
        if key not in self.decisions:
            raise _Unanswered
        return self.decisions[key]


def played(spec: Spec, sheets: Sheets) -> DueEnd | None:
    """How the run must end; None: it waits for an answer, one of ``sheets.asked``."""
    try:
        return DueEnd("completed", None, _play(spec, sheets, "", ""))
    except _Unanswered:
        return None
    except _Stopped as stopped:
        status, reason, output = stopped.args
        return DueEnd(status, reason, output)


def _play(spec: Spec, sheets: Sheets, at: str, before: str) -> str:
    kind = spec.get("type", "coordination")
    return _KINDS[kind](spec, sheets, at, before)


def _quoted(template: str, **known: Sequence[str]) -> list[str]:
    """What a template quotes, in its order."""
    return [text for place in PLACE.findall(template) for text in known.get(place, ())]


def _pipeline(spec: Spec, sheets: Sheets, at: str, before: str) -> str:
    start = _quoted(spec["initial_prompt"], previous=[before] if before else [])
    outputs: list[str] = []
    for n in range(len(spec["stages"])):
        outputs.append(_stage(spec, n, sheets, at, outputs, start))
    return outputs[-1]


def _stage(spec: Spec, n: int, sheets: Sheets, at: str, before: Sequence[str], start: Sequence[str], *says: str) -> str:
    stage, key = spec["stages"][n], f"{at}stages.{n}"
    quotes = _quoted(stage["prompt_template"], previous=before[-1:] or start, history=before)
    if spec.get("pass_full_history"):
        quotes += before
    output = _valid(stage, key, sheets, key, quotes, says)
    approval = stage.get("approval")
    for revision in range(1, approval["max_revisions"] + 2 if approval else 0):
        said = sheets.decided(
            f"{key}.approval" + (f".{revision}" if revision > 1 else ""), _agent(stage, sheets), output
        )
        if said == "approve":
            return output
        if said == "reject" or revision > approval["max_revisions"]:
            raise _Stopped("failed", "rejected", output)
        output = _valid(stage, key, sheets, f"{key}.revision.{revision}", (), ())
    return output


def _agent(stage: Spec, sheets: Sheets) -> str:
    agent = str(stage["agent_id"])
    return f"{sheets.workflow}:{agent}" if agent == "clerk" else agent


def _valid(stage: Spec, key: str, sheets: Sheets, asked: str, quotes: Sequence[str], says: Sequence[str]) -> str:
    """A stage's output, after as many repairs as it may have."""
    agent = _agent(stage, sheets)
    output = sheets.one(asked, agent, quotes, *says)
    for attempt in range(1, stage.get("retry_policy", {"max_retries": 0})["max_retries"] + 2):
        place = asked if attempt == 1 else f"{asked}.retry.{attempt - 1}"
        if attempt > 1:
            output = sheets.one(place, agent, [output])
        if _is_fit(stage, sheets, place, agent, output):
            return output
    raise _Stopped("failed", "invalid-output", output)


def _is_fit(stage: Spec, sheets: Sheets, place: str, agent: str, output: str) -> bool:
    if "output_schema" in stage and not isinstance(_json(output).get("n"), int):
        return False
    if "validation_prompt" in stage:
        return sheets.one(f"{place}.validation", agent, [output]).startswith("yes")
    return True


def _json(output: str) -> dict[str, Any]:
    """The JSON in the last line; an empty one if there is none."""
    try:
        found = json.loads(_last_line(output))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _iterative(spec: Spec, sheets: Sheets, at: str, before: str) -> str:
    stages, outputs, begin, reason = spec["pipeline"]["stages"], list[str](), 0, ""
    names = [stage["id"] for stage in stages]
    for iteration in range(spec["max_iterations"]):
        del outputs[begin:]
        for n in range(begin, len(stages)):
            says = (reason,) if reason else ()
            outputs.append(_stage(spec["pipeline"], n, sheets, f"{at}iterations.{iteration}.", outputs, (), *says))
        _, is_wished, wish = _last_line(outputs[-1]).partition("RESTART ")
        if not is_wished:
            return outputs[-1]
        name, _, reason = wish.partition(": ")
        begin = names.index(name) if name in names else 0
    raise _Stopped("incomplete", "iterations", outputs[-1])


def _conditional(spec: Spec, sheets: Sheets, at: str, before: str) -> str:
    agent, branches = spec["condition_agent_id"], spec["branches"]
    answer = sheets.one(f"{at}condition", agent)
    for attempt in range(1, spec["retry_policy"]["max_retries"] + 1):
        if _last_line(answer) not in branches:
            answer = sheets.one(f"{at}condition.retry.{attempt}", agent, [answer])
    branch = branches.get(_last_line(answer), spec.get("default_branch"))
    if branch is None:
        raise _Stopped("failed", "no-branch", answer)
    return _play(branch, sheets, f"{at}branch.", answer)


def _last_line(text: str) -> str:
    *_, last = ("", *text.splitlines())
    return last


def _fan_out(spec: Spec, sheets: Sheets, at: str, before: str) -> str:
    if spec["type"] == "fork-join":
        tasks = [(f"{at}agents.{n}", agent, spec["prompt"]) for n, agent in enumerate(spec["agent_ids"])]
    else:
        tasks = [(f"{at}tasks.{n}", task["agent_id"], task["prompt"]) for n, task in enumerate(spec["tasks"])]
    known = [before] if before else []
    answers = sheets.ask(
        *((key, DueQuestion(agent, tuple(_quoted(prompt, previous=known)))) for key, agent, prompt in tasks)
    )
    agents = [agent for _, agent, _ in tasks]
    merger = spec.get("merge_agent_id", agents[0])
    return _merged(spec["merge_strategy"], agents, answers, merger, sheets, at)


def _debate(spec: Spec, sheets: Sheets, at: str, before: str) -> str:
    agents, known = spec["agent_ids"], _quoted(spec["topic"], previous=[before] if before else [])
    answers: list[str] = []
    for round_n in range(spec["rounds"]):
        heard = [[*known, *answers[:n], *answers[n + 1 :]] for n in range(len(agents))]
        answers = sheets.ask(
            *((f"{at}rounds.{round_n}.agents.{n}", DueQuestion(each, tuple(heard[n]))) for n, each in enumerate(agents))
        )
    return _merged(spec["merge_strategy"], agents, answers, spec["moderator_agent_id"], sheets, at, known)


def _merged(
    merge: str,
    agents: Sequence[str],
    answers: Sequence[str],
    merger: str,
    sheets: Sheets,
    at: str,
    known: Sequence[str] = (),
) -> str:
    if merge == "concatenate":
        return "\n\n".join(f"[{agent}]\n{answer}" for agent, answer in zip(agents, answers, strict=True))
    if merge == "first":
        return answers[0]
    if merge == "voting":
        words = [UNSPOKEN.sub("", answer).strip() for answer in answers]
        often = Counter(words)
        return answers[max(range(len(answers)), key=lambda n: (often[words[n]], -n))]
    written = sheets.one(f"{at}merge", merger, [*known, *answers])
    if merge != "best":
        return written
    number = written.split()[0]
    if not number.isdigit():
        raise _Stopped("failed", "invalid-output", written)
    return answers[int(number) - 1]


def _swarm(spec: Spec, sheets: Sheets, at: str, before: str) -> str:
    agents = spec["agent_ids"]
    keys = [f"{at}votes.{n}" for n in range(len(agents))]
    questions = [(key, DueQuestion(agent, ())) for key, agent in zip(keys, agents, strict=True)]
    if spec.get("share_votes"):
        answers: list[str] = []
        for n, (key, question) in enumerate(questions):
            told = [_told(agents[m], answers[m]) for m in range(n)]
            answers += sheets.ask((key, DueQuestion(question.agent, (), tuple(filter(None, told)))))
    else:
        answers = sheets.ask(*questions)
    for attempt in range(1, spec["retry_policy"]["max_retries"] + 1):
        silent = [n for n, answer in enumerate(answers) if _vote(answer) is None]
        anew = sheets.ask(*((f"{keys[n]}.retry.{attempt}", DueQuestion(agents[n], (answers[n],))) for n in silent))
        for n, answer in zip(silent, anew, strict=True):
            answers[n] = answer
    winner = _elected(spec["strategy"], [_vote(answer) for answer in answers])
    if winner is not None:
        return winner
    if "judge_agent_id" not in spec:
        raise _Stopped("incomplete", "no-consensus", None)
    return sheets.one(f"{at}judge", spec["judge_agent_id"], answers)


def _told(agent: str, answer: str) -> str:
    vote = _vote(answer)
    return f"{agent}: {vote[0]}" if vote else ""


def _vote(answer: str) -> tuple[str, Fraction] | None:
    """Choice and confidence, of the two lines in which ours end."""
    *_, choice, sure = ("", "", *answer.splitlines())
    if not choice.startswith("VOTE: "):
        return None
    number = sure.removeprefix("CONFIDENCE: ")
    percent = number.endswith("%")
    return choice.removeprefix("VOTE: "), Fraction(number.rstrip("%")) / (100 if percent else 1)


def _elected(strategy: str, votes: Sequence[tuple[str, Fraction] | None]) -> str | None:
    given = [vote for vote in votes if vote is not None]
    for choice in dict.fromkeys(choice for choice, _ in given):
        own = [sure for other, sure in given if other == choice]
        is_enough = {
            "majority": 2 * len(own) > len(votes),
            "unanimous": len(own) == len(votes),
            "weighted": 2 * sum(own) > sum(sure for _, sure in given),
        }
        if is_enough[strategy] and 2 * sum(own) >= len(own):
            return choice
    return None


def _coordination(spec: Spec, sheets: Sheets, at: str, before: str) -> str:
    agents = {each["name"]: each.get("agent", each["name"]) for each in spec["agents"]}
    return sheets.one(f"{at}entrypoint", agents[spec["entrypoint"]])


_KINDS: Mapping[str, Callable[[Spec, Sheets, str, str], str]] = {
    "pipeline": _pipeline,
    "iterative": _iterative,
    "conditional": _conditional,
    "fork-join": _fan_out,
    "parallel": _fan_out,
    "debate": _debate,
    "swarm": _swarm,
    "coordination": _coordination,
}
