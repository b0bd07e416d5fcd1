"""What a question asks for once its conditions are read: the whole rest must match one of these forms."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from loom_worker.demo.questions.plan import Head
from loom_worker.demo.questions.shop import shop

_WITH_DAY = ("customers", "employees")
"""Facts whose rows have a day of their own: of signing up, of being hired."""
_FEW = 10
"""Groups that a ranking shows where the question does not say how many."""
_Parts = Mapping[str, str]
"""Named parts of a match."""
_Form = Callable[..., Head | None]
"""Makes a Head of a match, the dimension that the question groups by, and what the file says behind the form's name;
None if they do not go together."""


def read_head(rest: str, group: str) -> Head | None:
    """The form that a rest has as a whole; None if it has none.

    Args:
        group: the dimension that the question groups by, already read; empty for none.
    """
    for pattern, form, arguments, needs in _forms():
        found = pattern.fullmatch(rest)
        head = form(found.groupdict(), group, *arguments) if found else None
        if head is not None and head.limit != 0:
            return replace(head, needs=needs)
    return None


def measured(noun: str) -> tuple[str, str]:
    """The fact and the measure that a term stands for: REVENUE, or ORDER for their number."""
    words = shop().words
    fact, measure = words["measures"].get(noun) or (words["nouns"][noun],) * 2
    return fact, measure


def known_words() -> frozenset[str]:
    """The plain words that these forms read."""
    sources = " ".join(pattern.pattern for pattern, *_ in _forms())
    return frozenset(re.findall(r"[a-z]{2,}", re.sub(r"\?P<\w+>", "", sources)))


def _always(_: _Parts, group: str, fact: str, *measures: str) -> Head | None:
    """The same measures, grouped as the question says."""
    return Head(fact, measures, group) if measures or not group else None


def _grouped(parts: _Parts, group: str, dimension: str, fact: str, *measures: str) -> Head | None:
    """The same measures, grouped by the dimension ``d`` of the match, or by one that the question need not name."""
    dimension = parts.get("d", dimension).lower()
    is_low = bool(parts.get("low"))
    return Head(fact, measures, dimension, is_ascending=is_low) if group in ("", dimension) else None


def _shown_with(measure: str, dimension: str) -> Sequence[str]:
    if measure == "revenue" and dimension not in ("product", "category", "supplier"):
        return ("orders",)
    return list(shop().words["shown_with"].get(measure, ()))


def _count(parts: _Parts, group: str) -> Head | None:
    fact, measure = measured(parts["e"])
    has_day = bool(parts.get("new") or parts.get("day"))
    return None if has_day and fact not in _WITH_DAY else Head(fact, (measure,), group, has_day=has_day)


def _measure(parts: _Parts, group: str) -> Head | None:
    fact, measure = measured(parts["m"])
    if parts.get("trend") and (group := group or "month") not in shop().times:
        return None
    measures = [measure, *(_shown_with(measure, group) if group or measure == "average_order_value" else ())]
    if parts.get("also"):
        other_fact, other = measured(parts["also"])
        if other_fact != fact and not (fact == "sales" and other == "orders"):
            return None
        measures = [measure, other]
    return Head(fact, tuple(dict.fromkeys(measures)), group)


def _rank(parts: _Parts, group: str, default: str = "REVENUE") -> Head | None:
    """Groups by a measure, the largest first, or the smallest."""
    dimension = parts.get("d", "PRODUCT").lower()
    fact, measure = measured(parts.get("m") or parts.get("e") or default)
    if parts.get("best") and dimension == "product" and not parts.get("each"):
        measure = "units"
    is_of_others = fact != dimension + "s" and (fact != "products" or dimension in ("category", "supplier"))
    if group not in ("", dimension) or not is_of_others:
        return None
    limit = int(parts.get("n") or parts.get("k") or _FEW)
    measures = (measure, *_shown_with(measure, dimension))
    return Head(fact, measures, dimension, limit=limit, is_ascending=bool(parts.get("low")))


def _share(parts: _Parts, group: str) -> Head | None:
    """Each group's part of the whole."""
    named = (parts["d"] or "").lower()
    if named and (group not in ("", named) or named in shop().times):
        return None
    if parts["m"] == "PAYMENT" or "method" in (named, group):
        return Head("payments", ("payments", "amount", "share_percent", "amount_share_percent"), "method")
    return Head("sales", ("revenue", "share_percent"), group or named) if group or named else None


def _first_of(parts: _Parts, group: str, rank_by: str = "") -> Head | None:
    """Rows by the day of their own or by another column, from one end."""
    noun = parts.get("e", "CUSTOMER")
    limit = int(parts.get("n") or parts.get("k") or (_FEW if parts.get("cheap") else 1))
    by = rank_by or shop().words["own_days"][noun]
    is_low = bool(parts.get("low"))
    return None if group else Head(measured(noun)[0], limit=limit, is_ascending=is_low, rank_by=by)


def _rows(parts: _Parts, group: str) -> Head | None:
    fact, count = measured(parts["e"])
    has_day = bool(parts.get("new") or parts.get("day"))
    if (has_day and fact not in _WITH_DAY) or (parts.get("new") and fact != "customers"):
        return None
    if group:
        is_counted = fact in ("orders", "customers", "returns", "payments")
        return Head(fact, (count,), group, has_day=has_day) if is_counted else None
    # Rows of payments and returns say little by themselves.
    return Head(fact, tuple(shop().words["summed"].get(fact, ())), has_day=has_day)


_FORMS: Mapping[str, _Form] = {
    form.__name__.lstrip("_"): form for form in (_always, _grouped, _count, _measure, _rank, _share, _first_of, _rows)
}


@cache
def _forms() -> tuple[tuple[re.Pattern[str], _Form, list[str], str], ...]:
    words = shop().words
    parts = {**words["parts"], "E": "|".join(words["nouns"]), "M": "|".join(words["measures"])}
    made = []
    for named, pattern, *needs in words["forms"]:
        while (filled := re.sub(r"\{([A-Z_]+)\}", lambda found: parts[found[1]], pattern)) != pattern:
            pattern = filled
        name, *arguments = named.split()
        made.append((re.compile(pattern), _FORMS[name], arguments, "".join(needs)))
    return tuple(made)
