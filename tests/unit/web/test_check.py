from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask

from web.agents import AgentActivationBody
from web.bodies import Body, EmptyBody
from web.check import MAX_FLAWS
from web.memory import FactPatchBody, RecallBody
from web.problems import Refused
from web.runs import NewRunBody
from web.sessions import NewSessionBody, SessionPatchBody
from web.turns import NewTurnBody
from web.workspaces import WorkspacePatchBody


@pytest.fixture(autouse=True)
def _request() -> Iterator[None]:
    """A turn's session stands in the path."""
    app = Flask("check")
    app.add_url_rule("/<session_id>", view_func=lambda session_id: "")
    with app.test_request_context("/s1"):
        yield


def flaws(model: type[Body], body: dict[str, Any]) -> list[dict[str, str]]:
    try:
        model.of(body)
    except Refused as refused:
        return list(refused.problem.extra["errors"])
    return []


def places(model: type[Body], body: dict[str, Any]) -> list[str]:
    return sorted(flaw["pointer"] for flaw in flaws(model, body))


@pytest.mark.cases(
    ("wrong", "pointer"),
    [
        ({"input": ""}, "/input"),
        ({"input": " \n\t\u2003"}, "/input"),
        ({"input": None}, "/input"),
        ({"input": 7}, "/input"),
        ({"input": ["hello"]}, "/input/0"),
        ({"colour": "red"}, "/colour"),
        ({"a/b~c": 1}, "/a~1b~0c"),
        ({"metadata": []}, "/metadata"),
        ({"metadata": None}, "/metadata"),
        ({"metadata": "{}"}, "/metadata"),
        ({"deadline_s": 0}, "/deadline_s"),
        ({"deadline_s": -1}, "/deadline_s"),
        ({"deadline_s": 86_401}, "/deadline_s"),
        ({"deadline_s": "30"}, "/deadline_s"),
        ({"deadline_s": True}, "/deadline_s"),
        ({"max_attempts": 0}, "/max_attempts"),
        ({"max_attempts": 11}, "/max_attempts"),
        ({"max_attempts": 1.5}, "/max_attempts"),
        ({"max_attempts": "3"}, "/max_attempts"),
        ({"max_attempts": True}, "/max_attempts"),
        ({"budget": 5}, "/budget"),
        ({"budget": {"usd": -0.01}}, "/budget/usd"),
        ({"budget": {"usd": "1"}}, "/budget/usd"),
        ({"budget": {"tokens": False}}, "/budget/tokens"),
        ({"budget": {"euros": 1}}, "/budget/euros"),
        ({"double_texting": "wait"}, "/double_texting"),
        ({"double_texting": 1}, "/double_texting"),
        ({"webhook": 5}, "/webhook"),
        ({"webhook": {}}, "/webhook/url"),
        ({"webhook": {"url": 5}}, "/webhook/url"),
        ({"webhook": {"url": "https://x.example", "secret": []}}, "/webhook/secret"),
        ({"webhook": {"url": "https://x.example", "retries": 3}}, "/webhook/retries"),
        ({"webhook": "https://x.example/" + "a" * 2048}, "/webhook"),
        ({"agent": "a b"}, "/agent"),
    ],
)
def test_a_wrong_value_is_told_with_its_place(wrong: dict[str, Any], pointer: str) -> None:
    assert pointer in places(NewTurnBody, {"input": "hello", **wrong})


@pytest.mark.cases(
    "sound",
    [
        {"deadline_s": 0.5},
        {"deadline_s": 86_400, "max_attempts": 10},
        {"budget": {}},
        {"budget": {"usd": 0, "tokens": 0}},
        {"webhook": "https://x.example"},
        {"webhook": {"url": "https://x.example", "secret": None}},
        {"webhook": None, "budget": None, "deadline_s": None, "max_attempts": None, "agent": None},
        {"double_texting": "interrupt"},
        {"double_texting": "rollback"},
        {"double_texting": "reject", "metadata": {"anything": [1, {"goes": None}]}},
    ],
)
def test_a_sound_turn_has_no_flaws(sound: dict[str, Any]) -> None:
    assert flaws(NewTurnBody, {"input": "hello", **sound}) == []


def test_every_flaw_is_told_at_once() -> None:
    body = {"max_attempts": 0, "metadata": 1, "budget": {"usd": "x", "tokens": -1}, "colour": 1, "size": 2}
    wanted = ["/budget/tokens", "/budget/usd", "/colour", "/input", "/max_attempts", "/metadata", "/size"]
    assert places(NewTurnBody, body) == wanted


def test_the_words_name_what_is_served() -> None:
    (flaw,) = flaws(NewTurnBody, {"input": "hello", "double_texting": "wait"})
    assert flaw["detail"] == "expected one of enqueue, reject, interrupt, rollback"


def test_a_flaw_never_repeats_what_was_sent() -> None:
    found = flaws(NewTurnBody, {"input": ["secret" * 1000], "s" * 5000: 1})
    assert all("secret" not in flaw["detail"] and len(flaw["pointer"]) < 100 for flaw in found)


def test_a_hundred_thousand_unknown_fields_do_not_make_a_longer_answer() -> None:
    unknown = {f"f{n}": n for n in range(100_000)}
    assert len(flaws(NewTurnBody, {"input": "x", **unknown})) == MAX_FLAWS
    assert len(flaws(NewTurnBody, {"input": "x", "budget": unknown})) == MAX_FLAWS


@pytest.mark.cases("session_id", ["", "a b", "a/b", "é", "a\n", "a" * 129, 5])
def test_a_session_id_is_letters_digits_and_three_signs(session_id: object) -> None:
    assert places(NewSessionBody, {"id": session_id}) == ["/id"]


def test_an_id_of_128_characters_is_fine() -> None:
    assert flaws(NewSessionBody, {"id": "aZ9._-" + "a" * 122}) == []


@pytest.mark.parametrize("name", ["metadata", "kernel", "status"])
def test_a_patch_clears_nothing_that_a_session_always_has(name: str) -> None:
    assert places(SessionPatchBody, {name: None}) == [f"/{name}"]


@pytest.mark.parametrize("name", ["title", "model", "budget"])
def test_a_patch_may_clear_what_a_session_can_be_without(name: str) -> None:
    assert places(SessionPatchBody, {name: None}) == []


def test_a_text_that_may_not_be_empty_is_told_so_in_words() -> None:
    assert [flaw["detail"] for flaw in flaws(SessionPatchBody, {"model": ""})] == ["must not be empty"]


WORDS: list[tuple[type[Body], dict[str, Any], dict[str, str]]] = [
    (NewTurnBody, {"input": 7, "metadata": []}, {"/input": "expected string or array", "/metadata": "expected object"}),
    (NewTurnBody, {"input": "x", "deadline_s": "3"}, {"/deadline_s": "expected number or null"}),
    (NewTurnBody, {"input": "x", "deadline_s": 0}, {"/deadline_s": "must be more than 0"}),
    (NewTurnBody, {"input": "x", "webhook": 5}, {"/webhook": "expected string or object or null"}),
    (NewTurnBody, {"input": "x", "webhook": {"object": 1}}, {"/webhook/url": "is required", "/webhook/object": "…"}),
    (NewTurnBody, {"input": "x", "budget": {"usd": 1e9}}, {"/budget/usd": "must be at most 1000000"}),
    (
        NewTurnBody,
        {"input": "x", "metadata": {"a": "é" * 9000}},
        {"/metadata": "must have at most 16384 bytes as JSON"},
    ),
    (NewTurnBody, {"input": "\u200b"}, {"/input": "must not be blank"}),
    (NewTurnBody, {"input": "x", "said_at": "3000-01-01T00:00:00Z"}, {"/said_at": "…"}),
    (NewTurnBody, {"input": "x", "said_at": "yesterday"}, {"/said_at": "…"}),
    (SessionPatchBody, {"tools": ["a", "a", 3]}, {"/tools": "must name nothing twice", "/tools/2": "expected string"}),
    (SessionPatchBody, {"tools": ["a"] * 129}, {"/tools": "must name nothing twice"}),
    (SessionPatchBody, {"title": "x" * 501}, {"/title": "must have at most 500 characters"}),
    (RecallBody, {"message_ids": []}, {"/message_ids": "must have 1 or more items"}),
    (RecallBody, {"message_ids": ["m"] * 201}, {"/message_ids": "must have at most 200 items"}),
    (NewRunBody, {"variables": {f"v{n}": 1 for n in range(101)}}, {"/variables": "must have at most 100 members"}),
    (NewRunBody, {"variables": {"a": None}}, {"/variables/a": "expected string or number or boolean"}),
    (
        NewRunBody,
        {"variables": {"input": "x"}, "input": "y"},
        {"/input": "…"},
    ),
    (FactPatchBody, {}, {"": "must have at least 1 member"}),
    (EmptyBody, {"x": 1}, {"/x": "unknown field; none is expected"}),
    (WorkspacePatchBody, {"retention": True}, {"/retention": "expected object or integer or null"}),
    (WorkspacePatchBody, {"guardrails": {"input": [{"find": "pii"}]}}, {"/guardrails/input/0/action": "is required"}),
    (WorkspacePatchBody, {"guardrails": {"output": {"injection": "flag"}}}, {"/guardrails/output/injection": "…"}),
    (
        AgentActivationBody,
        {"as": "canary", "sessions": "all", "version": 1},
        {
            "/version": "expected string",
            "/share": "is needed for a canary",
            "/sessions": "…",
        },
    ),
]


@pytest.mark.cases(("model", "body", "told"), WORDS)
def test_each_flaw_is_told_at_its_place_in_our_words(
    model: type[Body], body: dict[str, Any], told: dict[str, str]
) -> None:
    found = {flaw["pointer"]: flaw["detail"] for flaw in flaws(model, body)}
    assert found.keys() == told.keys()
    assert {place: found[place] for place in found if told[place] != "…"} == {
        place: words for place, words in told.items() if words != "…"
    }


def test_numbers_stay_as_they_were_sent_and_a_whole_one_may_have_a_point() -> None:
    turn = NewTurnBody.of({"input": "x", "deadline_s": 30, "max_attempts": 3.0, "budget": {"usd": 1, "tokens": 5}})
    assert (repr(turn.deadline_s), repr(turn.max_attempts), turn.budget) == ("30", "3", {"usd": 1, "tokens": 5})
    assert NewRunBody.of({"variables": {"a": 3, "b": True, "c": "x"}}).variables == {"a": "3", "b": "true", "c": "x"}
