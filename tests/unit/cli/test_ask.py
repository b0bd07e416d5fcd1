import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from loom_worker.cli.main import main
from tests.support.fake_loom import FakeLoom
from tests.support.http_server import serving

DONE = FakeLoom(
    events=[
        ("turn.started", {}),
        ("output_text.delta", {"text": "Forty"}),
        ("output_text.delta", {"text": "-two"}),
        ("turn.completed", {}),
    ],
    turn={"status": "completed", "output_text": "Forty-two"},
)


@contextmanager
def loom(**fields: Any) -> Iterator[tuple[FakeLoom, str]]:
    fake = FakeLoom(events=fields.get("events", DONE.events), turn=fields.get("turn", DONE.turn))
    with serving(fake) as url:
        yield fake, url


def run(tmp_path: Path, url: str, *arguments: str, typed: str = "", **env: str) -> Result:
    settings = {"LOOM_HOME": str(tmp_path), "LOOM_URL": url, "LOOM_API_KEYS": None, **env}
    return CliRunner().invoke(main, arguments, input=typed, env=settings)


def test_into_a_pipe_goes_the_final_text_and_nothing_else(tmp_path: Path) -> None:
    with loom() as (fake, url):
        result = run(tmp_path, url, "ask", "Six times seven?")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "Forty-two\n", "")
    method, path, key, body = fake.asked[0]
    assert (method, key, body) == ("POST", None, {"input": "Six times seven?"})
    assert path.startswith("/v1/sessions/ask-")


@pytest.mark.cases(
    "options, told",
    [([], "· the model has been reading for 40 s\n· attempt 3, next in 8 s: connection refused\n"), (["--json"], "")],
)
def test_while_nothing_comes_stderr_says_what_is_waited_for(tmp_path: Path, options: list[str], told: str) -> None:
    waits = ("the model has been reading for 40 s", "still here", "attempt 3, next in 8 s: connection refused")
    events = [DONE.events[0], *((":", {"text": text}) for text in waits), *DONE.events[1:]]
    with loom(events=events) as (_, url):
        result = run(tmp_path, url, "ask", "?", *options)
    assert (result.exit_code, result.stderr) == (0, told)
    assert (result.stdout == "Forty-two\n") == (not options)


def test_each_question_without_a_session_gets_a_new_one_and_a_named_one_is_used(tmp_path: Path) -> None:
    with loom() as (fake, url):
        for arguments in ([], [], ["--session", "a/b"]):
            run(tmp_path, url, "ask", "?", *arguments)
    first, second, named = (path for method, path, _, _ in fake.asked if method == "POST")
    assert first != second
    assert named == "/v1/sessions/a%2Fb/turns"


def test_a_question_goes_to_the_agent_that_is_named(tmp_path: Path) -> None:
    with loom() as (fake, url):
        run(tmp_path, url, "ask", "?", "--agent", "sales")
    assert fake.asked[0][3] == {"input": "?", "agent": "sales"}


def test_the_first_api_key_is_sent(tmp_path: Path) -> None:
    with loom() as (fake, url):
        run(tmp_path, url, "ask", "?", LOOM_API_KEYS="shop=k1,other=k2")
    assert {key for _, _, key, _ in fake.asked} == {"Bearer k1"}


def test_json_is_the_finished_turn(tmp_path: Path) -> None:
    with loom() as (_, url):
        result = run(tmp_path, url, "ask", "--json", "?")
    assert json.loads(result.stdout) == {"id": "turn_1", "status": "completed", "output_text": "Forty-two"}


def test_a_turn_that_failed_exits_1_and_says_why(tmp_path: Path) -> None:
    turn = {"status": "failed", "reason": "dead", "error": {"message": "the worker died 3 times"}}
    with loom(events=[("turn.failed", {})], turn=turn) as (_, url):
        result = run(tmp_path, url, "ask", "?")
    assert result.exit_code == 1
    assert "turn_1 is failed (dead, the worker died 3 times)" in result.stderr


def test_an_incomplete_turn_prints_what_there_is_and_exits_1(tmp_path: Path) -> None:
    turn = {"status": "incomplete", "reason": "limits", "output_text": "As far as"}
    with loom(events=[("turn.incomplete", {})], turn=turn) as (_, url):
        result = run(tmp_path, url, "ask", "?")
    assert (result.exit_code, result.stdout) == (1, "As far as\n")


def test_a_loom_that_does_not_run_is_said_to_and_exits_1(tmp_path: Path) -> None:
    with loom() as (_, url):
        pass
    result = run(tmp_path, url, "ask", "?")
    assert result.exit_code == 1
    assert result.stderr == f"loom: Loom is not running at {url}; start it with `loom up`\n"


def test_a_refused_question_is_told_with_each_flaw(tmp_path: Path) -> None:
    problem = {"title": "invalid", "detail": "1 flaw", "errors": [{"pointer": "/input", "detail": "is empty"}]}
    with serving(lambda exchange: exchange.answer(422, json.dumps(problem).encode())) as url:
        result = run(tmp_path, url, "ask", "")
    assert result.exit_code == 1
    assert result.stderr == "loom: 422 invalid: 1 flaw; /input: is empty\n"


def test_each_flaw_of_a_question_is_told_once(tmp_path: Path) -> None:
    pairs = (
        ("/input", "must not be blank"),
        ("/b/url", "is required; really"),
        ("/url", "is required"),
        ("", "too long"),
    )
    flaws = [{"pointer": pointer, "detail": detail} for pointer, detail in pairs]
    detail = "/input: must not be blank; /b/url: is required; really"
    body = {"title": "Invalid", "detail": detail, "errors": flaws}
    with serving(lambda exchange: exchange.answer(422, json.dumps(body).encode())) as url:
        result = run(tmp_path, url, "ask", " ")
    told = f"loom: 422 Invalid: {detail}; /url: is required; body: too long\n"
    assert (result.exit_code, result.stderr) == (1, told)
