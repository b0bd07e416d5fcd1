"""Kinds of text, and how a published tokenizer's tokens compare with cl100k's over them."""

import json
import random
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from statistics import fmean, median

from loom_worker.llm.tokens import EXACT_BYTES, cl100k_tokens, count, typical

ROOT = Path(__file__).parents[1]
MODEL = "claude-sonnet-4-5"
"""Whose factor the made-up sessions are counted with."""
SESSIONS, CALLS = 50, 50
WITHIN = 0.05
FIRST_TOKENS = 2_000
"""Of ROM, roughly."""
FRAME, MESSAGE = (648, 350), (8, 4)
"""Tokens of a request's and of a message's frame: as Loom counts them, and as providers do."""

LANGUAGES = {
    "French": "Combien de commandes les clients ont-ils passées la semaine dernière, et de quelle valeur moyenne ? ",
    "German": "Wie viele Bestellungen gaben die Kunden letzte Woche auf, und wie hoch war ihr mittlerer Wert? ",
    "Polish": "Ile zamówień złożyli klienci w zeszłym tygodniu i jaka była ich średnia wartość? ",
    "Vietnamese": "Tuần trước khách hàng đã đặt bao nhiêu đơn hàng và giá trị trung bình là bao nhiêu? ",
    "Russian": "Сколько заказов сделали клиенты на прошлой неделе и какова была их средняя стоимость? ",
    "Greek": "Πόσες παραγγελίες έκαναν οι πελάτες την περασμένη εβδομάδα και ποια ήταν η μέση αξία τους; ",
    "Arabic": "كم عدد الطلبات التي قدمها العملاء في الأسبوع الماضي وما هو متوسط قيمتها؟ ",
    "Hebrew": "כמה הזמנות ביצעו הלקוחות בשבוע שעבר ומה היה ערכן הממוצע? ",
    "Hindi": "पिछले सप्ताह ग्राहकों ने कितने ऑर्डर दिए और उनका औसत मूल्य क्या था? ",
    "Thai": "ลูกค้าสั่งซื้อกี่รายการในสัปดาห์ที่แล้วและมูลค่าเฉลี่ยเท่าไร ",
    "Chinese": "上周客户下了多少订单？这些订单的平均金额是多少？",
    "Japanese": "先週お客様は何件の注文をしましたか。また、その平均金額はいくらでしたか。",
    "Korean": "지난주에 고객이 주문한 건수와 평균 금액은 얼마입니까? ",
}
MIXED = ("English prose", "Python", "SQL", "YAML", "JSON of rows", "CSV of figures", "Markdown table", "identifiers")
"""What a session with a database holds."""

Tokens = Callable[[str], int]


def texts() -> dict[str, str]:
    """Kind to a text of it: out of this checkout, or made up with a fixed seed."""
    rng = random.Random(1)
    rows = [
        {"order_id": rng.randrange(10**6), "total": round(rng.random() * 1000, 2), "at": _day(rng)} for _ in range(300)
    ]
    found = {
        "English prose": _docs(),
        "Python": _files("loom_worker/turn/*.py"),
        "SQL": _files("loom_worker/store/migrations/versions/*.sql"),
        "YAML": _files("patterns/**/*.yaml")[:EXACT_BYTES],
        "JSON of rows": json.dumps(rows),
        "CSV of figures": "\n".join(",".join(f"{rng.random() * 10**n:.2f}" for n in range(1, 7)) for _ in range(300)),
        "Markdown table": "\n".join(f"| product {n:<20} | {n * 37:>10} | in stock |" for n in range(200)),
        "identifiers": "\n".join(f"{rng.getrandbits(128):032x}" for _ in range(300)),
        "digits alone": "".join(str(rng.randrange(10)) for _ in range(6_000)),
        "emoji": "😀🎉🚀✅" * 200,
    }
    return found | {language: text * 20 for language, text in LANGUAGES.items()}


def prose(n: int, size: int) -> str:
    """The n-th piece of English prose, of so many characters before its white space was made even."""
    start = n * 997 % (len(_docs()) - size)
    return " ".join(_docs()[start : start + size].split())


@lru_cache(1)
def _docs() -> str:
    return _files("docs/*.md")


def tokenizer(file: Path) -> Tokens:
    """The counting of a tokenizer.json, such as the one in the package anthropic 0.30.0 (of Claude 2)."""
    encode = import_module("tokenizers").Tokenizer.from_file(str(file)).encode
    return lambda text: len(encode(text).ids)


def spread(file: Path) -> None:
    """Print the ratio of each kind of text, and the errors over sessions that mix them."""
    real = tokenizer(file)
    print(f"\n| text | cl100k | {file.name} | ratio | in the bound |\n" + "| --- " * 5 + "|")
    for kind, text in texts().items():
        plain, actual = cl100k_tokens(text), real(text)
        print(f"| {kind} | {plain:,} | {actual:,} | {actual / plain:.2f} | {actual <= count(text, MODEL)} |")
    shares = [error for seed in range(SESSIONS) for error in session_errors(real, random.Random(seed))]
    sizes = [abs(share) for share in shares]
    within = sum(size <= WITHIN for size in sizes) / len(sizes)
    print(f"\n{SESSIONS} made-up sessions of {CALLS} calls, each with 20 to 4,000 more characters of some kind:")
    print(
        f"after a reply {fmean(sizes):.2%} off in the mean, {median(sizes):.2%} in the median, {max(sizes):.2%} at most"
    )
    print(f"{within:.1%} of the calls within {WITHIN:.0%}")
    print(f"before the first reply the usual estimate is {typical(MODEL):.3f} of the bound")


def session_errors(real: Tokens, rng: random.Random) -> list[float]:
    """Relative error of the corrected count before each call but the first of a session that grows by mixed texts."""
    pool = {kind: text for kind, text in texts().items() if kind in MIXED}
    first = pool["English prose"][: FIRST_TOKENS * 4]
    counted, actual = count(first, MODEL) + FRAME[0], real(first) + FRAME[1]
    errors = []
    for _ in range(CALLS):
        correction = actual / counted
        piece = _piece(pool[rng.choice(MIXED)], rng)
        counted, actual = counted + count(piece, MODEL) + MESSAGE[0], actual + real(piece) + MESSAGE[1]
        errors.append(counted * correction / actual - 1)
    return errors


def _piece(text: str, rng: random.Random) -> str:
    size = rng.randint(20, 4_000)
    start = rng.randrange(max(1, len(text) - size))
    return text[start : start + size]


def _day(rng: random.Random) -> str:
    return f"2026-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"


def _files(pattern: str) -> str:
    return "\n".join(file.read_text("utf-8") for file in sorted(ROOT.glob(pattern)))
