"""A database and two patterns of a user's own: templates run if each word has a place in them."""

from datetime import date
from typing import Any

import pytest

from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.core.values.patterns import Parameter, Pattern, PatternMatch, Template
from loom_worker.patterns.render import for_message
from tests.support.demo_model import answer_to

TODAY = date(2026, 11, 23)
PERIOD = (Parameter("start", default="0001-01-01"), Parameter("end", default="9999-12-31"))
ROOMS = Pattern(
    id="house/rooms",
    name="rooms",
    title="Bookings per room",
    description="Nights and income that each room brought in. Stays that were called off are left out.",
    backend_type="sql",
    parameters=(Parameter("n", type="integer", default="20"), *PERIOD),
    templates={
        "by_income": Template(
            "SELECT r.name AS room, COUNT(*) AS bookings, SUM(b.nights) AS nights, SUM(b.price) AS income "
            "FROM bookings b JOIN rooms r ON r.id = b.room_id "
            "WHERE b.is_off = 0 AND b.arrives >= '{{start}}' AND b.arrives < '{{end}}' "
            "GROUP BY r.name ORDER BY income DESC LIMIT {{n}}"
        ),
    },
)
GUESTS = Pattern(
    id="house/guests",
    name="guests",
    title="Guests from a town",
    description="Names of the guests who live in a town.",
    backend_type="sql",
    parameters=(Parameter("town", is_required=True),),
    templates={"all": Template("SELECT g.name AS guest, g.town AS town FROM guests AS g WHERE g.town = '{{town}}'")},
)


def house() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.executescript("""
        CREATE TABLE rooms (id, name); INSERT INTO rooms VALUES (1, 'Attic'), (2, 'Garden'), (3, 'Cellar');
        CREATE TABLE guests (id, name, town); INSERT INTO guests VALUES (1, 'Ann', 'Oslo'), (2, 'Bob', 'Bad Ems');
        CREATE TABLE bookings (room_id, guest_id, arrives, nights, price, is_off);
        INSERT INTO bookings VALUES (1, 1, '2026-10-01', 2, 200, 0), (2, 2, '2026-10-05', 1, 90, 0),
            (2, 1, '2025-03-01', 5, 400, 0), (1, 2, '2026-10-09', 9, 900, 1);
    """)
    return connection


def asked(question: str) -> Any:
    return answer_to(question, house(), TODAY, [for_message(PatternMatch(each, 0.9)) for each in (ROOMS, GUESTS)])


@pytest.mark.cases(
    ("question", "rows"),
    [
        ("Bookings per room last month", [("Attic", 1, 2, 200), ("Garden", 1, 1, 90)]),
        ("How many bookings did each room have in 2025?", [("Garden", 1, 5, 400)]),
        ("top 1 bookings per room by income", [("Garden", 2, 6, 490)]),
        ("guests from Bad Ems", [("Bob", "Bad Ems")]),
    ],
)
def test_a_template_of_an_own_pattern_runs_with_its_slots_filled(question: str, rows: list[tuple[Any, ...]]) -> None:
    assert list(asked(question).rows) == rows


@pytest.mark.cases(
    "question",
    [
        "Which room has the most bookings?",
        "Which room brought in the most income?",
        "Which guests live in Oslo?",
        "bookings per room without the Attic",
        "Which room brought in the least income?",
        "How many rooms are there?",
        "Bookings per room that were called off",
        "Guests who do not live in Oslo",
        "guests from Paris",
        "Why did the Garden room bring in so much?",
        "list all rooms",
    ],
)
def test_what_an_own_template_does_not_give_is_refused_or_counted_from_a_table(question: str) -> None:
    answer = asked(question)
    assert answer.is_refusal or (question.startswith("How many rooms") and answer.rows == ((3,),))
    assert answer.rows == () or "3 rows" in answer.text


def test_whoever_asks_for_help_is_shown_the_own_patterns_that_fit_the_tables() -> None:
    listed = "house:\n- house/rooms: Bookings per room\nsql:\n- sql/top_n: Top products"
    answer = answer_to("what can you do?", house(), TODAY, [], patterns=listed)
    assert "- Bookings per room" in answer.text
    assert "products" not in answer.text
    assert "Show me all tables" in answer.text
