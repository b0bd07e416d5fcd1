from pathlib import Path

import pytest

from loom_worker.agents.load import load
from loom_worker.core.values.agents import Agent, ModelChoice
from loom_worker.core.values.judges import STRATEGY_ALIASES, Panel, PanelMember

HEAD = "apiVersion: loom/v1\nkind: Agent\nmetadata: {name: a}\nspec:\n"
FULL = """  judge_llm: {provider: anthropic, model: small, max_context_tokens: 9000}
  judges:
    strategy: weighted
    threshold: 80
    max_retries: 2
    members:
      - {name: helpful, criteria: [Answers it., Is brief.], weight: 2, criticality: critical, timeout_seconds: 5}
      - {name: words, type: contains, criteria: {none: [sorry]}}
      - {name: digits, type: regex, criteria: "[0-9]+"}
      - {name: shape, type: json_schema, criteria: {type: object}}
      - {name: facts, type: grounded, criticality: safety_critical}
      - {name: own, type: python, criteria: "judges.py:own"}
"""


def read(folder: Path, spec: str) -> tuple[Agent | None, list[str]]:
    (folder / "a.yaml").write_text(HEAD + spec, encoding="utf-8")
    found = load(folder)
    return found.agents.get("a"), [str(problem) for problem in found.problems]


def judges(*members: str, head: str = "") -> str:
    return f"  judges:\n    {head}\n    members:\n" + "".join(f"      - {member}\n" for member in members)


def test_every_field_arrives(tmp_path: Path) -> None:
    agent, problems = read(tmp_path, FULL)
    assert agent is not None
    assert problems == []
    assert agent.judge_model == ModelChoice("anthropic", "small", 9000)
    assert agent.judges == Panel(
        (
            PanelMember("helpful", "llm", "- Answers it.\n- Is brief.", 2.0, "critical", 5.0),
            PanelMember("words", "contains", {"none": ["sorry"]}, timeout_s=30.0),
            PanelMember("digits", "regex", ["[0-9]+"], timeout_s=30.0),
            PanelMember("shape", "json_schema", {"type": "object"}, timeout_s=10.0),
            PanelMember("facts", "grounded", ["numbers", "names"], 1.0, "safety_critical", 30.0, "fail"),
            PanelMember("own", "python", "judges.py:own", timeout_s=30.0),
        ),
        strategy="weighted",
        threshold=0.8,
        max_answers=2,
    )


def test_what_is_not_said_is_usual(tmp_path: Path) -> None:
    agent, problems = read(tmp_path, judges("{name: j, criteria: Is right.}"))
    assert agent is not None
    assert problems == []
    assert agent.judges == Panel((PanelMember("j", "llm", "Is right."),), "mean", 0.7, 3)


def test_without_judges_there_is_no_panel(tmp_path: Path) -> None:
    agent, _ = read(tmp_path, "  system_prompt: Hi.\n")
    assert agent is not None
    assert agent.judges is None


@pytest.mark.cases("word, strategy", [*STRATEGY_ALIASES.items(), ("ALL_MUST_PASS", "min"), ("Vote", "vote")])
def test_strategies_have_other_names(tmp_path: Path, word: str, strategy: str) -> None:
    agent, _ = read(tmp_path, judges("{name: j, criteria: x}", head=f"strategy: {word}"))
    assert agent is not None
    assert agent.judges is not None
    assert agent.judges.strategy == strategy


@pytest.mark.cases("threshold, share", [("0", 0.0), ("0.5", 0.5), ("1", 1.0), ("70", 0.7), ("100", 1.0)])
def test_a_threshold_is_a_share_or_a_percentage(tmp_path: Path, threshold: str, share: float) -> None:
    agent, _ = read(tmp_path, judges("{name: j, criteria: x}", head=f"threshold: {threshold}"))
    assert agent is not None
    assert agent.judges is not None
    assert agent.judges.threshold == pytest.approx(share)


@pytest.mark.cases(
    "spec, problem",
    [
        (judges("{name: j, criteria: x}", head="strategy: median-ish"), "spec.judges.strategy: one of mean, median"),
        (judges("{name: j, criteria: x}", head="threshold: 101"), "spec.judges.threshold: a number from 0 to 100"),
        (judges("{name: j, criteria: x}", head="max_retries: 11"), "a whole number from 1 to 10"),
        (judges("{name: j, criteria: x}", head="max_retries: 0"), "a whole number from 1"),
        ("  judges: {strategy: mean}\n", "spec.judges.members: a list of 1 to 20 judges"),
        (judges(*["{name: j, criteria: x}"] * 2), "spec.judges.members[1].name: a name that no other judge has"),
        (judges("{criteria: x}"), "spec.judges.members[0].name: is missing"),
        (judges("{name: j}"), "criteria: what a good answer is like"),
        (judges("{name: j, type: magic}"), "type: one of llm, contains, regex"),
        (judges("{name: j, type: regex, criteria: '('}"), "not a regular expression"),
        (judges("{name: j, type: regex, criteria: ' '}"), "a regular expression, or a list of such"),
        (judges("{name: j, type: contains, criteria: {all: []}}"), "texts under all, any or none"),
        (judges("{name: j, type: json_schema, criteria: x}"), "a JSON Schema is needed"),
        (judges("{name: j, type: json_schema, criteria: {type: objekt}}"), "not a JSON Schema, at /type"),
        (judges("{name: j, type: grounded, criteria: [facts]}"), "some of numbers, names"),
        (judges("{name: j, type: grounded, cannot_tell: maybe}"), "one of pass, fail, skip"),
        (judges("{name: j, type: python}"), "criteria: is missing"),
        (judges("{name: j, criteria: x, weight: 0}"), "weight: a number above 0"),
        (judges("{name: j, criteria: x, criticality: high}"), "criticality: one of non_critical, critical"),
    ],
)
def test_what_cannot_be_used_is_told_with_its_place(tmp_path: Path, spec: str, problem: str) -> None:
    agent, problems = read(tmp_path, spec)
    assert agent is None
    assert problem in problems[0]


def test_an_unknown_key_of_a_judge_is_reported(tmp_path: Path) -> None:
    _, problems = read(tmp_path, judges("{name: j, criteria: x, wieght: 2}"))
    assert "spec.judges.members[0].wieght: unknown key; did you mean weight?" in problems[0]
    _, problems = read(tmp_path, judges("{name: j, type: regex, criteria: x, cannot_tell: skip}"))
    assert "spec.judges.members[0].cannot_tell: unknown key" in problems[0]


@pytest.mark.cases(
    "fields, cannot_tell",
    [("", "skip"), (", criticality: safety_critical", "fail"), (", cannot_tell: pass", "pass")],
)
def test_what_grounded_cannot_tell_is_left_out_unless_it_guards_or_the_file_says_otherwise(
    tmp_path: Path, fields: str, cannot_tell: str
) -> None:
    agent, problems = read(tmp_path, judges(f"{{name: j, type: grounded{fields}}}"))
    assert problems == []
    assert agent is not None
    assert agent.judges is not None
    assert agent.judges.members[0].cannot_tell == cannot_tell
