"""What is known of English alone, for search: its function words, and the words that change by no rule."""

STOP_WORDS = frozenset(
    # articles and pronouns
    "a an the i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she "
    "her hers herself it its itself they them their theirs themselves this that these those "
    # auxiliary verbs, and what remains of those contracted with not
    "am is are was were be been being have has had having do does did doing done can could shall should will would "
    "must might ain aren couldn didn doesn don hadn hasn haven isn mightn mustn shan shouldn wasn weren won wouldn "
    # what questions begin with
    "what which who whom whose when where why how "
    # prepositions and conjunctions
    "of in on at by for from to into onto with without within about above across after against along among around as "
    "before behind below beneath beside between beyond but down during except inside near off out outside over per "
    "since than through throughout toward towards under until up upon via and or nor if then because while although "
    "though unless whether so "
    # adverbs and quantifiers that say nothing alone
    "not no yes also just only very too more most some any all both each every either neither few such own same other "
    "again ever there here now once".split()
)
"""Words of grammar rather than of matter (a closed class). ``may`` is a month too and stays out."""

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
