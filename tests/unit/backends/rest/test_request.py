import json
from typing import Any
from urllib.parse import parse_qsl, unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loom_worker.backends.rest.openapi import RestParameter
from loom_worker.backends.rest.request import encoded, pairs, question, simple, text
from loom_worker.core.errors import ToolFailed
from loom_worker.guard.net.http import HttpRequest
from tests.unit.backends.rest.documents import body, one, parameter


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


def asked(kind: str, value: Any, **more: Any) -> HttpRequest:
    path = "/things/{v}/parts" if kind == "path" else "/things"
    made = one({"parameters": [parameter("v", kind, {}, **more)]}, path=path)
    return question(made, {"v": value}, prefix="/api/v1")


COLOURS, RGB = ["blue", "b&k", "1,2"], {"R": 100, "G": 2.0}


@pytest.mark.cases(
    ("style", "explode", "value", "query"),
    [
        ("form", None, "a b&c=d", "v=a%20b%26c%3Dd"),
        ("form", None, True, "v=true"),
        ("form", None, 5.0, "v=5"),
        ("form", None, 5.5, "v=5.5"),
        ("form", None, "", "v="),
        ("form", None, COLOURS, "v=blue&v=b%26k&v=1%2C2"),
        ("form", True, RGB, "R=100&G=2"),
        ("form", False, COLOURS, "v=blue,b%26k,1%2C2"),
        ("form", False, RGB, "v=R,100,G,2"),
        ("form", None, [], ""),
        ("form", False, [], ""),
        ("form", None, None, ""),
        ("spaceDelimited", False, COLOURS, "v=blue%20b%26k%201%2C2"),
        ("pipeDelimited", False, COLOURS, "v=blue%7Cb%26k%7C1%2C2"),
        ("deepObject", True, RGB, "v%5BR%5D=100&v%5BG%5D=2"),
        ("deepObject", True, {"a": {"b": [1]}}, "v%5Ba%5D=%7B%22b%22%3A%5B1%5D%7D"),
        ("form", None, "\ud800", "v=%3F"),
    ],
)
def test_a_query_is_written_in_its_style(style: str, explode: bool | None, value: Any, query: str) -> None:
    more = {} if explode is None else {"explode": explode}
    assert asked("query", value, style=style, **more).path == "/api/v1/things" + (f"?{query}" if query else "")


@pytest.mark.cases(
    ("explode", "value", "segment"),
    [
        (False, "a b", "a%20b"),
        (False, COLOURS, "blue,b%26k,1%2C2"),
        (False, RGB, "R,100,G,2"),
        (True, RGB, "R=100,G=2"),
        (False, "group/project", "group%2Fproject"),
        (False, "a?b#c;d", "a%3Fb%23c%3Bd"),
        (False, "%41", "%2541"),
        (False, "...", "..."),
        (False, "größe", "gr%C3%B6%C3%9Fe"),
    ],
)
def test_a_path_parameter_fills_its_own_segment(explode: bool, value: Any, segment: str) -> None:
    assert asked("path", value, explode=explode).path == f"/api/v1/things/{segment}/parts"


@pytest.mark.cases(
    "value",
    [
        *(
            "..",
            ".",
            "../admin",
            "a/../../admin",
            "..\\admin",
            "a\\..\\b",
            "%2e%2e",
            "%2E%2E/admin",
            ".%2e",
            "%252e%252e",
        ),
        *(
            "..%2fadmin",
            "..%5cadmin",
            "..%252f",
            "%25252e%25252e",
            "..;/admin",
            "..;a=b",
            " .. ",
            "．．",
            "‥",
            "．．／a",
        ),
        *(
            "",
            "a\r\nX-Injected: 1",
            "a\nb",
            "a\x00b",
            "a\x7fb",
            "\x85",
            "%" + "25" * 300 + "2e",
            "x" * 9000,
            [],
            ["a/.."],
        ),
    ],
)
def test_no_path_parameter_leaves_its_segment(value: Any) -> None:
    with pytest.raises(ToolFailed) as refused:
        asked("path", value)
    assert refused.value.code == "INVALID_INPUT"


@given(st.text(max_size=40))
@example("//evil.example/")
@example("@evil.example")
@example("a\tb")
def test_whatever_a_path_parameter_holds_the_path_around_it_stays(value: str) -> None:
    try:
        path = asked("path", value).path
    except ToolFailed:
        return
    before, segment, after = path[:15], path[15:-6], path[-6:]
    assert (before, after) == ("/api/v1/things/", "/parts")
    assert not set(segment) & set("/?#\\ \r\n\t@:")
    assert unquote(segment) == value.encode("utf-8", "replace").decode()


@given(st.text(max_size=40) | st.dictionaries(st.text(max_size=5), st.text(max_size=5)) | st.lists(st.text(max_size=5)))
def test_whatever_a_query_parameter_holds_it_is_read_back_as_it_was(value: Any) -> None:
    found = parse_qsl(asked("query", value, style="deepObject").path.partition("?")[2], keep_blank_values=True)
    clean = lambda text: text.encode("utf-8", "replace").decode()  # noqa: E731
    if isinstance(value, dict):
        assert found == [(f"v[{clean(key)}]", clean(entry)) for key, entry in value.items()]
    elif isinstance(value, str):
        assert found == [("v", clean(value))]


@pytest.mark.cases(("value", "sent"), [("plain", "plain"), (["a", "b"], "a,b"), ({"a": 1}, "a,1"), (7, "7")])
def test_a_header_is_written_as_it_is(value: Any, sent: str) -> None:
    assert asked("header", value).headers == {"v": sent}


@pytest.mark.cases("value", ["a\r\nHost: evil", "a\nb", "a\rb", "a\x00", "ü", "\u2028", {"a": "\r\nb"}, {"\n": 1}])
def test_no_header_holds_a_second_one(value: Any) -> None:
    with pytest.raises(ToolFailed) as refused:
        asked("header", value)
    assert refused.value.code == "INVALID_INPUT"


def test_a_parameter_of_json_is_written_as_json() -> None:
    made = one({"parameters": [{"name": "v", "in": "query", "content": {"application/json": {"schema": {}}}}]})
    path = question(made, {"v": {"a": [1]}}, prefix="").path
    assert json.loads(unquote(path.removeprefix("/things?v="))) == {"a": [1]}


def test_a_body_is_sent_as_json() -> None:
    made = one({"requestBody": body({}, "application/vnd.api+json")}, method="post")
    sent = question(made, {"body": {"a": "é\ud800", "b": [None, 1.5]}}, prefix="")
    assert sent.headers == {"Content-Type": "application/vnd.api+json"}
    assert json.loads(sent.body or b"") == {"a": "é\ud800", "b": [None, 1.5]}


def test_a_body_is_sent_as_a_form() -> None:
    made = one({"requestBody": body({}, "application/x-www-form-urlencoded")}, method="post")
    sent = question(made, {"body": {"a b": "c&d", "list": [1, 2], "no": None, "o": {"x": 1}}}, prefix="")
    assert sent.body == b"a%20b=c%26d&list=1&list=2&o%5Bx%5D=1"
    with pytest.raises(ToolFailed, match="a form is an object"):
        question(made, {"body": [1]}, prefix="")


def test_a_body_that_is_not_given_is_not_sent() -> None:
    made = one({"requestBody": body({}, required=False)}, method="post")
    sent = question(made, {}, prefix="")
    assert (sent.body, sent.headers) == (None, {})


def test_a_very_long_query_is_refused_before_it_is_sent() -> None:
    with pytest.raises(ToolFailed, match="longer than 8000 characters"):
        asked("query", "x" * 8000)
