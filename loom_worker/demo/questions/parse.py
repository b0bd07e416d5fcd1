"""Makes a plan of a question: every word is accounted for, or what no form reads is named.

Conditions are taken out of the text one by one, each whole or not at all; the whole rest must be one of the forms of
``shop_figures.yaml``, each of which names one of the functions below.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from loom_worker.demo.questions.plan import Plan, Where
from loom_worker.demo.questions.vocabulary import WITH_DAY, shop, terms
from loom_worker.demo.slots import Period, Slots

_FEW = 10
"""Groups that a ranking shows where the question does not say how many."""
_OF_NOUN = {
    "customer": {"city", "country", "segment"},
    "supplier": {"country", "supplier"},
    "store": {"city", "country", "store"},
}
"""What a name before such a noun can be; before others it is what the noun says."""
_Parts = Mapping[str, str]
"""Named parts of a form's match."""


def read_plan(text: str, slots: Slots, names: Sequence[Where], notes: tuple[str, ...]) -> Plan | str:
    """The plan of a plain text whose names are marked ``@v0``, ``@v1`` and so on; else what no form reads."""
    rest, wheres = _conditions(terms(text), names)
    rest, group = _grouping(rest)
    form = _form(" ".join(re.sub(r"@p\d+", " ", rest).split()), group) if len(slots.periods) < 2 else None
    plan = _planned(form, wheres, slots.periods)
    plan = plan or _compared(rest, group, wheres, slots.periods)
    return replace(plan, notes=notes) if plan else _unread(rest, slots, names)


def _conditions(text: str, names: Sequence[Where]) -> tuple[str, list[Where]]:
    """What is left of a text of terms, and the conditions that were taken out of it."""
    wheres: list[Where] = []

    def ruled(found: re.Match[str]) -> str:
        wheres.append(_ruled(found, rule))
        return f" {found.groupdict().get('keep') or ''} "

    for rule, each in shop().rules.items():
        most = 1 if rule == "weekday" else 0  # no row is of two days, and a second one is left to be refused
        for words in each.words:
            text = re.sub(rf"(?<![\w@])(?:{words})(?![\w%])", ruled, text, count=most)
    while (found := re.search(shop().words["value"], text)) is not None:
        wheres.append(where := _valued(found, names))
        is_linked = found["link"] or found["whose"] or found["ahead"]
        kept = "" if is_linked or where.noun not in _OF_NOUN else where.noun.upper()
        text = f"{text[: found.start()]} {kept} {text[found.end() :]}"
    return text, wheres


def _ruled(found: re.Match[str], rule: str) -> Where:
    parts, words = found.groupdict(), shop().words
    sign, amount = words["signs"].get(parts.get("sign"), ""), parts.get("amount") or ""
    if parts.get("high"):
        sign, amount = "BETWEEN", f"{parts['low']} AND {parts['high']}"
    elif parts.get("none") or parts.get("once"):
        sign, amount = "=", "0" if parts.get("none") else "1"
    elif parts.get("day"):
        amount = words["weekdays"][parts["day"]]
    return Where(found[0].strip().lower(), rule=rule, sign=sign, amount=amount)


def _valued(found: re.Match[str], names: Sequence[Where]) -> Where:
    """The condition that values which stand together make."""
    listed = [names[int(each)] for each in re.findall(r"@v(\d+)", found["listed"])]
    shared = set.intersection(*(set(each.kinds) for each in listed))
    kinds = {kind: tuple(dict.fromkeys(name for each in listed for name in each.kinds[kind])) for kind in shared}
    noun = found["noun"] or found["ahead"] or ("CUSTOMER" if found["whose"] else "")
    said = f"{'not ' if found['none'] else ''}{' and '.join(each.wording for each in listed)}"
    return Where(said, kinds, noun.lower(), is_negated=bool(found["none"]), is_list=len(listed) > 1)


def _grouping(text: str) -> tuple[str, str]:
    """The text without what the question groups by, and that dimension."""
    found = re.search(shop().words["group"], text)
    group = next(filter(None, found.groups())).lower() if found else ""
    return " ".join((f"{text[: found.start()]} {text[found.end() :]}" if found else text).split()), group


def _compared(rest: str, group: str, wheres: Sequence[Where], periods: tuple[Period, ...]) -> Plan | None:
    """Two periods compared with each other; or one with the one before it: why did sales drop in March?"""
    matches = (re.fullmatch(pattern, rest) for pattern in shop().words["compared"])
    if (found := next(filter(None, matches), None)) is None:
        return None
    said = found.groupdict()
    is_change = len(periods) == 1
    if is_change and periods[0].before:
        periods = (periods[0], Period(*periods[0].before, "the one before"))
    is_unclear = (said.get("before") and periods[0].is_season) or (said.get("first") and not group)
    plan = None if is_unclear or len(periods) != 2 else _planned(_form(found["what"], group), wheres, periods)
    asked = "down" if said.get("down") else "up" if said.get("up") else ""
    return plan and replace(plan, is_change=is_change, asked=asked, asks_why=bool(said.get("why")))


def _planned(plan: Plan | None, wheres: Sequence[Where], periods: tuple[Period, ...]) -> Plan | None:
    """A form with conditions and periods; None if a name's kind is ambiguous, or something is missing."""
    is_compared = len(periods) > 1
    if plan is None or (is_compared and (plan.limit or not (plan.measures or plan.fact == "orders"))):
        return None
    given = {"", is_compared and "compared", plan.group and "group"}.union(*(where.kinds for where in wheres))
    if plan.needs not in given or (plan.has_day and not periods):
        return None
    if is_compared and not plan.measures:  # the number of orders is compared, not the orders
        plan = replace(plan, measures=(plan.fact,))
    found: list[Where] = []
    for where in wheres:
        kind = "" if where.rule else _kind(where, plan)
        if kind is None or (kind and any(kind in other.kinds for other in found)):
            return None
        found.append(replace(where, kinds={kind: where.kinds[kind.rpartition("_")[2]]}) if kind else where)
        if where.is_list and not where.is_negated and not plan.group and plan.measures:
            plan = replace(plan, group=kind)
    return replace(plan, wheres=tuple(found), periods=periods)


def _kind(where: Where, plan: Plan) -> str | None:
    """The one dimension that the values of a condition are of; None if it is not certain."""
    kinds, noun = set(where.kinds), where.noun
    if noun and not kinds & _OF_NOUN.get(noun, {noun}):
        return None
    places, owner = {"country", "city"} & kinds, noun or plan.group
    if places and owner in ("store", "supplier") and plan.fact not in ("stores", "employees", "suppliers"):
        return f"{owner}_{min(places)}"
    if noun in kinds:
        return noun
    if len(kinds) > 1:
        kinds &= set(shop().facts[plan.fact].dimensions)
    return kinds.pop() if len(kinds) == 1 else None


def _unread(rest: str, slots: Slots, names: Sequence[Where]) -> str:
    """What is left of a question once its conditions are read, in its own words."""
    text = re.sub(r"@p(\d+)", lambda mark: slots.periods[int(mark[1])].wording, rest.lower())
    text = re.sub(r"@v(\d+)", lambda mark: names[int(mark[1])].wording, text)
    return f'"{text}"' if text else "this"


def _form(rest: str, group: str) -> Plan | None:
    """The first form that a rest has as a whole, grouped by a dimension that was read already, if any."""
    for named, pattern, *needs in shop().words["forms"]:
        found = re.fullmatch(pattern, rest)
        name, *arguments = named.split()
        plan = _FORMS[name](found.groupdict(), group, *arguments) if found else None
        if plan is not None and plan.limit != 0:
            return replace(plan, needs="".join(needs))
    return None


def _measured(noun: str) -> tuple[str, str]:
    """The fact and the measure that a term stands for: REVENUE, or ORDER for their number."""
    words = shop().words
    fact, measure = words["measures"].get(noun) or (words["nouns"][noun],) * 2
    return fact, measure


def _shown_with(measure: str, dimension: str) -> Sequence[str]:
    if measure == "revenue" and dimension not in ("product", "category", "supplier"):
        return ("orders",)
    return list(shop().words["shown_with"].get(measure, ()))


def _figures(parts: _Parts, group: str, fact: str, *measures: str) -> Plan | None:
    """The same measures, grouped by the dimension ``d`` of the match or as the question says."""
    dimension = (parts.get("d") or "").lower()
    if (dimension and group not in ("", dimension)) or not (measures or not group):
        return None
    return Plan(fact, measures, dimension or group, is_ascending=bool(parts.get("low")))


def _grouped(parts: _Parts, group: str, dimension: str, fact: str, *measures: str) -> Plan | None:
    """The same measures, grouped by a dimension that the question need not name."""
    return _figures({**parts, "d": dimension}, group, fact, *measures)


def _count(parts: _Parts, group: str) -> Plan | None:
    fact, measure = _measured(parts["e"])
    has_day = bool(parts.get("new") or parts.get("day"))
    return None if has_day and fact not in WITH_DAY else Plan(fact, (measure,), group, has_day=has_day)


def _rows(parts: _Parts, group: str) -> Plan | None:
    plan = _count(parts, group)
    if plan is None or (parts.get("new") and plan.fact != "customers"):
        return None
    if group:
        return plan if plan.fact in ("orders", "customers", "returns", "payments") else None
    # Rows of payments and returns say little by themselves.
    return replace(plan, measures=tuple(shop().words["summed"].get(plan.fact, ())))


def _measure(parts: _Parts, group: str) -> Plan | None:
    fact, measure = _measured(parts["m"])
    if parts.get("trend") and (group := group or "month") not in shop().words["times"]:
        return None
    measures = [measure, *(_shown_with(measure, group) if group or measure == "average_order_value" else ())]
    if parts.get("also"):
        other_fact, other = _measured(parts["also"])
        if other_fact != fact and not (fact == "sales" and other == "orders"):
            return None
        measures = [measure, other]
    return Plan(fact, tuple(dict.fromkeys(measures)), group)


def _rank(parts: _Parts, group: str, default: str = "REVENUE") -> Plan | None:
    """Groups by a measure, the largest first, or the smallest."""
    dimension = parts.get("d", "PRODUCT").lower()
    fact, measure = _measured(parts.get("m") or parts.get("e") or default)
    if parts.get("best") and dimension == "product" and not parts.get("each"):
        measure = "units"
    is_of_others = fact != dimension + "s" and (fact != "products" or dimension in ("category", "supplier"))
    if group not in ("", dimension) or not is_of_others:
        return None
    measures = (measure, *_shown_with(measure, dimension))
    return Plan(fact, measures, dimension, _limit(parts, _FEW), is_ascending=bool(parts.get("low")))


def _first_of(parts: _Parts, group: str, rank_by: str = "") -> Plan | None:
    """Rows by the day of their own or by another column, from one end."""
    noun = parts.get("e", "CUSTOMER")
    limit, by = _limit(parts, _FEW if parts.get("cheap") else 1), rank_by or shop().words["own_days"][noun]
    return None if group else Plan(_measured(noun)[0], limit=limit, is_ascending=bool(parts.get("low")), rank_by=by)


def _limit(parts: _Parts, default: int) -> int:
    return int(parts.get("n") or parts.get("k") or default)


_FORMS: Mapping[str, Callable[..., Plan | None]] = {
    form.__name__.lstrip("_"): form for form in (_figures, _grouped, _count, _rows, _measure, _rank, _first_of)
}
"""Make a plan of a match, the dimension that the question groups by, and what the file says behind the form's name;
None if they do not go together."""
