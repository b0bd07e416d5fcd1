"""A question's words as terms: ``customers`` and ``clients`` become CUSTOMER, what says nothing is left out.

A term is written in capitals, a period ``@p0``, a value of the database ``@v0``; every other word is itself and must
be read by a rule, or the question is refused.
"""

import re
from collections.abc import Mapping

from loom_worker.demo.slots import number_words

_TERMS: tuple[tuple[str, str], ...] = (
    (r"(?:average|mean|avg) (?:order values?|baskets?(?: values?)?)|aov", "AOV"),
    (r"average value (?:of|per) (?:an? |all |the |our )?orders?", "AOV"),
    (r"(?:average|mean|avg) (?:list )?price", "AVGPRICE"),
    (r"(?:gross )?profits?", "PROFIT"),
    (r"(?:payment (?:methods?|types?)|methods? of payment)", "METHOD"),
    (r"(?:return reasons?|reasons? (?:for|of) (?:the |our |a )?returns?|reasons?)", "REASON"),
    (r"(?:order )?(?:status|statuses)", "STATUS"),
    (r"(?:product )?categor(?:y|ies)", "CATEGORY"),
    (r"(?:customer )?segments?", "SEGMENT"),
    (r"(?:units? sold|sold units|units|pieces sold|pieces|quantit(?:y|ies) sold)", "UNITS"),
    (r"(?:revenues?|turnover|takings|sales)", "REVENUE"),
    (r"(?:refunded amount|amount refunded|refunds?|refunded)", "REFUND"),
    (r"(?:customers?|clients?|buyers?)", "CUSTOMER"),
    (r"(?:products?|articles?|items?|skus?|goods)", "PRODUCT"),
    (r"orders?", "ORDER"),
    (r"(?:stores?|shops?|branch|branches)", "STORE"),
    (r"(?:suppliers?|vendors?)", "SUPPLIER"),
    (r"(?:employees?|staff members?)", "EMPLOYEE"),
    (r"(?:promotions?|promos?|campaigns?)", "PROMOTION"),
    (r"payments?", "PAYMENT"),
    (r"returns", "RETURN"),
    (r"countr(?:y|ies)", "COUNTRY"),
    (r"(?:cities|city|towns?)", "CITY"),
    (r"(?:monthly|months?)", "MONTH"),
    (r"(?:quarterly|quarters?)", "QUARTER"),
    (r"(?:yearly|annual|annually|years?)", "YEAR"),
    (r"(?:daily|days?)(?! pack)", "DAY"),
    (r"days? of (?:the )?week|weekdays?", "WEEKDAY"),
    (r"(?:best ?sellers|best-sellers|top ?sellers)", "best selling PRODUCT"),
    (r"(?:canceled|cancelled)", "CANCELLED"),
    (r"best-selling|bestselling|top-selling|top selling", "best selling"),
    (r"versus|vs", "vs"),
)
_NOTHING_SAID = (
    r"(?:could|can|would|will) you(?: please)? (?:(?:tell|show|give) (?:me|us)|list|show)",
    r"good (?:morning|afternoon|evening|day)|hello|hi|hey|thank you(?: very much| so much)?|thanks(?: a lot)?|please",
    r"(?:i|we) (?:would|d) like to (?:know|see)",
    r"(?:i|we) (?:want|need) to (?:know|see)|do you know|tell me|i wonder",
    r"the|an?|our|my|we|us|i|you|me|is|are|am|was|were|be|been|do|does|did|have|has|had|there|s|currency|euros?|eur",
    r"so far|ever|of all times?|all time|in total|altogether|overall|to date|in the (?:shop|database|data)",
)
"""Words that restrict nothing, tried in this order; all the shop's money is in one currency."""
_COMPILED = tuple((re.compile(rf"(?<![\w@-]){pattern}(?![\w-])"), f" {term} ") for pattern, term in _TERMS)
_IDLE = tuple(re.compile(rf"(?<![\w@-])(?:{pattern})(?![\w-])") for pattern in _NOTHING_SAID)
_NEGATED = re.compile(
    r"\b(do|does|did|is|are|was|were|have|has|had|would|could|should)n['’]?t\b|\b(ca)n['’]t\b|\b(wo)n['’]t\b"
)
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_NUMBER_WORDS = re.compile(rf"\b(?:{'|'.join(number_words())})\b")
_PUNCTUATION = re.compile(r"[^\w@.%-]+|(?<!\d)\.|\.(?!\d)|(?<!\w)-|-(?!\w)")
_NATIONS: Mapping[str, str] = {
    "german": "germany",
    "austrian": "austria",
    "dutch": "netherlands",
    "french": "france",
    "swiss": "switzerland",
    "danish": "denmark",
    "norwegian": "norway",
    "swedish": "sweden",
    "italian": "italy",
    "spanish": "spain",
    "polish": "poland",
    "portuguese": "portugal",
    "canadian": "canada",
    "british": "united kingdom",
}
_NATION = re.compile(rf"\b(?:{'|'.join(_NATIONS)})\b")
_CORRECTABLE = (
    "customers products orders categories suppliers employees promotions payments returns revenue average country "
    "countries segment quantity"
).split()
_WORDS_OF_THEIR_OWN = frozenset(
    "county counties custom order retunes quantify returned returner revenues segments".split()
)


def plain(marked: str) -> str:
    """A question's marked text (``slots.Slots.marked``) in plain words: negations whole, numbers as digits."""
    text = _NEGATED.sub(lambda found: f"{found[1] or found[2] or found[3]} not", marked)
    text = _THOUSANDS.sub("", text.replace("&", " and ").replace("€", " "))
    text = _NUMBER_WORDS.sub(lambda found: str(number_words()[found[0]]), text)
    text = _NATION.sub(lambda found: _NATIONS[found[0]], text)
    return " ".join(_PUNCTUATION.sub(" ", text.replace("_", " ")).split())


def terms(text: str) -> str:
    """A plain text with terms in place of words, and without those that say nothing."""
    for pattern, term in _COMPILED:
        text = pattern.sub(term, text)
    return idle_left_out(text)


def idle_left_out(text: str) -> str:
    """A plain text without the words that say nothing, all others as they are."""
    for idle in _IDLE:
        text = idle.sub(" ", text)
    return " ".join(text.split())


def has_terms(text: str) -> bool:
    """Is there any word of the shop in it?"""
    return re.search(r"\b[A-Z]{3,}\b", text) is not None


def corrected(text: str) -> tuple[str, tuple[str, ...]]:
    """A plain text with a word's missing, doubled or swapped letter put right, and what was read for what."""
    notes = []
    made = []
    for word in text.split():
        right = _meant(word)
        if right:
            notes.append(f'I read "{word}" as "{right}".')
        made.append(right or word)
    return " ".join(made), tuple(notes)


def _meant(word: str) -> str | None:
    if len(word) < 5 or word in _WORDS_OF_THEIR_OWN or word in _CORRECTABLE or not word.isalpha():
        return None
    return next((right for right in _CORRECTABLE if word + "s" != right and _is_slip(word, right)), None)


def _is_slip(word: str, right: str) -> bool:
    """One letter left out, one too many, or two neighbours swapped; the first letter is right."""
    if word[0] != right[0] or abs(len(word) - len(right)) > 1:
        return False
    if len(word) == len(right):
        at = [n for n in range(len(word)) if word[n] != right[n]]
        return len(at) == 2 and at[1] == at[0] + 1 and word[at[0]] == right[at[1]] and word[at[1]] == right[at[0]]
    longer, shorter = sorted((word, right), key=len, reverse=True)
    return any(longer[:n] + longer[n + 1 :] == shorter for n in range(1, len(longer)))
