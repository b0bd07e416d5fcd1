"""Measure what guardrails find, and how fast: `LOOM_TEST_DATA=… python -m bench.guardrails`. One JSON line a figure.

Recall of each kind of personal data on labelled sentences, false alarms per kB of product data and of the
documentation; recall and false alarms of prompt injection on the texts of its test; processor time for 50 kB of
documentation and, of each kind, for the slowest of many texts of 50 kB that were built to be slow.
"""

import gzip
import json
import os
import random
import re
import string
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from loom_worker.core.values.guardrails import KINDS, SENSITIVE
from loom_worker.guard.findings import scan
from loom_worker.guard.injection import injections
from loom_worker.guard.redact import redacted
from loom_worker.guard.stream import StreamFilter

ROOT = Path(__file__).parents[1]
TEXTS = ROOT / "tests/unit/guard/data"
LETTERS = string.ascii_letters + string.digits
CLASSES = {
    "h": "0123456789abcdef",
    "l": LETTERS[:26] + string.digits,
    "u": LETTERS[26:],
    "a": LETTERS,
    "w": f"{LETTERS}-_",
    "b": f"{LETTERS}+/",
    "d": string.digits,
}
LABELS = {
    "EMAIL_ADDRESS": "email",
    "CREDIT_CARD": "card",
    "IBAN_CODE": "iban",
    "US_SSN": "ssn",
    "PHONE_NUMBER": "phone",
    "IP_ADDRESS": "ip",
}
SIZE = 50_000
PIECES = (
    *("a", "a@", "a@b.co ", "1 ", "1", "4111 ", "+1 ", "phone ", "://a:", "eyJ", ".eyJaaaaaa", "-----BEGIN A-----"),
    *("cookie:", "aa11 ", " --a", "password>", "bearer ", "authorization: ", "[redacted]a", "\n", "\\", 'password:"'),
    *("password='\\", "password=)", "token=1 ", "é٣", "555-234-5678 ", "\0", "-", "sk-a", "call 1 2 3 4 5 6 7 8 9 "),
    *("01 23 45 67 89 ", "123 456 789 ", "1.2.3.4 ", "::1:", "a:a:", "(1)(2)", "abcQ~", "12345678:", "(0", "tel "),
    *("ignore ", "ignore a b c d ", "ignore all ", "you are now ", "send api keys to ", "a b c d ", "A" * 30 + " "),
    *("1,01 23 45 67 89 ", "'123 456 789 ", "call the tool <", "A" * 30 + " a@", "1732261200000\n", "|1|2|3|\n"),
    *(
        "a=",
        "a=1,",
        "\\/",
        "4\u200b",
        "\uff11",
        "1\u2013",
        "1\\n",
        "key aB3dE6gH9jK2mN5p ",
        "aB3dE6gH9jK2mN5p/",
        "aB3dE6gH9jK2mN5p=",
    ),
    *(
        "a1" * 99 + " ",
        "pass=",
        "keys=a1",
        "-u a:",
        "4111/",
        "4111\n",
        "ssn ",
        "a1b2-",
        "a1_",
        "dp.pt.a.",
        "1/",
        "ssn 853 ",
        "before you answer ",
        "ki ",
        "ohne ",
        "a_b_",
        "Ab",
        "ABCD2345",
        "a1b2",
        ".- ",
        "01 ",
        "tpmorp ",
        "'a'+",
        "%20",
        "&#1;",
    ),
    *("<", "[", "system: ", "call the tool ", "what is ", "do not ", "忽略", "attention ", "![", "---"),
)


def main() -> None:
    """Recall, false alarms, speed."""
    data = Path(os.environ["LOOM_TEST_DATA"])
    for name, value in (*personal(data), *alarms(data), *of_secrets(), *of_injection(data), *speed()):
        print(json.dumps({"figure": name, "value": value}), flush=True)


def personal(data: Path) -> Iterator[tuple[str, Any]]:
    """How much of what is labelled in 150 sentences is found."""
    wanted: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for sentence in json.loads((data / "pii" / "sentences150.json").read_text(encoding="utf-8")):
        left = redacted(sentence["full_text"], SENSITIVE)
        for span in (span for span in sentence["spans"] if span["entity_type"] in LABELS):
            wanted[LABELS[span["entity_type"]]] += 1
            found[LABELS[span["entity_type"]]] += span["entity_value"] not in left
    for kind, count in sorted(wanted.items()):
        yield f"recall of {kind}", f"{found[kind]} of {count}"


def alarms(data: Path) -> Iterator[tuple[str, Any]]:
    """What is found where there is nothing, each kB."""
    pages = "\n".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").glob("*.md")))
    products = (data / "retail" / "products.json").read_text(encoding="utf-8")
    code = "\n".join(file.read_text(encoding="utf-8") for file in sorted((ROOT / "loom_worker").rglob("*.py")))
    locks = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    sets = {"product data": products, "documentation": pages, "this code": code, "a lock file with hashes": locks}
    for name, text in sets.items():
        yield f"false alarms per kB of {name}", round(len(scan(text)) / (len(text) / 1000), 3)


def of_secrets() -> Iterator[tuple[str, Any]]:
    """Recall on the texts with secrets, each filled at random ten times; alarms on those without."""
    for part in ("known", "aside"):
        filled = list(with_secrets(part))
        yield f"recall of secrets, {part}", f"{sum(is_found(*each) for each in filled)} of {len(filled)}"
    harmless = secret_texts()["harmless"]
    yield "false alarms of secrets", f"{sum(bool(scan(text, ('secret',))) for text in harmless)} of {len(harmless)}"


def secret_texts() -> dict[str, list[str]]:
    """The texts by part, secrets as templates."""
    texts: dict[str, list[str]] = yaml.safe_load((TEXTS / "secrets.yaml").read_text(encoding="utf-8"))
    return texts


def with_secrets(part: str, times: int = 10) -> Iterator[tuple[str, str]]:
    """Each text of a part with values drawn from a fixed seed, and the secret in it."""
    draw = random.Random(38)

    def drawn(match: re.Match[str]) -> str:
        return "".join(draw.choices(CLASSES[match[1]], k=int(match[2])))

    for template in secret_texts()[part]:
        for _ in range(times):
            text = re.sub(r"\{([hluawbd])(\d+)\}", drawn, template)
            yield re.sub("[«»]", "", text), re.findall("«(.+?)»", text)[0]


def is_found(text: str, secret: str) -> bool:
    """Whether nothing of the secret stays that is worth to have: most of it is taken out."""
    return secret not in text or secret not in redacted(text, ("secret",))


def of_injection(folder: Path) -> Iterator[tuple[str, Any]]:
    """Recall and false alarms of the rules."""
    texts = yaml.safe_load((TEXTS / "injections.yaml").read_text(encoding="utf-8"))
    for sort, what in (("attacks", "recall of injections"), ("harmless", "false alarms of injections")):
        for part, of_part in texts[sort].items():
            count = sum(any(injections(text)) for text in of_part)
            yield f"{what}, {part}", f"{count} of {len(of_part)}"
    data = ROOT / "tests/unit/guard/data"
    for kind, parts in yaml.safe_load((data / "attacks.yaml").read_text(encoding="utf-8")).items():
        for part, attacks in parts.items():
            yield f"recall of injections in results, {kind}, {part}", of(attacks, in_result=True)
    for part, texts in yaml.safe_load((data / "ordinary.yaml").read_text(encoding="utf-8")).items():
        yield f"false alarms of injections, orders for people, {part}", of(texts, in_result=False)
        yield f"false alarms of injections in results, orders for people, {part}", of(texts, in_result=True)
    for name, texts in ordinary(folder):
        yield f"false alarms of injections, {name}", of(texts, in_result=False)
        yield f"false alarms of injections in results, {name}", of(texts, in_result=True)


def of(texts: Sequence[str], *, in_result: bool) -> str:
    """How many of some texts are taken for attacks."""
    return f"{sum(any(injections(text, in_result=in_result)) for text in texts)} of {len(texts)}"


def ordinary(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Texts that nobody wrote with an attack in mind: what people say, and paragraphs of pages and of code."""
    opened = gzip.decompress((folder / "dialogues" / "dialogues3.json.gz").read_bytes())
    yield "dialogues", [text for text in strings(json.loads(opened)) if " " in text]
    yield "intents", [*strings(json.loads((folder / "intents" / "intents20.json").read_text(encoding="utf-8")))]
    yield "product data", [*strings(json.loads((folder / "retail" / "products.json").read_text(encoding="utf-8")))]
    library = Path(os.__file__).parent
    for name, files in (("documentation", (ROOT / "docs").glob("**/*.md")), ("Python's library", library.glob("*.py"))):
        yield name, [text for file in files for text in file.read_text(encoding="utf-8").split("\n\n") if text.strip()]


def strings(value: Any) -> Iterator[str]:
    """All texts of a JSON value."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    yield from ([value] if isinstance(value, str) else [text for each in inner for text in strings(each)])


def speed() -> Iterator[tuple[str, Any]]:
    """Milliseconds of processor time."""
    scan("phone 123 456 789", KINDS)  # loads what is loaded once
    text = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
    text = (text * (SIZE // len(text) + 1))[:SIZE]
    yield "ms for 50 kB of documentation, all kinds", ms(lambda: scan(text, KINDS))
    hostile = [(piece * (SIZE // len(piece) + 1))[:SIZE] for piece in PIECES]
    for kind in KINDS:
        yield f"ms for 50 kB of spite, {kind}", max(ms(partial(scan, spite, (kind,))) for spite in hostile)
    yield "ms for each piece of a streamed answer", round(ms(lambda: streamed(text)) / (SIZE / 4), 3)
    some = [spite[:4_000] for spite in hostile]
    slowest = max(ms(partial(streamed, spite)) for spite in some)
    yield "ms for each piece of a streamed answer of spite", round(slowest / 1_000, 3)


def streamed(text: str) -> None:
    """Filter a text that comes four characters at a time, as models send it."""
    stream = StreamFilter(SENSITIVE)
    for begin in range(0, len(text), 4):
        stream.feed(text[begin : begin + 4])
    stream.end()


def ms(work: Callable[[], object]) -> float:
    """What some work takes of the processor."""
    began_s = time.process_time()
    work()
    return round((time.process_time() - began_s) * 1000, 1)


if __name__ == "__main__":
    main()
