"""What all processes have counted, in the database."""

from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from sqlalchemy import insert, select

from loom_worker.core import metrics
from loom_worker.core.errors import Unavailable
from loom_worker.core.metric_recorder import MOST_VALUES, OTHER, Cells, Family
from loom_worker.core.settings import Settings
from loom_worker.core.values.chat import Usage
from loom_worker.core.values.turns import Ending
from loom_worker.store.claims import Claims
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.journal import Journal
from loom_worker.store.ledger import Charge, Ledger
from loom_worker.store.metric_values import FOLDED, MetricValues
from loom_worker.store.sessions import Sessions
from loom_worker.store.tables import metric_values
from tests.unit.store.made import NOW_MS, WORKSPACE, claimed, final, running, submitted

COMMIT = metrics.COMMITS


def spend(database: Database, model: str, *, cost: str | None = "0.25", kind: str = "turn") -> None:
    price = None if cost is None else Decimal(cost)
    used = Usage(input_tokens=10, output_tokens=5, cache_write_tokens=2, llm_calls=1, cost_usd=price)
    charge = Charge(WORKSPACE, "s1", "default", model, used, kind=kind)  # type: ignore[arg-type]
    Ledger(database).charge("lane", charge, now_ms=NOW_MS)


def of(database: Database, family: Family) -> dict[tuple[str, ...], list[float]]:
    return {values: cell for (other, values), cell in MetricValues(database).all().items() if other is family}


def rows(database: Database) -> dict[str, float]:
    with database.read() as tx:
        return {row.series: row.value for row in tx.execute(select(metric_values))}


def observed(*seconds: float) -> Cells:
    cell = [0.0] * COMMIT.size
    for each in seconds:
        cell[0] += each
        cell[1 + next(n for n, bound in enumerate((*COMMIT.bounds, float("inf"))) if each <= bound)] += 1
    return {(COMMIT, ("full",)): cell}


def test_what_two_processes_count_is_added_up(database: Database) -> None:
    one, two = MetricValues(database), MetricValues(database)
    for values in (one, two, one):
        values.add({(metrics.TOOL_CALLS, ("look", "failed")): [2.0], **observed(0.0002, 0.3, 9.0)})
    assert of(database, metrics.TOOL_CALLS) == {("look", "failed"): [6.0]}
    (cell,) = of(database, COMMIT).values()
    assert (cell[0], sum(cell[1:]), cell[2], cell[-1]) == (pytest.approx(27.9006), 9, 3, 3)


def test_only_what_changed_is_written(database: Database) -> None:
    MetricValues(database).add(observed(0.3))
    name = "loom_store_commit_seconds"
    assert rows(database) == {f'{name}_sum{{sync="full"}}': 0.3, f'{name}{{sync="full",le="0.5"}}': 1}


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30))
@examples(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_label_comes_back_as_it_was(database: Database, value: str) -> None:
    (before,) = of(database, metrics.TOOL_CALLS).get((value, "completed"), [0.0])
    for _ in range(2):
        MetricValues(database).add({(metrics.TOOL_CALLS, (value, "completed")): [1.0]})
    assert of(database, metrics.TOOL_CALLS)[value, "completed"] == [before + 2]
    with database.write(lock=WHOLE) as tx:
        tx.execute(metric_values.delete())


def test_all_processes_together_have_no_more_values_of_a_label_than_the_bound(database: Database) -> None:
    one, two = MetricValues(database), MetricValues(database)
    for number in range(MOST_VALUES):
        values = one if number % 2 else two
        values.add({(metrics.TOOL_DURATION, (f"t{n}-{number}",)): [1.0] * 17 for n in range(2)})
    found = of(database, metrics.TOOL_DURATION)
    assert len(found) == MOST_VALUES + 1
    assert sum(cell[0] for cell in found.values()) == 2 * MOST_VALUES
    for values in (one, two, MetricValues(database)):
        values.add({(metrics.TOOL_DURATION, ("t0-0",)): [5.0] * 17, (metrics.TOOL_DURATION, ("new",)): [7.0] * 17})
    assert of(database, metrics.TOOL_DURATION)["t0-0",][0] == 1 + 3 * 5
    assert of(database, metrics.TOOL_DURATION)[OTHER,][0] == found[OTHER,][0] + 3 * 7


def test_a_value_that_another_process_brought_is_known_and_not_other(database: Database) -> None:
    one, two = MetricValues(database), MetricValues(database)
    one.add({(metrics.BREAKER_REFUSALS, ("a",)): [1.0]})
    two.add({(metrics.BREAKER_REFUSALS, (f"b{n}",)): [1.0] for n in range(MOST_VALUES - 1)})
    one.add({(metrics.BREAKER_REFUSALS, ("b7",)): [1.0], (metrics.BREAKER_REFUSALS, ("c",)): [1.0]})
    found = of(database, metrics.BREAKER_REFUSALS)
    assert (found["b7",], found[OTHER,], ("c",) in found) == ([2.0], [1.0], False)


def test_what_is_written_by_another_version_of_loom_does_no_harm(database: Database) -> None:
    MetricValues(database).add(observed(0.3, 0.3))
    name = "loom_store_commit_seconds"
    strange = {
        f'{name}{{sync="full",le="0.4"}}': 5,  # a bucket that there is no more: its values are within the next one
        f'{name}{{sync="full",le="7"}}': 1,
        f'{name}{{disk="a",sync="full",le="0.5"}}': 9,
        "loom_later_total": 9,
        "nonsense{": 9,
    }
    with database.write(lock=WHOLE) as tx:
        tx.execute(insert(metric_values), [{"series": text, "value": by} for text, by in strange.items()])
    (cell,) = of(database, COMMIT).values()
    assert (cell[1 + COMMIT.bounds.index(0.5)], cell[-1], sum(cell[1:])) == (7, 1, 8)
    assert {family.name for family, _ in MetricValues(database).all()} == {name}


def test_tokens_and_costs_are_those_of_the_ledger_before_and_after_they_are_added(database: Database) -> None:
    for model, cost, kind in (("big", "0.25", "turn"), ("big", "0.5", "turn"), ("small", None, "summary")):
        spend(database, model, cost=cost, kind=kind)
    for _ in range(2):
        assert of(database, metrics.LLM_COST) == {("big", "turn"): [0.75]}
        assert of(database, metrics.LLM_CALLS) == {("big", "turn"): [2], ("small", "summary"): [1]}
        assert of(database, metrics.LLM_UNPRICED_CALLS) == {("small", "summary"): [1]}
        tokens = of(database, metrics.LLM_TOKENS)
        assert tokens["big", "input", "turn"] == [20]
        assert tokens["small", "cache_write", "summary"] == [2]
        assert {kind for _, kind, _ in tokens} == {"input", "output", "cache_write"}
        assert MetricValues(database).add({}) is False
    spend(database, "big")
    assert of(database, metrics.LLM_COST)["big", "turn"] == [1.0]


def test_each_entry_of_a_long_ledger_is_added_once_a_part_at_a_time(database: Database) -> None:
    for number in range(11):
        spend(database, "big" if number % 2 else "small")
    before = of(database, metrics.LLM_TOKENS)
    one, two = (MetricValues(database, folded_at_a_time=4) for _ in range(2))
    assert [values.add({}) for values in (one, two, one, two)] == [True, True, False, False]
    assert of(database, metrics.LLM_TOKENS) == before
    assert rows(database)[FOLDED] == 11
    assert rows(database)['loom_llm_calls_total{model="big",purpose="turn"}'] == 5


def test_models_beyond_the_bound_are_other_whether_they_are_added_already_or_not(database: Database) -> None:
    for number in range(MOST_VALUES + 5):
        spend(database, f"m{number}")
    assert of(database, metrics.LLM_COST)[OTHER, "turn"] == [5 * 0.25]
    MetricValues(database).add({})
    spend(database, "m0")
    spend(database, "one more")
    found = of(database, metrics.LLM_COST)
    assert (found[OTHER, "turn"], found["m0", "turn"]) == ([6 * 0.25], [0.5])


def test_the_end_of_a_turn_is_counted_with_it_or_not_at_all(database: Database) -> None:
    claim = running(database)
    broken = final(ending=Ending("failed", "provider"), uses=(None,))
    with pytest.raises(AttributeError):
        Journal(database).finish(claim, broken)
    assert of(database, metrics.TURNS) == {}
    Journal(database).finish(claim, final(ending=Ending("failed", "provider")))
    assert of(database, metrics.TURNS) == {("failed", "provider"): [1.0]}


def test_a_worker_that_died_is_counted_with_the_claim_of_the_next_one_and_one_that_let_go_is_not(
    database: Database,
) -> None:
    first = running(database)
    assert of(database, metrics.TURN_DEATHS) == {}
    second = claimed(database, first.turn.lane)
    assert of(database, metrics.TURN_DEATHS) == {(): [1.0]}
    Claims(database).release(second, run_ms=0)
    claimed(database, first.turn.lane)
    assert of(database, metrics.TURN_DEATHS) == {(): [1.0]}


def test_a_turn_that_is_deleted_with_its_session_has_ended_too(database: Database) -> None:
    submitted(database)
    Sessions(database).delete(WORKSPACE, "s1")
    assert of(database, metrics.TURNS) == {("cancelled", "deleted"): [1.0]}


def test_nothing_is_added_while_the_database_does_not_answer(settings: Settings) -> None:
    folder, _, name = settings.database_url.rpartition("/")
    with pytest.raises(Unavailable):
        MetricValues(Database(f"{folder}/gone/{name}")).add(observed(0.3))
