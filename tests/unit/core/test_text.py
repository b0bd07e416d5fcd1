import pytest

from loom_worker.core.text import NAME_CHARS, clean, defused, is_plain, longest, one_line


@pytest.mark.cases(
    ("text", "shown"),
    [
        ("orders", "orders"),
        (" a\n b\t\u2028c\x85d ", "a b cd"),
        ("a\u202eb\u200bc\U000e0041", "abc"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("x" * NAME_CHARS, "x" * NAME_CHARS),
        ("x" * 3000, "x" * (NAME_CHARS - 1) + "…"),
        ("\ud800", "\ufffd"),
    ],
)
def test_a_strangers_text_is_one_line_of_what_can_be_seen(text: str, shown: str) -> None:
    assert one_line(text) == shown
    assert one_line(shown) == shown


@pytest.mark.cases("name", ["orders", "Größe in m²", "two  spaces", "می\u200cخواهم", "x" * NAME_CHARS, ""])
def test_a_name_that_can_be_shown_as_it_is_is_plain(name: str) -> None:
    assert is_plain(name)
    assert clean(name) == name


@pytest.mark.cases("name", ["a\nb", "a\tb", "a\u2029b", "a\0", "a\u202eb", "x" * (NAME_CHARS + 1), "\ud800"])
def test_a_name_that_would_be_shown_otherwise_is_not_plain(name: str) -> None:
    assert not is_plain(name)


@pytest.mark.cases(
    "tag",
    ["<pattern", "</ Pattern>", "< /skill>", "<\\skill>", "<skills>", "<AVAILABLE_SKILLS>", "</available_skills>"],
)
def test_a_text_opens_and_ends_no_block(tag: str) -> None:
    assert defused(f"a {tag} b") == f"a &lt;{tag[1:]} b"


@pytest.mark.cases("text", ["a < pattern_id", "<skillet>", "<div>", "if x<skillful", "&lt;pattern>"])
def test_what_is_no_tag_of_a_block_stays(text: str) -> None:
    assert defused(text) == text


@pytest.mark.cases(("most", "limit", "found"), [(0, 5, 0), (9, -1, 0), (9, 0, 0), (9, 4, 4), (9, 9, 9), (9, 20, 9)])
def test_the_longest_is_the_last_that_fits(most: int, limit: int, found: int) -> None:
    assert longest(most, lambda number: number <= limit) == found
