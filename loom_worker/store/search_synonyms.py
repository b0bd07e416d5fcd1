"""Words of everyday English for the same thing, where a question says one and the answer another. Pure.

The list was written from general knowledge, without a look at the dialogues on which searches are measured.
"""

from loom_worker.core.words import forms_of, stemmed

_GROUPS = """
job work career profession occupation|salary wage pay income earnings|boss manager supervisor|colleague coworker
company firm employer business|hire recruit|fired laid off dismissed|retire retirement|promotion promoted
kid child son daughter toddler baby|mom mother mum|dad father|grandma grandmother|grandpa grandfather
parents mother father|sibling brother sister|wife husband spouse partner|girlfriend boyfriend partner
friend buddy pal|wedding marry marriage married|engaged engagement fiance fiancee|divorce divorced separated
home house apartment flat|move moved relocate relocated|rent lease|city town|country nation|neighbor neighbour
trip travel travelling vacation holiday journey visit|flight fly plane|car vehicle drive|bike bicycle cycling
hike hiking trail trek|camp camping tent campfire|beach sea ocean coast|mountain mountains peak|lake river
swim swimming pool|run running jog jogging marathon race|gym workout exercise fitness training|yoga meditation
sport game match|football soccer|team club|win won victory prize award trophy|tournament competition contest
book novel story|read reading|author writer|movie film cinema|show series tv television|song music album
band concert gig festival|sing singing choir|guitar piano violin instrument|dance dancing
paint painting artwork art drawing sketch|photo picture photograph image|camera photography
cook cooking recipe meal dish bake baking|dinner lunch breakfast meal food|restaurant cafe diner
dessert cake pastry|drink beverage|vegetarian vegan|allergy allergic
dog puppy|cat kitten|pet animal dog cat|garden gardening plant plants flowers
doctor physician hospital clinic|sick ill illness disease|injury injured hurt|medicine medication pills
therapy therapist counseling counselor counselling|stress stressed anxiety anxious|depressed depression
school college university class course|study studying degree|teacher professor instructor|student pupil
exam test|graduate graduation|learn learning lesson
buy bought purchase purchased|sell sold|gift present|price cost expensive|money cash savings|shop store
clothes outfit clothing dress|shoes sneakers boots|necklace jewelry bracelet ring
phone mobile smartphone|computer laptop|app application software|email mail message
begin start started|finish complete end|attend attended join joined|volunteer volunteering charity
donate donation fundraiser|help support assist|community group|church faith religion religious
birthday anniversary celebrate celebration party|event meeting conference workshop
hobby pastime interest|passion love|favorite favourite|enjoy like love|dislike hate
happy glad excited thrilled|sad upset unhappy|angry mad|afraid scared fear|proud pride|tired exhausted
problem issue trouble difficulty challenge|plan plans planning intend|goal dream aspiration aim
decide decision choose chose|advice tip suggestion recommend recommendation|reason motivation inspired
big large huge|small little tiny|old ancient|new recent|beautiful pretty gorgeous|funny hilarious
fix repair|build built construct|create make made|lose lost|find found discover discovered
accident crash|police cop|storm hurricane|fire burned|weather rain snow
museum gallery exhibition exhibit|park forest woods nature outdoors|hotel hostel inn
receive get got|give offer|watch see view|talk chat discuss conversation speak|think thought opinion view
feel feeling emotion mood|live reside stay|try attempt|teach tutor teaching|share tell|launch open opened|grow growth
improve improvement progress|change transition|relax relaxing unwind|motivate inspire inspiration|health healthy
diet eating nutrition|weight pounds|nervous worried|adopt adoption|research researching investigate|remember memory
remind reminder|collect collection|interview apply applied application|project task|skill ability talent
career path future|hope wish|surprise surprised|prepare preparation ready|organize organise arrange|invite invitation
religion faith belief|origin from roots|nationality country|address street|ages age old
"""


def _groups() -> dict[str, frozenset[str]]:
    known: dict[str, frozenset[str]] = {}
    for group in _GROUPS.replace("\n", "|").split("|"):
        words = frozenset(group.split())
        for word in words:
            known[stemmed(word)] = known.get(stemmed(word), frozenset()) | words
    return known


_KNOWN = _groups()


def synonyms(word: str) -> tuple[str, ...]:
    """Other words for a word in lower case, with their irregular forms; the index stems them."""
    singular = word.removesuffix("s")  # the stemmer takes ``movies`` for the plural of ``movy``
    known = word if stemmed(word) in _KNOWN else singular
    same = {stemmed(known), stemmed(word)}
    others = (other for other in _KNOWN.get(stemmed(known), ()) if stemmed(other) not in same)
    return tuple(sorted({form for other in others for form in forms_of(other)}))
