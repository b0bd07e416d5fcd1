import contextlib
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.errors import Invalid, Transient
from loom_worker.guard.net.address import Private, resolve, target
from tests.support.name_server import names
from tests.unit.guard.net.hostile import ALWAYS_REFUSED, PRIVATE

ALLOWED = [
    "https://example.com",
    "http://example.com/hook",
    "https://EXAMPLE.com./hook",
    "https://example.com:8443/a/b?c=d&e=%20#f",
    "https://example.com:/hook",
    "https://xn--bcher-kva.example/hook",
    "https://hooks_eu.example-1.com/hook",
    "https://example.com/pfad/ü",
    "https://example.com/@user",
    "https://93.184.216.34/hook",
    "https://[2606:4700:4700::1111]:8443/hook",
    "https://[64:ff9b::8.8.8.8]/hook",
    "https://8.8.8.8.example.com/",
    "https://localhost.example.com/",
]


@pytest.mark.cases("url", ALLOWED)
def test_a_public_url_is_accepted(url: str) -> None:
    target(url, allow_private=False)


@pytest.mark.cases("url", PRIVATE)
def test_a_private_target_is_refused_and_told_as_such(url: str) -> None:
    with pytest.raises(Private):
        target(url, allow_private=False)


@pytest.mark.cases("url", PRIVATE)
def test_a_private_target_is_accepted_where_that_is_allowed(url: str) -> None:
    target(url, allow_private=True)


@pytest.mark.cases("allow_private", [False, True])
@pytest.mark.cases("url", ALWAYS_REFUSED)
def test_an_unfit_url_is_refused_even_where_private_targets_are_allowed(url: str, allow_private: bool) -> None:
    with pytest.raises(Invalid) as refused:
        target(url, allow_private=allow_private)
    assert str(refused.value)


@given(st.text(max_size=60), st.sampled_from(["", "http://", "https://[", "http://a@", "http://127.0.0."]))
def test_no_text_makes_the_check_fail_in_another_way(text: str, start: str) -> None:
    with contextlib.suppress(Invalid):
        assert target(start + text, allow_private=False).host


@given(st.ip_addresses())
def test_what_the_literal_check_refuses_no_name_server_can_smuggle_in(address: Any) -> None:
    url = f"http://[{address}]/" if address.version == 6 else f"http://{address}/"
    verdicts = []
    for check in (
        lambda: target(url, allow_private=False),
        lambda: resolve("example.com", 80, allow_private=False, lookup=names(str(address))),
    ):
        try:
            check()
            verdicts.append(True)
        except Invalid:
            verdicts.append(False)
    assert verdicts[0] == verdicts[1]


@pytest.mark.cases(
    ("url", "authority", "port", "path"),
    [
        ("http://example.com", "example.com", 80, "/"),
        ("https://Example.com:443/a", "example.com", 443, "/a"),
        ("http://example.com:443/?q=1#part", "example.com:443", 443, "/?q=1"),
        ("http://example.com#@127.0.0.1:80@/", "example.com", 80, "/"),
        ("https://example.com?q=ü%20x", "example.com", 443, "/?q=%C3%BC%20x"),
        ("http://[2606:4700::1111]:81/a;b", "[2606:4700::1111]:81", 81, "/a;b"),
        ("https://example.com/hooks/{id}?a[]=1", "example.com", 443, "/hooks/%7Bid%7D?a[]=1"),
    ],
)
def test_a_url_is_taken_apart_as_it_will_be_sent(url: str, authority: str, port: int, path: str) -> None:
    found = target(url, allow_private=False)
    assert (found.authority, found.port, found.path) == (authority, port, path)
    assert found.origin == f"{url.partition(':')[0]}://{authority}"


def test_the_addresses_are_returned_once_each_in_the_order_of_the_name_server() -> None:
    lookup = names("93.184.216.34", "2606:4700::1111", "93.184.216.34")
    assert resolve("example.com", 443, allow_private=False, lookup=lookup) == ("93.184.216.34", "2606:4700::1111")


@pytest.mark.cases(
    "address",
    ["127.0.0.1", "10.1.2.3", "169.254.169.254", "0.0.0.0", "224.0.0.1", "::1", "::ffff:10.0.0.1", "fe80::1%eth0"],
)
def test_one_private_address_among_public_ones_refuses_the_name(address: str) -> None:
    with pytest.raises(Invalid):
        resolve("example.com", 443, allow_private=False, lookup=names("93.184.216.34", address))


def test_a_private_address_is_connected_to_where_that_is_allowed() -> None:
    assert resolve("redis", 80, allow_private=True, lookup=names("172.17.0.2")) == ("172.17.0.2",)


@pytest.mark.cases(
    "address",
    [
        "169.254.169.254",
        "168.63.129.16",
        "100.100.100.200",
        "fd00:ec2::254",
        "fe80::a9fe:a9fe",
        "::ffff:169.254.169.254",
    ],
)
def test_the_address_of_cloud_credentials_is_refused_even_where_private_ones_are_allowed(address: str) -> None:
    with pytest.raises(Invalid):
        resolve("example.com", 80, allow_private=True, lookup=names(address))


@pytest.mark.parametrize("error", [socket.gaierror(-2, "Name or service not known"), UnicodeError("label too long")])
def test_an_unknown_name_may_be_tried_again(error: Exception) -> None:
    def lookup(*_: Any, **__: Any) -> list[tuple[Any, ...]]:
        raise error

    with pytest.raises(Transient):
        resolve("nowhere.example", 80, allow_private=False, lookup=lookup)


def test_a_name_without_addresses_may_be_tried_again() -> None:
    with pytest.raises(Transient):
        resolve("nowhere.example", 80, allow_private=False, lookup=names())


def test_the_systems_own_lookup_is_understood() -> None:
    assert "127.0.0.1" in resolve("127.0.0.1", 80, allow_private=True)
