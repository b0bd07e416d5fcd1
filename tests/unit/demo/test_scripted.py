import json
import re
import time
from dataclasses import replace

import pytest

from loom_worker.core.errors import Interrupted, ProviderFailed
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.chat import ChatMessage, Reply, Request, TextDelta, ToolOutcome, ToolSpec
from loom_worker.core.values.judges import CORRECTION
from loom_worker.core.values.patterns import Pattern, PatternMatch
from loom_worker.demo.pattern_queries import read_queries
from loom_worker.demo.scripted import Scripted, latency_s
from loom_worker.patterns.render import for_message
from tests.support.shipped_patterns import shipped, shipped_matcher
from tests.support.tiny_shop import call, open_shop
from tests.support.until import AT_ONCE_S

KINDS = frozenset({"sql", "sqlite"})
TOOLS = tuple(ToolSpec(name, name, {"type": "object"}) for name in ("list_tables", "get_schema", "execute_sql"))
MODEL = Scripted(count=len)
BEST = "Which three products sold best last year, and how much did each bring in?"


def user(question: str) -> ChatMessage:
    found = [
        for_message(match) for match in shipped_matcher().match(question, k=1, kinds=KINDS) if match.confidence >= 0.5
    ]
    return ChatMessage("user", question, context="\n\n".join([*found, "Today is 2026-11-21."]))


def request(*messages: ChatMessage) -> Request:
    return Request("You are an analyst.", messages, tools=TOOLS, max_tokens=100_000)


def reply(asked: Request) -> Reply:
    last = list(MODEL.reply(asked))[-1]
    assert isinstance(last, Reply)
    return last


def said(answer: Reply) -> ChatMessage:
    return ChatMessage("assistant", answer.text, tool_uses=answer.tool_uses)


def run(answer: Reply, shop: sqlite3.Connection) -> ChatMessage:
    outcomes = []
    for use in answer.tool_uses:
        try:
            outcomes.append(ToolOutcome(use.id, use.name, call(shop, use.name, use.arguments)))
        except sqlite3.Error as error:
            outcomes.append(ToolOutcome(use.id, use.name, f"DATABASE_ERROR: {error}", is_error=True))
    return ChatMessage("tool", outcomes=tuple(outcomes))


def converse(question: str, shop: sqlite3.Connection, *before: ChatMessage) -> list[ChatMessage]:
    """Run a turn to its answer; gives all messages, the answer last."""
    messages = [*before, user(question)]
    for _ in range(5):
        answer = reply(request(*messages))
        messages.append(said(answer))
        if not answer.tool_uses:
            return messages
        messages.append(run(answer, shop))
    raise AssertionError("the script never came to an answer")


def ask(question: str) -> str:
    return converse(question, open_shop())[-1].text


SQL = [pattern for pattern in shipped().patterns if pattern.backend_type in KINDS]


@pytest.mark.cases("pattern", SQL, ids=[pattern.id for pattern in SQL])
def test_no_shipped_pattern_is_taken_to_read_tables_that_the_shop_does_not_have(pattern: Pattern) -> None:
    tasks = read_queries(for_message(PatternMatch(pattern, 1.0)))
    assert tasks
    listed = {table["name"] for table in json.loads(call(open_shop(), "list_tables", {}))["tables"]}
    assert listed.issuperset(tasks[0].tables())


def test_an_answer_that_judges_had_given_anew_is_given_again() -> None:
    shop = open_shop()
    before = converse(BEST, shop)
    correction = ChatMessage("user", f"{CORRECTION}0.2; 0.7 is needed. Answer the question above again.")
    assert reply(request(*before, correction)).text == before[-1].text


def test_a_file_beside_a_question_is_no_part_of_it() -> None:
    line = f"[image shelf.png, 8x8, file_{'0' * 32}]"
    question = "How many customers are there?"
    assert ask(f"{line}\n\n{question}") == ask(f"{question}\n\n{line}") == ask(question)


def test_three_products_are_three_products_with_their_revenue() -> None:
    lines = [line for line in ask(BEST).splitlines() if line[:1].isdigit()]
    assert lines == [
        "1. Red Tent: revenue 1,000.00, units 20",
        "2. Blue Tent: revenue 320.00, units 4",
        "3. Desk Lamp: revenue 90.00, units 3",
    ]


def test_the_steps_are_query_then_answer_and_nothing_is_said_before() -> None:
    asked = [message for message in converse(BEST, open_shop()) if message.role == "assistant"]
    assert [[use.name for use in message.tool_uses] for message in asked] == [["execute_sql"], []]
    assert asked[0].text == ""


@pytest.mark.cases(
    ("question", "fact"),
    [
        ("Who are our best customers?", "1. Ada Quist: revenue 1,140.00, orders 2, last order 2025-03-02"),
        ("Which 2 customers spent the most in 2025?", "2. Bo Lind: revenue 320.00"),
        ("bestsellers in March 2025", "1. Red Tent: units 20, revenue 1,000.00"),
        ("Which products sold the most units since 2024?", "1. Red Tent: units 21"),
        ("Monthly revenue trend this year", "2026-02: revenue 100.00"),
        ("Show me revenue per quarter in 2025", "1. 2025-Q1: revenue 1,040.00"),
        ("What was our revenue in March 2025?", "revenue 1,040.00"),
        (
            "compare revenue in 2025 with 2024",
            "Sales: 2025 is higher than 2024: revenue 1,450.00 against revenue 100.00 (+1,350.0 %)",
        ),
        ("What is the return rate by category?", "1. Tents: return rate 8.0 %"),
        ("Which products are returned most often?", "Blue Tent: returns 2, units returned 2, refunds 160.00"),
        ("Revenue by country last year", "1. Switzerland: revenue 1,130.00"),
        ("Which cities bring in the most revenue?", "1. Bern: revenue 1,230.00"),
        ("What is our average order value?", "average order value 330.00"),
        ("Which payment methods do customers use?", "1. card: payments 2, amount 1,140.00"),
        ("Which categories sell best?", "1. Tents: revenue 1,420.00"),
        ("revenue by supplier", "North Works: revenue 1,650.00"),
        ("Which products did not sell last year?", "Unsold Lamp: list price 30.00"),
        ("Do an ABC analysis", "1. Red Tent: class A"),
        ("How many orders were cancelled?", "orders 1\n"),
        ("Products bought together", "Red Tent + Head Lamp: orders 1"),
        ("Which store has the highest revenue?", "1. Online: revenue 1,230.00"),
        ("most profitable products", "Blue Tent: profit 120.00, revenue 320.00"),
        ("missing values", "1. promotion_id: row total 6, nulls 5"),
        ("revenue in Lyon", "revenue 420.00"),
        ("how many customers spent more than 500 and live in Bern?", "customers 1\n"),
        ("revenue of Lamps in Bern in 2025", "revenue 130.00"),
        ("card payments in 2025", "payments 1, amount 1,040.00"),
        ("Show me all tables", "The database has 11 tables:"),
        ("how many rows are in the order_lines table?", "The table order_lines has 7 rows."),
    ],
)
def test_a_question_is_answered_with_figures_of_the_shop(question: str, fact: str) -> None:
    assert fact in ask(question)


@pytest.mark.cases(
    ("question", "named"),
    [
        ("revenue in Atlantis", "atlantis"),
        ("card payments by category", 'group payments by "category"'),
        ("were our promotions worth it?", '"promotion worth it"'),
        ("revenue without returns", "without"),
        ("how many customers are there in 2025?", 'I cannot restrict customers to the period "2025"'),
        ("revenue by payment method", 'group revenue by "method"'),
        ("average order value of Tents", 'restrict average order value to "tents"'),
        ("drop in sales?", "drop in revenue"),
        ("revenue on mondays, on sundays", "sundays"),
        ("share of revenue of category by country", "share of revenue of category"),
        ("Compare revenue for spring 2025 with the period before it", "spring 2025 with period before it"),
        ("Compare revenue for 2025 with the period before it, the largest drop first", "largest drop first"),
        ("Products sold in March", "product sold march"),
        ("revenue in 2025 in March", '"revenue 2025 march"'),
        ("How many orders will we get next month?", "next month"),
        ("revenue in Bern and in Lyon", "restricted to bern and lyon"),
        ("columns of the invoices table", '"invoices" is none of the tables'),
    ],
)
def test_what_has_no_place_in_a_query_is_refused_by_name_and_no_figure_is_given(question: str, named: str) -> None:
    text = ask(question)
    assert text.startswith("I have no answer, as I do not guess: ")
    assert named in text.splitlines()[0]


@pytest.mark.cases(
    ("question", "verdict"),
    [
        ("Why did sales drop in 2025?", "Sales did not drop but rose: revenue 1,450.00 against revenue 100.00"),
        ("Did sales rise in 2025?", "Sales rose: revenue 1,450.00 against"),
        ("Did sales rise in July 2025?", "The data holds nothing for 2025-06-01 to 2025-06-30, so I call it neither"),
        ("Why did sales drop in Q3 2025?", "The data holds nothing for 2025-04-01 to 2025-06-30, so I call it neither"),
        ("Why did sales drop in Q4 2025?", "Sales dropped: revenue 90.00 against revenue 320.00 (-71.9 %)"),
        ("Is this year better than last year?", "325 and 365 days, so I call it neither a rise nor a drop"),
    ],
)
def test_a_rise_or_drop_is_told_as_the_figures_have_it_not_as_the_question_does(question: str, verdict: str) -> None:
    text = ask(question)
    assert verdict in text
    assert ("Why, these figures do not say." in text) is (question.startswith("Why") and "neither" not in verdict)


def test_names_are_looked_up_before_the_query() -> None:
    messages = converse("revenue in Lyon", open_shop())
    assert [[use.name for use in message.tool_uses] for message in messages if message.role == "assistant"] == [
        ["execute_sql"],
        ["execute_sql"],
        [],
    ]


def test_on_another_database_only_its_tables_are_told_of() -> None:
    music = sqlite3.connect(":memory:")
    music.execute("CREATE TABLE albums (id, title)")
    music.execute("INSERT INTO albums VALUES (1, 'Blue'), (2, 'Red')")
    assert "The table albums has 2 rows." in converse("How many albums are there?", music)[-1].text
    missing = converse("How many customers are there?", music)[-1].text
    assert missing.startswith("I have no answer")
    assert "no such table" not in missing
    assert converse("revenue in Berlin", music)[-1].text.startswith("I have no answer")
    assert converse("How many red albums are there?", music)[-1].text.startswith("I have no answer")


def test_the_answer_names_pattern_period_and_that_no_llm_spoke() -> None:
    text = ask(BEST)
    assert "2025-01-01 to 2025-12-31 (last year)" in text
    assert "(sql/top_n)" in text
    assert "no LLM" in text


def test_a_period_without_orders_gives_no_figures() -> None:
    text = ask("Best selling products in 2031")
    assert "gave no rows" in text
    assert "revenue " not in text.split("\n", 1)[1]


@pytest.mark.cases(
    "question", ["hello", "What is the weather like today?", "Tell me a joke", "show me all tables in 2025", ""]
)
def test_what_no_pattern_covers_gets_an_introduction_with_examples(question: str) -> None:
    answer = reply(request(user(question)))
    assert answer.stop_reason == "end_turn"
    assert "scripted demo model" in answer.text
    assert BEST in answer.text


def test_without_a_tool_for_queries_nothing_is_called() -> None:
    asked = replace(request(user(BEST)), tools=TOOLS[:2])
    assert reply(asked).tool_uses == ()


def test_a_missing_table_is_named_and_no_figure_given() -> None:
    shop = open_shop()
    shop.execute("DROP TABLE products")
    messages = converse(BEST, shop)
    assert messages[-1].text.startswith("I have no answer")
    assert "no such table: products" in messages[-1].text


def test_a_failed_query_is_told_and_no_figure_invented() -> None:
    shop = open_shop()
    shop.execute("ALTER TABLE order_lines DROP COLUMN discount")
    text = converse(BEST, shop)[-1].text
    assert "I have no answer" in text
    assert "DATABASE_ERROR: no such column: l.discount" in text


def test_a_result_that_was_stored_elsewhere_is_not_guessed() -> None:
    outcome = ToolOutcome("toolu_1", "execute_sql", "[Large dataset stored: ref_1]")
    text = reply(request(user(BEST), ChatMessage("assistant"), ChatMessage("tool", outcomes=(outcome,)))).text
    assert "gave a result I cannot read" in text


def test_a_second_question_is_not_answered_with_the_rows_of_the_first() -> None:
    shop = open_shop()
    messages = converse(BEST, shop)
    messages = converse("Who are our best customers?", shop, *messages)
    assert "Ada Quist" in messages[-1].text
    ids = [use.id for message in messages for use in message.tool_uses]
    assert len(set(ids)) == len(ids) == 2


def test_when_tools_may_not_be_called_it_says_what_it_has() -> None:
    asked = replace(request(user(BEST)), may_call_tools=False)
    answer = reply(asked)
    assert answer.tool_uses == ()
    assert "have no rows" in answer.text
    messages = converse(BEST, open_shop())
    assert "1,000.00" in reply(replace(request(*messages[:-1]), may_call_tools=False)).text


def test_the_same_request_gets_the_same_reply() -> None:
    assert list(MODEL.reply(request(user(BEST)))) == list(Scripted(len).reply(request(user(BEST))))


def test_the_deltas_join_to_the_text_of_the_reply() -> None:
    for asked in (request(user("hello")), request(*converse(BEST, open_shop())[:-1])):
        *deltas, last = MODEL.reply(asked)
        assert isinstance(last, Reply)
        assert len(deltas) > 1
        assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == last.text


def test_usage_counts_what_was_sent_and_said() -> None:
    answer = reply(request(user("hello")))
    longer = reply(request(user("hello there, how are you?")))
    assert answer.usage.output_tokens == len(answer.text)
    assert longer.usage.input_tokens == answer.usage.input_tokens + len(" there, how are you?")
    assert (answer.usage.cost_usd, answer.usage.llm_calls, answer.model) == (0.0, 1, MODEL.name)


def test_memory_counts_in_the_usage_and_changes_nothing_else() -> None:
    plain = request(user(BEST))
    without, known = reply(plain), reply(replace(plain, memory="Known: Ann."))
    assert known.usage.input_tokens == without.usage.input_tokens + len("Known: Ann.")
    assert replace(known, usage=without.usage) == without


def test_a_call_costs_output_too() -> None:
    answer = reply(request(user(BEST)))
    assert answer.stop_reason == "tool_use"
    assert answer.usage.output_tokens > len(answer.text)


def test_the_question_reaches_a_statement_only_as_plain_words_in_quotes_to_look_up() -> None:
    hostile = "Which three products sold best last year'; DROP TABLE orders; --"
    shop = open_shop()
    messages = converse(hostile, shop)
    sql = "".join(use.arguments.get("sql", "") for message in messages for use in message.tool_uses)
    quoted = re.findall(r"WHERE '(.*?)' LIKE", sql)
    assert quoted
    assert all(re.fullmatch(r"[\w -]+", each) for each in quoted)
    assert "DROP" not in sql
    assert messages[-1].text.startswith("I have no answer")
    assert shop.execute("SELECT COUNT(*) FROM orders").fetchone() == (6,)


def test_a_lone_surrogate_in_a_question_does_no_harm() -> None:
    assert reply(request(user("\ud800" + BEST))).tool_uses


def test_arguments_are_json() -> None:
    assert all(json.dumps(use.arguments) for use in reply(request(user(BEST))).tool_uses)


def named(model: str, *, stopping: Stopping | None = None) -> Scripted:
    return Scripted(len, model=model, stopping=stopping)


@pytest.mark.cases(
    ("model", "seconds"),
    [
        ("scripted-demo", 0.0),
        ("scripted-demo+0ms", 0.0),
        ("scripted-demo+5ms", 0.005),
        ("scripted-demo+1000ms", 1.0),
        ("scripted-demo+99999ms", 99.999),
        ("another-provider/model+1s", 0.0),
    ],
)
def test_the_name_says_how_long_the_first_words_take(model: str, seconds: float) -> None:
    assert latency_s(model) == seconds


@pytest.mark.cases("suffix", ["", "1s", "1000", "ms", "-5ms", "1.5ms", "100000ms", "5ms ", "5ms\n", "٥ms"])
def test_a_latency_that_is_written_otherwise_is_refused_by_name(suffix: str) -> None:
    with pytest.raises(ProviderFailed, match="LOOM_MODEL") as caught:
        named(f"scripted-demo+{suffix}")
    assert repr(f"scripted-demo+{suffix}") in str(caught.value)


def test_no_word_comes_before_the_latency_is_over_and_then_the_same_words_come() -> None:
    began_s = time.monotonic()
    events = named("scripted-demo+40ms").reply(request(user("hello")))
    first = next(events)
    assert time.monotonic() - began_s >= 0.04
    assert [first, *events] == list(MODEL.reply(request(user("hello"))))


def test_a_waiting_reply_that_is_given_up_ends_at_once() -> None:
    asked = replace(request(user("hello")), is_given_up=lambda: True)
    with pytest.raises(Interrupted):
        next(named("scripted-demo+99999ms").reply(asked))


def test_a_reply_that_is_given_up_while_it_waits_does_not_wait_to_its_end() -> None:
    answers = iter([False, True])
    asked = replace(request(user("hello")), is_given_up=lambda: next(answers))
    began_s = time.monotonic()
    with pytest.raises(Interrupted):
        next(named("scripted-demo+99999ms").reply(asked))
    assert time.monotonic() - began_s < AT_ONCE_S


def test_a_waiting_reply_ends_with_its_worker() -> None:
    stopping = Stopping(0.0)
    stopping.ask()
    with pytest.raises(Interrupted):
        next(named("scripted-demo+99999ms", stopping=stopping).reply(request(user("hello"))))


def test_a_reply_without_latency_asks_nobody_whether_to_wait() -> None:
    asked = replace(request(user("hello")), is_given_up=lambda: True)
    assert list(named("scripted-demo").reply(asked)) == list(MODEL.reply(asked))


CONVERT = ToolSpec("convert", "Convert money.", {"type": "object"})
NAMED = 'convert {"amount": 54, "currency": "USD"}'


def asked_to_call(text: str, *more: ChatMessage, may_call_tools: bool = True) -> Reply:
    messages = (ChatMessage("user", text), *more)
    tools = (*TOOLS, CONVERT)
    return reply(Request("", messages, tools=tools, may_call_tools=may_call_tools, max_tokens=100_000))


def test_a_message_that_spells_a_call_out_makes_it_and_tells_what_came_of_it() -> None:
    called = asked_to_call(NAMED)
    [use] = called.tool_uses
    assert (use.name, use.arguments) == ("convert", {"amount": 54, "currency": "USD"})
    for is_error, word in ((False, "gave"), (True, "failed")):
        outcome = ToolOutcome(use.id, "convert", "50 EUR", is_error=is_error)
        answer = asked_to_call(NAMED, said(called), ChatMessage("tool", outcomes=(outcome,)))
        assert (answer.text, answer.tool_uses) == (f"convert {word}: 50 EUR", ())


@pytest.mark.cases("text", ['nothing {"amount": 1}', "convert {amount: 1}", "convert [1]", "convert 54 dollars"])
def test_what_spells_no_call_of_a_tool_out_calls_none(text: str) -> None:
    assert "convert" not in [use.name for use in asked_to_call(text).tool_uses]


def test_a_call_that_is_spelled_out_is_not_made_when_tools_may_not_be_called() -> None:
    answer = asked_to_call(NAMED, may_call_tools=False)
    assert (answer.tool_uses, "was not called" in answer.text) == ((), True)


def test_a_question_too_long_to_be_read_is_refused_at_once() -> None:
    answer = reply(request(ChatMessage("user", "revenue " * 2_000)))
    assert answer.tool_uses == ()
    assert "I read questions of up to 2,000 characters" in answer.text
