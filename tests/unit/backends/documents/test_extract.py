import hypothesis.strategies as st
from hypothesis import given

from loom_worker.backends.documents.extract import PASSAGE_CHARS, Line, Outline, Passage, passages


def cut(*lines: Line, first: int = 1) -> list[Passage]:
    return list(passages(iter(lines), first=first))


def test_a_passage_crosses_neither_a_page_nor_a_heading() -> None:
    found = cut(Line("a", "One", 1), Line("b", "One", 1), Line("c", "One", 2), Line("d", "Two", 2))
    assert found == [
        Passage(1, 1, 2, 0, "One", "a\nb"),
        Passage(2, 3, 3, 0, "One", "c"),
        Passage(2, 4, 4, 0, "Two", "d"),
    ]


def test_line_numbers_go_on_where_an_earlier_reading_stopped() -> None:
    assert [(each.first, each.last) for each in cut(Line("a"), Line("b", "H"), first=11)] == [(11, 11), (12, 12)]


def test_a_long_passage_ends_at_an_empty_line() -> None:
    found = cut(Line("x" * 700), Line(""), Line("y"))
    assert [each.body for each in found] == ["x" * 700 + "\n", "y"]


def test_a_long_line_is_cut_into_parts_that_say_what_stands_before_them() -> None:
    found = cut(Line("a"), Line("x" * (2 * PASSAGE_CHARS + 5)), Line("b"))
    assert [(each.first, each.skip, len(each.body)) for each in found] == [
        (1, 0, 1),
        (2, 0, PASSAGE_CHARS),
        (2, PASSAGE_CHARS, PASSAGE_CHARS),
        (2, 2 * PASSAGE_CHARS, 5),
        (3, 0, 1),
    ]


@given(st.lists(st.one_of(st.text("ab ", max_size=30), st.integers(500, 3000).map("x".__mul__)), max_size=30))
def test_all_passages_in_a_row_are_the_document(texts: list[str]) -> None:
    lines: dict[int, str] = {}
    for passage in passages(map(Line, texts), first=1):
        assert len(passage.body) <= PASSAGE_CHARS
        for number, text in enumerate(passage.body.split("\n"), passage.first):
            assert len(lines.get(number, "")) == passage.skip or number > passage.first
            lines[number] = lines.get(number, "") + text
    assert [lines[number] for number in sorted(lines)] == texts


def test_a_section_stands_under_those_that_are_open_above_it() -> None:
    outline = Outline()
    paths = [outline.enter(level, text) for level, text in ((1, "A"), (3, "B"), (2, "C\n  c"), (1, "D"))]
    assert paths == ["A", "A > B", "A > C c", "D"]
