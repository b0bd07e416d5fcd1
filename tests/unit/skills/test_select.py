import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.values.skills import SkillSet
from loom_worker.skills.prompt import chosen
from tests.support.until import AT_ONCE_S
from tests.unit.skills.parts import a_skill

SHELF = SkillSet(
    (
        a_skill("always", "auto"),
        a_skill("infra-ops", "manual"),
        a_skill("k8s", "keyword", keywords=("kubernetes", "pod", "helm chart")),
        a_skill("pdf"),
        a_skill(
            "servers", "keyword", keywords=("server", "deploy", "C++", "部署", "サーバー", "서버", "Straße", ".net")
        ),
    )
)


def names(message: str, most: int = 9) -> list[str]:
    return [f"{skill.name} {reason}" for skill, reason in chosen(SHELF, message, most=most)]


@pytest.mark.cases(
    "message",
    [
        "use skill: infra-ops",
        "Please USE SKILL: Infra-Ops now",
        "use skill:infra-ops.",
        "use  skill :\n infra-ops",
        "use skill: 'infra-ops'",
        "use skill: `infra-ops`, please",
        "use skill: “infra-ops”!",
        "use skill: **infra-ops**",
        '"use skill: infra-ops"',
        "use skills: infra-ops",
        "请 use skill：infra-ops",
        "ｕｓｅ ｓｋｉｌｌ: infra-ops",
        "use skill: none and use skill: infra-ops",
    ],
)
def test_a_skill_is_called_by_its_name(message: str) -> None:
    assert names(message) == ["infra-ops manual"]


@pytest.mark.cases(
    "message",
    [
        "",
        "infra-ops",
        "use infra-ops",
        "skill: infra-ops",
        "reuse skill: infra-ops",
        "use skill: infra",
        "use skill: infra-ops-2",
        "use skill: infra_ops",
        "use skill:",
        "use skill: ../infra-ops",
    ],
)
def test_nothing_else_calls_a_skill(message: str) -> None:
    assert names(message) == []


@pytest.mark.cases(
    "message",
    [
        "use skill: pdf, infra-ops and always",
        "use skills: pdf & infra-ops, and always",
        "use skill: pdf; use skill: infra-ops\nuse skill: pdf\nuse skill: always",
        'use skills: "pdf", "infra-ops", "always"',
    ],
)
def test_skills_of_any_trigger_are_called_in_the_order_of_their_mention(message: str) -> None:
    assert names(message) == ["pdf manual", "infra-ops manual", "always manual"]


@pytest.mark.cases(
    "message",
    [
        "Is the server up?",
        "SERVER-side",
        "the server's load",
        "C++ or C?",
        "in C++.",
        "请帮我部署集群",
        "サーバーを再起動",
        "서버를 재시작",
        "在server上",
        "STRASSE",
        "a .NET app",
        "ｓｅｒｖｅｒ",
    ],
)
def test_a_keyword_counts_as_a_whole_word_in_any_case_and_script(message: str) -> None:
    assert names(message) == ["servers keyword"]


@pytest.mark.cases("message", ["observer", "serverless", "my_server_1", "C", "deployed", "asp.net", "部 署", "helm"])
def test_a_part_of_a_word_is_no_keyword(message: str) -> None:
    assert names(message) == []


def test_a_keyword_of_several_words_stands_across_lines() -> None:
    assert names("the Helm\n  chart of it") == ["k8s keyword"]


def test_called_skills_come_first_and_then_those_with_the_most_keywords() -> None:
    assert names("deploy a pod") == ["k8s keyword", "servers keyword"]
    assert names("deploy the server, server, pod") == ["servers keyword", "k8s keyword"]
    assert names("use skill: pdf to deploy pods in a pod") == ["pdf manual", "k8s keyword", "servers keyword"]


def test_a_called_skill_is_not_chosen_again_by_its_keywords() -> None:
    assert names("use skill: k8s for this pod") == ["k8s manual"]


@pytest.mark.cases(("most", "count"), [(0, 0), (1, 1), (2, 2), (9, 3), (-1, 0)])
def test_there_are_never_more_than_are_wanted(most: int, count: int) -> None:
    assert len(names("use skill: pdf, deploy a pod", most)) == count


def test_long_messages_and_many_keywords_are_searched_in_a_moment() -> None:
    keywords = tuple(f"word {n}" for n in range(100))
    skill_set = SkillSet(tuple(a_skill(f"s{n}", "keyword", keywords=(*keywords[1:], f"own{n}")) for n in range(200)))
    message = "word " * 1_000_000
    started = time.process_time()
    assert chosen(skill_set, message, most=3) == ()
    assert [reason for _, reason in chosen(skill_set, f"own7 {message} use skill: s9", most=3)] == ["manual", "keyword"]
    assert time.process_time() - started < AT_ONCE_S


WORDS = st.sampled_from(["use skill:", "pdf", "k8s", ",", "and", "pod", "server", "部署", '"', "\n", "infra-ops", "x"])


@given(st.lists(WORDS | st.text(max_size=5), max_size=20).map(" ".join), st.integers(0, 6))
def test_choosing_is_deterministic_and_names_each_skill_once(message: str, most: int) -> None:
    first = chosen(SHELF, message, most=most)
    assert first == chosen(SHELF, message, most=most)
    assert len({skill.name for skill, _ in first}) == len(first) <= most
    reasons = [reason for _, reason in first]
    assert reasons == sorted(reasons, key=("manual", "keyword").index)
    assert first == chosen(SHELF, message, most=99)[:most]
