import pytest

from loom_worker.backends.rest.openapi import RestParameter
from loom_worker.backends.rest.request import encoded, pairs, simple, text


@pytest.mark.cases(
    ("value", "expected"),
    [
        ("a", "a"),
        (True, "true"),
        (None, "null"),
        (3, "3"),
        (3.0, "3"),
        (-0.5, "-0.5"),
        (1e300, str(int(1e300))),
        ([1], "[1]"),
    ],
)
def test_one_value_is_written_as_apis_read_it(value: object, expected: str) -> None:
    assert text(value) == expected


def test_only_unreserved_characters_stand_for_themselves() -> None:
    assert encoded("aZ0-._~ !*'();:@&=+$,/?#[]%\r\n") == (
        "aZ0-._~%20%21%2A%27%28%29%3B%3A%40%26%3D%2B%24%2C%2F%3F%23%5B%5D%25%0D%0A"
    )


def test_names_are_encoded_like_values() -> None:
    named = RestParameter("a[]&b", "a", "query", "form", is_exploded=True)
    assert list(pairs(named, [1, 2])) == ["a%5B%5D%26b=1", "a%5B%5D%26b=2"]


def test_json_is_written_whole() -> None:
    named = RestParameter("v", "v", "path", "simple", is_exploded=False, is_json=True)
    assert simple(named, {"a": ["b"]}, encoded) == "%7B%22a%22%3A%5B%22b%22%5D%7D"
