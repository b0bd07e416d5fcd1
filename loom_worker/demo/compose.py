"""A plan as SQL for the shop's tables; the question enters only as digits, days and values of the database."""

import re
from collections.abc import Sequence
from datetime import date, timedelta

from loom_worker.core.errors import LoomError
from loom_worker.demo.questions.plan import Plan, Where
from loom_worker.demo.questions.vocabulary import WITH_DAY, shop
from loom_worker.demo.slots import Period

MOST_LISTED = 40
"""Rows that a list shows; the column ``rows_in_all`` says how many there are."""
_JOIN = re.compile(r"JOIN (?:(?!\bJOIN\b).)+")
_PARTS_OF_ORDERS = frozenset("pguy")
"""Aliases of tables that lead to parts of an order: products, categories, suppliers and payments."""


class NotQueryable(LoomError):
    """The query cannot express a part of the question, which the message names."""


def compose(plan: Plan) -> str:
    """The statement that answers a plan.

    Raises:
        NotQueryable: a condition, a period or a grouping does not belong to what is asked for.
    """
    if not plan.is_compared:
        return _Query(plan, plan.periods[0] if plan.periods else None).sql()
    return "\nUNION ALL\n".join(_Query(plan, period).sql(label=span(period)) for period in plan.periods)


def span(period: Period) -> str:
    """``2026-03-01 to 2026-03-31``, with a start left out where there is none."""
    last = period.end - timedelta(days=1)
    if period.start == date.min:
        return f"up to {last}"
    return f"{period.start}" if last == period.start else f"{period.start} to {last}"


class _Query:
    """One SELECT of a plan in the making."""

    def __init__(self, plan: Plan, period: Period | None) -> None:
        self._plan, self._period = plan, period
        self._fact = shop().facts[plan.fact]
        self._name = (plan.measures or (plan.fact,))[0].replace("_", " ")

    def sql(self, *, label: str = "") -> str:
        """Raises NotQueryable; ``label`` becomes the first column."""
        plan, fact, group, wheres = self._plan, self._fact, self._group(), self._conditions()
        shown = [f"'{label}' AS period"] if label else []
        shown += [f"{group[0]} AS {plan.group}"] if group else []
        shown += [f"{fact.measures[each]} AS {each}" for each in plan.measures]
        if not plan.measures:
            shown = [fact.columns, "COUNT(*) OVER () AS rows_in_all"]
        own = [each for each in wheres if "SELECT" not in each]  # a query within has aliases of its own
        used = re.findall(r"\b([a-z])\.", " ".join([*shown, *group, *own]))
        joins = " ".join(join for alias, join in fact.joins.items() if alias in used)
        source = [fact.source, *dict.fromkeys(each.strip() for each in _JOIN.findall(joins))]
        lines = [f"SELECT {', '.join(shown)}", f"FROM {' '.join(source)}"]
        return "\n".join([*lines, *([f"WHERE {' AND '.join(wheres)}"] if wheres else []), *self._tail(group)])

    def _tail(self, group: Sequence[str]) -> list[str]:
        plan, direction = self._plan, "ASC" if self._plan.is_ascending else "DESC"
        if not plan.measures:
            rank = f"{plan.rank_by} {direction}, " if plan.rank_by else ""
            rows = [f"GROUP BY {self._fact.row}"] if self._fact.row else []
            return [*rows, f"ORDER BY {rank}{self._fact.order}", f"LIMIT {plan.limit or MOST_LISTED}"]
        lines = [f"GROUP BY {', '.join(group)}"] if group else []
        if not group or plan.is_compared:
            return lines
        is_time = plan.group in shop().words["times"] and plan.limit is None
        lines.append(f"ORDER BY {plan.group}" if is_time else f"ORDER BY {plan.measures[0]} {direction}, {plan.group}")
        return [*lines, f"LIMIT {plan.limit}"] if plan.limit else lines

    def _day(self, what: str) -> str:
        """The column of the rows' day; a customer or an employee has one only if the question says what happened."""
        if not self._fact.day or (self._plan.fact in WITH_DAY and not self._plan.has_day):
            raise NotQueryable(what)
        return self._fact.day

    def _group(self) -> Sequence[str]:
        name, what = self._plan.group, f'group {self._name} by "{self._plan.group}"'
        if name not in shop().words["times"]:
            return self._dimension(name, what) if name else ()
        day = self._day(what)
        if name == "hour" and not day.endswith("_at"):
            raise NotQueryable(what)
        return [shop().words["times"][name].replace("{day}", day)]

    def _dimension(self, name: str, what: str) -> Sequence[str]:
        columns = self._fact.dimensions.get(name)
        is_of_whole = not set(self._fact.whole_orders).isdisjoint(self._plan.measures)
        if columns is None or (is_of_whole and columns[0][0] in _PARTS_OF_ORDERS):
            raise NotQueryable(what)
        return columns

    def _conditions(self) -> list[str]:
        made, is_period_taken = [self._fact.base] if self._fact.base else [], False
        for where in self._plan.wheres:
            what = f'restrict {self._name} to "{where.wording}"'
            if where.rule:
                made.append(self._ruled(where, what))
                is_period_taken |= bool(shop().rules[where.rule].day)
            for name, values in where.kinds.items():
                quoted = ", ".join("'" + value.replace("'", "''") + "'" for value in values)
                made.append(f"{self._dimension(name, what)[0]}{' NOT' if where.is_negated else ''} IN ({quoted})")
        if self._period is not None and not is_period_taken:
            made += _days(self._day(f'restrict {self._name} to the period "{self._period.wording}"'), self._period)
        return made

    def _ruled(self, where: Where, what: str) -> str:
        """A rule's SQL, with the period if it takes one."""
        rule = shop().rules[where.rule]
        if self._plan.fact not in rule.facts or (self._plan.has_day and rule.day and self._period):
            raise NotQueryable(what)
        days = _days(rule.day, self._period) if rule.day and self._period else []
        period = "".join(f" AND {each}" for each in days)
        return rule.sql.format(period=period, sign=where.sign, number=where.amount, own_day=self._fact.day)


def _days(column: str, period: Period) -> list[str]:
    made = [f"{column} >= '{period.start}'"] if period.start != date.min else []
    return [*made, f"{column} < '{period.end}'"]
