"""What a question asks for once its conditions are read: the whole rest must match one of these forms."""

import re
from collections.abc import Callable, Mapping

from loom_worker.demo.questions.plan import Head

_FACTS: Mapping[str, tuple[str, str]] = {
    "CUSTOMER": ("customers", "customers"),
    "PRODUCT": ("products", "products"),
    "ORDER": ("orders", "orders"),
    "STORE": ("stores", "stores"),
    "SUPPLIER": ("suppliers", "suppliers"),
    "EMPLOYEE": ("employees", "employees"),
    "PROMOTION": ("promotions", "promotions"),
    "PAYMENT": ("payments", "payments"),
    "RETURN": ("returns", "returns"),
    "CATEGORY": ("categories", "categories"),
}
"""A noun to its fact and the measure that counts it."""
_MEASURES: Mapping[str, tuple[str, str]] = {
    "REVENUE": ("sales", "revenue"),
    "UNITS": ("sales", "units"),
    "AOV": ("sales", "average_order_value"),
    "PROFIT": ("sales", "profit"),
    "REFUND": ("returns", "refunds"),
    "AVGPRICE": ("products", "average_list_price"),
}
_SHOWN_WITH: Mapping[str, tuple[str, ...]] = {
    "revenue": ("units",),
    "units": ("revenue",),
    "profit": ("revenue",),
    "returns": ("units_returned", "refunds"),
    "average_order_value": ("orders",),
    "orders": (),
}
"""What is shown along with a measure that ranks."""
_E = "|".join(_FACTS)
_M = "|".join(_MEASURES)
_D = "PRODUCT|CATEGORY|SUPPLIER|CUSTOMER|COUNTRY|CITY|SEGMENT|STORE|DAY|MONTH|QUARTER|YEAR|WEEKDAY"
_WITH_DAY = ("customers", "employees")
"""Facts whose rows have a day of their own: of signing up, of being hired."""
_TIMES = ("day", "month", "quarter", "year")
_SHOW = r"(?:(?:show|list|give|display|what|which|who|name)(?: all| every)? |all )?"
_N = r"(?:(?P<n>\d{1,3}) )?"
_TOP = r"(?:top|best|biggest|largest|strongest|most important)"
_MOST = r"(?:the )?(?:most|highest|largest|biggest|greatest|best)"
_K = r"(?:(?P<k>\d{1,3}) )?"
_EACH = r"(?P<each> and how much each (?:bring|brought|brings)(?: in)?)?"
_FEW = 10
"""Groups that a ranking shows where the question does not say how many."""


def read_head(rest: str, group: str) -> Head | None:
    """The form that a rest has as a whole; None if it has none.

    Args:
        group: the dimension that the question groups by, already read; empty for none.
    """
    for pattern, form in _FORMS:
        found = pattern.fullmatch(rest)
        if found is not None:
            return form(found, group)
    return None


def measured(noun: str) -> tuple[str, str]:
    """The fact and the measure that a term stands for: REVENUE, or ORDER for their number."""
    return _MEASURES.get(noun) or _FACTS[noun]


def known_words() -> frozenset[str]:
    """The plain words that these forms read."""
    sources = " ".join(pattern.pattern for pattern, _ in _FORMS)
    return frozenset(re.findall(r"[a-z]{2,}", re.sub(r"\?P<\w+>", "", sources)))


_Form = Callable[[re.Match[str], str], Head | None]
"""Makes a Head of a match and the dimension that the question groups by; None if the two do not go together."""


def _always(fact: str, *measures: str) -> _Form:
    """The same measures, grouped as the question says."""
    return lambda _, group: Head(fact, measures, group)


def _grouped(dimension: str, fact: str, *measures: str) -> _Form:
    """The same measures, grouped by a dimension that the question need not name."""
    return lambda _, group: Head(fact, measures, dimension) if group in ("", dimension) else None


def _shown_with(measure: str, dimension: str) -> tuple[str, ...]:
    is_of_products = dimension in ("product", "category", "supplier")
    return ("orders",) if measure == "revenue" and not is_of_products else _SHOWN_WITH.get(measure, ())


def _count(found: re.Match[str], group: str) -> Head | None:
    parts = found.groupdict()
    fact, measure = _FACTS[found["e"]]
    has_day = bool(parts.get("new") or parts.get("day"))
    return None if has_day and fact not in _WITH_DAY else Head(fact, (measure,), group, has_day=has_day)


def _measure(found: re.Match[str], group: str) -> Head | None:
    fact, measure = measured(found["m"])
    if found["trend"] and group not in _TIMES:
        return None
    if fact == "products" and group not in ("", "category", "supplier"):
        return None
    measures = (measure, *(_shown_with(measure, group) if group or measure == "average_order_value" else ()))
    also = found.groupdict().get("also")
    if also:
        other_fact, other = measured(also)
        if other_fact != fact and not (fact == "sales" and other == "orders"):
            return None
        measures = tuple(dict.fromkeys((measure, other)))
    return Head(fact, measures, group)


def _rank(found: re.Match[str], group: str) -> Head | None:
    """Groups by a measure, the largest first."""
    parts = found.groupdict()
    dimension = found["d"].lower()
    if group and group != dimension:
        return None
    fact, measure = measured(parts.get("m") or parts.get("e") or ("PROFIT" if parts.get("profit") else "REVENUE"))
    if parts.get("best") and dimension == "product" and not parts.get("each"):
        measure = "units"
    if measure == "customers" and fact == "customers" and dimension not in ("country", "city", "segment"):
        return None
    limit = int(parts.get("n") or parts.get("k") or _FEW)
    return Head(fact, (measure, *_shown_with(measure, dimension)), dimension, limit=limit) if limit else None


def _best_selling(_: re.Match[str], group: str) -> Head | None:
    return None if group else Head("sales", ("units", "revenue"), "product", limit=_FEW)


def _returned(found: re.Match[str], group: str) -> Head | None:
    dimension = found["d"].lower()
    limit = int(found["n"]) if found["n"] else _FEW
    if group not in ("", dimension) or not limit:
        return None
    return Head("returns", ("returns", "units_returned", "refunds"), dimension, limit=limit)


def _priced(found: re.Match[str], group: str) -> Head | None:
    is_cheap = found["which"].startswith(("cheap", "least", "lowest"))
    limit = int(found["n"] or found["m"] or _FEW)
    if group or not limit:
        return None
    return Head("products", limit=limit, is_ascending=is_cheap, rank_by="p.list_price")


def _rows(found: re.Match[str], group: str) -> Head | None:
    parts = found.groupdict()
    fact, count = _FACTS[found["e"]]
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


def _where_from(found: re.Match[str], group: str) -> Head | None:
    return None if group else Head("customers", ("customers",), found["d"].lower())


def _first(found: re.Match[str], group: str) -> Head | None:
    days = {"ORDER": "o.ordered_at", "CUSTOMER": "c.signed_up_on", "EMPLOYEE": "e.hired_on"}
    if group:
        return None
    is_old = found["which"] in ("first", "earliest", "oldest")
    return Head(_FACTS[found["e"]][0], limit=1, is_ascending=is_old, rank_by=days[found["e"]])


_FORMS: tuple[tuple[re.Pattern[str], _Form], ...] = tuple(
    (re.compile(pattern), form)
    for pattern, form in (
        (r"how many CUSTOMER (?:bought|ordered|purchased)(?: something| anything)?", _always("sales", "customers")),
        (r"how many (?:different )?PRODUCT (?:sold|sell)", _always("sales", "units", "products")),
        (r"(?:how many|number of) UNITS(?: sold| sell)?", _always("sales", "units")),
        (
            rf"(?:how many|total number of|number of|count) (?P<new>new )?(?P<e>{_E})"
            r"(?: exist| in all| placed| place| made| come in| get| receive| work| live)?"
            r"(?P<day>(?: who)? (?:signed up|joined|registered|sign up|hired))?",
            _count,
        ),
        (rf"(?P<new>new )?(?P<e>{_E}) (?P<day>(?:signed up |joined |hired ))?(?:how many|count)", _count),
        (rf"(?:(?:bigger|larger|stronger) (?:for )?)?by number of (?P<e>{_E})", _count),
        (
            r"PAYMENT(?: total)? amount|total(?: amount of)? PAYMENT|amount of PAYMENT",
            _always("payments", "amount", "payments"),
        ),
        (r"how much (?:sell|sold|take in|took in)", _always("sales", "revenue", "units")),
        (
            rf"(?:(?:show|give|list|what|how much|calculate|how high|compare) )?(?:all )?(?:total )?(?P<m>{_M})"
            rf"(?: total| made| make| generated| to CUSTOMER)?(?P<trend> trend| development)?"
            rf"(?: and (?:number of )?(?P<also>{_M}|ORDER))?",
            _measure,
        ),
        (rf"{_SHOW}{_TOP} {_N}(?P<d>{_D}) by (?:total )?(?P<m>{_M})", _rank),
        (rf"{_SHOW}{_N}{_TOP} (?P<d>{_D}) by (?:total )?(?P<m>{_M})", _rank),
        (rf"{_SHOW}{_TOP} {_N}(?P<d>{_D}) by (?:number of )?(?P<e>ORDER)", _rank),
        (rf"{_SHOW}{_N}{_TOP} {_K}(?P<d>{_D})", _rank),
        (rf"{_SHOW}{_N}(?P<best>best selling|most sold|most popular) {_K}(?P<d>{_D}){_EACH}", _rank),
        (rf"{_SHOW}{_N}(?P<profit>most profitable) {_K}(?P<d>{_D})", _rank),
        (rf"(?:which|what) {_N}(?P<d>{_D}) (?P<best>sold|sell|sells) (?:best|most){_EACH}", _rank),
        (r"what (?:sells|sell|sold) (?:best|most)", _best_selling),
        (
            rf"(?:which|what) {_N}(?P<d>{_D}) (?:(?:brought in|brings? in|brought|generates?|generated|with|makes?"
            rf"|made|sold) )?{_MOST} (?P<m>REVENUE|PROFIT|UNITS|AOV)",
            _rank,
        ),
        (rf"(?:which|what) {_N}(?P<d>{_D}) (?:brought|brings?) in {_MOST}", _rank),
        (rf"(?:which|what) {_N}(?P<d>{_D}) (?:(?:placed|with|made) )?{_MOST} (?P<e>ORDER)", _rank),
        (rf"(?:which|what) {_N}(?P<d>COUNTRY|CITY|SEGMENT) (?:with )?{_MOST} (?P<e>CUSTOMER)", _rank),
        (rf"(?:which|what|who) {_N}(?P<d>CUSTOMER) (?:spent|spend|spends) {_MOST}", _rank),
        (rf"{_SHOW}{_N}(?P<d>CUSTOMER) (?:who|that) spent {_MOST}", _rank),
        (rf"(?:which|what) {_N}(?P<d>PRODUCT|CATEGORY|SUPPLIER) returned most(?: often)?", _returned),
        (rf"{_SHOW}{_N}most(?: often)? returned (?P<d>PRODUCT)", _returned),
        (
            rf"{_SHOW}{_N}(?P<which>cheapest|least expensive|lowest priced|most expensive|priciest|highest priced) "
            r"(?:(?P<m>\d{1,3}) )?PRODUCT",
            _priced,
        ),
        (
            r"(?:(?:show|list|what|which) )?(?:all )?(?:most (?:popular|used|common) )?"
            r"METHOD(?: (?:CUSTOMER )?(?:use|used|accepted|exist|available))?",
            _grouped("method", "payments", "payments", "amount"),
        ),
        (
            r"(?:(?:show|list|what|which) )?(?:all )?(?:most common )?REASON(?: most common first)?",
            _grouped("reason", "returns", "returns", "units_returned", "refunds"),
        ),
        (
            r"(?:(?:show|list|what) )?(?:ORDER by STATUS|STATUS of ORDER|ORDER STATUS)",
            _grouped("status", "orders", "orders"),
        ),
        (r"(?:which|what) (?P<d>COUNTRY|CITY) CUSTOMER (?:come|live|are)(?: from| in)?", _where_from),
        (
            r"(?:when |what |show )?(?:very )?(?P<which>first|earliest|oldest|latest|newest|most recent|last) "
            r"(?P<e>ORDER|CUSTOMER)",
            _first,
        ),
        (r"(?:which|what) (?P<e>PRODUCT) sell", _rows),
        (r"who (?P<e>SUPPLIER) and where they from", _rows),
        (
            rf"{_SHOW}(?P<new>new )?(?P<e>{_E})(?P<day>(?: who)? (?:signed up|joined|registered|hired))?"
            r"(?: exist)?",
            _rows,
        ),
    )
)
