import hypothesis.strategies as st
from hypothesis import given

from loom_worker.backends.documents.extract import Line, passages
from loom_worker.backends.documents.lookup import MAX_BYTES, Shown, numbered, printed


def shown(
    texts: list[str], *, first: int = 1, last: int | None = None, skip: int = 0, page: int | None = None
) -> Shown:
    lines = (Line(text, page=page) for text in texts)
    return printed(numbered(passages(lines, first=1), first=first, last=last, skip=skip))


def test_lines_carry_their_numbers_and_pages_a_mark() -> None:
    assert shown(["a", "", "c"]).text == "1\ta\n2\t\n3\tc"
    assert shown(["a", "b"], page=7).text == "--- page 7 ---\n1\ta\n2\tb"
    assert shown(["a", "b", "c"], first=2, last=2) == Shown("2\tb", None)


def test_a_line_that_does_not_fit_is_shown_in_part_and_said_to_go_on() -> None:
    page = shown(["é" * 10_000])
    assert (page.next_line, page.next_skip) == (1, len(page.text) - 2)
    assert shown(["ab" * 10_000], skip=19_999).text == "1\tb"


@given(
    st.lists(
        st.one_of(st.text("aé€😀 ", max_size=40), st.integers(1000, 30_000).map("€".__mul__)), min_size=1, max_size=12
    )
)
def test_going_on_as_told_shows_every_character_once(texts: list[str]) -> None:
    seen = dict.fromkeys(range(1, len(texts) + 1), "")
    at: int | None = 1
    skip = 0
    while at is not None:
        page = shown(texts, first=at, skip=skip)
        assert len(page.text.encode()) < MAX_BYTES
        for line in page.text.split("\n"):
            number, _, text = line.partition("\t")
            seen[int(number)] += text
        assert (page.next_line, page.next_skip) != (at, skip)
        at, skip = page.next_line, page.next_skip
    assert list(seen.values()) == texts
