"""`loom keys` and `loom audit`: who may do what, and who did.

API keys are made, replaced and revoked in the database of this LOOM_HOME; no Loom needs to run. Whoever can write the
database needs no key to make one, so nobody is locked out by a key that was lost.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from loom_worker.cli.show import Api, as_text, common, fields, in_period, json_option, listing, paged, print_list
from loom_worker.core.settings import Settings, from_env
from loom_worker.core.values.api_keys import ALL_SCOPES, SCOPES, ApiKey, KeyHolder, KeyLimits, KeyScope, NewKey
from loom_worker.core.values.audit import ACTIONS
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import from_rfc3339
from loom_worker.core.values.tenants import USER_ID

if TYPE_CHECKING:
    from loom_worker.service.keys import Keys
    from loom_worker.store.audit import AuditRows
    from loom_worker.store.database import Database

WORKSPACE = "default"
"""That of requests without an API key from this machine."""
_LISTED = ("id", "name", "prefix", "scopes", "user", "created_at", "expires_at", "revoked_at", "last_used_at")
_AUDIT = ("seq", "at", "kind", "actor", "user", "agent", "session_id", "turn_id", "subject", "status", "usage")
_PAGE = 500
_SPAN = re.compile(r"([0-9]{1,6})([smhdw])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_ONCE = "The secret is not shown again."
_FIRST = "From now on Loom serves nobody without a key, not even this machine: give the commands theirs as LOOM_KEY."
_LAST = "No key is left: programs on this machine are served without one again."
_workspace = click.option("--workspace", default=WORKSPACE, show_default=True, help="Whose keys.")


def seconds(text: str) -> int:
    """A span of time such as 90s, 15m, 12h, 30d or 2w, in seconds; a plain 0 needs no unit.

    Raises:
        BadParameter: it is none.
    """
    found = _SPAN.fullmatch("0s" if text == "0" else text)
    if found is None:
        raise click.BadParameter(f"{text!r} is no span of time such as 90s, 15m, 12h, 30d or 2w")
    return int(found[1]) * _SECONDS[found[2]]


def moment_ms(text: str) -> int:
    """A time of RFC 3339, or a span from now on, in milliseconds since 1970.

    Raises:
        BadParameter: it is neither.
    """
    given_ms = from_rfc3339(text)
    if given_ms is None and _SPAN.fullmatch(text) is None:
        raise click.BadParameter(f"{text!r} is no span of time such as 30d, and no time such as 2027-01-31T12:00:00Z")
    return now_ms() + seconds(text) * 1000 if given_ms is None else given_ms


@click.group(invoke_without_command=True)
@_workspace
@json_option
@listing
def keys(*, workspace: str, as_json: bool) -> None:
    """List the API keys of a workspace; the commands make, replace and revoke them."""
    _list(workspace, as_json=as_json)


@keys.command("list")
@_workspace
@json_option
def list_all(*, workspace: str, as_json: bool) -> None:
    """List the API keys of a workspace, the newest first, those that have ended too."""
    _list(workspace, as_json=as_json)


@keys.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(SCOPES),
    multiple=True,
    default=("chat",),
    show_default=True,
    help="read: look. chat: also ask and change sessions. admin: everything. May be given several times.",
)
@click.option("--user", help="The key acts for this user alone.")
@click.option(
    "--expires", "expires_ms", type=moment_ms, metavar="TIME", help="When it ends: 30d, 12h, or 2027-01-31T12:00:00Z."
)
@click.option(
    "--requests-per-minute",
    type=click.IntRange(1, 60_000),
    help="Requests in any minute.  [default: LOOM_KEY_REQUESTS_PER_MINUTE]",
)
@click.option(
    "--tokens-per-minute",
    type=click.IntRange(1, 1_000_000_000),
    help="Tokens that its turns may use in any minute.  [default: LOOM_KEY_TOKENS_PER_MINUTE]",
)
@_workspace
@json_option
def create(name: str, *, scopes: tuple[KeyScope, ...], workspace: str, as_json: bool, **given: Any) -> None:
    """Make a key called NAME, and print its secret, this once."""
    if not name.strip() or len(name) > 128:
        raise click.UsageError("NAME must have 1 to 128 characters, not blanks alone")
    if given["user"] is not None and re.match(USER_ID, given["user"]) is None:
        raise click.UsageError("--user must have 1 to 256 visible characters without '/', '\\' and '%'")
    limits = KeyLimits(given["requests_per_minute"], given["tokens_per_minute"])
    new = NewKey(name, tuple(dict.fromkeys(scopes)), given["user"], given["expires_ms"], limits)
    settings = from_env()
    with _keys(settings) as stored:
        is_first = not settings.web.api_keys and not stored.are_required()
        _show_made(*stored.create(_operator(workspace), new), as_json=as_json)
    if is_first:
        click.echo(_FIRST, err=True)


@keys.command()
@click.argument("key_id")
@click.option(
    "--grace",
    "grace_s",
    type=seconds,
    metavar="SPAN",
    default="0",
    show_default=True,
    help="The old key works this much longer, such as 1h.",
)
@_workspace
@json_option
def rotate(key_id: str, *, grace_s: int, workspace: str, as_json: bool) -> None:
    """Replace a key by a new one that allows the same, and print the new secret, this once."""
    with _keys(from_env()) as stored:
        _show_made(*stored.rotate(_operator(workspace), key_id, grace_s=grace_s), as_json=as_json)


@keys.command()
@click.argument("key_id")
@_workspace
@json_option
def revoke(key_id: str, *, workspace: str, as_json: bool) -> None:
    """End a key now; a running Loom refuses it within five seconds."""
    settings = from_env()
    with _keys(settings) as stored:
        key = stored.revoke(_operator(workspace), key_id, may_be_last=True)
        is_last = not settings.web.api_keys and not stored.are_required()
    click.echo(as_text(key.as_json()) if as_json else f"{key.id}: revoked")
    if is_last:
        click.echo(_LAST, err=True)


def _list(workspace: str, *, as_json: bool) -> None:
    with _keys(from_env()) as stored:
        found = [key.as_json() for key in _all(stored, workspace)]
    print_list(found, _LISTED, as_json=as_json)


def _all(stored: "Keys", workspace: str) -> Iterator[ApiKey]:
    after = None
    while True:
        page = stored.page(_operator(workspace), limit=_PAGE, after=after)
        yield from page.items
        if (after := page.next) is None:
            return


def _show_made(key: ApiKey, secret: str, *, as_json: bool) -> None:
    made = {**key.as_json(), "secret": secret}
    click.echo(as_text(made) if as_json else fields(made))
    click.echo(_ONCE, err=True)


def _operator(workspace: str) -> KeyHolder:
    """Who runs commands here may do everything."""
    from loom_worker.skills.storage import check_workspace

    check_workspace(workspace)
    return KeyHolder(workspace, ALL_SCOPES)


@contextmanager
def _keys(settings: Settings) -> Iterator["Keys"]:
    from loom_worker.service.keys import Keys
    from loom_worker.store.api_keys import KeyRows

    with _database(settings) as database:
        yield Keys(KeyRows(database))


@contextmanager
def _database(settings: Settings) -> Iterator["Database"]:
    from loom_worker.store import prepare
    from loom_worker.store.database import Database

    prepare.check(settings)
    database = Database.of(settings)
    try:
        yield database
    finally:
        database.close()


@click.group(invoke_without_command=True)
@click.option("--kind", type=click.Choice(ACTIONS), help="Of this kind only.")
@click.option("--user", help="Of this user only.")
@click.option("--agent", help="Of this agent only.")
@click.option("--session", help="Of this session only.")
@click.option("--turn", help="Of this turn only.")
@in_period
@paged
@common
@listing
def audit(*, api: Api, **query: Any) -> None:
    """List who did what, the newest first; the commands verify the rows and print their last hashes."""
    api.show("audit", query=query, columns=_AUDIT)


@audit.command()
@json_option
@click.pass_context
def verify(ctx: click.Context, *, as_json: bool) -> None:
    """Read all rows in the database of this LOOM_HOME; exit code 1 if one was changed, removed or put in between."""
    with _rows() as rows:
        broken = rows.verify()
        heads = rows.heads()
    if as_json:
        click.echo(as_text({"ok": not broken, "broken": [asdict(each) for each in broken]}))
    else:
        for each in broken:
            click.echo(f"problem  workspace {each.workspace}, row {each.seq}: {each.why}")
        for name in sorted(set(heads) - {each.workspace for each in broken}):
            click.echo(f"ok       workspace {name}: sound up to row {heads[name].seq}")
    ctx.exit(1 if broken else 0)


@audit.command()
@json_option
def head(*, as_json: bool) -> None:
    """Print each workspace's last row and its hash; kept elsewhere, they show whether rows were replaced since."""
    with _rows() as rows:
        heads = rows.heads()
    if as_json:
        data = [{"workspace": name, "seq": last.seq, "hash": last.hash} for name, last in heads.items()]
        click.echo(as_text({"object": "list", "data": data}))
    else:
        for name, last in heads.items():
            click.echo(f"{name} {last.seq} {last.hash}")


@contextmanager
def _rows() -> Iterator["AuditRows"]:
    from loom_worker.store.audit import AuditRows

    with _database(from_env()) as database:
        yield AuditRows(database)
