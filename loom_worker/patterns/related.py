"""Words that mean much the same in questions about data, software and office work: each line is one meaning.

A word may have several meanings; the words around it decide, as a meaning is only one more term of a text. No line is
about one pattern: what a single pattern is called besides belongs into its intents.
"""

from functools import lru_cache

from loom_worker.patterns.words import stemmed

_MEANINGS = """
customer client buyer shopper purchaser consumer patron guest member subscriber clientele
person people user visitor somebody someone human
revenue turnover sale taking income proceed earning money euro dollar eur usd
profit margin markup earning profitable
cost expense expenditure fee charge price
spend spent pay paid
buy bought purchase acquire
order purchase transaction booking
sell sold seller selling
basket cart ticket receipt
product article item good sku merchandise
category department section assortment
stock inventory warehouse shelf
return refund refunded reimbursement
cancel cancelled canceled cancellation withdrawn aborted
discount promotion promo coupon voucher rebate campaign offer markdown
payment card cash invoice paypal checkout
shipping ship shipped delivery deliver delivered shipment dispatch parcel
country nation region city area location place zip state territory geography geographic regional town postcode
loyal returning repeat regular
churn lost left lapsed inactive dormant quit anymore stopped
newcomer fresh new registration signup joined
best top highest leading biggest greatest most strongest largest maximum
worst bottom lowest least weakest smallest poorest minimum fewest
rank ranking leaderboard
average mean typical typically usual avg
sum total altogether
count number many quantity
percent percentage share proportion fraction portion
ratio rate frequency frequent
grow growth growing increase increasing rise rising gain higher
shrink decline declining decrease decreasing drop dropped fall falling lower
compare comparison versus against contrast difference differ vs
trend development develop evolution evolve course history
month monthly
week weekly
day daily date
year yearly annual annually yoy
quarter quarterly
hour hourly clock
weekday monday tuesday wednesday thursday friday saturday sunday weekend
season seasonal seasonality
interval duration elapsed between
smooth smoothed smoothing rolling moving
cumulative running accumulated accumulate ytd
anomaly unusual abnormal outlier spike odd strange suspicious extreme weird implausible exceptional
consecutive streak successive unbroken uninterrupted row
session visit
funnel conversion convert dropoff
cohort vintage generation
lifetime clv ltv
group segment cluster cohort male female men women gender
duplicate duplicated double twice repeated identical copy redundant same
missing null blank empty absent incomplete unfilled lack lacking
invalid malformed incorrect illegal broken
orphan orphaned dangling
verify validate confirm check
newest latest recent current last
stale outdated old behind late delayed
reconcile match agree tally
drift shift shifted change changed
describe description overview summary profile
column field attribute
table dataset
row record entry
schema structure layout
database db
postgresql postgres pg psql
query sql statement
slow sluggish forever slower
fast quick speed faster performance performant
lock locked block blocked blocking deadlock hang hanging stuck waiting
disk storage space size bytes gigabyte gb
vacuum autovacuum bloat bloated dead
json jsonb
search find look locate lookup grep
api endpoint rest http webservice curl webhook github gitlab stripe
page paginate pagination paging paginated offset cursor
throttle throttled quota 429
authentication auth authorization login token credential unauthorized forbidden 401 403
error failure fault exception problem
request call
create insert add write
modify update edit change
retry idempotent again
join combine merge connect
document file paper pdf contract policy manual agreement
passage paragraph quote sentence clause section
version revision draft edition
extract pull collect gather
literature study research publication
claim statement assertion
evidence proof support supported proven prove true
contradict contradiction contradictory conflict disagree inconsistent
summarize summarise summary condense gist digest tldr
review inspect critique
feedback comment complaint opinion tweet review survey
code function method class module script program java python javascript typescript golang rust pandas django react
security secure vulnerability vulnerable injection attack attacker exploit secret
test unittest coverage uncovered untested pytest
compatible compatibility breaking
concurrency concurrent thread race parallel async synchronized simultaneous
readable readability understandable clean maintainable
classify classification categorize categorise label assign tag
entity name organisation organization
sentiment mood happy unhappy positive negative praise
translate translation language french german spanish english italian portuguese dutch polish turkish chinese japanese
tone friendly friendlier formal polite rewrite rephrase reword
regex regexp
proofread spelling grammar typo comma punctuation
accuracy precision recall f1 confusion
regression rmse mae r2
predict prediction predicted forecast
leak leakage contamination
imbalance imbalanced rare minority skewed unbalanced
calibration calibrated probability confidence
experiment significant significance variant
classifier model predictor
evaluate evaluation grade judge assess rate
fail failing failed failure
llm chatbot assistant gpt
incident outage down unavailable crash crashed emergency unreachable offline
log logfile stacktrace traceback stderr
cause reason root why behind recurring
postmortem retrospective aftermath
capacity exhaust exhausted full
cpu memory ram disk
latency delay timeout lag
rollback revert undo
deploy deployment release rollout
alert alarm pager page notification wake beep grafana prometheus
executive management board boss ceo leadership director
meeting discussion call
email mail letter inbox
reply respond answer
explain plain simple simply layman grandma grandmother kid child beginner jargon
decide decision choose option choice alternative
pros cons tradeoff advantage disadvantage argument arguments
together pair combination combo along alongside
employee staff colleague worker
busy busiest rush peak quiet
say says state stated mention mentioned written regulate regulated
remaining rest more further all
login signin
belong existing nonexistent parent reference
spreadsheet excel csv sheet
boss manager management director executive
nobody everybody everyone anybody
visitor visit traffic website site
big large huge
wrong incorrect mistake bug
device mobile desktop phone tablet app
night morning evening afternoon noon
begin start first
end finish ended finished last
often frequently seldom rarely sometimes
cheap expensive price
shorten shorter short brief
urgent immediately asap
server host machine instance kubernetes pod container cluster
""".strip().splitlines()


def meanings(word: str) -> tuple[str, ...]:
    """The meanings that a word without its ending may have, each as a term that no word is (``=customer``)."""
    return _by_word().get(word, ())


@lru_cache(maxsize=1)
def _by_word() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(_MEANINGS):
        words = line.split()
        for word in dict.fromkeys(map(stemmed, words)):
            found[word] = (*found.get(word, ()), f"={words[0]}.{number}")
    return found
