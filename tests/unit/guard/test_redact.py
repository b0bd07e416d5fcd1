import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.values.guardrails import SENSITIVE
from loom_worker.guard.findings import MARKER, redacted, scan

ROOT = Path(__file__).parents[3]

# Put together here, for a scanner of secrets would take each for a real one.
ANTHROPIC = "sk-ant-" + "api03-Zq7Tn5Xw2Lk9Rb4Vc8Mh1Js6"
LOOM = "loom_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4" + "x" * 15
GITHUB = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4"
AWS_ID = "AKIA" + "IOSFODNN7EXAMPLE"
AWS_SECRET = "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYEXAMPLEKEY"
JWT = "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl"
PEM = "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIEow\nIBAAKC\n-----END RSA PRIVATE KEY-----"

SECRETS = [
    ("postgresql://app:p@ss:w0rd@db.example/x", "p@ss:w0rd", "postgresql://app:[redacted]@db.example/x"),
    ("redis://:hunter2@h:6379/0 refused", "hunter2", "redis://:[redacted]@h:6379/0 refused"),
    ("Authorization: Bearer abc.def", "abc.def", "Authorization: Bearer [redacted]"),
    ('{"authorization": "Basic dXNlcjpwYXNz"}', "dXNlcjpwYXNz", '{"authorization": "Basic [redacted]"}'),
    ("sent basic dXNlcjpwYXNz to it", "dXNlcjpwYXNz", "sent basic [redacted] to it"),
    ("Set-Cookie: sid=8f7a; Path=/", "8f7a", "Set-Cookie: [redacted]"),
    (f"key {ANTHROPIC}!", ANTHROPIC, "key [redacted]!"),
    (f"at\\n{GITHUB}", GITHUB, "at\\n[redacted]"),
    (f"key={LOOM}.", LOOM, "key=[redacted]."),
    ("xox" + "b-1234567890-abc", "1234567890", "[redacted]"),
    ("AIza" + "SyA1234567890abcdefghijklmnopqrstuv", "SyA123", "[redacted]"),
    (f"{AWS_ID}, {AWS_SECRET}", AWS_SECRET, "[redacted], [redacted]"),
    (f"jwt={JWT};", JWT, "jwt=[redacted];"),
    (f"key:\n{PEM}\nend", "MIIEow", "key:\n[redacted]\nend"),
    ("-----BEGIN PRIVATE KEY-----\nMIIEow", "MIIEow", "[redacted]"),
    ("password=hunter2 host=h", "hunter2", "password=[redacted] host=h"),
    ("DB_PASSWORD: hunter2\nDB_HOST: h", "hunter2", "DB_PASSWORD: [redacted]\nDB_HOST: h"),
    ('{"password": "hun\\"ter, 2", "n": 1}', "ter, 2", '{"password": "[redacted]", "n": 1}'),
    (r'"{\"api_key\": \"hunter 2\", \"n\": 1}"', "hunter 2", r'"{\"api_key\": \"[redacted]\", \"n\": 1}"'),
    ("{'clientSecret': b'hunter2', 'n': 1}", "hunter2", "{'clientSecret': b'[redacted]', 'n': 1}"),
    ('{"password": "hunter2 and it was cut', "hunter2", '{"password": "[redacted]'),
    ("GET /x?access_token=hunter2&n=1", "hunter2", "GET /x?access_token=[redacted]&n=1"),
    ("connect(host='h', passwd=hunter2)", "hunter2", "connect(host='h', passwd=[redacted])"),
    ("mysql --password hunter2 -h x", "hunter2", "mysql --password [redacted] -h x"),
    ("<Password>hunter2</Password>", "hunter2", "<Password>[redacted]</Password>"),
    ("x-api-key: hunter2", "hunter2", "x-api-key: [redacted]"),
    ("aws_secret_access_key = hunter2/+", "hunter2", "aws_secret_access_key = [redacted]"),
    ("mail jo.doe+x@mail.example.org.", "doe", "mail [redacted email]."),
    ("card 4111 1111 1111 1111 12/27", "4111", "card [redacted card] 12/27"),
    ("amex 3782-822463-10005", "822463", "amex [redacted card]"),
    ("to AT61 1904 3002 3457 3201 paid 5", "3457", "to [redacted iban] paid 5"),
    ("ssn 853-37-1694", "1694", "ssn [redacted ssn]"),
    ("call +41 (0)71 526 99 04 or (555) 234-5678 x12", "526", "call [redacted phone] or [redacted phone]"),
    ("Phone number: 0487 98 11 92.", "0487", "Phone number: [redacted phone]."),
]
HARMLESS = [
    "Syntax error near 'FROM' at line 3: SELECT * FROM orders WHERE id = 1",
    'column "token" does not exist; did you mean "tokens", "token_count"?',
    "Unexpected token < in JSON at position 0; max_tokens: 4096, input_token: 312",
    "Access denied for user 'root'@'localhost' (using password: YES)",
    "is_secret=false, password: null",
    "bearer authentication is required; basic settings are used; scikit: sk-learn-contrib-packages",
    "2026-11-22T07:40:00.123Z +2024-01-15 10:00 in 1732261200000 ms at 10.0.0.12:5432, 1.2.3.4",
    "order 4111111111111112, sku 6777246137, 123456789012, a7f5c0de4111111111111111",
    "commit 7648818aa0f5c0de4111111111111111aa0f5c0d in git, uuid 550e8400-e29b-41d4-a716-446655440000",
    "http://host:8080/path?q=1 and https://example.com/a@b",
    "000-12-3456, 666-12-3456, 2026-11-2234, part 555-2345",
]
TEXTS = st.lists(
    st.one_of(
        st.sampled_from([text for text, _, _ in SECRETS] + HARMLESS + list("\0 \\\"'=:@.-+[]<>/\n1aA")),
        st.sampled_from(["[redacted]", "[redacted email]", "[redacted", "password", "token=", "sk-", "eyJ", "AKIA"]),
        st.text(max_size=6),
    ),
    max_size=12,
).map("".join)


@pytest.mark.cases(("text", "secret", "expected"), SECRETS)
def test_a_secret_is_taken_out_and_the_rest_stays(text: str, secret: str, expected: str) -> None:
    assert redacted(text) == expected
    assert secret not in redacted(text)


@pytest.mark.cases("text", HARMLESS)
def test_what_is_no_secret_stays_as_it_is(text: str) -> None:
    assert redacted(text) == text


def test_an_aws_secret_far_from_an_id_is_any_forty_characters() -> None:
    assert redacted(f"{AWS_ID} {'x ' * 150}{AWS_SECRET}").endswith(AWS_SECRET)
    assert AWS_SECRET not in redacted(f"{AWS_SECRET} belongs to {AWS_ID}")


@given(TEXTS)
def test_what_was_redacted_is_not_changed_again(text: str) -> None:
    once = redacted(text)
    assert redacted(once) == once


@given(TEXTS, st.sampled_from([case for case in SECRETS if case[1] in case[0]]))
def test_a_secret_on_a_line_of_its_own_is_taken_out_whatever_stands_around(text: str, case: tuple[str, ...]) -> None:
    around = MARKER.sub("", text.replace(case[1], ""))
    if case[1] not in around:
        assert case[1] not in redacted(f"{around}\n{case[0]}\n{around}")


@given(st.text())
def test_any_text_at_all_is_taken(text: str) -> None:
    assert "\0" not in redacted(text)


HOSTILE = [
    *("a", "a@", "a@b.co ", "1 ", "1", "4111 ", "+1 ", "phone ", "://a:", "eyJ", ".eyJaaaaaa", "-----BEGIN A-----"),
    *(AWS_ID + " ", "cookie:", "aa11 ", " --a", "password>", "bearer ", "authorization: ", "[redacted]a", "\n", "\\"),
    *('password:"', 'password:\\"', "password='\\", "password=)", "token=1 ", "é٣", "555-234-5678 ", "\0", "-", "sk-a"),
]


@pytest.mark.heavy
@pytest.mark.cases("piece", HOSTILE)
def test_a_hostile_text_takes_time_in_proportion_to_its_length(piece: str) -> None:
    def taken_s(size: int) -> float:
        text = (piece * (size // len(piece) + 1))[:size]
        began_s = time.process_time()
        redacted(text)
        return time.process_time() - began_s

    # A quadratic pattern takes minutes for so much; the bound leaves room for a slow, busy machine.
    assert taken_s(100_000) < 10


def corpus(name: str) -> Any:
    if not os.environ.get("LOOM_TEST_DATA"):
        pytest.skip("LOOM_TEST_DATA names no folder of test data")
    return (Path(os.environ["LOOM_TEST_DATA"]) / name).read_text(encoding="utf-8")


CLAIMED = dict.fromkeys(("EMAIL_ADDRESS", "CREDIT_CARD", "IBAN_CODE", "US_SSN", "PHONE_NUMBER", "IP_ADDRESS"), 0.99)


def test_of_a_corpus_the_kinds_that_are_claimed_are_found_and_nothing_else_is_taken() -> None:
    found = dict.fromkeys(CLAIMED, 0)
    wanted = dict.fromkeys(CLAIMED, 0)
    for sentence in json.loads(corpus("pii/sentences150.json")):
        text, spans = sentence["full_text"], sentence["spans"]
        left = redacted(text, SENSITIVE)
        for span in (span for span in spans if span["entity_type"] in CLAIMED):
            wanted[span["entity_type"]] += 1
            found[span["entity_type"]] += span["entity_value"] not in left
        if not spans:
            assert left == text
    assert {kind: found[kind] / wanted[kind] >= share for kind, share in CLAIMED.items()} == dict.fromkeys(
        CLAIMED, True
    )


def test_in_product_data_nothing_is_taken_for_a_secret() -> None:
    products = corpus("retail/products.json")
    assert redacted(products, SENSITIVE) == products


@pytest.mark.cases("files", ["docs/*.md", "loom_worker/t*/*.py", "constraints-learn.txt"])
def test_in_documentation_code_and_hashes_hardly_anything_is_taken_for_a_secret(files: str) -> None:
    texts = [file.read_text(encoding="utf-8") for file in sorted(ROOT.glob(files))]
    alarms = sum(len(scan(text)) for text in texts)
    assert alarms / (sum(map(len, texts)) / 1000) <= 0.07
