"""Conditions of a question, each read whole or not at all; what is left of the text is for the heads."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from loom_worker.demo.questions.plan import Where

_WHO = r"(?:and )?(?:(?:who|that|which) )?"
_NUMBER = r"(?P<amount>\d+(?:\.\d+)?)(?! ?%| (?:DAY|MONTH|YEAR|QUARTER|weeks?|percent|times))"
_SIGNS: Mapping[str, str] = {
    "more than": ">",
    "over": ">",
    "above": ">",
    "at least": ">=",
    "less than": "<",
    "fewer than": "<",
    "under": "<",
    "below": "<",
    "at most": "<=",
    "up to": "<=",
    "exactly": "=",
}
_SIGN = rf"(?P<sign>{'|'.join(_SIGNS)})"
_OF_PRICES: Mapping[str, str] = {"cheaper than": "<", "more expensive than": ">"}
_DECIMAL = r"\d+(?:\.\d+)?"
_KEPT = (
    r"(?:not counting|without counting|excluding|without|except|not including|ignoring) CANCELLED(?: (?:ones|ORDER))?"
)
_WEEKDAYS: Mapping[str, str] = {
    **{f"{day}days": f"'{n}'" for n, day in enumerate("sun mon tues wednes thurs fri satur".split())},
    "weekends": "'0', '6'",
    "WEEKDAY": "'1', '2', '3', '4', '5'",
}
RULED: tuple[tuple[str, str], ...] = (
    ("spent", rf"{_WHO}(?:spent|spend|with spending of) {_SIGN} {_NUMBER}"),
    ("ordered_kept", rf"{_WHO}(?:with|placed|made) {_SIGN} {_NUMBER} ORDER,? {_KEPT}"),
    ("ordered", rf"{_WHO}(?:with|placed|made) {_SIGN} {_NUMBER} ORDER"),
    ("ordered", rf"{_WHO}(?:bought|ordered|purchased) (?:something )?(?P<once>(?:only |just |exactly )once)"),
    (
        "ordered",
        rf"{_WHO}(?P<none>ordered nothing|(?:never|not) ordered(?: anything)?|(?:without|with no)(?: any)? ORDER)",
    ),
    ("not_sold", rf"{_WHO}(?:never|not)(?: (?:been|once))? (?:sold|sell)|without(?: any)? REVENUE"),
    ("not_returned", rf"{_WHO}(?:never|not)(?: (?:been|once))? returned|without(?: any)? RETURN"),
    ("total", rf"(?P<keep>ORDER) (?:(?:worth|with (?:total|value)(?: of)?) )?{_SIGN} {_NUMBER}"),
    ("price", rf"(?P<keep>PRODUCT) (?:(?:priced|that cost|which cost|cost|costing) )?{_SIGN} {_NUMBER}"),
    ("price", rf"(?:with|at) (?:list )?prices?(?: of)? {_SIGN} {_NUMBER}"),
    (
        "price",
        rf"(?:with (?:list )?prices? |priced |that cost )?between (?P<low>{_DECIMAL}) and (?P<high>{_DECIMAL})",
    ),
    ("price", rf"(?P<sign>{'|'.join(_OF_PRICES)}) {_NUMBER}"),
    ("kept", _KEPT),
    ("not_promoted", r"without (?:any )?PROMOTION(?! @)"),
    ("promoted", r"(?:with|used|using|that used|during) (?:any )?PROMOTION(?! @)"),
    ("weekday", rf"on (?P<day>{'|'.join(_WEEKDAYS)})"),
)
"""Conditions by the name of their rule (``rules`` in ``shop_figures.yaml``), tried in this order."""
_STATUS = re.compile(r"(?P<a>CANCELLED) ORDER|ORDER (?P<b>CANCELLED)")
_KINDS = r"CUSTOMER|PROMOTION|CATEGORY|SEGMENT|CITY|COUNTRY|SUPPLIER|STORE"
_LISTED = r"@v\d+(?:,? (?:and|or|vs) @v\d+)*"
_LINK = (
    r"came from|come from|"
    r"live in|living in|based in|located in|paid by|paid with|paid via|bought in|sold in|placed in|from|in|of|for|at|"
    r"by|with|via|through|using|used|contain|contains|containing|include|includes"
)
_NAMED = "PROMOTION|CATEGORY|SEGMENT|CITY|COUNTRY|METHOD|STATUS|REASON"
_OF_WHOM = r"(?:placed |made )?(?:by|from|of|for|to) CUSTOMER (?:who )?(?:from|in|live in|living in|based in)"
_NEGATED = (
    "(?:outside(?: of)?|except(?: for| from| in)?|excluding|other than|apart from|not(?: in| from)?|without|all but)"
)
_VALUE = re.compile(
    rf"{_WHO}(?P<none>{_NEGATED} )?(?:(?P<whose>{_OF_WHOM}) |(?P<link>{_LINK}) )?(?:(?P<ahead>{_NAMED}) )?"
    rf"(?P<listed>{_LISTED})(?: (?P<noun>{_KINDS})\b)?"
)
_GROUPS = (
    r"PRODUCT|CATEGORY|SUPPLIER|CUSTOMER|COUNTRY|CITY|SEGMENT|STORE|METHOD|REASON|STATUS|"
    "DAY|MONTH|QUARTER|YEAR|WEEKDAY|HOUR|"
    "PROMOTION"
)
_GROUP = re.compile(
    rf"(?:MONTH by MONTH|(?:by|per|(?:(?:for|in|of|at|from|on) )?(?:each|every)) (?P<group>{_GROUPS})\b|"
    rf"(?P<adverb>DAY|MONTH|QUARTER|YEAR) (?=REVENUE|UNITS|PROFIT|AOV|ORDER|REFUND|RETURN))"
)


@dataclass(frozen=True, slots=True)
class Value:
    """A word of the question that the database holds, as what and how it is written there."""

    wording: str
    kinds: Mapping[str, tuple[str, ...]]
    """Kind (city, category …) to the values that it means."""


@dataclass(frozen=True, slots=True)
class Clauses:
    """What was read out of a text of terms."""

    rest: str
    wheres: tuple[Where, ...]
    listed: tuple["ValueGroup", ...]
    group: str


@dataclass(frozen=True, slots=True)
class ValueGroup:
    """Values that stand together, and the noun behind them: Audio and Lighting; Norwegian suppliers."""

    values: tuple[Value, ...]
    noun: str
    wording: str
    is_negated: bool = False


def read_clauses(text: str, values: tuple[Value, ...]) -> Clauses:
    """Read the conditions and the grouping of a text of terms; every condition leaves nothing behind but its noun."""
    wheres: list[Where] = []
    listed: list[ValueGroup] = []
    for rule, pattern in RULED:
        most = 1 if rule == "weekday" else 0  # no row is of two days, and a second one is left to be refused
        text = re.sub(rf"(?<![\w@])(?:{pattern})(?![\w%])", partial(_noted, rule=rule, wheres=wheres), text, count=most)
    if (found := _STATUS.search(text)) is not None:
        wheres.append(Where("cancelled", dimension="status", values=("cancelled",)))
        text = f"{text[: found.start()]}ORDER{text[found.end() :]}"
    while (found := _VALUE.search(text)) is not None:
        text = _valued(text, found, values, listed)
    group = ""
    if (found := _GROUP.search(text)) is not None:
        group = (found["group"] or found["adverb"] or "MONTH").lower()
        text = _without(text, found)
    return Clauses(" ".join(text.split()), tuple(wheres), tuple(listed), group)


def names_left_out(text: str) -> str:
    """A text without ``@v0`` and so on, and the words that link them."""
    return " ".join(_VALUE.sub(" ", text).split())


def known_words() -> frozenset[str]:
    """The plain words that these rules read."""
    sources = [pattern for _, pattern in RULED]
    sources += [_STATUS.pattern, _VALUE.pattern, _GROUP.pattern]
    return frozenset(re.findall(r"[a-z]{2,}", re.sub(r"\?P<\w+>", "", " ".join(sources))))


def _without(text: str, found: re.Match[str]) -> str:
    return f"{text[: found.start()]} {text[found.end() :]}"


def _noted(found: re.Match[str], *, rule: str, wheres: list[Where]) -> str:
    parts = found.groupdict()
    sign, amount = {**_SIGNS, **_OF_PRICES}.get(parts.get("sign") or "", ""), parts.get("amount") or ""
    if parts.get("high"):
        sign, amount = "BETWEEN", f"{parts['low']} AND {parts['high']}"
    elif parts.get("none") or parts.get("once"):
        sign, amount = "=", "0" if parts.get("none") else "1"
    elif parts.get("day"):
        amount = _WEEKDAYS[parts["day"]]
    wheres.append(Where(found[0].lower(), rule=rule, sign=sign, amount=amount))
    return f" {parts.get('keep') or ''} "


def _valued(text: str, found: re.Match[str], values: tuple[Value, ...], listed: list[ValueGroup]) -> str:
    """Note values that stand together; a noun behind them that is what the question is about stays."""
    group = tuple(values[int(each)] for each in re.findall(r"@v(\d+)", found["listed"]))
    noun = found["noun"] or found["ahead"] or ("CUSTOMER" if found["whose"] else "")
    said = " and ".join(each.wording for each in group)
    listed.append(ValueGroup(group, noun, f"not {said}" if found["none"] else said, bool(found["none"])))
    is_about_noun = noun in ("CUSTOMER", "SUPPLIER", "STORE") and not (
        found["link"] or found["whose"] or found["ahead"]
    )
    return f"{text[: found.start()]} {noun if is_about_noun else ''} {text[found.end() :]}"
