"""Checks of settings that only the packages that use them can make; reported at the start with all other errors.

Each raises BadSettings for what its docstring says must hold.
"""

import os
import sys
from ipaddress import ip_address

from loom_worker.core.errors import BadFile, BadSettings, Invalid, ProviderFailed, Unavailable
from loom_worker.core.settings import Settings
from loom_worker.core.values.ids import now_ms
from loom_worker.core.variables import is_server

LONGEST_SOCKET_BYTES = 103 if sys.platform == "darwin" else 107
"""Longest path of a Unix socket that the system takes."""


def embedded_server(settings: Settings) -> None:
    """The embedded server's socket fits into the home; commands that only ask a running Loom need none."""
    long, most = len(os.fsencode(settings.home)), LONGEST_SOCKET_BYTES - len("/valkey.sock")
    if settings.has_embedded_redis and long > most:
        raise BadSettings(
            f"LOOM_HOME={settings.home}: this path has {long} bytes, and at most {most} fit, for the embedded "
            "server's socket lies in it; choose a shorter path, such as a symbolic link to it, or name a server in "
            "LOOM_REDIS_URL"
        )


def model(settings: Settings) -> None:
    """The name of a scripted model may say how long it takes, as the model reads it."""
    if settings.llm.provider == "scripted":
        from loom_worker.demo.scripted import latency_s

        try:
            latency_s(settings.llm.model)
        except ProviderFailed as error:
            raise BadSettings(str(error)) from error


def provider_key(settings: Settings) -> None:
    """The model's provider has a key, or is another server; only processes that call the model have the key."""
    if lacks := settings.lacks(settings.llm.provider):
        raise BadSettings(f"LOOM_PROVIDER={settings.llm.provider} needs {lacks}")


def ollama(settings: Settings) -> None:
    """Ollama's address can be read."""
    if settings.llm.ollama_host is not None:
        from loom_worker.llm.presets import address

        address(settings.llm.ollama_host)


def redis(settings: Settings) -> None:
    """Options behind the question mark of a Redis URL are known to its client."""
    if "?" in settings.redis_url:
        from redis import Redis

        try:
            Redis.from_url(settings.redis_url).connection_pool.make_connection()
        except (TypeError, ValueError) as error:
            raise BadSettings("LOOM_REDIS_URL: an option behind the ? is unknown, or has a wrong value") from error


def database(settings: Settings) -> None:
    """Parameters behind the question mark of a PostgreSQL URL are known to its client."""
    if is_server(settings.database_url) and "?" in settings.database_url:
        from loom_worker.store.engines.postgresql_server import check_url

        check_url(settings.database_url)


def webhook_secret(settings: Settings) -> None:
    """The secret can sign."""
    from loom_worker.webhook.send import check_secret

    if settings.webhook.secret is not None:
        try:
            check_secret(settings.webhook.secret)
        except Invalid as error:
            raise BadSettings(f"LOOM_WEBHOOK_SECRET: {error}") from error


def prices(settings: Settings) -> None:
    """The file of LOOM_PRICES can be read, and holds prices."""
    if settings.llm.prices is not None:
        from loom_worker.llm.prices import read

        try:
            read(settings.llm.prices)
        except BadFile as error:
            raise BadSettings(f"LOOM_PRICES: {error}") from error


def serving(settings: Settings) -> None:
    """Who can reach the web must have a key, unless it is this machine alone; for what serves, or says if it could.

    The database is looked at only where LOOM_API_KEYS is not set, and is neither made nor changed.
    """
    host = settings.web.host
    if settings.web.api_keys or _is_loopback(host):
        return
    if is_server(settings.database_url):
        from loom_worker.store.engines.postgresql_server import usable_keys
    else:
        from loom_worker.store.engines.sqlite_file import usable_keys

    ways = "set LOOM_API_KEYS=workspace=key, make a key with `loom keys create`, or leave LOOM_HOST at 127.0.0.1"
    try:
        count = usable_keys(settings.database_url, now_ms=now_ms())
    except (BadFile, Unavailable) as error:
        why = f"LOOM_API_KEYS is not set, and the keys in the database cannot be read ({error})"
        raise BadSettings(f"LOOM_HOST={host!r} needs an API key: {why}") from error
    if not count:
        why = "other machines could connect, and neither LOOM_API_KEYS nor the database has a valid one"
        raise BadSettings(f"LOOM_HOST={host!r} needs an API key: {why}; {ways}")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


def backend(settings: Settings) -> None:
    """The URL of the agent's data is that of a database that is served."""
    from loom_worker.backends.sql import SqlBackend

    SqlBackend(settings.backend_url).close()


LIGHT = (embedded_server, model, ollama, prices, redis, database, webhook_secret)
"""For processes that must stay small: the check of the backend loads SQLAlchemy."""
ALL = (*LIGHT, backend)
WITH_MODEL = (*ALL, provider_key)
"""For workers, which call the model."""
START = (*LIGHT, provider_key)
"""For `loom up` and `loom doctor`, which hold all settings and stay small."""
