from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import select

from loom_worker.core.errors import Conflict, Forbidden, Invalid, NotFound, Unavailable
from loom_worker.core.values.api_keys import ALL_SCOPES, SHOWN_CHARS, KeyHolder, NewKey, digest_of
from loom_worker.core.values.ids import now_ms
from loom_worker.service.keys import CACHED_KEYS, CACHED_S, Keys
from loom_worker.store.api_keys import KeyRows
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.tables import api_keys
from tests.support.clock import Clock

ADMIN = KeyHolder("acme", ALL_SCOPES)
MARIA = replace(ADMIN, user="maria")


class CountedRows(KeyRows):
    """Counts the questions to the database, which can be away."""

    asked = 0
    is_down = False

    def by_hash(self, digest: str):  # type: ignore[no-untyped-def]  # as the class above says
        self.asked += 1
        self._require_up()
        return super().by_hash(digest)

    def has_kept(self) -> bool:
        self._require_up()
        return super().has_kept()

    def touch(self, key_id: str, *, now_ms: int) -> None:
        self._require_up()
        super().touch(key_id, now_ms=now_ms)

    def _require_up(self) -> None:
        if self.is_down:
            raise Unavailable("the database does not answer")


@pytest.fixture
def rows(database: Database) -> CountedRows:
    return CountedRows(database)


@pytest.fixture
def keys(rows: CountedRows, clock: Clock) -> Keys:
    return Keys(rows, clock_s=clock)


MakeKeys = Callable[[], Keys]


@pytest.fixture
def another_process(rows: CountedRows, clock: Clock) -> Keys:
    return Keys(rows, clock_s=clock)


def test_a_secret_finds_its_key_and_is_stored_nowhere(keys: Keys, database: Database) -> None:
    key, secret = keys.create(ADMIN, NewKey("CI", ("chat",)))
    found = keys.find(secret)
    assert found is not None
    assert replace(found, last_used_ms=None) == key
    assert key.prefix == secret[:SHOWN_CHARS]
    with database.read() as tx:
        row = tx.execute(select(api_keys)).mappings().one()
    assert not any(secret in str(value) for value in row.values())


def test_secrets_are_not_logged(keys: Keys, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    key, secret = keys.create(ADMIN, NewKey("CI", ("chat",)))
    new, new_secret = keys.rotate(ADMIN, key.id, grace_s=0)
    keys.revoke(ADMIN, new.id, may_be_last=True)
    said = " ".join(str(vars(record)) for record in caplog.records)
    assert key.id in said
    assert secret not in said
    assert new_secret not in said


@pytest.mark.parametrize("secret", ["", "loom_", "loom_" + "0" * 43, "é" * 50, "\udcff"])
def test_an_unknown_secret_finds_nothing_and_is_not_remembered(keys: Keys, rows: CountedRows, secret: str) -> None:
    assert keys.find(secret) is None
    assert keys.find(secret) is None
    assert rows.asked == 2


def test_a_key_is_read_once_in_five_seconds(keys: Keys, rows: CountedRows, clock: Clock) -> None:
    _, secret = keys.create(ADMIN, NewKey("CI", ("chat",)))
    for _ in range(5):
        keys.find(secret)
    assert rows.asked == 1
    clock.now_s += CACHED_S
    keys.find(secret)
    assert rows.asked == 2


def test_a_revoked_key_ends_at_once_here_and_within_five_seconds_elsewhere(
    keys: Keys, another_process: Keys, clock: Clock
) -> None:
    key, secret = keys.create(ADMIN, NewKey("CI", ("chat",)))
    assert another_process.find(secret)
    keys.revoke(ADMIN, key.id, may_be_last=True)
    here = keys.find(secret)
    assert here is not None
    assert here.end(now_ms()) == "revoked"
    clock.now_s += CACHED_S
    there = another_process.find(secret)
    assert there is not None
    assert there.end(now_ms()) == "revoked"


def test_the_cache_is_bounded(keys: Keys, rows: CountedRows) -> None:
    _, first = keys.create(ADMIN, NewKey("first", ("read",)))
    _, other = keys.create(ADMIN, NewKey("other", ("read",)))
    keys.find(first)
    found = keys.find(other)
    for number in range(CACHED_KEYS):
        keys._remember(f"digest {number}", found, 100.0)
    asked = rows.asked
    keys.find(first)
    assert rows.asked == asked + 1


def test_a_use_is_written_down_once_a_minute(keys: Keys, another_process: Keys, rows: CountedRows) -> None:
    key, secret = keys.create(ADMIN, NewKey("CI", ("read",)))
    keys.find(secret)
    used_ms = rows.get("acme", key.id).last_used_ms
    assert used_ms is not None
    another_process.find(secret)
    assert rows.get("acme", key.id).last_used_ms == used_ms
    rows.touch(key.id, now_ms=used_ms + 59_999)
    assert rows.get("acme", key.id).last_used_ms == used_ms
    rows.touch(key.id, now_ms=used_ms + 60_000)
    assert rows.get("acme", key.id).last_used_ms == used_ms + 60_000


def test_a_known_key_works_while_the_database_is_away_until_it_must_be_read_again(
    keys: Keys, rows: CountedRows, clock: Clock
) -> None:
    _, secret = keys.create(ADMIN, NewKey("CI", ("read",)))
    keys.find(secret)
    rows.is_down = True
    assert keys.find(secret)
    clock.now_s += CACHED_S
    with pytest.raises(Unavailable):
        keys.find(secret)


def test_keys_are_required_from_the_first_one_on_until_the_last_one_is_revoked(keys: Keys) -> None:
    assert not keys.are_required()
    key, _ = keys.create(ADMIN, NewKey("CI", ("read",)))
    assert keys.are_required()
    keys.revoke(ADMIN, key.id, may_be_last=True)
    assert not keys.are_required()


def test_an_expired_key_still_counts_as_one(keys: Keys, database: Database) -> None:
    key, _ = keys.create(ADMIN, NewKey("CI", ("read",), expires_ms=now_ms() + 60_000))
    with database.write(lock=WHOLE) as tx:
        tx.execute(api_keys.update().where(api_keys.c.id == key.id).values(expires_ms=1))
    assert keys.are_required()


def test_another_process_learns_of_the_first_key_within_five_seconds(
    keys: Keys, another_process: Keys, clock: Clock
) -> None:
    assert not another_process.are_required()
    keys.create(ADMIN, NewKey("CI", ("read",)))
    clock.now_s += CACHED_S
    assert another_process.are_required()


def test_while_the_database_is_away_what_was_known_last_holds(keys: Keys, rows: CountedRows, clock: Clock) -> None:
    rows.is_down = True
    with pytest.raises(Unavailable):
        keys.are_required()
    rows.is_down = False
    keys.create(ADMIN, NewKey("CI", ("read",)))
    assert keys.are_required()
    rows.is_down = True
    clock.now_s += CACHED_S
    assert keys.are_required()


def test_nobody_gives_more_than_they_have(keys: Keys) -> None:
    with pytest.raises(Forbidden, match="lacks the scope admin"):
        keys.create(replace(ADMIN, scopes=frozenset({"chat", "read"})), NewKey("x", ("admin",)))
    with pytest.raises(Forbidden, match="for that user only"):
        keys.create(MARIA, NewKey("x", ("read",), user="john"))
    assert keys.create(MARIA, NewKey("x", ("read",)))[0].user == "maria"


def test_a_key_that_would_have_expired_is_not_made(keys: Keys) -> None:
    with pytest.raises(Invalid, match="expired already"):
        keys.create(ADMIN, NewKey("x", ("read",), expires_ms=now_ms()))


def test_a_rotated_key_allows_the_same_and_the_old_one_ends(keys: Keys) -> None:
    expires_ms = now_ms() + 3_600_000
    old, old_secret = keys.create(ADMIN, NewKey("CI", ("chat",), user="maria", expires_ms=expires_ms))
    new, new_secret = keys.rotate(ADMIN, old.id, grace_s=0)
    assert (new.name, new.scopes, new.user, new.expires_ms) == ("CI", ("chat",), "maria", expires_ms)
    assert new.rotated_from == old.id
    ended = keys.find(old_secret)
    assert ended is not None
    assert ended.end(now_ms()) == "revoked"
    assert keys.find(new_secret)
    with pytest.raises(Conflict):
        keys.rotate(ADMIN, old.id, grace_s=0)


def test_during_the_grace_both_keys_work_but_none_longer_than_it_would_have(keys: Keys) -> None:
    expires_ms = now_ms() + 3_600_000
    old, secret = keys.create(ADMIN, NewKey("CI", ("chat",)))
    keys.rotate(ADMIN, old.id, grace_s=600)
    kept = keys.find(secret)
    assert kept is not None
    assert kept.expires_ms is not None
    assert kept.end(now_ms()) is None
    assert kept.end(kept.expires_ms) == "expired"
    short, short_secret = keys.create(ADMIN, NewKey("CI", ("chat",), expires_ms=expires_ms))
    keys.rotate(ADMIN, short.id, grace_s=86_400)
    found = keys.find(short_secret)
    assert found is not None
    assert found.expires_ms == expires_ms


def test_the_last_key_is_revoked_only_where_that_is_allowed(keys: Keys) -> None:
    first, _ = keys.create(ADMIN, NewKey("first", ("admin",)))
    second, _ = keys.create(KeyHolder("other", ALL_SCOPES), NewKey("second", ("admin",)))
    keys.revoke(ADMIN, first.id, may_be_last=False)
    with pytest.raises(Conflict) as refused:
        keys.revoke(KeyHolder("other", ALL_SCOPES), second.id, may_be_last=False)
    assert refused.value.slug == "last-key"
    assert keys.are_required()
    keys.revoke(ADMIN, first.id, may_be_last=False)  # a second time changes nothing, so it is no error


def test_keys_of_others_are_not_found(keys: Keys) -> None:
    theirs, _ = keys.create(KeyHolder("other", ALL_SCOPES), NewKey("x", ("read",)))
    johns, _ = keys.create(ADMIN, NewKey("x", ("read",), user="john"))
    for holder, key in ((ADMIN, theirs), (MARIA, theirs), (MARIA, johns)):
        with pytest.raises(NotFound):
            keys.revoke(holder, key.id, may_be_last=True)
        with pytest.raises(NotFound):
            keys.rotate(holder, key.id, grace_s=0)
    assert keys.page(MARIA, limit=9, after=None).items == ()
    assert [key.id for key in keys.page(ADMIN, limit=9, after=None).items] == [johns.id]


def test_a_holder_s_key_has_ended_once_it_is_revoked_and_not_while_nobody_knows(
    keys: Keys, rows: CountedRows, clock: Clock
) -> None:
    key, secret = keys.create(ADMIN, NewKey("CI", ("read",)))
    holder = replace(key.holder, digest=digest_of(secret))
    assert not keys.has_ended(holder)
    rows.is_down = True
    clock.now_s += CACHED_S
    assert not keys.has_ended(holder)
    rows.is_down = False
    keys.revoke(ADMIN, key.id, may_be_last=True)
    assert keys.has_ended(holder)
    assert not keys.has_ended(ADMIN)
