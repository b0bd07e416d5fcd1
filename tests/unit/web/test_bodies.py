import pytest
from werkzeug.datastructures import Headers

from web.bodies import fingerprint, idempotency_key, preferred_wait_s
from web.problems import Refused


@pytest.mark.cases(
    ("raw", "key"),
    [
        ("abc", "abc"),
        ('"abc"', "abc"),
        ('"a b"', "a b"),
        (r'"a\"b\\c"', r'a"b\c'),
        ("8e03978e-40d5-43e8-bc93-6894a57f9324", "8e03978e-40d5-43e8-bc93-6894a57f9324"),
        ("k" * 255, "k" * 255),
        ('"' + "k" * 255 + '"', "k" * 255),
    ],
)
def test_a_key_is_the_same_quoted_or_not(raw: str, key: str) -> None:
    assert idempotency_key(Headers({"Idempotency-Key": raw})) == key


@pytest.mark.cases("raw", ["", " ", '""', "k" * 256, '"' + "k" * 256 + '"', "é", '"abc', "a\tb", '"a"b"'])
def test_an_unusable_key_is_malformed(raw: str) -> None:
    with pytest.raises(Refused) as caught:
        idempotency_key(Headers({"Idempotency-Key": raw}))
    assert caught.value.problem.status == 400


def test_no_key_is_no_key() -> None:
    assert idempotency_key(Headers()) is None


@pytest.mark.cases(
    ("raw", "wait_s"),
    [
        ("wait=5", 5),
        ("WAIT = 5", 5),
        ('wait="7"', 7),
        ("respond-async, wait=10", 10),
        ("wait=10, respond-async", 10),
        ("return=minimal; foo=1, wait=0", 0),
        ("respond-async", None),
        ("wait=soon", None),
        ("wait=-5", None),
        ("wait=5.5", None),
        ("await=5", None),
        ("", None),
    ],
)
def test_the_preferred_wait_is_found_among_other_preferences(raw: str, wait_s: int | None) -> None:
    assert preferred_wait_s(Headers({"Prefer": raw})) == wait_s


def test_the_order_of_keys_does_not_change_the_fingerprint() -> None:
    assert fingerprint("w", "s", {"a": 1, "b": {"c": 2, "d": 3}}) == fingerprint(
        "w", "s", {"b": {"d": 3, "c": 2}, "a": 1}
    )


@pytest.mark.cases(
    ("workspace", "session", "body"), [("v", "s", {"a": 1}), ("w", "t", {"a": 1}), ("w", "s", {"a": 2}), ("w", "s", {})]
)
def test_another_request_has_another_fingerprint(workspace: str, session: str, body: dict[str, int]) -> None:
    assert fingerprint(workspace, session, body) != fingerprint("w", "s", {"a": 1})
