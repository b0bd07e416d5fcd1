"""What an operator should know of a PostgreSQL server: its version, how it is reached, its limits and its clock."""

import time
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from loom_worker.store.engines.postgresql_server import connected

MOST_OFFSET_S = 1.0
"""Times of several hosts stand side by side in the tables: a clock that is further off is named."""

_LIMITS = """
SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
  (SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user),
  (SELECT datconnlimit FROM pg_database WHERE datname = current_database()),
  (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name <> 'loom')
"""
_OFF = (
    "SELECT coalesce(string_agg(name, ', ' ORDER BY name), '') FROM pg_settings "
    "WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off'"
)
_CLOCK = "SELECT extract(epoch FROM clock_timestamp())::float8"


@dataclass(frozen=True, slots=True)
class ServerReport:
    """A server as this host meets it."""

    version: str
    is_encrypted: bool
    is_expected_open: bool
    """True if nothing is encrypted on purpose: it is on this machine, or the URL says sslmode=disable."""
    connections: int
    """How many Loom may open, all hosts together."""
    clock_ahead_s: float
    """How far its clock is ahead of this host's."""
    off: str
    """The settings, between commas, for whose sake it can lose what it has confirmed."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to do about it, a clause each."""
        told = []
        if not self.is_encrypted and not self.is_expected_open:
            told.append("it is reached without TLS: add sslmode=verify-full to LOOM_DATABASE_URL (docs/postgresql.md)")
        if abs(self.clock_ahead_s) > MOST_OFFSET_S:
            side = "ahead of" if self.clock_ahead_s > 0 else "behind"
            told.append(f"its clock is {abs(self.clock_ahead_s):.1f} s {side} this host's: synchronise both (NTP)")
        if self.off:
            told.append(f"a crash of it can lose what it has confirmed, and Loom counts on that: set to on: {self.off}")
        return tuple(told)


def report(url: str) -> ServerReport:
    """Ask the server.

    Raises:
        BadSettings, Unavailable: as ``connected``.
    """
    with connected(url) as connection:
        asked_s = time.time()
        (clock_s,) = _row(connection, _CLOCK)
        offset_s = clock_s - (asked_s + time.time()) / 2
        most, of_role, of_database, others = _row(connection, _LIMITS)
        limits = (most - others, *(limit for limit in (of_role, of_database) if limit >= 0))
        (off,) = _row(connection, _OFF)
        version = connection.info.parameter_status("server_version") or "unknown"
        is_open = _is_here(connection.info.hostaddr) or connection.info.get_parameters().get("sslmode") == "disable"
        return ServerReport(version.split()[0], connection.pgconn.ssl_in_use, is_open, min(limits), offset_s, off)


def _row(connection: Any, query: str) -> Any:
    return connection.execute(query).fetchone()


def _is_here(address: str) -> bool:
    """True for a socket, which has no address, and for loopback."""
    return not address or ip_address(address).is_loopback
