import pytest

from web import connections
from web.connections import Connections, Stage, Tracked, group_of


class Fake(Tracked):
    """A connection as the loop sees it; times in seconds of the same clock."""

    unsent_bytes = 0


def crowd(
    count: int, stage: Stage = Stage.IDLE, *, limit: int = 40, has_shares: bool = True
) -> tuple[Connections, list[Fake]]:
    """Connections of one address, a second apart, all of which went to a stage at once."""
    kept, made = Connections(limit=limit, has_shares=has_shares), [Fake() for _ in range(count)]
    for at_s, each in enumerate(made):
        kept.add(each, "10.0.0.1", at_s)
        kept.move(each, stage, at_s)
    return kept, made


def test_an_address_over_its_share_loses_its_idlest_connection_and_others_are_let_in() -> None:
    kept, made = crowd(10)
    assert kept.over_limit("10.0.0.1") == (True, made[0])
    assert kept.over_limit("10.0.0.2") == (False, None)


def test_a_full_house_drops_the_idlest_of_all() -> None:
    kept, made = crowd(10)
    for number in range(30):
        kept.add(Fake(), f"10.1.0.{number}", 100.0 + number)
    assert kept.over_limit("10.0.0.9") == (True, made[0])
    kept.remove(made[0])
    assert kept.over_limit("10.0.0.9") == (False, None)


def test_behind_proxies_one_address_may_have_all_connections() -> None:
    kept, _ = crowd(39, has_shares=False)
    assert kept.over_limit("10.0.0.1") == (False, None)


def test_what_waits_for_a_head_goes_before_bodies_then_answers() -> None:
    kept, made = crowd(10, Stage.RUNNING)
    for at_s, stage in enumerate((Stage.ANSWER, Stage.BODY, Stage.HEAD, Stage.IDLE)):
        kept.move(made[at_s], stage, 50.0 + at_s)
    for expected in (made[2], made[3], made[1], made[0]):
        assert kept.idlest() is expected
        kept.remove(expected)
    assert kept.idlest() is None


def test_a_new_connection_is_not_pushed_out_by_a_crowd_of_slow_heads() -> None:
    kept, made = crowd(9, Stage.HEAD)
    kept.add(Fake(), "10.0.0.1", 100.0)
    for head in made:
        assert kept.over_limit("10.0.0.1") == (True, head)
        kept.remove(head)
        attacker = Fake()
        kept.add(attacker, "10.0.0.1", 101.0)
        kept.move(attacker, Stage.HEAD, 101.0)


def test_a_connection_that_runs_a_request_is_never_dropped_for_room() -> None:
    kept, _ = crowd(10, Stage.RUNNING)
    assert kept.over_limit("10.0.0.1") == (True, None)


def test_a_connection_that_was_just_used_is_not_the_idlest() -> None:
    kept, made = crowd(3)
    kept.move(made[0], Stage.RUNNING, 5.0)
    kept.move(made[0], Stage.IDLE, 6.0)
    assert kept.idlest() is made[1]


@pytest.mark.parametrize(
    ("stage", "limit_s"), [(Stage.IDLE, connections.IDLE_S), (Stage.HEAD, connections.HEAD_S), (Stage.RUNNING, 1e9)]
)
def test_idle_connections_and_heads_have_a_deadline(stage: Stage, limit_s: float) -> None:
    kept, made = crowd(2, stage)
    assert kept.overdue(limit_s) == []
    assert kept.overdue(limit_s + 0.5) == ([made[0]] if limit_s < 1e9 else [])


@pytest.mark.cases(
    ("received_bytes", "age_s", "is_late"),
    [(0, 10.0, False), (0, 11.0, True), (16_384, 12.0, False), (16_384, 12.5, True)],
)
def test_a_body_has_a_least_rate(received_bytes: int, age_s: float, *, is_late: bool) -> None:
    kept, made = crowd(1, Stage.BODY)
    made[0].received_bytes = received_bytes
    assert (kept.overdue(age_s) == made) is is_late


def test_an_address_sends_only_so_many_bodies_at_once_and_the_oldest_goes() -> None:
    kept = Connections(limit=1000, has_shares=True)
    made = [Fake() for _ in range(connections.MAX_BODIES // connections.SHARE + 1)]
    for each in made:
        kept.add(each, "10.0.0.1", 0.0)
    dropped = [kept.move(each, Stage.BODY, 1.0) for each in made]
    assert dropped == [None] * (len(made) - 1) + [made[0]]


@pytest.mark.cases("stage", [Stage.ANSWER, Stage.RUNNING])
@pytest.mark.cases(
    ("taken_bytes", "taken_s", "now_s", "is_slow"),
    [
        (0, 0, 30.0, False),
        (0, 0, 31.0, True),
        (29, 29, 59.0, False),
        (70, 69, 70.0, True),
        (1_000_000, 69, 70.0, False),
    ],
)
def test_an_answer_must_be_taken(stage: Stage, taken_bytes: int, taken_s: int, now_s: float, *, is_slow: bool) -> None:
    kept, (reader,) = crowd(1, stage)
    reader.written_bytes = 2_000_000
    for second in range(taken_s + 1):  # the same share of the bytes in each, as it is looked at
        reader.unsent_bytes = 2_000_000 - (taken_bytes * second // taken_s if taken_s else 0)
        kept.overdue(float(second))
    assert (kept.overdue(now_s) == [reader]) is is_slow


def test_answers_that_nobody_takes_have_a_bound_together_and_those_that_wait_longest_go() -> None:
    kept, made = crowd(5, Stage.ANSWER)
    for at_s, each in enumerate(made):
        each.waits_since_s = each.taken_s = 10.0 - at_s
        each.unsent_bytes = each.written_bytes = connections.MAX_UNSENT_BYTES // 3
    assert kept.overdue(11.0) == [made[4], made[3]]


@pytest.mark.cases(
    ("address", "group"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::9", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("a:b", "a:b"),
        ("", ""),
    ],
)
def test_ipv6_addresses_count_by_their_network(address: str, group: str) -> None:
    assert group_of(address) == group
