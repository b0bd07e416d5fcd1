"""What a question asks for once its conditions are read: the whole rest must match one of these forms."""

import re
from collections.abc import Callable, Mapping
from functools import cache

from loom_worker.demo.questions.plan import Head
from loom_worker.demo.questions.shop import shop

_WITH_DAY = ("customers", "employees")
"""Facts whose rows have a day of their own: of signing up, of being hired."""
_FEW = 10
"""Groups that a ranking shows where the question does not say how many."""
_Form = Callable[[re.Match[str], str], Head | None]
"""Makes a Head of a match and the dimension that the question groups by; None if the two do not go together."""


def read_head(rest: str, group: str) -> Head | None:
    """The form that a rest has as a whole; None if it has none.

    Args:
        group: the dimension that the question groups by, already read; empty for none.
    """
    for pattern, form in _forms():
        found = pattern.fullmatch(rest)
        if found is not None and (head := form(found, group)) is not None:
            return head
    return None


def measured(noun: str) -> tuple[str, str]:
    """The fact and the measure that a term stands for: REVENUE, or ORDER for their number."""
    words = shop().words
    fact, measure = words["measures"].get(noun) or (words["nouns"][noun],) * 2
    return fact, measure


def known_words() -> frozenset[str]:
    """The plain words that these forms read."""
    sources = " ".join(pattern.pattern for pattern, _ in _forms())
    return frozenset(re.findall(r"[a-z]{2,}", re.sub(r"\?P<\w+>", "", sources)))


def _always(fact: str, *measures: str, needs: str = "") -> _Form:
    """The same measures, grouped as the question says."""
    return lambda _, group: Head(fact, measures, group, needs=needs)


def _grouped(dimension: str, fact: str, *measures: str) -> _Form:
    """The same measures, grouped by a dimension that the question need not name."""

    def form(found: re.Match[str], group: str) -> Head | None:
        is_low = bool(found.groupdict().get("low"))
        return Head(fact, measures, dimension, is_ascending=is_low) if group in ("", dimension) else None

    return form


def _shown_with(measure: str, dimension: str) -> tuple[str, ...]:
    is_of_products = dimension in ("product", "category", "supplier")
    return (
        ("orders",)
        if measure == "revenue" and not is_of_products
        else tuple(shop().words["shown_with"].get(measure, ()))
    )


def _count(found: re.Match[str], group: str) -> Head | None:
    parts = found.groupdict()
    fact, measure = measured(found["e"])
    has_day = bool(parts.get("new") or parts.get("day"))
    return None if has_day and fact not in _WITH_DAY else Head(fact, (measure,), group, has_day=has_day)


def _measure(found: re.Match[str], group: str) -> Head | None:
    fact, measure = measured(found["m"])
    parts = found.groupdict()
    if parts.get("trend"):
        group = group or "month"
        if group not in shop().times:
            return None
    if fact == "products" and group not in ("", "category", "supplier"):
        return None
    measures = (measure, *(_shown_with(measure, group) if group or measure == "average_order_value" else ()))
    if parts.get("also"):
        other_fact, other = measured(parts["also"])
        if other_fact != fact and not (fact == "sales" and other == "orders"):
            return None
        measures = tuple(dict.fromkeys((measure, other)))
    return Head(fact, measures, group)


def _rank(found: re.Match[str], group: str) -> Head | None:
    """Groups by a measure, the largest first, or the smallest."""
    parts = found.groupdict()
    dimension = found["d"].lower()
    if group and group != dimension:
        return None
    default = "PROFIT" if parts.get("profit") else "ORDER" if parts.get("busy") else "REVENUE"
    fact, measure = measured(parts.get("m") or parts.get("e") or default)
    if parts.get("best") and dimension == "product" and not parts.get("each"):
        measure = "units"
    if fact == dimension + "s" or (fact == "products" and dimension not in ("category", "supplier")):
        return None
    limit = int(parts.get("n") or parts.get("k") or _FEW)
    if not limit:
        return None
    measures = (measure, *_shown_with(measure, dimension))
    return Head(fact, measures, dimension, limit=limit, is_ascending=bool(parts.get("low")))


def _best_selling(found: re.Match[str], group: str) -> Head | None:
    low = bool(found["low"])
    return None if group else Head("sales", ("units", "revenue"), "product", limit=_FEW, is_ascending=low)


def _returned(found: re.Match[str], group: str) -> Head | None:
    dimension = found["d"].lower()
    limit = int(found["n"]) if found["n"] else _FEW
    if group not in ("", dimension) or not limit:
        return None
    return Head("returns", ("returns", "units_returned", "refunds"), dimension, limit=limit)


def _share(found: re.Match[str], group: str) -> Head | None:
    """Each group's part of the whole."""
    group = found["d"].lower() if found["d"] and not group else group
    if found["m"] == "PAYMENT" or group == "method":
        return Head("payments", ("payments", "amount", "share_percent", "amount_share_percent"), "method")
    return (
        Head("sales", ("revenue", "share_percent"), group)
        if group and not (found["d"] and group in shop().times)
        else None
    )


def _first_of(noun: str = "") -> _Form:
    """Rows by the day of their own or by another column, from one end."""

    def form(found: re.Match[str], group: str) -> Head | None:
        parts = found.groupdict()
        limit = int(parts.get("n") or parts.get("k") or (_FEW if parts.get("cheap") else 1))
        is_low = bool(parts.get("low") or parts.get("old"))
        named = parts.get("e") or ("CUSTOMER" if noun == "CUSTOMER" else "PRODUCT")
        rank_by = shop().words["own_days"].get(noun or named, noun)
        if group or not limit:
            return None
        return Head(measured(named)[0], limit=limit, is_ascending=is_low, rank_by=rank_by)

    return form


def _rows(found: re.Match[str], group: str) -> Head | None:
    parts = found.groupdict()
    fact, count = measured(found["e"])
    has_day = bool(parts.get("new") or parts.get("day"))
    if (has_day and fact not in _WITH_DAY) or (parts.get("new") and fact != "customers"):
        return None
    if group:
        is_counted = fact in ("orders", "customers", "returns", "payments")
        return Head(fact, (count,), group, has_day=has_day) if is_counted else None
    if fact == "payments":
        return Head(fact, ("payments", "amount"))
    if fact == "returns":
        return Head(fact, ("returns", "units_returned", "refunds"))
    return Head(fact, has_day=has_day)


def _prices(found: re.Match[str], group: str) -> Head | None:
    """The prices of products that the question names."""
    head = Head("products", needs="" if found["all"] else "product")
    return None if group else head


def _of_customers(found: re.Match[str], group: str) -> Head | None:
    """The places or segments of customers, or how many of them there are."""
    dimension = found["d"].lower()
    if group:
        return None
    if found.groupdict().get("count"):
        return Head("customers", ({"city": "cities", "country": "countries"}.get(dimension, "segments"),))
    return Head("customers", ("customers",), dimension)


def _sold_to(found: re.Match[str], group: str) -> Head | None:
    return None if group else Head("sales", ("revenue", "orders"), found["d"].lower())


_MADE: Mapping[str, Callable[..., _Form]] = {"always": _always, "grouped": _grouped, "first_of": _first_of}
_TAKEN: Mapping[str, _Form] = {
    form.__name__.lstrip("_"): form
    for form in (_count, _measure, _rank, _best_selling, _returned, _share, _rows, _prices, _of_customers, _sold_to)
}


@cache
def _forms() -> tuple[tuple[re.Pattern[str], _Form], ...]:
    words = shop().words
    parts = {**words["parts"], "E": "|".join(words["nouns"]), "M": "|".join(words["measures"])}
    made = []
    for named, pattern in words["forms"]:
        while (filled := re.sub(r"\{([A-Z_]+)\}", lambda found: parts[found[1]], pattern)) != pattern:
            pattern = filled
        name, *arguments = named.split()
        plain = [each for each in arguments if "=" not in each]
        needs = dict(each.split("=") for each in arguments if "=" in each)
        made.append((re.compile(pattern), _TAKEN.get(name) or _MADE[name](*plain, **needs)))
    return tuple(made)
