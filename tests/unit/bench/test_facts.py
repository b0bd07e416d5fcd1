"""What is known of made-up people is what a careful reader would say, and what was replaced is not told as true."""

import yaml

from bench.facts import MOST_SUPERSEDED, PEOPLE, measured


def test_facts_that_were_replaced_are_not_told_as_true() -> None:
    figures = measured(yaml.safe_load(PEOPLE.read_text(encoding="utf-8")))
    assert figures.superseded <= MOST_SUPERSEDED
    assert min(figures.held_precision, figures.held_recall) > 0.9
    assert min(figures.once_precision, figures.once_recall, figures.answered) > 0.9
