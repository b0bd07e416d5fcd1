import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.errors import ToolFailed
from loom_worker.patterns.match import Matcher
from loom_worker.patterns.render import as_document, fill, for_message, load_pattern_tool
from loom_worker.values.patterns import Parameter, Pattern, PatternMatch
from tests.support.callers import CALLER

PATTERN = Pattern(
    id="sql/top_n",
    name="top_n",
    title="Best sellers",
    description="Ranks products.",
    backend_type="sql",
    related_patterns=("sql/slow",),
    parameters=(
        Parameter("n", "integer", description="How many\nrows.", default="3"),
        Parameter("table", is_required=True),
    ),
    templates={"plain": "SELECT 1\nLIMIT {{n}}\n"},
    best_practices="Order by name too.\n",
)
TEXT = """<pattern id="sql/top_n" score="0.41">

Best sellers

Ranks products.

Template plain:
```sql
SELECT 1
LIMIT {{n}}
```

Parameters:
- n (integer, default 3): How many rows.
- table (string, required)

Best practices:
Order by name too.

Related patterns:
sql/slow
</pattern>"""


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("LIMIT {{n}}", "LIMIT 5"),
        ("LIMIT {{.n}} {{ n }}", "LIMIT 5 5"),
        ("{{unknown}} stays", "{{unknown}} stays"),
        ("{n} {0} {} }} {{", "{n} {0} {} }} {{"),
        ("$n ${n} $HOME %s %(n)s 100%", "$n ${n} $HOME %s %(n)s 100%"),
        ("{{a.b}} {{n|upper}} {% if n %}", "{{a.b}} {{n|upper}} {% if n %}"),
    ],
)
def test_only_double_braces_around_a_known_name_are_filled(template: str, filled: str) -> None:
    assert fill(template, {"n": "5"}) == filled


def test_a_value_is_never_read_as_a_template() -> None:
    assert fill("{{a}} {{b}}", {"a": "{{b}}", "b": r"\1 \g<0>"}) == r"{{b}} \1 \g<0>"


@given(st.text(alphabet="{}. n$%\\", max_size=40))
def test_a_text_without_known_names_comes_back_unchanged(text: str) -> None:
    assert fill(text, {}) == text


def test_the_text_beside_a_message_is_exactly_this() -> None:
    assert for_message(PatternMatch(PATTERN, 0.4149)) == TEXT


def test_a_document_is_the_same_without_the_score() -> None:
    assert as_document(PATTERN) == TEXT.replace(' score="0.41"', "")


def test_empty_parts_leave_no_heading() -> None:
    assert as_document(Pattern("x/y", "y", "Why")) == '<pattern id="x/y">\n\nWhy\n</pattern>'


def test_ticks_in_a_template_do_not_end_its_fence() -> None:
    text = as_document(Pattern("x/y", "y", "Why", templates={"t": "SELECT '```'"}))
    assert "````sql\nSELECT '```'\n````" in text


def test_a_template_for_another_backend_is_not_called_sql() -> None:
    assert "sql" not in as_document(Pattern("x/y", "y", "Why", backend_type="rest", templates={"t": "GET /x"}))


def test_load_pattern_gives_the_document() -> None:
    tool = load_pattern_tool(Matcher([PATTERN]))
    assert tool.run({"id": "sql/top_n"}, CALLER) == as_document(PATTERN)
    assert tool.is_bounded
    assert tool.is_idempotent


@pytest.mark.parametrize("wanted", ["sql/topn", "top_n", "rest/top_m", "sql/top"])
def test_an_unknown_id_is_answered_with_a_near_one_in_100_characters(wanted: str) -> None:
    with pytest.raises(ToolFailed, match="there is sql/top_n") as failed:
        load_pattern_tool(Matcher([PATTERN])).run({"id": wanted}, CALLER)
    assert failed.value.code == "ERROR_NOT_FOUND"
    assert len(str(failed.value)) <= 100


def test_an_endless_id_still_fails_in_100_characters() -> None:
    with pytest.raises(ToolFailed) as failed:
        load_pattern_tool(Matcher([PATTERN])).run({"id": "x" * 5000}, CALLER)
    assert len(str(failed.value)) <= 100


def test_an_empty_library_says_so() -> None:
    with pytest.raises(ToolFailed, match="the library is empty"):
        load_pattern_tool(Matcher([])).run({"id": "sql/top_n"}, CALLER)
