"""A newcomer's first minutes, with the demo model and the sample shop."""

import base64
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import urllib3

from loom_worker.lanes import keys
from tests.support.system import Json, System, rows, spoken
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.takes(25)]

QUESTION = "Which three products sold best last year, and how much did each bring in?"
WORDS = ("Which three products", "sold best", "SELECT", "order_lines")
"""Of the user and of the model: none of them may stand in a Celery message."""

BEST_SELLERS = """
    SELECT p.name, SUM(l.quantity * l.unit_price * (1 - l.discount)) AS revenue
    FROM products p
    JOIN order_lines l ON l.product_id = p.id
    WHERE l.order_id IN (SELECT id FROM orders WHERE status <> 'cancelled' AND substr(ordered_at, 1, 4) = ?)
    GROUP BY p.id ORDER BY revenue DESC LIMIT 3
"""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with System(tmp_path_factory.mktemp("demo") / "home") as system:
        yield system


@pytest.fixture(scope="module")
def answered(demo: System) -> Json:
    """The sample question, asked as the start screen says."""
    headers = {"Prefer": "wait=60"}
    answer = demo.post("/v1/sessions/first/turns", {"input": QUESTION}, headers)
    assert answer.status == 200, answer.text
    turn: Json = answer.json
    return turn


def best_sellers(home: Path) -> list[tuple[str, float]]:
    last_year = str(datetime.now(UTC).year - 1)
    return [(name, round(revenue, 2)) for name, revenue in rows(home / "shop.db", BEST_SELLERS, last_year)]


def test_the_sample_question_is_answered_with_what_an_independent_query_finds(demo: System, answered: Json) -> None:
    assert (answered["status"], answered["attempt"], answered["error"]) == ("completed", 1, None)
    said = re.findall(r"^\d\. (.+): revenue ([\d,]+\.\d\d)", answered["output_text"], re.MULTILINE)
    assert [(name, float(revenue.replace(",", ""))) for name, revenue in said] == best_sellers(demo.home)
    assert demo.turn(answered["id"]) == answered


def test_the_conversation_shows_question_calls_results_in_call_order_and_answer(demo: System, answered: Json) -> None:
    messages = demo.messages("first")
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[0]["content"] == QUESTION
    said = [message["content"] for message in messages if message["role"] == "assistant"]
    assert said[-1] == answered["output_text"]
    asked = [call["id"] for message in messages for call in message["tool_calls"]]
    came = [result["tool_id"] for message in messages for result in message["tool_results"]]
    assert asked == came == [call["id"] for call in answered["tool_calls"]]
    assert len(asked) == 1


def test_events_have_ids_without_gaps_live_and_afterwards_and_resume_anywhere(demo: System) -> None:
    turn_id = demo.submit("events", QUESTION)
    live = list(demo.events(turn_id))
    assert [event.id for event in live] == list(range(1, len(live) + 1))
    assert (live[0].type, live[-1].type) == ("turn.queued", "turn.completed")
    assert live[-1].data == demo.turn(turn_id)
    assert live[-1].data["output_text"] in spoken(live)
    assert list(demo.events(turn_id)) == live
    for after in (1, len(live) // 2, len(live) - 1):
        assert list(demo.events(turn_id, after=after)) == live[after:]


def test_the_command_line_prints_the_same_answer(demo: System, answered: Json) -> None:
    printed = demo.run("ask", QUESTION)
    assert (printed.returncode, printed.stdout) == (0, answered["output_text"] + "\n"), printed.stderr


def test_a_question_beside_the_data_is_told_what_can_be_asked(demo: System) -> None:
    turn = demo.ended(demo.submit("beside", "Please write me a poem about the sea."))
    assert turn["status"] == "completed"
    assert "demo model" in turn["output_text"]
    assert QUESTION in turn["output_text"]


def test_a_webhook_to_this_machine_is_refused_unless_allowed(demo: System) -> None:
    for url in ("http://127.0.0.1:9/hook", "http://localhost/hook", "http://2130706433/hook", "http://10.0.0.1/"):
        answer = demo.post("/v1/sessions/hooked/turns", {"input": "hello", "webhook": url})
        assert answer.status == 422, answer.text
        assert answer.json["type"].endswith("webhook-url-refused")
    assert demo.get("/v1/sessions/hooked").status == 404


def test_pages_contract_and_probes_are_served(demo: System) -> None:
    for path in ("/", "/docs", "/openapi.json", "/readyz", "/healthz"):
        assert demo.get(path).status == 200, path
    assert demo.get("/openapi.json").json["openapi"].startswith("3.1")


def test_celery_messages_hold_ids_and_no_word_that_a_user_or_model_said(demo: System) -> None:
    with demo.redis() as client:
        until(lambda: not client.exists(keys.FREE_SLOTS), 20, "no thread is left that needs no wake-up")
        with client.monitor() as monitor:
            demo.ended(demo.submit("private", QUESTION))
            client.echo("the turn has ended")
            messages = list(queued_messages(monitor))
        kept = " ".join(str(client.lrange(key, 0, -1)) for key in client.keys("loom:q:*") if client.type(key) == "list")
    tasks = [message for message in messages if "task" in message["headers"]]  # others: workers that answer Flower
    names = {task["headers"]["task"] for task in tasks}
    assert names - {"loom.turn.wake"} == {"loom.turn.run", "loom.tool.call"}  # a thread that is free needs no wake-up
    assert all(len(base64.b64decode(task["body"])) < 1024 for task in tasks)
    for message in messages:
        text = json.dumps(message) + base64.b64decode(message["body"]).decode() + kept
        assert not [word for word in WORDS if word in text]


def queued_messages(monitor: Any) -> Iterator[Json]:
    """Every message put on a Celery queue, up to the ECHO that ends the watch."""
    while not (command := monitor.next_command()["command"]).startswith("ECHO"):
        verb, _, rest = command.partition(" ")
        key, _, value = rest.partition(" ")
        if verb == "LPUSH" and key.startswith("loom:q:") and value.startswith("{"):
            # Valkey shows a quote inside a value as \" and a backslash as \\; redis-py undoes the first.
            yield json.loads(value.replace("\\\\", "\\"))


def test_flower_shows_the_tasks_to_who_knows_the_password_and_ids_alone(demo: System, answered: Json) -> None:
    flower = f"{demo.state['flower_url']}/api/tasks"
    password = (demo.home / "flower.password").read_text().strip()
    headers = urllib3.make_headers(basic_auth=f"loom:{password}")
    with urllib3.PoolManager(retries=False, headers={"Connection": "close"}) as pool:
        assert pool.request("GET", flower).status == 401

        def names() -> str | None:
            answer = pool.request("GET", flower, headers={**headers, "Connection": "close"})
            shown = {task["name"] for task in answer.json().values()}
            return answer.data.decode() if {"loom.turn.run", "loom.tool.call"} <= shown else None

        page = until(names, 20, "Flower has heard of the tasks")
    assert answered["id"] in str(page)
    assert not [word for word in WORDS if word in str(page)]


@pytest.mark.heavy
def test_a_second_start_finds_the_conversation(demo: System, answered: Json) -> None:
    before = demo.messages("first")
    demo.stop()
    demo.start()
    assert demo.messages("first") == before
    assert demo.turn(answered["id"]) == answered
    assert [event.type for event in demo.events(answered["id"])][-1] == "turn.completed"
