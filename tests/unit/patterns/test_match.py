import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from loom_worker.agents.load import load as load_agents
from loom_worker.patterns.library import load, packaged_root
from loom_worker.patterns.match import Matcher
from loom_worker.values.patterns import Pattern

MATCHER = Matcher(load(packaged_root()).patterns)
THRESHOLD = load_agents(None).agents["default"].min_confidence

ON_TOPIC = {
    "Which three products sold best last year, and how much did each bring in?": "top_n",
    "What are our top 5 products by revenue in 2025?": "top_n",
    "Show me the ten most popular articles this year": "top_n",
    "bestsellers in March 2025": "top_n",
    "rank products by units sold": "top_n",
    "Who are our best customers?": "customer_ranking",
    "Which five customers spent the most money this year?": "customer_ranking",
    "Name our three most valuable clients": "customer_ranking",
    "Monthly revenue trend this year": "trend_over_time",
    "How did our sales develop month by month in 2025?": "trend_over_time",
    "What was our revenue last month?": "trend_over_time",
    "Is this year better than last year?": "period_comparison",
    "2024 vs 2025 revenue": "period_comparison",
    "How much did we grow year over year?": "period_comparison",
    "What is the return rate by category?": "return_rate",
    "Why do people return things?": "return_rate",
    "most returned products": "return_rate",
    "Revenue by country last year": "geography_breakdown",
    "Which country is our biggest market?": "geography_breakdown",
    "revenue by city": "geography_breakdown",
    "What is our average order value?": "average_order_value",
    "average order size by month": "average_order_value",
    "Which payment methods do customers use?": "payment_mix",
    "How do people pay?": "payment_mix",
    "Which categories sell best?": "category_breakdown",
    "category performance last quarter": "category_breakdown",
    "How many new customers did we get this year?": "new_vs_returning",
    "Do customers come back after their first order?": "cohort_retention",
    "Which products make up 80% of our revenue?": "pareto_abc",
    "80/20 analysis": "pareto_abc",
    "Which products did not sell last year?": "slow_movers",
    "five least popular products": "slow_movers",
    "most profitable category": "gross_margin",
    "impact of promotions on revenue": "promotion_effect",
    "How many orders were cancelled last month?": "order_status",
    "product pairs in the same order": "bought_together",
    "RFM segments": "customer_rfm",
    "What share of revenue does each customer segment have?": "share_of_total",
    "missing values in customers": "data_profile",
}

OFF_TOPIC = """
hello
thanks, that was helpful
what can you do?
What is the weather like today?
Will it rain in Berlin tomorrow?
Tell me a joke
tell me a joke about customers
Write a python function that sorts a list
How do I reverse a linked list in Java?
How do I bake sourdough bread?
Give me a recipe for lentil soup
What is the capital of France?
Who won the world cup in 2014?
Book a table for two at seven
What is the best movie of last year?
Where can I buy cheap shoes?
How many planets are there?
What time is it?
Explain how photosynthesis works
Who scored the most goals last season?
What is the population growth of India?
How do I return to the main menu?
What is the average height of a man?
Best time to visit Norway
How do I cancel my gym membership?
How many calories does an apple have?
Write unit tests for my class
Should I buy bitcoin?
bye
""".strip().splitlines()


@pytest.mark.parametrize("question", ON_TOPIC)
def test_a_question_about_the_shop_finds_its_pattern_over_the_threshold(question: str) -> None:
    best = MATCHER.match(question)[0]
    assert best.pattern.id == f"sql/{ON_TOPIC[question]}"
    assert best.score >= THRESHOLD


@pytest.mark.parametrize("question", OFF_TOPIC)
def test_a_question_about_something_else_stays_under_the_threshold(question: str) -> None:
    assert all(match.score < THRESHOLD for match in MATCHER.match(question))


def test_matches_come_best_first_and_at_most_k() -> None:
    scores = [match.score for match in MATCHER.match("revenue by category and product", k=5)]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 5
    assert all(0 < score <= 1 for score in scores)


def test_a_pattern_that_shares_no_word_is_no_match() -> None:
    assert MATCHER.match("xylophone") == ()
    assert MATCHER.match("") == ()


def test_the_words_that_counted_are_words_of_the_question() -> None:
    terms = MATCHER.match("return rate by category")[0].terms
    assert set(terms) == {"return", "rate", "category"}
    assert terms[0] == "return"


def test_unknown_words_make_a_match_less_sure() -> None:
    plain = MATCHER.match("best customers")[0].score
    assert MATCHER.match("best customers frobnicate the wombat")[0].score < plain


def test_patterns_are_found_by_id() -> None:
    pattern = MATCHER.by_id("sql/top_n")
    assert pattern is not None
    assert pattern.name == "top_n"
    assert MATCHER.by_id("sql/nothing") is None
    assert "sql/top_n" in MATCHER.ids()


def test_an_empty_library_matches_nothing() -> None:
    assert Matcher(()).match("best customers") == ()


def test_patterns_without_a_meaningful_word_do_no_harm() -> None:
    assert Matcher([Pattern("x/the", "the", "The")]).match("the best customers") == ()


def test_many_threads_get_the_answers_of_one() -> None:
    questions = [*ON_TOPIC, *OFF_TOPIC] * 4
    alone = [MATCHER.match(question) for question in questions]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(MATCHER.match, questions)) == alone


def test_a_pasted_novel_costs_no_more_than_its_beginning() -> None:
    novel = "Who are our best customers? " + "customers " * 100_000
    started = time.process_time()
    assert MATCHER.match(novel)[0].pattern.category == "customers"
    assert time.process_time() - started < 0.5


def test_importing_the_room_does_not_load_scikit_learn() -> None:
    code = "import sys, loom_worker.patterns.match, loom_worker.patterns.render; print('sklearn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["False"]
