from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loom_worker.agents.load import load, stored
from loom_worker.agents.memory import MARKS, PROFILES, policy
from loom_worker.core.errors import BadFile
from loom_worker.core.fields import Fields, InvalidField
from loom_worker.core.values.memory import MemoryPolicy, Shares
from tests.unit.docs.pages import text

USUAL = MemoryPolicy()


def compressing(**compression: Any) -> MemoryPolicy:
    return policy(Fields({"memory_compression": compression}, ("spec", "memory")))


@pytest.mark.parametrize("memory", [None, {}, {"memory_compression": None, "swap": None}])
def test_a_file_that_says_nothing_gets_the_defaults(memory: Any) -> None:
    assert policy(Fields(memory)) == USUAL


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ("balanced", (8, 4, None, 0.60, 0.75, (3, 5, 7))),
        ("data_intensive", (5, 3, None, 0.50, 0.70, (2, 4, 6))),
        ("conversational", (12, 6, None, 0.70, 0.85, (4, 6, 8))),
    ],
)
def test_a_profile_sets_all_that_it_knows_and_leaves_the_rest(profile: str, expected: tuple[Any, ...]) -> None:
    assert compressing(workload_profile=profile) == MemoryPolicy(*expected)


def test_every_value_can_be_given() -> None:
    given = {
        "max_l1_messages": 20,
        "min_l1_messages": 2,
        "normal_threshold_percent": 40,
        "warning_threshold_percent": 55.5,
        "critical_threshold_percent": 100,
        "batch_sizes": {"normal": 1, "warning": 2, "critical": 9},
        "max_l2_tokens": 700,
        "shares": {"rom": 20, "kernel": 5, "l1": 60, "l2": 15},
    }
    found = policy(Fields({"memory_compression": given, "swap": {"enabled": False}}))
    assert found == MemoryPolicy(20, 2, 0.4, 0.555, 1.0, (1, 2, 9), 700, Shares(0.2, 0.05, 0.6, 0.15), has_swap=False)


def test_a_single_value_overrides_the_profiles() -> None:
    balanced = compressing(workload_profile="balanced")
    found = compressing(workload_profile="balanced", max_l1_messages=30, batch_sizes={"critical": 20})
    assert found == replace(balanced, max_l1_messages=30, batches=(3, 5, 20))


def test_a_profile_gets_a_normal_mark_only_from_the_file() -> None:
    assert compressing(workload_profile="balanced", warning_threshold_percent=90).normal_at is None
    assert compressing(workload_profile="balanced", normal_threshold_percent=30).normal_at == 0.3


@pytest.mark.cases(
    ("given", "expected"),
    [
        ({"max_l1_messages": 2}, {"max_l1_messages": 2, "min_l1_messages": 2, "batches": (4, 6, 8), **MARKS}),
        ({"min_l1_messages": 40}, {"min_l1_messages": 40}),
        ({"critical_threshold_percent": 50}, {"normal_at": 0.5, "warning_at": 0.5, "critical_at": 0.5}),
        ({"normal_threshold_percent": 92}, {"normal_at": 0.92, "warning_at": 0.92}),
        ({"batch_sizes": {"warning": 2}}, {"batches": (2, 2, 8), **MARKS}),
        (
            {"batch_sizes": {"normal": 9}, "normal_threshold_percent": 83},
            {"batches": (9, 9, 9), "normal_at": 0.83, "warning_at": 0.83, "critical_at": 0.85},
        ),
    ],
)
def test_what_was_not_given_yields_to_what_was(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert compressing(**given) == replace(USUAL, **expected)


def test_a_file_that_goes_by_the_number_of_messages_keeps_its_batches() -> None:
    assert compressing(max_l1_messages=10).batches == (4, 6, 8)
    assert compressing(workload_profile="balanced", min_l1_messages=40).max_l1_messages == 40
    assert compressing(min_l1_messages=2).batches is None


@pytest.mark.parametrize("spend", ["thrifty", "normal", "full"])
def test_a_file_chooses_what_a_conversation_may_cost(spend: Any) -> None:
    assert policy(Fields({"spend": spend})) == replace(USUAL, spend=spend)


@pytest.mark.parametrize("spend", ["Thrifty", "most", 3, ["full"]])
def test_a_spend_that_there_is_none_of_is_refused_at_its_place(spend: Any) -> None:
    with pytest.raises(InvalidField) as caught:
        policy(Fields({"spend": spend}, ("spec", "memory")))
    assert caught.value.path == "spec.memory.spend"


def test_a_stored_version_from_before_the_choice_is_normal_and_one_with_tiers_keeps_its_marks() -> None:
    def kept(**spec: Any) -> MemoryPolicy:
        document = {"apiVersion": "loom/v1", "kind": "Agent", "metadata": {"name": "a"}, "spec": spec}
        return stored(document, version="1", source="a.yaml:1").memory

    assert kept(memory={"swap": {"enabled": True}}) == USUAL
    assert kept(sessions={"memory": {}}) == replace(USUAL, max_l1_messages=20, batches=(4, 6, 8), **MARKS)


C = "spec.memory.memory_compression"


@pytest.mark.cases(
    ("given", "reason"),
    [
        (
            {"workload_profile": "huge"},
            f"{C}.workload_profile: one of balanced, data_intensive, conversational is needed, not 'huge'",
        ),
        (
            {"min_l1_messages": 9, "max_l1_messages": 8},
            f"{C}.max_l1_messages: at least that of min_l1_messages (9) is needed, not '8'",
        ),
        (
            {"normal_threshold_percent": 81, "critical_threshold_percent": 80},
            f"{C}.critical_threshold_percent: at least that of normal_threshold_percent (81) is needed, not '80'",
        ),
        (
            {"batch_sizes": {"normal": 5, "warning": 4}},
            f"{C}.batch_sizes.warning: at least that of normal (5) is needed, not '4'",
        ),
        ({"warning_threshold_percent": 0.8}, f"{C}.warning_threshold_percent: a percentage from 1 to 100 is needed"),
        ({"warning_threshold_percent": 101}, f"{C}.warning_threshold_percent: a percentage from 1 to 100 is needed"),
        ({"warning_threshold_percent": True}, f"{C}.warning_threshold_percent: a percentage from 1 to 100 is needed"),
        ({"warning_threshold_percent": float("nan")}, f"{C}.warning_threshold_percent: a percentage from 1 to 100"),
        ({"batch_sizes": {"normal": 0}}, f"{C}.batch_sizes.normal: a whole number from 1 is needed, not '0'"),
        ({"max_l1_messages": 0}, f"{C}.max_l1_messages: a whole number from 1 is needed, not '0'"),
        ({"max_l2_tokens": 0}, f"{C}.max_l2_tokens: a whole number from 1 is needed, not '0'"),
        (
            {"shares": {"l1": 70}},
            f"{C}.shares: at most 100 in all is needed, not 'rom 30, kernel 10, l1 70, l2 10'",
        ),
        ({"shares": {"rom": 0}}, f"{C}.shares.rom: a percentage from 1 to 100 is needed, not '0'"),
        ({"shares": [30]}, f"{C}.shares: a mapping is needed, not list"),
    ],
)
def test_nonsense_is_refused_with_its_place_and_what_is_needed(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadFile) as caught:
        compressing(**given)
    assert str(caught.value).startswith(reason)


def test_shares_that_make_less_than_all_are_taken() -> None:
    assert compressing(shares={"rom": 1}).shares == Shares(rom=0.01)


@pytest.mark.parametrize(
    "head", ["apiVersion: loom/v1\nkind: Agent\nmetadata: {name: a}\nspec:\n", "agent:\n  name: a\n"]
)
def test_both_forms_of_a_file_carry_the_rules(tmp_path: Path, head: str) -> None:
    text = "  memory: {memory_compression: {workload_profile: balanced, colour: red}, swap: {enabled: false}}\n"
    (tmp_path / "a.yaml").write_text(head + text, encoding="utf-8")
    agent = load(tmp_path).agents["a"]
    assert (agent.memory.max_l1_messages, agent.memory.has_swap) == (8, False)
    [unknown] = agent.unknown_keys
    assert unknown.endswith("memory.memory_compression.colour")


def column(rules: MemoryPolicy) -> list[str]:
    """What the table in the docs says of them."""
    marks = (rules.normal_at, rules.warning_at, rules.critical_at)
    percents = ("none" if mark is None else f"{100 * mark:.0f}" for mark in marks)
    batches = ", ".join(map(str, rules.batches)) if rules.batches else "what is too much"
    return [
        str(rules.max_l1_messages or "none"),
        str(rules.min_l1_messages),
        *percents,
        batches,
        str(rules.max_l2_tokens),
    ]


def test_the_docs_show_every_profile_as_it_is() -> None:
    table = [line.split(" | ") for line in text("docs/agents.md").splitlines() if line.count(" | ") > 4]
    assert table[0][:5] == ["| member", "default", *(f"`{name}`" for name in PROFILES)]
    shown = zip(*(row[1:5] for row in table[2:9]), strict=True)
    assert [list(values) for values in shown] == [column(rules) for rules in (USUAL, *PROFILES.values())]
