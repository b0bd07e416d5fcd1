import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.values.api_keys import ALL_SCOPES, ApiKey, digest_of, included, secret_of
from loom_worker.core.values.tenants import WorkspaceUser, user_of, workspace_of

KEY = ApiKey("key_1", "acme", "CI", "loom_0Abcd", ("chat",), created_ms=1)


@given(st.binary(min_size=32, max_size=32))
def test_a_secret_is_loom_and_43_digits_that_give_its_bytes_back(random: bytes) -> None:
    secret = secret_of(random)
    assert re.fullmatch(r"loom_[0-9A-Za-z]{43}", secret)
    number = 0
    for digit in secret.removeprefix("loom_"):
        number = number * 62 + "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz".index(digit)
    assert number.to_bytes(32) == random


def test_the_digest_does_not_show_the_secret() -> None:
    secret = secret_of(bytes(range(32)))
    assert re.fullmatch(r"[0-9a-f]{64}", digest_of(secret))
    assert digest_of(secret) != digest_of(secret + "0")


@pytest.mark.parametrize(
    ("scopes", "allowed"),
    [(("read",), {"read"}), (("chat",), {"chat", "read"}), (("admin",), ALL_SCOPES), (("read", "admin"), ALL_SCOPES)],
)
def test_a_scope_includes_the_smaller_ones(scopes: tuple[str, ...], allowed: set[str]) -> None:
    assert included(scopes) == allowed  # type: ignore[arg-type]  # words of the table


@pytest.mark.parametrize(
    ("expires_ms", "revoked_ms", "now_ms", "end"),
    [
        (None, None, 10**15, None),
        (100, None, 99, None),
        (100, None, 100, "expired"),
        (None, 100, 99, None),
        (None, 100, 100, "revoked"),
        (50, 100, 100, "revoked"),
    ],
)
def test_a_key_ends_at_the_moment_that_was_set(
    expires_ms: int | None, revoked_ms: int | None, now_ms: int, end: str | None
) -> None:
    key = ApiKey("key_1", "acme", "CI", "loom_0", ("read",), 1, expires_ms=expires_ms, revoked_ms=revoked_ms)
    assert key.end(now_ms) == end


def test_the_holder_of_a_key_with_a_user_is_that_user_of_the_workspace() -> None:
    assert KEY.holder.tenant == "acme"
    bound = ApiKey("key_2", "acme", "Maria", "loom_0", ("chat",), created_ms=1, user="maria").holder
    assert bound.tenant == WorkspaceUser("acme", "maria")
    assert (workspace_of(bound.tenant), user_of(bound.tenant), user_of("acme")) == ("acme", "maria", None)
