"""Two periods side by side, group by group."""

from datetime import date

import pytest

from tests.support.demo_model import ask
from tests.support.tiny_shop import open_shop

TODAY = date(2026, 11, 21)
"""Of 2025, as many days are compared as 2026 has had so far."""


@pytest.mark.cases(
    ("question", "lines"),
    [
        (
            "Compare revenue by product for 2025 with the period before it",
            [
                "1. Red Tent: revenue 1,000.00 against revenue 100.00 (+900.0 %), units 20 against units 1"
                " (+1,900.0 %)",
                "2. Blue Tent: revenue 320.00 against revenue none, units 4 against units none",
                "3. Desk Lamp: revenue 90.00 against revenue none, units 3 against units none",
                "4. Head Lamp: revenue 40.00 against revenue none, units 2 against units none",
            ],
        ),
        (
            "Compare revenue by category for 2026 with the period before it, the largest drop first.",
            [
                "1. Tents: revenue none against revenue 1,320.00, units none against units 24",
                "2. Lamps: revenue 100.00 against revenue 40.00 (+150.0 %), units 5 against units 2 (+150.0 %)",
            ],
        ),
        (
            "Compare revenue by category for 2026 with the period before it, the largest rise first.",
            [
                "1. Lamps: revenue 100.00 against revenue 40.00 (+150.0 %), units 5 against units 2 (+150.0 %)",
                "2. Tents: revenue none against revenue 1,320.00, units none against units 24",
            ],
        ),
    ],
)
def test_groups_of_two_periods_stand_side_by_side_by_their_change(question: str, lines: list[str]) -> None:
    assert [line for line in ask(question, open_shop(), TODAY).text.splitlines() if line[:1].isdigit()] == lines


def test_groups_that_cannot_be_told_apart_are_not_put_side_by_side() -> None:
    shop = open_shop()
    shop.execute("UPDATE products SET name = 'Tent' WHERE category_id = 1")
    text = ask("Compare revenue by product for 2025 with the period before it", shop, TODAY).text
    assert "; in no order of their changes:" in text
    assert text.count("product Tent, revenue ") == 3
