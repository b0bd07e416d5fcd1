"""What a Host header names: ``host[:port]`` and nothing else (RFC 9110, 7.2)."""

import ipaddress
import re
from functools import lru_cache

_NAME = re.compile(r"[A-Za-z0-9._-]{1,253}")
_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[^:\[\]]+))(?::(?P<port>[0-9]{0,5}))?")


@lru_cache(maxsize=1024)
def host_name(host: str) -> str | None:
    """The name or address in a Host header, without port and brackets; None if it is not ``host[:port]``.

    Strict, as a lenient reader takes ``[::1].evil.com`` for ``::1``.
    """
    found = _HOST.fullmatch(host)
    if found is None or int(found["port"] or 0) > 65_535:
        return None
    if found["v6"] is not None:
        return found["v6"] if _is_ipv6(found["v6"]) else None
    return found["name"] if _NAME.fullmatch(found["name"]) else None


@lru_cache(maxsize=1024)
def is_loopback(name: str) -> bool:
    """True for ``localhost`` and the loopback addresses, IPv4 in IPv6 included."""
    if name.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
