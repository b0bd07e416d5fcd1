import json
from typing import Any

import pytest

from loom_worker.backends.mcp.session import MAX_RESULT_BYTES, leaves, said, value
from loom_worker.core.errors import ToolFailed


def text(*texts: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": each} for each in texts]}


def test_texts_are_joined() -> None:
    assert value(text("a", "b")) == "a\nb"
    assert value({"content": []}) == ""


def test_structured_content_is_the_value_and_its_nulls_stay() -> None:
    assert value({**text("{}"), "structuredContent": {"a": [None, 1]}}) == {"a": [None, 1]}


def test_what_no_text_says_is_kept_beside_structured_content() -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    found = value({"content": [image], "structuredContent": {"a": 1}})
    assert found == {
        "structured": {"a": 1},
        "content": [{"type": "image", "url": "data:image/png;base64,AAAA"}],
    }


@pytest.mark.cases(
    ("kind", "given"),
    [
        ("image/png", "data:image/png;base64,AAAA"),
        ("image/JPG", "data:image/jpeg;base64,AAAA"),
        ("image/svg+xml", None),
        (None, None),
    ],
)
def test_an_image_that_models_take_stays_in_its_place(kind: str | None, given: str | None) -> None:
    first, last = ({"type": "text", "text": each} for each in "ab")
    blob = {"type": "resource", "resource": {"uri": "file:///a", "blob": "AA\nAA", "mimeType": kind}}
    for image in ({"type": "image", "data": "AAAA", "mimeType": kind}, blob):
        found = value({"content": [first, image, last]})
        assert found == f"a\n{given}\nb" if given else isinstance(found, list) and "AAAA" not in str(found)
        with pytest.raises(ToolFailed) as caught:
            value({"content": [first, image, last], "isError": True})
        assert "base64" not in str(caught.value)


@pytest.mark.cases(("data", "size"), [("", 0), ("QQ==", 1), ("QUI=", 2), ("QUJD", 3)])
def test_bytes_are_counted_and_not_given(data: str, size: int) -> None:
    found = value({"content": [{"type": "audio", "data": data, "mimeType": "audio/wav"}]})
    assert found == [{"type": "audio", "mime_type": "audio/wav", "bytes": size}]


def test_an_error_is_a_failure_with_the_tools_own_words() -> None:
    with pytest.raises(ToolFailed, match=r"^no such file\nreally$"):
        value({**text("no such file", "really"), "isError": True})
    with pytest.raises(ToolFailed, match="not why"):
        value({"content": [], "isError": True})


@pytest.mark.cases("content", [None, "text", 7, [None], [{"type": "text"}], [{"type": "image", "data": 3}], [[]]])
def test_content_of_no_known_form_never_raises(content: object) -> None:
    json.dumps(value({"content": content}))


def test_a_text_is_cut_at_ten_megabytes_between_characters_and_says_so() -> None:
    found = value(text("ä" * MAX_RESULT_BYTES))
    assert isinstance(found, str)
    kept, _, notice = found.rpartition("\n")
    assert len(kept.encode()) == MAX_RESULT_BYTES
    assert notice == f"[cut: the first {MAX_RESULT_BYTES} of {2 * MAX_RESULT_BYTES} bytes]"


def test_a_value_that_is_too_large_becomes_the_beginning_of_its_json() -> None:
    found = value({"structuredContent": {"rows": ["x" * 1000] * 11_000}})
    assert isinstance(found, str)
    assert found.startswith('{"rows":["xxx')
    assert found.endswith(" bytes]")


def test_the_errors_of_nested_groups_are_found_in_order() -> None:
    first, second = ValueError("a"), OSError("b")
    assert list(leaves(ExceptionGroup("x", [ExceptionGroup("y", [first]), second]))) == [first, second]
    assert list(leaves(first)) == [first]


def test_an_error_without_words_says_at_least_what_it_is() -> None:
    assert said(ExceptionGroup("x", [TimeoutError()])) == "TimeoutError"
    assert said(ValueError("one\ntwo")) == "one"
