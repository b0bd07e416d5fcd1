import pytest

from web.auth import host_name


@pytest.mark.cases(
    ("host", "name"),
    [
        ("localhost", "localhost"),
        ("loom.example:8000", "loom.example"),
        ("my_box.", "my_box."),
        ("127.0.0.1:", "127.0.0.1"),
        ("[::1]:65535", "::1"),
        ("[::ffff:127.0.0.1]", "::ffff:127.0.0.1"),
    ],
)
def test_a_host_is_a_name_or_an_address_with_or_without_a_port(host: str, name: str) -> None:
    assert host_name(host) == name


@pytest.mark.cases(
    "host",
    [
        "",
        ":8000",
        "[::1].evil.com",
        "[::1]evil",
        "[::1",
        "::1",
        "[localhost]",
        "[1.2.3.4]",
        "[::1%25eth0]",
        "a:8000:9000",
        "a:65536",
        "a:x",
        "user@localhost",
        "localhost, localhost",
        "local host",
        "localhost\n",
        "localhost/",
        "ö.example",
        "a" * 254,
    ],
)
def test_what_is_no_host_names_nothing(host: str) -> None:
    assert host_name(host) is None
