"""Makes a plan of a question: every word is accounted for, or the words that are not are named."""

import re
from dataclasses import replace
from functools import cache

from loom_worker.demo.questions import clauses, heads
from loom_worker.demo.questions.clauses import Clauses, Value, ValueGroup, read_clauses
from loom_worker.demo.questions.plan import Head, Plan, Where
from loom_worker.demo.questions.shop import shop
from loom_worker.demo.questions.words import terms
from loom_worker.demo.slots import Period, Slots, later

_MARK = re.compile(r"@p\d+")
_AGAINST = r"(?:vs|and|with|to|against|compared(?: to| with| against)?|or|than)"
_COMPARED = (
    re.compile(rf"(?:(?:compare|how) )?(?P<what>.+?) (?:between )?@p\d+ {_AGAINST} (?:in )?@p\d+"),
    re.compile(rf"(?:compare )?@p\d+ {_AGAINST} @p\d+ (?P<what>.+)"),
    re.compile(r"compare @p\d+ (?:and|with|to) @p\d+ by (?P<what>.+)"),
)
_HOW = "more|less|higher|lower|better|worse|up|down"
_MORE = re.compile(rf"(?P<verb>sell |sold )?(?:{_HOW})|(?:more|fewer) (?P<noun>ORDER)")
_BETTER = re.compile(r"@p\d+ (?P<how>better|worse) than @p\d+")
_DOWN = (
    "drop|dropped|fall|fell|fallen|decline|declined|decrease|decreased|go down|went down|gone down|sink|sank|shrink|"
    "shrank"
)
_UP = "rise|rose|risen|increase|increased|grow|grew|grown|go up|went up|gone up"
_CHANGED = re.compile(
    rf"(?P<why>why )?(?P<what>[A-Z]+) (?:(?P<down>{_DOWN})|(?P<up>{_UP})|(?P<any>change|changed))( so much)? @p0"
)
_BEFORE_IT = r"(?:the )?(?:period|one) before(?: it)?"
_WITH_BEFORE = re.compile(
    rf"(?:how (?P<what>[A-Z]+) @p0 compared?|compare (?P<of>[A-Z]+) @p0) (?:with|to) {_BEFORE_IT}"
    r"(?: largest (?P<first>drop|rise) first)?"
)
_OF_NOUN = {
    "customer": {"city", "country", "segment"},
    "supplier": {"country", "supplier"},
    "store": {"city", "country", "store"},
}
"""What a name before such a noun can be; before others it is what the noun says."""
_OTHER_WORDS = frozenset(
    "why compare compared between than against better worse vs and or with to in sold sell".split()
)


def unknown_words(text: str) -> frozenset[str]:
    """The words of a plain text that neither a rule nor a term reads: names, or what cannot be asked."""
    found = (word for word in terms(text).split() if re.fullmatch(r"[a-z][a-z'-]*", word))
    return frozenset(word for word in found if word not in _known_words())


def read_plan(text: str, slots: Slots, values: tuple[Value, ...] = (), notes: tuple[str, ...] = ()) -> Plan | str:
    """The plan of a plain text whose names are marked ``@v0``, ``@v1`` and so on; else the words that no rule reads.

    Args:
        values: what these marks stand for.
        notes: what was read otherwise than it was written.
    """
    found = read_clauses(terms(text), values)
    plan = _single(found, slots.periods) or _changed(found, slots.periods) or _compared(found, slots.periods)
    return replace(plan, notes=notes) if plan else _unread(found, slots, values)


def _single(found: Clauses, periods: tuple[Period, ...]) -> Plan | None:
    """A question of one period or none."""
    if len(periods) > 1:
        return None
    head = heads.read_head(" ".join(_MARK.sub(" ", found.rest).split()), found.group)
    if head is not None and head.has_day and not periods:
        return None
    return _planned(head, found, periods)


def _changed(found: Clauses, periods: tuple[Period, ...]) -> Plan | None:
    """Why did sales drop in March: that month against the one before."""
    changed = _CHANGED.fullmatch(found.rest)
    if changed is None and not any(period.unit == "season" for period in periods):  # before a spring there is a winter
        changed = _WITH_BEFORE.fullmatch(found.rest)
    if changed is None or len(periods) != 1 or (before := _before(periods[0])) is None:
        return None
    said = changed.groupdict()
    head = heads.read_head(said["what"] or said["of"], found.group)
    first = said.get("first")
    if first and not found.group:
        return None
    asked = "down" if said.get("down") or first == "drop" else "up" if said.get("up") or first == "rise" else ""
    plan = _planned(head, found, (periods[0], before))
    return plan and replace(plan, is_change=True, asked=asked, asks_why=bool(said.get("why")))


def _compared(found: Clauses, periods: tuple[Period, ...]) -> Plan | None:
    """Two periods compared with each other."""
    if len(periods) != 2:
        return None
    head = Head("sales", ("revenue", "units"), found.group) if _BETTER.fullmatch(found.rest) else None
    for pattern in _COMPARED:
        if head is None and (matched := pattern.fullmatch(found.rest)) is not None:
            head = _compared_head(matched["what"], found.group)
    return _planned(head, found, periods)


def _compared_head(what: str, group: str) -> Head | None:
    more = _MORE.fullmatch(what)
    if more is not None:
        if more["noun"]:
            return Head("orders", ("orders",), group)
        return Head("sales", ("revenue", "units"), group) if more["verb"] else None
    return heads.read_head(re.sub(rf" (?:{_HOW})$", "", what), group)


def _planned(head: Head | None, found: Clauses, periods: tuple[Period, ...]) -> Plan | None:
    """The plan of a head with the question's conditions; None if a name's kind is ambiguous."""
    is_compared = len(periods) > 1
    if head is None or (is_compared and (head.limit or not (head.measures or head.fact == "orders"))):
        return None
    if head.needs and not any(head.needs in value.kinds for each in found.listed for value in each.values):
        return None
    if is_compared and not head.measures:  # the number of orders is compared, not the orders
        head = replace(head, measures=(head.fact,))
    wheres = list(found.wheres)
    for listed in found.listed:
        where = _where(listed, head)
        if where is None or any(where.dimension == other.dimension for other in wheres):
            return None
        wheres.append(where)
        if len(listed.values) > 1 and not where.is_negated and not head.group and head.measures:
            head = replace(head, group=where.dimension)
    return Plan(head, tuple(wheres), periods)


def _where(listed: ValueGroup, head: Head) -> Where | None:
    """Values that stand together as a condition on the one dimension that they all may be of."""
    kinds = set.intersection(*(set(value.kinds) for value in listed.values))
    noun = listed.noun.lower()
    if noun and not kinds & _OF_NOUN.get(noun, {noun}):
        return None
    places, owner = {"country", "city"} & kinds, noun or head.group
    is_owned = owner in ("store", "supplier") and head.fact not in ("stores", "employees", "suppliers")
    if places and is_owned:
        kinds = {min(places)}
    elif noun in kinds:
        kinds = {noun}
    elif len(kinds) > 1:
        kinds &= set(shop().facts[head.fact].dimensions)
    if len(kinds) != 1:
        return None
    kind = kinds.pop()
    names = tuple(dict.fromkeys(name for value in listed.values for name in value.kinds[kind]))
    dimension = f"{owner}_{kind}" if places and is_owned else kind
    return Where(listed.wording, dimension, names, listed.is_negated)


def _before(period: Period) -> Period | None:
    """The unit before, as many days of it as have passed of a running one; of a season the year before."""
    if not period.unit:
        return None
    start = later(period.unit, period.start, -1)
    if period.end < later(period.unit, period.start, 1):
        end = min(start + (period.end - period.start), period.start)
    else:
        end = later(period.unit, period.start, 0) if period.unit != "season" else later("season", period.end, -1)
    return Period(start, end, "the one before", period.unit) if start < end else None


def _unread(found: Clauses, slots: Slots, values: tuple[Value, ...]) -> str:
    """What is left once all is read that some rule reads, in words of the question."""
    unknown = sorted(unknown_words(found.rest), key=found.rest.find)
    if unknown:
        return ", ".join(f'"{word}"' for word in unknown)
    text = re.sub(r"@p(\d+)", lambda mark: slots.periods[int(mark[1])].wording, found.rest.lower())
    text = re.sub(r"@v(\d+)", lambda mark: values[int(mark[1])].wording, text)
    return f'"{text}"' if text else ""


@cache
def _known_words() -> frozenset[str]:
    changes = frozenset(re.findall(r"[a-z]+", f"{_DOWN} {_UP} change changed so much"))
    return heads.known_words() | clauses.known_words() | _OTHER_WORDS | changes
