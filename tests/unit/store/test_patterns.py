from collections.abc import Mapping
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom_worker.core.values.chat import Usage
from loom_worker.core.values.patterns import Effect, PatternUse
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.patterns import PatternUses, enter_uses
from tests.support.at_once import at_once
from tests.unit.store.made import NOW_MS, WORKSPACE

TOP = PatternUse("sql/top_n", "d1", "matched")
EDITED = PatternUse("sql/top_n", "d2", "matched")
SLOW = PatternUse("sql/slow", "d1", "loaded")
SPENT = Usage(input_tokens=100, cost_usd=Decimal("0.25"))


def enter(
    database: Database,
    *uses: PatternUse,
    is_success: bool | None = True,
    workspace: str = WORKSPACE,
    now_ms: int = NOW_MS,
) -> None:
    with database.write(lock=WHOLE) as tx:
        enter_uses(tx, workspace, uses, is_success=is_success, spent=SPENT, now_ms=now_ms)


def effects(database: Database) -> Mapping[tuple[str, str], Effect]:
    """What came of the three texts, those that were used."""
    keys = [(use.pattern_id, use.digest) for use in (TOP, EDITED, SLOW)]
    found = {key: PatternUses(database).effect(WORKSPACE, *key)[0] for key in keys}
    return {key: effect for key, effect in found.items() if effect.uses}


@pytest.mark.parametrize(("is_success", "succeeded", "failed"), [(True, 1, 0), (False, 0, 1), (None, 0, 0)])
def test_a_turn_counts_as_it_ended(database: Database, is_success: bool | None, succeeded: int, failed: int) -> None:
    enter(database, TOP, is_success=is_success)
    assert effects(database) == {("sql/top_n", "d1"): Effect(1, succeeded, failed, 0.25, 100, NOW_MS)}


def test_turns_add_up(database: Database) -> None:
    for is_success in (True, False, None, True):
        enter(database, TOP, SLOW, is_success=is_success)
    whole = Effect(4, 2, 1, 1.0, 400, NOW_MS)
    assert effects(database) == {("sql/top_n", "d1"): whole, ("sql/slow", "d1"): whole}


def test_a_pattern_that_a_turn_used_twice_counts_once(database: Database) -> None:
    enter(database, TOP, PatternUse("sql/top_n", "d1", "loaded"), TOP)
    assert effects(database)["sql/top_n", "d1"].uses == 1


def test_the_latest_use_is_told_whatever_the_order_in_which_they_come(database: Database) -> None:
    for now_ms in (NOW_MS, NOW_MS + 5, NOW_MS - 5):
        enter(database, TOP, now_ms=now_ms)
    assert effects(database)["sql/top_n", "d1"].last_ms == NOW_MS + 5


def test_no_pattern_leaves_no_row(database: Database) -> None:
    enter(database)
    assert effects(database) == {}


def test_workspaces_do_not_see_each_other(database: Database) -> None:
    enter(database, TOP, workspace="theirs")
    assert effects(database) == {}
    assert PatternUses(database).effect(WORKSPACE, "sql/top_n", "d1") == (Effect(), Effect())
    assert PatternUses(database).effect("theirs", "sql/top_n", "d1")[0].uses == 1


def test_an_edited_pattern_begins_anew_and_its_texts_together_are_known(database: Database) -> None:
    enter(database, TOP, is_success=False, now_ms=NOW_MS + 9)
    enter(database, EDITED, SLOW)
    enter(database, EDITED, is_success=None)
    assert PatternUses(database).effect(WORKSPACE, "sql/top_n", "d2") == (
        Effect(2, 1, 0, 0.5, 200, NOW_MS),
        Effect(3, 1, 1, 0.75, 300, NOW_MS + 9),
    )
    assert PatternUses(database).effect(WORKSPACE, "sql/top_n", "d3")[0] == Effect()
    assert PatternUses(database).effect(WORKSPACE, "sql/none", "d1") == (Effect(), Effect())


def test_what_is_rolled_back_was_never_counted(database: Database) -> None:
    with database.write(lock=WHOLE) as tx, tx.begin_nested() as inner:
        enter_uses(tx, WORKSPACE, [TOP], is_success=True, spent=SPENT, now_ms=NOW_MS)
        inner.rollback()
    assert effects(database) == {}


def test_sums_grow_beyond_32_bits(database: Database) -> None:
    with database.write(lock=WHOLE) as tx:
        for _ in range(2):
            enter_uses(tx, WORKSPACE, [TOP], is_success=True, spent=Usage(input_tokens=2**40), now_ms=NOW_MS)
    assert effects(database)["sql/top_n", "d1"].tokens == 2**41


def test_turns_that_end_side_by_side_are_all_counted(database: Database) -> None:
    at_once(lambda _: [enter(database, TOP) for _ in range(10)], range(4))
    assert effects(database)["sql/top_n", "d1"] == Effect(40, 40, 0, 10.0, 4_000, NOW_MS)


@given(
    turns=st.lists(
        st.tuples(st.lists(st.sampled_from([TOP, EDITED, SLOW]), max_size=4), st.sampled_from([True, False, None])),
        max_size=8,
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15, deadline=None)
def test_each_turn_counts_once_for_each_text_it_used(
    database: Database, turns: list[tuple[list[PatternUse], bool | None]]
) -> None:
    before = effects(database)
    for uses, is_success in turns:
        enter(database, *uses, is_success=is_success)
    after = effects(database)
    for use in (TOP, EDITED, SLOW):
        ended = [is_success for uses, is_success in turns if use in uses]
        was, now = (known.get((use.pattern_id, use.digest), Effect()) for known in (before, after))
        assert now.uses - was.uses == len(ended)
        assert now.succeeded - was.succeeded == ended.count(True)
        assert now.failed - was.failed == ended.count(False)
