"""A plan as SQL for the shop's tables; the question enters only as digits, days and values of the database."""

import re
from datetime import timedelta

from loom_worker.core.errors import LoomError
from loom_worker.demo.questions.plan import Plan, Where
from loom_worker.demo.questions.shop import PER_LINE, Dimension, FactTable, shop
from loom_worker.demo.slots import FOREVER, Period

MOST_LISTED = 40
"""Rows that a list shows; the column ``rows_in_all`` says how many there are."""
_JOIN = re.compile(r"JOIN (?:(?!\bJOIN\b).)+")


class NotQueryable(LoomError):
    """The query cannot express a part of the question, which the message names."""


def compose(plan: Plan) -> str:
    """The statement that answers a plan.

    Raises:
        NotQueryable: a condition, a period or a grouping does not belong to what is asked for.
    """
    if not plan.is_compared:
        return _Query(plan, plan.periods[0] if plan.periods else None).sql()
    parts = [_Query(plan, period).sql(label=span(period)) for period in plan.periods]
    return "\nUNION ALL\n".join(parts)


def span(period: Period) -> str:
    """``2026-03-01 to 2026-03-31``, with an end left out where there is none."""
    last = period.end - timedelta(days=1)
    if period.start == FOREVER[0]:
        return f"up to {last}"
    if period.end == FOREVER[1]:
        return f"from {period.start} on"
    return f"{period.start}" if last == period.start else f"{period.start} to {last}"


class _Query:
    """One SELECT of a plan in the making."""

    def __init__(self, plan: Plan, period: Period | None) -> None:
        self._plan = plan
        self._head = plan.head
        self._fact: FactTable = shop().facts[plan.head.fact]
        self._period = period
        self._needs: dict[str, None] = {}
        self._name = (plan.head.measures[0] if plan.head.measures else plan.head.fact).replace("_", " ")

    def sql(self, *, label: str = "") -> str:
        """Raises NotQueryable; ``label`` becomes the first column."""
        head, fact = self._head, self._fact
        wheres = self._conditions()
        for measure in head.measures:
            if measure in fact.needs:
                self._needs[fact.needs[measure]] = None
        group = self._group()
        shown = [f"'{label}' AS period"] if label else []
        shown += [f"{group.column} AS {head.group}"] if group else []
        shown += [f"{fact.measures[each]} AS {each}" for each in head.measures]
        if not head.measures:
            shown = [fact.columns, "COUNT(*) OVER () AS rows_in_all"]
        source = " ".join([fact.source, *self._joins()])
        lines = [f"SELECT {', '.join(shown)}", f"FROM {source}"]
        lines += [f"WHERE {' AND '.join(wheres)}"] if wheres else []
        lines += self._tail(group)
        return "\n".join(lines)

    def _tail(self, group: Dimension | None) -> list[str]:
        head, direction = self._head, "ASC" if self._head.is_ascending else "DESC"
        if not head.measures:
            rank = f"{head.rank_by} {direction}, " if head.rank_by else ""
            rows = [f"GROUP BY {self._fact.row}"] if self._fact.row else []
            return [*rows, f"ORDER BY {rank}{self._fact.order}", f"LIMIT {head.limit or MOST_LISTED}"]
        if group is None:
            return []
        lines = [f"GROUP BY {', '.join(filter(None, [group.key, group.column]))}"]
        if self._plan.is_compared:
            return lines
        is_time = head.group in shop().times and head.limit is None
        lines.append(f"ORDER BY {head.group}" if is_time else f"ORDER BY {head.measures[0]} {direction}, {head.group}")
        return [*lines, f"LIMIT {head.limit}"] if head.limit else lines

    def _group(self) -> Dimension | None:
        name = self._head.group
        if not name:
            return None
        if name in shop().times:
            has_day = self._fact.day and (self._fact.is_day_plain or self._head.has_day)
            if not has_day or (name == "hour" and not self._fact.has_hours):
                raise NotQueryable(f'group {self._name} by "{name}"')
            return Dimension(shop().times[name].format(day=self._fact.day))
        return self._dimension(name, f'group {self._name} by "{name}"')

    def _dimension(self, name: str, what: str) -> Dimension:
        dimension = self._fact.dimensions.get(name)
        is_of_lines = dimension is not None and dimension.needs in (*PER_LINE, "y")
        if dimension is None or (is_of_lines and set(self._fact.whole_orders) & set(self._head.measures)):
            raise NotQueryable(what)
        if dimension.needs:
            self._needs[dimension.needs] = None
        return dimension

    def _conditions(self) -> list[str]:
        fact, made = self._fact, [self._fact.base] if self._fact.base else []
        is_period_taken = False
        for where in self._plan.wheres:
            if where.rule:
                sql, took = self._ruled(where)
                made.append(sql)
                is_period_taken = is_period_taken or took
            else:
                dimension = self._dimension(where.dimension, f'restrict {self._name} to "{where.wording}"')
                quoted = ", ".join("'" + value.replace("'", "''") + "'" for value in where.values)
                made.append(f"{dimension.column}{' NOT' if where.is_negated else ''} IN ({quoted})")
        if self._period is not None and not is_period_taken:
            if not fact.day or not (fact.is_day_plain or self._head.has_day):
                raise NotQueryable(f'restrict {self._name} to the period "{self._period.wording}"')
            made += _days(fact.day, self._period)
        return made

    def _ruled(self, where: Where) -> tuple[str, bool]:
        """A rule's SQL, and whether it took the period."""
        rule = shop().rules[where.rule]
        if self._head.fact not in rule.facts or (self._head.has_day and rule.day and self._period):
            raise NotQueryable(f'restrict {self._name} to "{where.wording}"')
        takes = bool(rule.day) and self._period is not None
        days = "".join(f" AND {each}" for each in _days(rule.day, self._period)) if takes and self._period else ""
        filled = rule.sql.format(period=days, sign=where.sign, number=where.amount, own_day=self._fact.day)
        return filled, takes

    def _joins(self) -> list[str]:
        """Each table once, in an order in which each finds what it needs."""
        wanted = [join for alias, join in self._fact.joins.items() if alias in self._needs]
        return list(dict.fromkeys(each.strip() for join in wanted for each in _JOIN.findall(join)))


def _days(column: str, period: Period) -> list[str]:
    made = [f"{column} >= '{period.start}'"] if period.start != FOREVER[0] else []
    return [*made, f"{column} < '{period.end}'"] if period.end != FOREVER[1] else made
