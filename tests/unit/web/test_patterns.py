"""The views of the pattern library over the real one: two files, and what is stored of turns that used them."""

import http.client
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

import pytest
import redis
from flask.testing import FlaskClient
from redis.backoff import NoBackoff
from redis.retry import Retry

from loom_worker.core.values.json import rfc3339
from loom_worker.core.values.patterns import Effect, Pattern, PatternMatch
from loom_worker.lanes.lease_renewer import LiveWorkers
from loom_worker.patterns.events import LibraryEvents
from loom_worker.patterns.live import LiveLibrary
from loom_worker.service.pattern_catalog import PatternCatalog
from tests.support.pattern_files import MINIMAL, write
from tests.support.until import until
from tests.support.web_patterns import NOTES, TOP, keep_effect, write_library
from tests.support.web_stage import Live, MakeStage, WebStage
from web.app import create_app

SOME_MS = 1_795_253_400_000


@pytest.fixture(autouse=True)
def _library(stage: WebStage) -> None:
    write_library(stage)


@dataclass
class NotedQuestions:
    """Finds patterns as the real catalog, and notes what it was asked."""

    real: PatternCatalog
    asked: list[tuple[str, int, str | None]] = field(default_factory=list)
    """Question, most candidates, agent."""

    def match(self, question: str, k: int, agent: str | None) -> Sequence[PatternMatch]:
        self.asked.append((question, k, agent))
        return self.real.match(question, k, agent)


def noted(stage: WebStage) -> NotedQuestions:
    """The questions that the stage's catalog is asked from now on."""
    found = NotedQuestions(stage.service.patterns)
    stage.service.patterns = found  # type: ignore[assignment]
    return found


def asked(client: FlaskClient, **query: object) -> Any:
    return client.get("/v1/patterns/match", query_string=query)


def ids(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [each["id"] for each in answer.get_json()["data"]]


def test_all_patterns_are_listed_with_where_they_come_from(client: FlaskClient, stage: WebStage) -> None:
    answer = client.get("/v1/patterns").get_json()
    assert [each["id"] for each in answer["data"]] == ["sql/top_n", "writing/en/notes"]
    assert answer["data"][0]["source"] == "sql/ranking.yaml:7"
    assert answer["data"][0]["version"] == TOP.digest
    loaded_ms = stage.service.patterns.state().loaded_ms
    assert (answer["has_more"], answer["next"], answer["loaded_at"]) == (False, None, rfc3339(loaded_ms))


@pytest.mark.cases(
    ("category", "found"),
    [
        ("ranking", [TOP.id]),
        ("Ranking", [TOP.id]),
        ("sql", [TOP.id]),
        ("writing", [NOTES.id]),
        ("writing/en", [NOTES.id]),
        ("/writing/", [NOTES.id]),
        ("sq", []),
        ("sql/top_n", []),
        ("..", []),
        ("", [TOP.id, NOTES.id]),
    ],
)
def test_a_category_is_a_category_a_library_or_a_folder_of_libraries(
    client: FlaskClient, stage: WebStage, category: str, found: list[str]
) -> None:
    assert ids(client.get("/v1/patterns", query_string={"category": category})) == found


def test_what_is_wrong_with_the_files_is_told_beside_what_works(client: FlaskClient, stage: WebStage) -> None:
    write(stage.patterns, sql__a="name: a\n\n\tb: c\n", **{"sql__" + os.fsdecode(b"\xff"): "name: x\n"})
    answer = client.get("/v1/patterns")
    unprintable, tab = sorted(answer.get_json()["errors"])[::-1]
    assert tab.startswith("sql/a.yaml:3: ")
    assert unprintable.endswith(".yaml:1: the name of the file or its folder has characters that cannot be shown")
    assert len(answer.get_json()["data"]) == 2


def test_what_each_worker_has_loaded_stands_beside_the_list(client: FlaskClient, stage: WebStage) -> None:
    LiveLibrary(stage.patterns, listener=LibraryEvents(stage.redis, process="w1")).patterns()
    stage.bring_worker()
    until(stage.service.patterns.loaded, 10, "the worker has told what it loaded")
    (told,) = client.get("/v1/patterns").get_json()["processes"]
    assert (told["process"], told["patterns"], told["errors"]) == ("w1", 2, [])
    assert told["loaded_at"].endswith("Z")


def test_the_list_is_served_while_redis_is_away(client: FlaskClient, stage: WebStage) -> None:
    away = redis.Redis(unix_socket_path="/nowhere", decode_responses=True, retry=Retry(NoBackoff(), 0))
    stage.service.patterns = replace(
        stage.service.patterns, workers=LiveWorkers(away), library_events=LibraryEvents(away, process="web")
    )
    answer = client.get("/v1/patterns")
    assert (len(ids(answer)), answer.get_json()["processes"]) == (2, [])


def test_list_and_match_go_on_without_the_database(client: FlaskClient, stage: WebStage) -> None:
    client.get("/v1/patterns")  # by now the process knows whether there are keys
    stage.database.is_down = True
    assert len(ids(client.get("/v1/patterns"))) == 2
    assert ids(asked(client, q="top ten customers")) == [TOP.id]
    assert client.get(f"/v1/patterns/{TOP.id}").status_code == 503


def test_an_empty_library_is_an_empty_list(client: FlaskClient, stage: WebStage) -> None:
    for file in stage.patterns.rglob("*.yaml"):
        file.unlink()
    assert ids(client.get("/v1/patterns")) == ids(asked(client, q="top ten customers")) == []


def test_one_pattern_is_told_whole(client: FlaskClient, stage: WebStage) -> None:
    answer = client.get("/v1/patterns/sql/top_n").get_json()
    assert answer["templates"]["plain"]["text"] == "SELECT {{x}} FROM t"
    assert answer["intents"] == list(TOP.intents)
    assert answer["extra"] == {"library": {"name": "sql"}, "since": None}
    assert (answer["source"], answer["version"]) == ("sql/ranking.yaml:7", TOP.digest)


@pytest.mark.parametrize("path", ["sql%2Ftop_n", "writing/en/notes", "writing%2Fen/notes"])
def test_the_slash_of_an_id_may_be_escaped(client: FlaskClient, stage: WebStage, path: str) -> None:
    assert client.get(f"/v1/patterns/{path}").status_code == 200


def test_a_pattern_in_a_library_named_match_is_found(client: FlaskClient, stage: WebStage) -> None:
    long = f"{'a' * 124}/{'b' * 124}"
    write(stage.patterns, match__top=MINIMAL, **{f"{long}/top": MINIMAL})
    assert client.get("/v1/patterns/match/top_n").get_json()["id"] == "match/top_n"
    assert client.get(f"/v1/patterns/{long}/top_n").status_code == 200


STRANGE = [
    "nope",
    "sql",
    "sql/",
    "sql/top_n/",
    "sql//top_n",
    "/sql/top_n",
    "top_n",
    "SQL/top_n",
    "../v1/agents",
    "sql/../sql/top_n",
    "a" * 300,
    "a/" * 150,
    "sql/top_n\0",
    "sql/top_n\n",
    "\x1b[2J",
    "sql/top_n%00",
    "sql\\top_n",
    "sql/top_n'--",
    "模式/排名",
    "😀",
]


@pytest.mark.cases("pattern_id", STRANGE, ids=lambda each: ascii(each[:24]))
def test_an_unknown_id_is_404_whatever_it_is_made_of(client: FlaskClient, stage: WebStage, pattern_id: str) -> None:
    answer = client.get(f"/v1/patterns/{quote(pattern_id)}")
    assert (answer.status_code, answer.get_json()["type"]) == (404, "/problems/not-found")


@pytest.mark.parametrize(
    "target", ["sql/../sql/top_n", "%2e%2e/agents", "sql/top_n%00", "%ff%fe", "%ED%A0%80", "sql%2F%2Ftop_n", "a" * 4000]
)
def test_ids_as_they_come_over_the_wire_are_404_too(live: Live, stage: WebStage, target: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=60)
    connection.request("GET", f"/v1/patterns/{target}")
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["status"]) == (404, 404)
    connection.close()


def test_what_came_of_a_pattern_is_told(client: FlaskClient, stage: WebStage) -> None:
    keep_effect(stage, "default", TOP.id, TOP.digest, Effect(42, 30, 10, 1.5, 9000, SOME_MS))
    answer = client.get("/v1/patterns/sql/top_n").get_json()
    assert answer["effect"] == {
        "uses": 42,
        "succeeded": 30,
        "failed": 10,
        "success": 0.75,
        "cost_usd": 1.5,
        "tokens": 9000,
        "last_used_at": "2026-11-21T09:30:00.000Z",
    }
    assert answer["effect_of_all_versions"] == answer["effect"]


def test_what_came_of_earlier_versions_is_told_apart(client: FlaskClient, stage: WebStage) -> None:
    keep_effect(stage, "default", TOP.id, TOP.digest, Effect(1, 1, 0, 0.5, 10, SOME_MS))
    keep_effect(stage, "default", TOP.id, "another", Effect(20, 5, 15, 1.0, 100, SOME_MS - 5))
    answer = client.get("/v1/patterns/sql/top_n").get_json()
    assert (answer["effect"]["uses"], answer["effect"]["success"]) == (1, 1)
    whole = answer["effect_of_all_versions"]
    assert (whole["uses"], whole["cost_usd"], whole["tokens"]) == (21, 1.5, 110)
    assert answer["effect"]["last_used_at"] == whole["last_used_at"]


def test_a_pattern_that_nobody_used_has_no_rate(client: FlaskClient, stage: WebStage) -> None:
    answer = client.get("/v1/patterns/sql/top_n").get_json()
    assert (answer["effect"]["uses"], answer["effect"]["success"], answer["effect"]["last_used_at"]) == (0, None, None)


def test_each_workspace_sees_what_came_of_its_own_turns_alone(make_stage: MakeStage) -> None:
    stage = make_stage(api_keys={"key-a": "alpha", "key-b": "beta"})
    keep_effect(stage, "alpha", TOP.id, TOP.digest, Effect(12, 12, 0, 1.0, 10, SOME_MS))
    client = create_app(stage.service).test_client()
    for key, uses in (("key-a", 12), ("key-b", 0)):
        answer = client.get("/v1/patterns/sql/top_n", headers={"Authorization": f"Bearer {key}"}).get_json()
        assert answer["effect"]["uses"] == answer["effect_of_all_versions"]["uses"] == uses
    assert client.get("/v1/patterns").status_code == 401


def test_candidates_say_how_sure_they_are_and_which_words_counted(client: FlaskClient, stage: WebStage) -> None:
    (found,) = asked(client, q="who are the top ten customers?").get_json()["data"]
    assert found.keys() == {"id", "object", "title", "score", "confidence", "terms"}
    assert found["id"] == TOP.id
    assert 0 < found["score"] <= 1
    assert 0 < found["confidence"] <= 1
    assert "customer" in " ".join(found["terms"])


@pytest.mark.cases("question", ["", " ", "?!", "\0", "😀", "zzzz qqqq", "a" * 4000])
def test_a_question_that_nothing_fits_has_an_empty_answer(client: FlaskClient, stage: WebStage, question: str) -> None:
    assert ids(asked(client, q=question)) == []


def test_without_a_question_nothing_is_found(client: FlaskClient, stage: WebStage) -> None:
    assert ids(client.get("/v1/patterns/match")) == []


@pytest.mark.cases(
    ("question", "best"),
    [
        ("top ten\0customers", TOP),
        ("😀 top ten customers 😀\n\x1b[2J", TOP),
        ("was hat sich geändert?", NOTES),
        ("変更点をまとめて", NOTES),
        ("'; DROP TABLE patterns -- release notes & <b> %00 {{x}}", NOTES),
        ("release notes \ud800", NOTES),
    ],
)
def test_questions_are_of_any_characters(client: FlaskClient, stage: WebStage, question: str, best: Pattern) -> None:
    raw = quote(question, errors="surrogatepass")
    assert ids(client.get(f"/v1/patterns/match?q={raw}"))[0] == best.id


@pytest.mark.parametrize(("length", "status"), [(4000, 200), (4001, 400)])
def test_a_question_has_at_most_4000_characters(client: FlaskClient, stage: WebStage, length: int, status: int) -> None:
    questions = noted(stage)
    assert asked(client, q="ä" * length).status_code == status
    assert len(questions.asked) == (status == 200)


@pytest.mark.parametrize(("k", "most"), [(None, 3), ("1", 1), ("20", 20), ("21", 20), ("999", 20)])
def test_k_is_three_unless_given_and_twenty_at_most(
    client: FlaskClient, stage: WebStage, k: str | None, most: int
) -> None:
    more = (f"name: top_{n}\ncategory: ranking\nintents: [top ten customers]\n" for n in range(30))
    write(stage.patterns, sql__more="---\n".join(more))
    assert len(ids(asked(client, q="top ten customers", **({} if k is None else {"k": k})))) == most


@pytest.mark.cases("k", ["", "0", "-1", "three", "1.5", "٣", "1_0", " 1", "1" * 16])
def test_a_k_that_is_no_number_from_1_on_is_malformed(client: FlaskClient, stage: WebStage, k: str) -> None:
    questions = noted(stage)
    answer = asked(client, q="top ten customers", k=k)
    assert (answer.status_code, answer.get_json()["type"]) == (400, "/problems/malformed")
    assert questions.asked == []


def test_the_agent_is_asked_for_by_name(client: FlaskClient, stage: WebStage) -> None:
    questions = noted(stage)
    assert asked(client, q="x", agent="default").status_code == asked(client, q="x", agent="").status_code == 200
    assert [agent for *_, agent in questions.asked] == ["default", None]


def test_an_unknown_agent_is_refused_as_it_is_everywhere(client: FlaskClient, stage: WebStage) -> None:
    questions = noted(stage)
    answer, elsewhere = asked(client, q="x", agent="nobody"), client.get("/v1/tools?agent=nobody")
    assert answer.status_code == elsewhere.status_code == 422
    assert answer.get_json()["errors"] == elsewhere.get_json()["errors"]
    assert "default" in answer.get_json()["detail"]
    assert questions.asked == []


@pytest.mark.parametrize("path", ["/v1/patterns", "/v1/patterns/match", "/v1/patterns/sql/top_n"])
def test_patterns_are_only_read(client: FlaskClient, path: str) -> None:
    answers = {client.open(path, method=method, json={}).status_code for method in ("POST", "PUT", "PATCH", "DELETE")}
    assert answers == {405}
