import contextlib
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.errors import Invalid, Transient
from loom_worker.net.address import Lookup, check_url, resolve, target

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

PRIVATE = [
    "http://localhost/",
    "http://LocalHost:8000/",
    "http://localhost./",
    "http://api.localhost/",
    "http://api.localhost./",
    "http://localhost.localdomain/",
    "http://printer.local/",
    "http://metadata.google.internal/computeMetadata/v1/",
    "http://ip6-localhost/",
    "http://127.0.0.1/",
    "http://127.255.255.254:8000/",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.1.1/",
    "http://100.64.0.1/",
    "http://[::1]/",
    "http://[0:0:0:0:0:0:0:1]:8000/",
    "http://[fc00::1]/",
    "http://[fd12:3456::1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[64:ff9b::10.0.0.1]/",
]
"""Refused unless private targets are allowed."""

ALWAYS_REFUSED = [
    "",
    "example.com",
    "//example.com/",
    "http:",
    "http:example.com",
    "http://",
    "http:///hook",
    "http://:80/",
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://example.com/",
    "javascript:alert(1)",
    "http://user@example.com/",
    "http://user:secret@example.com/",
    "http://@example.com/",
    "http://example.com\\@127.0.0.1/",
    "http://example.com/a b",
    " http://example.com/",
    "http://example.com/\n",
    "http://exam\tple.com/",
    "http://example.com/\r\nX-Injected: 1",
    "http://example.com/\x00",
    "http://example.com/\x7f",
    "http://example.com/\u200b",
    "http://example.com/\u2028",
    "http://example.com/\ud800",
    "http://example.com/" + "a" * 2048,
    "http://example.com:0/",
    "http://example.com:65536/",
    "http://example.com:-1/",
    "http://example.com:http/",
    "http://example..com/",
    "http://example.com../",
    "http://.example.com/",
    "http://-example.com/",
    "http://exam%70le.com/",
    "http://127.0.0.1%2f.example.com/",
    "http://" + "a" * 64 + ".com/",
    "http://" + "a." * 127 + "com/",
    "http://bücher.example/",
    "http://①②⑦.⓪.⓪.①/",
    "http://127。0。0。1/",
    "http://１２７.0.0.1/",
    "http://127.1/",
    "http://127.0.1/",
    "http://127.0.0.1./",
    "http://127.0.0.1../",
    "http://0x7f000001/",
    "http://0x7f.0.0.1/",
    "http://0X7F.1/",
    "http://0177.0.0.1/",
    "http://127.0.0.0x1/",
    "http://2130706433/",
    "http://017700000001/",
    "http://0/",
    "http://256.256.256.256/",
    "http://1.2.3.4.5/",
    "http://0.0.0.0/",
    "http://169.254.169.254/latest/meta-data/",
    "http://192.0.0.8/",
    "http://192.0.2.1/",
    "http://192.88.99.1/",
    "http://198.18.0.1/",
    "http://203.0.113.1/",
    "http://224.0.0.1/",
    "http://239.255.255.250/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    "http://[::]/",
    "http://[::127.0.0.1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[::ffff:8.8.8.8]/",
    "http://[::ffff:0:127.0.0.1]/",
    "http://[64:ff9b::169.254.169.254]/",
    "http://[64:ff9b:1::7f00:1]/",
    "http://[2002:7f00:1::]/",
    "http://[2002:808:808::]/",
    "http://[2001:0:1::1]/",
    "http://[2001:db8::1]/",
    "http://[3fff::1]/",
    "http://[fe80::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[2606:4700::1%251]/",
    "http://[fec0::1]/",
    "http://[ff02::1]/",
    "http://[ff0e::1]/",
    "http://[5f00::1]/",
    "http://[100::1]/",
    "http://[127.0.0.1]/",
    "http://[::1/",
    "http://::1/",
    "http://[v1.1]/",
]


def names(*addresses: str) -> Lookup:
    """A name server that knows one answer."""

    def lookup(host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    return lookup


@pytest.mark.parametrize("url", ALLOWED)
def test_a_public_url_is_accepted(url: str) -> None:
    check_url(url, allow_private=False)


@pytest.mark.parametrize("url", PRIVATE)
def test_a_private_target_is_refused(url: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_url(url, allow_private=False)
    assert [flaw.pointer for flaw in refused.value.flaws] == ["/webhook/url"]


@pytest.mark.parametrize("url", PRIVATE)
def test_a_private_target_is_accepted_where_that_is_allowed(url: str) -> None:
    check_url(url, allow_private=True)


@pytest.mark.parametrize("allow_private", [False, True])
@pytest.mark.parametrize("url", ALWAYS_REFUSED)
def test_an_unfit_url_is_refused_even_where_private_targets_are_allowed(url: str, allow_private: bool) -> None:
    with pytest.raises(Invalid) as refused:
        check_url(url, allow_private=allow_private)
    assert refused.value.flaws[0].pointer == "/webhook/url"
    assert refused.value.flaws[0].detail


@given(st.text(max_size=60), st.sampled_from(["", "http://", "https://[", "http://a@", "http://127.0.0."]))
def test_no_text_makes_the_check_fail_in_another_way(text: str, start: str) -> None:
    with contextlib.suppress(Invalid):
        assert target(start + text, allow_private=False).host


@given(st.ip_addresses())
def test_what_the_literal_check_refuses_no_name_server_can_smuggle_in(address: Any) -> None:
    url = f"http://[{address}]/" if address.version == 6 else f"http://{address}/"
    verdicts = []
    for check in (
        lambda: check_url(url, allow_private=False),
        lambda: resolve("example.com", 80, allow_private=False, lookup=names(str(address))),
    ):
        try:
            check()
            verdicts.append(True)
        except Invalid:
            verdicts.append(False)
    assert verdicts[0] == verdicts[1]


@pytest.mark.parametrize(
    ("url", "authority", "port", "path"),
    [
        ("http://example.com", "example.com", 80, "/"),
        ("https://Example.com:443/a", "example.com", 443, "/a"),
        ("http://example.com:443/?q=1#part", "example.com:443", 443, "/?q=1"),
        ("https://example.com?q=ü%20x", "example.com", 443, "/?q=%C3%BC%20x"),
        ("http://[2606:4700::1111]:81/a;b", "[2606:4700::1111]:81", 81, "/a;b"),
        ("https://example.com/hooks/{id}?a[]=1", "example.com", 443, "/hooks/%7Bid%7D?a[]=1"),
    ],
)
def test_a_url_is_taken_apart_as_it_will_be_sent(url: str, authority: str, port: int, path: str) -> None:
    found = target(url, allow_private=False)
    assert (found.authority, found.port, found.path) == (authority, port, path)


def test_the_addresses_are_returned_once_each_in_the_order_of_the_name_server() -> None:
    lookup = names("93.184.216.34", "2606:4700::1111", "93.184.216.34")
    assert resolve("example.com", 443, allow_private=False, lookup=lookup) == ("93.184.216.34", "2606:4700::1111")


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "169.254.169.254", "0.0.0.0", "224.0.0.1", "::1", "::ffff:10.0.0.1", "fe80::1%eth0"],
)
def test_one_private_address_among_public_ones_refuses_the_name(address: str) -> None:
    with pytest.raises(Invalid):
        resolve("example.com", 443, allow_private=False, lookup=names("93.184.216.34", address))


def test_a_private_address_is_connected_to_where_that_is_allowed() -> None:
    assert resolve("redis", 80, allow_private=True, lookup=names("172.17.0.2")) == ("172.17.0.2",)


def test_the_address_of_cloud_credentials_is_refused_even_where_private_ones_are_allowed() -> None:
    with pytest.raises(Invalid):
        resolve("example.com", 80, allow_private=True, lookup=names("169.254.169.254"))


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
