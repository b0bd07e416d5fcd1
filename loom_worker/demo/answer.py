"""The answer to a plan, in the form that its prompt asks for: a text, yes or no, one of several choices, or a vote.

The text says what was asked of the database, its rows, and what they do not include. Only two things are decided:
whether a measure rose or dropped, and which group ranks first. All else is refused.
"""

import re
from typing import Any

from loom_worker.core.values.json import Json
from loom_worker.demo.compose import span
from loom_worker.demo.prompts import Prompt
from loom_worker.demo.questions.plan import Plan, Where
from loom_worker.demo.questions.vocabulary import shop
from loom_worker.demo.rows import NO_LLM, figure, listed

_NOTHING = "The query ran and gave no rows: the data holds nothing for this."
_WENT = {"down": "dropped", "up": "rose", "same": "did not change"}
_HIGHER = {"up": "higher than", "down": "lower than", "same": "the same as"}
_CHANGES = {"down": "drop", "up": "rise", "": "change"}
_CHOICES = {
    "up": "up rise rose risen grow grew grown increase increased higher".split(),
    "down": "down drop dropped fall fell fallen decline declined decrease decreased lower".split(),
    "same": "same unchanged flat stable".split(),
}
"""Choices that stand for a direction."""
_MOST_GROUPS = 40
"""Groups that a comparison lists."""
NO_ANSWER = "I have no answer, as I do not guess: "
"""How each refusal begins."""


def worded(prompt: Prompt, plan: Plan, result: Json, *, asks_several: bool) -> str | None:
    """The answer to a plan in the form of its prompt; None if the rows do not decide it.

    Args:
        asks_several: the question names a number, so that a first place alone is no answer to it.
    """
    text = answer_text(plan, result)
    direction = _went(plan, result)[0] if plan.is_change and not plan.group and not plan.asks_why else ""
    verdict = ("yes" if plan.asked == direction else "no") if plan.asked and direction else None
    first = None if asks_several else _first(plan, result)
    match prompt.form:
        case "text":
            return text
        case "yes-no":
            return f"{verdict.capitalize()}. {text.splitlines()[0]}" if verdict else None
        case "choice":
            wanted = [(verdict or first or "").casefold()]
            found = [each for each in prompt.choices if each.casefold() in wanted]
            found = found or [each for each in prompt.choices if each.casefold() in _CHOICES.get(direction, ())]
            return found[0] if len(found) == 1 else None
    voted = verdict or first or (_WENT[direction].replace("did not change", "unchanged") if direction else None)
    return f"{text}\n\nVOTE: {voted}\nCONFIDENCE: 1" if voted else None  # the database decides it, so it is sure


def undecided(choices: tuple[str, ...], why: str) -> str:
    """What is said instead of a choice; it holds none of the choices, so that no reader takes it for one."""
    names_one = any(re.search(rf"\b{re.escape(choice)}\b", why, re.IGNORECASE) for choice in choices)
    return "Undecided." if names_one else f"Undecided. {why}"


def answer_text(plan: Plan, result: Json) -> str:
    """Word an answer from the rows that came back."""
    columns, rows, heading = list(result["columns"]), [list(row) for row in result["rows"]], _heading(plan)
    if rows and columns[-1] == "rows_in_all":
        in_all = rows[0][-1]
        columns, rows = columns[:-1], [row[:-1] for row in rows]
        is_cut = in_all > len(rows) and plan.limit is None
        heading += f"; {in_all:,} in all, the first {len(rows)} are listed" if is_cut else ""
    figures = [value for row in rows for value in row[1 if plan.is_compared else 0 :]]
    if not rows or (plan.measures and all(value is None for value in figures)):  # sums over nothing
        return "\n".join([f"{heading}:", _NOTHING, "", _remarks(plan)])
    lines = listed(columns, rows, result)
    if plan.is_compared and plan.group:
        pairs = _side_by_side(plan, columns, rows, result)
        heading += f"; the largest {_CHANGES[plan.asked]} first" if pairs else "; in no order of their changes"
        lines = pairs or lines
    verdict = [_verdict(plan, columns[1], result)] if plan.is_compared and not plan.group else []
    return "\n".join([*verdict, f"{heading}:", *lines, "", _remarks(plan)])


def _first(plan: Plan, result: Json) -> str | None:
    """The name of the group that ranks first, if it alone does."""
    rows = result["rows"]
    if plan.is_compared or not (plan.group and plan.measures and plan.limit) or plan.is_ascending or not rows:
        return None
    is_shared = len(rows) > 1 and rows[0][1] == rows[1][1]
    return None if is_shared or rows[0][1] is None else str(rows[0][0])


def _heading(plan: Plan) -> str:
    names = [each.replace("_", " ") for each in plan.measures or (plan.fact,)]
    what = ", ".join([names[0].capitalize(), *names[1:]])
    if plan.group:
        is_ranked = not plan.is_compared and (plan.group not in shop().words["times"] or plan.limit is not None)
        what += f" by {plan.group.replace('_', ' ')}{f', ranked by {names[0]}' if is_ranked else ''}"
    if plan.limit:
        what += f", at most {plan.limit}"
    when = ", over all dates on record" if shop().facts[plan.fact].day and plan.measures else ""
    if plan.periods:
        when = ", " + " against ".join(f"{span(period)} ({period.wording})" for period in plan.periods)
    return f"{what}{when}{''.join(f'; {_condition(where, plan.fact)}' for where in plan.wheres)}"


def _condition(where: Where, fact: str) -> str:
    if where.rule:
        return f"only: {where.wording}"
    ((name, values),) = where.kinds.items()
    owner, _, place = name.partition("_")
    if not place and name in ("city", "country") and fact in ("sales", "orders", "returns", "payments"):
        owner, place = "customer", name
    said = f"{place} of the {owner}" if place else name
    return f"{'without' if where.is_negated else 'only'} {said} {' or '.join(values)}"


def _went(plan: Plan, result: Json) -> tuple[str, str]:
    """Is the first period's figure higher (``up``), lower (``down``) or the ``same``? Empty if unclear, and why."""
    by_period = {row[0]: row[1] for row in result["rows"]}
    now, before = ((period.end - period.start).days for period in plan.periods)
    # Months, quarters and years differ in length by themselves, but by no more than this.
    if abs(now - before) > max(3, now // 60):
        return "", f"The periods have {now} and {before} days"
    if empty := [span(period) for period in plan.periods if not by_period.get(span(period))]:
        return "", f"The data holds nothing for {' and '.join(empty)}"
    now, before = (by_period[span(period)] for period in plan.periods)
    return "up" if now > before else "down" if now < before else "same", ""


def _verdict(plan: Plan, column: str, result: Json) -> str:
    """Whether it rose or fell, in the words of the question if it presupposes one."""
    by_period = {row[0]: row[1] for row in result["rows"]}
    amounts = _against(column, *(by_period.get(span(period)) or 0 for period in plan.periods))
    direction, unclear = _went(plan, result)
    if unclear:
        return f"{amounts}. {unclear}, so I call it neither a rise nor a drop."
    name = "Sales" if column == "revenue" else column.replace("_", " ").capitalize()
    if not plan.is_change:
        now, before = (period.wording for period in plan.periods)
        return f"{name}: {now} is {_HIGHER[direction]} {before}: {amounts}."
    went = _WENT[direction]
    if plan.asked not in ("", direction):
        went = f"did not {_CHANGES[plan.asked]}{f' but {went}' if direction != 'same' else ''}"
    return f"{name} {went}: {amounts}.{' Why, these figures do not say.' if plan.asks_why else ''}"


def _side_by_side(plan: Plan, columns: list[str], rows: list[list[Any]], result: Json) -> list[str]:
    """A line for each group of a comparison, the largest change first, or the largest drop or rise if that is asked.

    Empty if the rows do not show it: a cut result may lack groups, and two groups may have the same name.
    """
    by_period = [{row[1]: row[2:] for row in rows if row[0] == span(period)} for period in plan.periods]
    if sum(map(len, by_period)) != len(rows) or result.get("truncated"):
        return []
    nothing = [None] * len(columns[2:])
    pairs = {name: [part.get(name, nothing) for part in by_period] for part in by_period for name in part}

    def rank(name: Any) -> tuple[float, str]:
        change = (pairs[name][0][0] or 0) - (pairs[name][1][0] or 0)
        return {"down": change, "up": -change}.get(plan.asked, -abs(change)), str(name)

    names = sorted(pairs, key=rank)
    lines = [f"{n}. {name}: {', '.join(map(_against, columns[2:], *pairs[name]))}" for n, name in enumerate(names, 1)]
    more = len(lines) - _MOST_GROUPS
    return [*lines[:_MOST_GROUPS], *([f"… and {more} more."] if more > 0 else [])]


def _against(column: str, now: Any, before: Any) -> str:
    """Two figures of one kind, and by how much the first one is higher or lower."""
    change = f" ({100 * (now - before) / before:+,.1f} %)" if now is not None and before else ""
    return f"{figure(column, now)} against {figure(column, before)}{change}"


def _remarks(plan: Plan) -> str:
    fact, rules = shop().facts[plan.fact], [where.rule for where in plan.wheres if where.rule]
    is_status_asked = any("status" in where.kinds for where in plan.wheres) or plan.group == "status"
    is_status_known = is_status_asked or not {"kept", "total", "cancelled"}.isdisjoint(rules)
    own = "" if plan.fact == "orders" and is_status_known else fact.note
    groups = "Groups without any rows are not listed." if plan.group and not plan.limit else ""
    notes = dict.fromkeys(filter(None, [*plan.notes, own, *(shop().rules[each].note for each in rules), groups]))
    return " ".join([*notes, NO_LLM])
