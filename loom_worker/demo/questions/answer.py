"""The answer to a plan in words: what was asked of the database, its rows, and what they do not include."""

from typing import Any

from loom_worker.core.values.json import Json
from loom_worker.demo.pattern_queries import NO_LLM, figure, listed
from loom_worker.demo.questions.compose import span
from loom_worker.demo.questions.plan import Plan, Where
from loom_worker.demo.questions.shop import shop

_NOTHING = "The query ran and gave no rows: the data holds nothing for this."
_NOUNS = {"revenue": "Sales"}
_FELL = {"down": "did not drop", "up": "did not rise"}
_WENT = {"down": "dropped", "up": "rose", "same": "did not change"}
_CHANGES = {"down": "drop", "up": "rise", "": "change"}
_MOST_GROUPS = 40
"""Groups that a comparison lists."""
NO_ANSWER = "I have no answer, as I do not guess: "
"""How each refusal begins."""


def answer_text(plan: Plan, result: Json) -> str:
    """Word an answer from the rows that came back."""
    columns, rows = list(result["columns"]), [list(row) for row in result["rows"]]
    in_all = rows[0][-1] if rows and columns[-1] == "rows_in_all" else None
    if in_all is not None:
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    heading = _heading(plan)
    figures = [value for row in rows for value in row[1 if plan.is_compared else 0 :]]
    if not rows or (plan.head.measures and all(value is None for value in figures)):  # sums over nothing
        return "\n".join([f"{heading}:", _NOTHING, "", _remarks(plan)])
    if in_all is not None and in_all > len(rows) and plan.head.limit is None:
        heading += f"; {in_all:,} in all, the first {len(rows)} are listed"
    lines = [_verdict(plan, columns, rows)] if plan.is_compared and not plan.head.group else []
    pairs = _side_by_side(plan, columns, rows, result)
    if plan.is_compared and plan.head.group:
        heading += f"; the largest {_CHANGES[plan.asked]} first" if pairs else "; in no order of their changes"
    return "\n".join([*lines, f"{heading}:", *(pairs or listed(columns, rows, result)), "", _remarks(plan)])


def refusal(reason: str, offered: str | None = None) -> str:
    """Why there is no answer, and what can be asked instead: ``offered``, or what the sample shop can be asked."""
    return (
        f"{NO_ANSWER}{reason}. I am Loom's scripted demo model, not an LLM, and answer only "
        "what I can put into a query whole.\n"
        f"{CAN_BE_ASKED if offered is None else f'You can ask, for instance:{offered}'}"
    )


CAN_BE_ASKED = (
    "You can ask the sample shop for revenue, units, orders, profit, average order value, customers, returns, refunds "
    "and payments: by category, product, country, city, store, segment, day, month, quarter or year, for a period, and "
    "restricted to names that the database holds; and any database for its tables, their columns and how many rows "
    "they have."
)


def _heading(plan: Plan) -> str:
    head = plan.head
    names = [each.replace("_", " ") for each in head.measures] or [head.fact]
    what = f"{names[0].capitalize()}{''.join(f', {name}' for name in names[1:])}"
    if head.group:
        what += f" by {head.group.replace('_', ' ')}"
        is_ranked = not plan.is_compared and (head.group not in shop().times or head.limit is not None)
        what += f", ranked by {names[0]}" if is_ranked else ""
    if head.limit:
        what += f", at most {head.limit}"
    conditions = "".join(f"; {_condition(where, head.fact)}" for where in plan.wheres)
    when = ", over all dates on record" if shop().facts[head.fact].day and head.measures else ""
    if plan.periods:
        spans = [f"{span(period)} ({period.wording})" for period in plan.periods]
        when = ", " + (" against ".join(spans) if plan.is_compared else spans[0])
    return f"{what}{when}{conditions}"


def _condition(where: Where, fact: str) -> str:
    if where.rule:
        return f"only: {where.wording}"
    name = where.dimension.replace("_", " of the ")
    if where.dimension.startswith(("store_", "supplier_")):
        owner, _, place = where.dimension.partition("_")
        name = f"{place} of the {owner}"
    elif where.dimension in ("city", "country") and fact in ("sales", "orders", "returns", "payments"):
        name = f"{where.dimension} of the customer"
    return f"{'without' if where.is_negated else 'only'} {name} {' or '.join(where.values)}"


def went(plan: Plan, result: Json) -> str | None:
    """Whether the figure of the first period is higher (``up``), lower (``down``) or the ``same``; None: neither.

    Only if both periods have a figure, and are about as long as each other.
    """
    by_period = {row[0]: row[1] for row in result["rows"]}
    if not _are_as_long(plan) or not all(by_period.get(span(period)) for period in plan.periods):
        return None
    now, before = (by_period[span(period)] for period in plan.periods)
    return "up" if now > before else "down" if now < before else "same"


def _are_as_long(plan: Plan) -> bool:
    lengths = [(period.end - period.start).days for period in plan.periods]
    # Months, quarters and years differ in length by themselves, but by no more than this.
    return abs(lengths[0] - lengths[1]) <= max(3, lengths[0] // 60)


def _side_by_side(plan: Plan, columns: list[str], rows: list[list[Any]], result: Json) -> list[str]:
    """A line for each group of a comparison, the largest change first, or the largest drop or rise if that is asked.

    Empty if the rows do not show it: a cut result may lack groups, and two groups may have the same name.
    """
    by_period = [{row[1]: row[2:] for row in rows if row[0] == span(period)} for period in plan.periods]
    if not plan.is_compared or not plan.head.group or sum(map(len, by_period)) != len(rows) or result.get("truncated"):
        return []
    nothing = [None] * len(columns[2:])
    pairs = {name: [part.get(name, nothing) for part in by_period] for part in by_period for name in part}
    changes = {name: (now[0] or 0) - (before[0] or 0) for name, (now, before) in pairs.items()}
    ranks = {name: {"down": change, "up": -change}.get(plan.asked, -abs(change)) for name, change in changes.items()}
    names = sorted(pairs, key=lambda name: (ranks[name], str(name)))
    lines = [
        f"{n}. {name}: {', '.join(map(_against, columns[2:], *pairs[name]))}"
        for n, name in enumerate(names[:_MOST_GROUPS], start=1)
    ]
    more = len(names) - _MOST_GROUPS
    return [*lines, *([f"… and {more} more."] if more > 0 else [])]


def _against(column: str, now: Any, before: Any) -> str:
    """Two figures of one kind, and by how much the first one is higher or lower."""
    change = f" ({100 * (now - before) / before:+,.1f} %)" if now is not None and before else ""
    return f"{figure(column, now)} against {figure(column, before)}{change}"


def _verdict(plan: Plan, columns: list[str], rows: list[list[Any]]) -> str:
    """Whether it rose or fell, in the words of the question if it presupposes one."""
    by_period = {row[0]: row[1] for row in rows}
    now, before = (by_period.get(span(period)) or 0 for period in plan.periods)
    name = _NOUNS.get(columns[1], columns[1].replace("_", " ").capitalize())
    amounts = _against(columns[1], now, before)
    if not _are_as_long(plan):
        lengths = " and ".join(str((period.end - period.start).days) for period in plan.periods)
        return f"{amounts}. The periods have {lengths} days, so I call it neither a rise nor a drop."
    direction = went(plan, {"rows": rows})
    if direction is None:
        empty = " and ".join(span(period) for period in plan.periods if not by_period.get(span(period)))
        return f"{amounts}. The data holds nothing for {empty}, so I call it neither a rise nor a drop."
    if not plan.is_change:
        how = {"up": "higher than", "down": "lower than", "same": "the same as"}[direction]
        return f"{name}: {plan.periods[0].wording} is {how} {plan.periods[1].wording}: {amounts}."
    first = f"{name} {_WENT[direction]}"
    if plan.asked and plan.asked != direction:
        first = f"{name} {_FELL[plan.asked]}{f' but {_WENT[direction]}' if direction != 'same' else ''}"
    why = " Why, these figures do not say." if plan.asks_why else ""
    return f"{first}: {amounts}.{why}"


def _remarks(plan: Plan) -> str:
    fact = shop().facts[plan.head.fact]
    rules = [shop().rules[where.rule].note for where in plan.wheres if where.rule]
    is_status_asked = any(where.dimension == "status" for where in plan.wheres) or plan.head.group == "status"
    is_kept = any(where.rule in ("kept", "total") for where in plan.wheres)
    own = "" if fact.note and plan.head.fact == "orders" and (is_status_asked or is_kept) else fact.note
    groups = "Groups without any rows are not listed." if plan.head.group and not plan.head.limit else ""
    notes = dict.fromkeys(filter(None, [*plan.notes, own, *rules, groups]))
    return " ".join([*notes, NO_LLM])
