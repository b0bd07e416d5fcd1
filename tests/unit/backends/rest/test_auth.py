import base64
import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.backends.rest.client import SecretMask, auth_headers, secret_mask
from loom_worker.core.errors import BadSettings
from loom_worker.core.values.agents import Auth

SECRET = 'k"y/with+odd=<signs>'


@pytest.mark.cases(
    ("auth", "expected"),
    [
        (Auth("bearer", "API"), {"Authorization": f"Bearer {SECRET}"}),
        (Auth("header", "API", header="X-Key"), {"X-Key": SECRET}),
        (Auth("header", "API"), {"Authorization": SECRET}),
        (
            Auth("basic", "API", user="ann"),
            {"Authorization": "Basic " + base64.b64encode(f"ann:{SECRET}".encode()).decode()},
        ),
        (None, {}),
    ],
)
def test_the_secret_stands_in_its_header(auth: Auth | None, expected: dict[str, str]) -> None:
    assert auth_headers(auth, SECRET) == expected


@pytest.mark.cases("secret", [None, "", "two\r\nlines", "tab\t", "ünicode", " edge "])
def test_a_secret_that_cannot_be_sent_is_refused_by_its_name_alone(secret: str | None) -> None:
    with pytest.raises(BadSettings, match="LOOM_SECRET_API") as refused:
        auth_headers(Auth("bearer", "API"), secret)
    assert not secret or secret not in str(refused.value)


@pytest.mark.cases("header", ["Host", "Content-Length", "X:Y", "Transfer-Encoding", ""])
def test_the_secrets_header_cannot_be_one_that_frames_the_request(header: str) -> None:
    with pytest.raises(BadSettings, match=r"auth\.header"):
        auth_headers(Auth("header", "API", header=header), SECRET)


@pytest.mark.cases(
    "echo",
    [
        SECRET,
        f"your key is {SECRET}!",
        json.dumps({"key": SECRET}),
        json.dumps({"key": SECRET}).replace("/", "\\/"),
        quote(SECRET, safe=""),
        base64.b64encode(SECRET.encode()).decode(),
        base64.b64encode(f"ann:{SECRET}".encode()).decode(),
        "k&quot;y/with+odd=&lt;signs&gt;",
    ],
)
def test_an_echoed_secret_is_hidden_in_every_spelling(echo: str) -> None:
    hidden = secret_mask(Auth("basic", "API", user="ann"), SECRET).text(echo)
    assert "***" in hidden
    assert "odd" not in hidden
    assert base64.b64encode(SECRET.encode()).decode()[:12] not in hidden


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.just("a 12345678"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("12345678"), inner),
    max_leaves=10,
)


@given(json_values, st.sampled_from([12345678, "12345678", "x12345678x"]))
def test_a_value_holds_the_secret_nowhere(value: Any, echo: Any) -> None:
    hidden = SecretMask(("12345678",)).value({"12345678": [value, echo], "n": echo})
    assert "12345678" not in json.dumps(hidden)


@given(json_values)
def test_without_a_secret_values_stay_as_they_are(value: Any) -> None:
    assert secret_mask(None, None).value(value) == value
    assert SecretMask(("never in there",)).value(value) == value
