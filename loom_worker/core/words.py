"""The words of a text for search and matching: where they begin and end, which say little, and their other forms."""

import re
import unicodedata
from functools import lru_cache
from itertools import chain

_UNSPACED = (
    "\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
UNSPACED = re.compile(f"[{_UNSPACED}]")
"""A character of Chinese, Japanese or Korean."""
RUN = re.compile(f"[{_UNSPACED}]+|[^{_UNSPACED}]+")
"""As many of those, or of others, as stand together."""
WORD = re.compile(r"[^\W_]+")
COMPOUND = re.compile(r"[^\W_]+(?:[^\w\s]{1,2}[^\W_]+|_+[^\W_]+)*")
"""Words without a space between them: don't, road-trip, a/b, me@example.com, ERR_12."""
STOP_WORDS = frozenset(
    "a about after all also am an and any are as at be been before both but by can could d did didn do does doesn "
    "don each for from get give got had has have he her his how i if in into is isn it its let list ll m make "
    "many me might much must my no not of off on onto or our out over people please re s shall she should show so "
    "t tell than that the their them then there these they thing this those time to up us use ve was we were what "
    "when where which while who whom whose why will with won would you your".split()
)
"""Words of grammar and of asking, which say little about what a text is about. ``may`` is a month too and stays out."""

_KEPT_STEMS = 2**14
_FAMILIES = """
arise arose arisen|awake awoke awoken|bear bore borne born|beat beaten|become became|begin began begun|bend bent
bind bound|bite bit bitten|bleed bled|blow blew blown|break broke broken|breed bred|bring brought|build built
burn burnt|buy bought|catch caught|choose chose chosen|cling clung|come came|creep crept|deal dealt|dig dug
draw drew drawn|dream dreamt|drink drank drunk|drive drove driven|dwell dwelt|eat ate eaten|fall fell fallen|feed fed
feel felt|fight fought|find found|flee fled|fling flung|fly flew flown|forbid forbade forbidden|forget forgot forgotten
forgive forgave forgiven|freeze froze frozen|get got gotten|give gave given|go went gone|grind ground|grow grew grown
hang hung|hear heard|hide hid hidden|hold held|keep kept|kneel knelt|know knew known|lay laid|lead led|lean leant
leap leapt|learn learnt|leave left|lend lent|lie lay lain|light lit|lose lost|make made|mean meant|meet met
mistake mistook mistaken|pay paid|prove proven|ride rode ridden|ring rang rung|rise rose risen|run ran|say said
see saw seen|seek sought|sell sold|send sent|sew sewn|shake shook shaken|shine shone|shoot shot|show shown
shrink shrank shrunk|sing sang sung|sink sank sunk|sit sat|sleep slept|slide slid|smell smelt|sow sown
speak spoke spoken|speed sped|spell spelt|spend spent|spill spilt|spin spun|spoil spoilt|spring sprang sprung
stand stood|steal stole stolen|stick stuck|sting stung|stink stank stunk|strike struck stricken|string strung
strive strove striven|swear swore sworn|sweep swept|swell swollen|swim swam swum|swing swung|take took taken
teach taught|tear tore torn|tell told|think thought|throw threw thrown|tread trod trodden
understand understood|undertake undertook undertaken|wake woke woken|wear wore worn|weave wove woven|weep wept
win won|wind wound|withdraw withdrew withdrawn|write wrote written
man men|woman women|child children|person people|foot feet|tooth teeth|mouse mice|goose geese|wife wives|life lives
knife knives|leaf leaves|half halves|shelf shelves|thief thieves|wolf wolves
good better best|bad worse worst|far further furthest
"""


def grams(text: str) -> str | None:
    """The words of a text that are written without spaces, as pairs of characters; None if it has none.

    FTS5 takes a run of Chinese, Japanese or Korean characters, and Latin letters next to them, for one word, so none
    of the words in it would be found. The last character stands alone too: then every character begins some token.
    """
    if text.isascii() or not UNSPACED.search(text):
        return None
    words = WORD.findall(unicodedata.normalize("NFC", text))
    runs = (run for word in words if UNSPACED.search(word) for run in RUN.findall(word))
    pairs = ([run[at : at + 2] for at in range(len(run))] if UNSPACED.match(run) else [run] for run in runs)
    return " ".join(chain.from_iterable(pairs))


@lru_cache(maxsize=_KEPT_STEMS)
def stemmed(word: str) -> str:
    """Remove plural, -ed and -ing; more would confuse unrelated words (``orders`` and ``ordinary``)."""
    if word in STOP_WORDS:
        return word
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    for ending, shortest in (("ing", 6), ("ed", 5)):
        if len(word) >= shortest + 1 and word.endswith(ending):
            stem = word[: -len(ending)]
            # ``shipp`` of shipping is ``ship``; ``sell`` and ``miss`` are words.
            return stem[:-1] if stem[-1] == stem[-2] and stem[-1] not in "lsz" else stem
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _families() -> dict[str, frozenset[str]]:
    known: dict[str, frozenset[str]] = {}
    for family in _FAMILIES.replace("\n", "|").split("|"):
        forms = frozenset(family.split()) - STOP_WORDS
        known |= {form: known.get(form, frozenset()) | forms for form in forms}
    return known


_KNOWN = _families()
_ENDINGS = (("ing", ""), ("ing", "e"), ("s", ""), ("es", ""))


def forms_of(word: str) -> frozenset[str]:
    """All that a word may also look like where no rule leads from one to the other: ``went`` is ``go`` and ``gone``.

    Regular endings are the stemmer's business (``goes``, ``going``); they are taken off only to find the family.
    """
    for ending, instead in (("", ""), *_ENDINGS):
        stem = word.removesuffix(ending) + instead
        if word.endswith(ending) and stem in _KNOWN:
            return _KNOWN[stem] | {word}
    return frozenset({word})
