from typing import Any

import pytest
from flask.testing import FlaskClient

from tests.support.played_worker import PlayedWorker
from tests.support.web_stage import Submit, WebStage


def test_a_session_is_made_with_all_that_was_asked(client: FlaskClient) -> None:
    wanted: dict[str, Any] = {
        "id": "my.session-1",
        "agent": "default",
        "user": "ada",
        "title": "Größe",
        "metadata": {"a": [1, None]},
        "kernel": {"goal": "x"},
        "budget": {"usd": 1.5, "tokens": 10},
        "model": "m",
    }
    answer = client.post("/v1/sessions", json=wanted)
    assert (answer.status_code, answer.headers["Location"]) == (201, "/v1/sessions/my.session-1")
    assert answer.get_json().items() >= wanted.items()
    assert "Größe".encode() in answer.data
    assert client.get("/v1/sessions/my.session-1").get_json() == answer.get_json()


def test_a_session_without_an_id_gets_one(client: FlaskClient) -> None:
    made = client.post("/v1/sessions", json={}).get_json()
    assert made["id"].startswith("sess_")
    assert "lane" not in made


def test_an_id_that_exists_is_a_conflict(client: FlaskClient) -> None:
    assert client.post("/v1/sessions", json={"id": "s"}).status_code == 201
    assert client.post("/v1/sessions", json={"id": "s"}).status_code == 409


def test_an_unknown_agent_is_invalid(client: FlaskClient) -> None:
    assert client.post("/v1/sessions", json={"agent": "nobody"}).status_code == 422
    assert client.post("/v1/sessions/s/turns", json={"input": "x", "agent": "nobody"}).status_code == 422
    assert client.get("/v1/sessions/s").status_code == 404


def test_a_patch_changes_what_it_names_and_nothing_else(client: FlaskClient) -> None:
    client.post("/v1/sessions", json={"id": "s", "title": "old", "user": "ada"})
    patched = client.patch("/v1/sessions/s", json={"title": "new", "status": "paused"}).get_json()
    assert (patched["title"], patched["status"], patched["user"]) == ("new", "paused", "ada")
    assert client.get("/v1/sessions/s").get_json()["title"] == "new"


def test_null_clears_title_model_and_budget_and_nothing_else(client: FlaskClient) -> None:
    client.post("/v1/sessions", json={"id": "s", "title": "t", "model": "m", "budget": {"usd": 1}, "user": "ada"})
    cleared = client.patch("/v1/sessions/s", json={"title": None, "status": "paused"}).get_json()
    assert (cleared["title"], cleared["model"], cleared["budget"]) == (None, "m", {"usd": 1})
    cleared = client.patch("/v1/sessions/s", json={"model": None, "budget": None}).get_json()
    assert (cleared["model"], cleared["budget"], cleared["user"], cleared["status"]) == (None, None, "ada", "paused")


@pytest.mark.cases(
    "body",
    [
        {"id": "t"},
        {"agent": "default"},
        {"agent": "default@latest\n"},
        {"agent": None},
        {"status": "gone"},
        {"kernel": None},
        {"metadata": {"a": "x" * 17_000}},
        {"tools": "clock"},
        {"tools": ["clock", "clock"]},
        {"tools": ["x"] * 129},
        {"backend": 1},
    ],
)
def test_a_patch_of_anything_else_is_invalid(client: FlaskClient, body: dict[str, Any]) -> None:
    client.post("/v1/sessions", json={"id": "s"})
    answer = client.patch("/v1/sessions/s", json=body)
    assert (answer.status_code, answer.get_json()["errors"][0]["pointer"]) == (422, f"/{next(iter(body))}")


def test_a_session_chooses_among_the_tools_and_databases_of_its_agent(client: FlaskClient) -> None:
    client.post("/v1/sessions", json={"id": "s"})
    chosen = client.patch("/v1/sessions/s", json={"tools": ["dice"], "backend": "north"}).get_json()
    assert (chosen["tools"], chosen["backend"]) == (["dice"], "north")
    assert client.patch("/v1/sessions/s", json={"tools": []}).get_json()["tools"] == []
    cleared = client.patch("/v1/sessions/s", json={"tools": None, "backend": None}).get_json()
    assert (cleared["tools"], cleared["backend"]) == (None, None)


def test_what_the_agent_does_not_allow_is_refused_with_what_it_does(client: FlaskClient) -> None:
    client.post("/v1/sessions", json={"id": "s", "title": "old"})
    body = {"title": "new", "tools": ["dice", "axe"], "backend": "west", "agent": "other@latest"}
    answer = client.patch("/v1/sessions/s", json=body)
    assert answer.status_code == 422
    assert {flaw["pointer"]: flaw["detail"] for flaw in answer.get_json()["errors"]} == {
        "/tools/1": "its tools are clock, dice, pay",
        "/backend": "its databases are north, south",
        "/agent": "a session keeps its agent, so only versions of default can be asked for",
    }
    assert client.get("/v1/sessions/s").get_json()["title"] == "old"


def test_a_session_takes_up_its_agent_as_it_is_now(client: FlaskClient) -> None:
    client.post("/v1/sessions", json={"id": "s"})
    answer = client.patch("/v1/sessions/s", json={"agent": "default@latest"})
    assert (answer.status_code, answer.get_json()["agent"], answer.get_json()["agent_version"]) == (
        200,
        "default",
        None,
    )


def test_an_archived_session_takes_no_turn(client: FlaskClient) -> None:
    client.post("/v1/sessions", json={"id": "s"})
    client.patch("/v1/sessions/s", json={"status": "archived"})
    assert client.post("/v1/sessions/s/turns", json={"input": "x"}).status_code == 409


def test_a_deleted_session_is_gone_with_its_turns(client: FlaskClient, submit: Submit, worker: PlayedWorker) -> None:
    turn = submit("s")
    worker.finish(turn["id"])
    gone = client.delete("/v1/sessions/s")
    assert (gone.status_code, gone.data) == (204, b"")
    for path in ("/v1/sessions/s", f"/v1/turns/{turn['id']}", "/v1/sessions/s/messages"):
        assert client.get(path).status_code == 404
    assert client.delete("/v1/sessions/s").status_code == 404


def test_a_page_ends_with_the_cursor_of_the_next(client: FlaskClient) -> None:
    for number in range(5):
        client.post("/v1/sessions", json={"id": f"s{number}"})
    seen: list[str] = []
    after = ""
    while True:
        page = client.get(f"/v1/sessions?limit=2&after={after}").get_json()
        assert (page["object"], page["has_more"]) == ("list", page["next"] is not None)
        seen += [item["id"] for item in page["data"]]
        if not page["has_more"]:
            break
        after = page["next"]
    assert sorted(seen) == [f"s{number}" for number in range(5)]


def test_messages_come_oldest_first(client: FlaskClient, submit: Submit, worker: PlayedWorker) -> None:
    for number in range(2):
        worker.finish(submit("s", input=f"q{number}")["id"], f"a{number}")
    page = client.get("/v1/sessions/s/messages").get_json()
    assert [(item["role"], item["content"]) for item in page["data"]] == [
        ("user", "q0"),
        ("assistant", "a0"),
        ("user", "q1"),
        ("assistant", "a1"),
    ]


def test_a_search_answers_with_hits_the_best_first(client: FlaskClient, submit: Submit, stage: WebStage) -> None:
    turn = stage.worker.finish(submit("s", input="Where are the keys?")["id"], "under the mat")
    answer = client.get("/v1/sessions/s/search", query_string={"q": "mat"}).get_json()
    hit, other = answer["data"]
    assert (hit["turn_id"], hit["role"], hit["snippet"]) == (turn.id, "assistant", "under the mat")
    assert hit["score"] > other["score"]
    before, itself = hit["passage"]
    assert itself == {
        "message_id": hit["message_id"], "turn_id": turn.id, "role": "assistant", "text": "under the mat",
    }  # fmt: skip
    assert (before["message_id"], before["role"]) == (other["message_id"], "user")
    assert (answer["has_more"], answer["next"]) == (False, None)


def test_a_search_by_passages_gives_one_hit_for_what_stands_together(
    client: FlaskClient, submit: Submit, stage: WebStage
) -> None:
    stage.worker.finish(submit("s", input="Where are the keys?")["id"], "The keys are under the mat")
    found = {
        per: client.get("/v1/sessions/s/search", query_string={"q": "keys", "one_per": per}).get_json()["data"]
        for per in ("message", "passage")
    }
    assert [len(hits) for hits in found.values()] == [2, 1]
    assert [each["role"] for each in found["passage"][0]["passage"]] == ["user", "assistant"]
    assert found["message"][0]["created_at"].endswith("Z")


@pytest.mark.parametrize(
    "question", ["", "?q=", "?q=%F0%9F%91%A8%E2%80%8D%F0%9F%91%A9", "?q=a%0Ab&limit=500", "?q=%00"]
)
def test_any_text_may_be_searched_for(client: FlaskClient, submit: Submit, question: str) -> None:
    submit("s")
    answer = client.get(f"/v1/sessions/s/search{question}")
    assert (answer.status_code, answer.get_json()["data"]) == (200, [])


def test_a_model_without_a_name_is_refused(client: FlaskClient) -> None:
    for answer in (
        client.post("/v1/sessions", json={"id": "s", "model": ""}),
        client.patch("/v1/sessions/s", json={"model": ""}),
    ):
        assert (answer.status_code, answer.get_json()["errors"][0]["pointer"]) == (422, "/model")


@pytest.mark.parametrize("name", [".", ".."])
def test_a_step_of_a_path_names_no_session(client: FlaskClient, name: str) -> None:
    told = "must be 1 to 128 of A-Z a-z 0-9 . _ -, but neither . nor .."
    answer = client.post("/v1/sessions", json={"id": name})
    assert (answer.status_code, answer.get_json()["errors"]) == (422, [{"pointer": "/id", "detail": told}])
    answer = client.post(f"/v1/sessions/{name}/turns", json={"input": "x"})
    flaw = {"pointer": "/session_id", "detail": f"in the path: {told}"}
    assert (answer.status_code, answer.get_json()["errors"]) == (422, [flaw])
    assert client.get("/v1/sessions").get_json()["data"] == []


@pytest.mark.parametrize("name", ["...", ".a", "a..", "-"])
def test_a_session_may_have_dots_in_its_name(client: FlaskClient, submit: Submit, name: str) -> None:
    assert client.post("/v1/sessions", json={"id": name}).status_code == 201
    assert submit(name)["session_id"] == name
