"""What is found in a text, by kind."""

import random
import re
import string
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.values.guardrails import SENSITIVE, Action
from loom_worker.guard.findings import MARKER, marker_of, redacted, scan
from loom_worker.guard.rails import check
from loom_worker.guard.stream import StreamFilter

SECRETS = yaml.safe_load((Path(__file__).parent / "data" / "secrets.yaml").read_text(encoding="utf-8"))
"""By part; those with secrets are templates: ``{h32}`` stands for 32 hexadecimal digits."""
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

FOUND = [
    ("ip", "from 41.176.181.243, twice", "41.176.181.243"),
    ("ip", "host 2001:db8::8a2e:370:7334 is up", "2001:db8::8a2e:370:7334"),
    ("ip", "http://10.1.2.3:8080/x", "10.1.2.3"),
    ("phone", "Can someone call me on 9472 7916?", "9472 7916"),
    ("phone", "They're not answering at 516 466 638 now", "516 466 638"),
    ("phone", "655 437 108 office", "655 437 108"),
    ("phone", "write to 0489 25 37 29", "0489 25 37 29"),
    ("phone", "from 0049 511 1234567", "0049 511 1234567"),
    ("phone", "(02) 8123 4567", "(02) 8123 4567"),
    ("phone", "mobile: 345-899-3560x4587", "345-899-3560x4587"),
    ("phone", "Fax: 9498777106", "9498777106"),
    ("phone", "They're not answering at 05968402646", "05968402646"),
    ("phone", "no more messages to 76541745, please", "76541745"),
    ("phone", "on my registered 3729101901.", "3729101901"),
    ("phone", "Desk: +90(528)471-4921x81370", "+90(528)471-4921x81370"),
    ("phone", "ruf mich an: 612 34 56 78", "612 34 56 78"),
    ("secret", "connect(user, password=hunter2)", "hunter2"),
    ("secret", "export API_KEY=4f9a8b7c6d", "4f9a8b7c6d"),
    ("secret", "password=$uper5ecret", "$uper5ecret"),
    ("secret", "password: my_s3cret99x", "my_s3cret99x"),
    *(
        (
            "card",
            f"pay by {between.join(('4111', '1111', '1111', '1111'))}, please",
            between.join(["4111"] + ["1111"] * 3),
        )
        for between in (" ", "-", ".", "/", "*", "**", " - ", "\n", "\r\n", "\u200b", "\u00a0", "\u2013")
    ),
    *(
        ("card", f'{{"n": "{card}"}}', card)
        for card in ("4111\\u002d1111\\u002d1111\\u002d1111", "4111\\/1111\\/1111\\/1111", "4111\\n1111\\n1111\\n1111")
    ),
    ("card", "4111 1111\n1111 1111", "4111 1111\n1111 1111"),
    ("card", "\uff14111 1111 1\uff1111 11\u200b11 ok", "\uff14111 1111 1\uff1111 11\u200b11"),
    ("phone", "Tel. 482913", "482913"),
    ("ssn", "phone 853-37-1694", "853-37-1694"),
    ("ssn", "call 853\u201337\u20131694 now", "853\u201337\u20131694"),
    ("ssn", "Social security no.: 853 37 1694", "853 37 1694"),
    ("email", "write jo\u200b@exa\u200bmple.org", "jo\u200b@exa\u200bmple.org"),
    ("secret", "DB_PASS=horse and", "horse"),
    ("secret", "pass: 'tr0ub4dor'", "tr0ub4dor"),
    ("secret", "secret_key_base: 4f9a8b7c6d", "4f9a8b7c6d"),
    ("secret", "/c?sp=r&sig=aB3dE6gH9jK2mN5p%3D", "aB3dE6gH9jK2mN5p%3D"),
    ("secret", "LOOM_API_KEYS=shop=k1-a8b7c6d5e4,crm=k2-4f9a8b7c6d", "shop=k1-a8b7c6d5e4,crm=k2-4f9a8b7c6d"),
    ("secret", "- name: DB_PASSWORD\n  value: hunter2", "hunter2"),
    ("secret", '<add key="Password" value="hunter2" />', "hunter2"),
    ("secret", "curl --user ann:Zq7Tn5Xw https://h", "Zq7Tn5Xw"),
    ("secret", "x acme_Zq7Tn5\u200bXw2Lk9Rb4Vc8Mh1J y", "acme_Zq7Tn5\u200bXw2Lk9Rb4Vc8Mh1J"),
    ("secret", r"x acme\u002dZq7Tn5Xw2Lk9Rb4Vc8Mh1J y", r"acme\u002dZq7Tn5Xw2Lk9Rb4Vc8Mh1J"),
    ("secret", "zorblix secret 0a1b2c3d4e5f67890a1b", "0a1b2c3d4e5f67890a1b"),
    ("secret", "sonar.login=0a1b2c3d4e5f67890a1b2c3d4e5f67890a1b2c3d", "0a1b2c3d4e5f67890a1b2c3d4e5f67890a1b2c3d"),
    ("secret", "define('DB_PASSWORD', 'k8!sdf\"W2');", 'k8!sdf"W2'),
    ("secret", "define( 'NONCE_SALT',   'a;b&c<d>e f' );", "a;b&c<d>e f"),
    *(("secret", f"{name}: Winter2024!", "Winter2024!") for name in ("Passwort", "Mot de passe ", "contraseña")),
    ("secret", "machine h login ann password Zq7!Tn5 port x", "Zq7!Tn5"),
    ("secret", "mysqldump -h h -u root -pZq7Tn5 db", "Zq7Tn5"),
    ("secret", "ann:$apr1$Zq7Tn5Xw$2Lk9Rb4Vc8Mh1J/aB3dE6.", "$apr1$Zq7Tn5Xw$2Lk9Rb4Vc8Mh1J/aB3dE6."),
    ("secret", 'ConvertTo-SecureString "Zq7$Tn5 Xw" -Force', "Zq7$Tn5 Xw"),
    ("secret", 'password="self.made(1)"', "self.made(1)"),
    ("ssn", "853-37-1694", "853-37-1694"),
    ("iban", "AT61 1904 3002 3457 3201", "AT61 1904 3002 3457 3201"),
    ("email", "jo@example.org", "jo@example.org"),
]
HARMLESS = [
    *("127.0.0.1:8000", "0.0.0.0", "::1", "version 1.2.3.4", "Werkzeug==3.0.0.1", "a::b", "std::vector", "12:30:45"),
    *("1.2.3.4.5", "999.1.1.1", "10.5.2", "order 482913", "482913 by phone", "SMS code 482913", "tel. 1995 - 2003"),
    *("call us, 1995-2003", "phone shop, 1600-1634 Main Street", "reach 1234\u20131238 Oak Road", "bypass=true99"),
    *(
        "pass: 12",
        "docker run -u 1000:1000",
        "a public key 0a1b2c3d4e5f67890a1b",
        "Idempotency-Key: 0a1b2c3d4e5f67890a1b",
    ),
    *SECRETS["harmless"],
    *(
        f"paid by 0x{'52908400098527886E0F7030069857D2E4169EE7'}",
        f"token: 0x{'8617e340b3d01fa5f11f306f4090fd50e238070d'}",
    ),
    *(f"tx 0x{'0a1b2c3d4e5f6789' * 4}", "a/go.mod h1:WOE5zTA5Wn7bKo1VPk2j1ojgATWiJ20hIII2+xFcTrs="),
    *("to bc1qmc0pn99puhpthhmz9ft8amv36kpavf2ypart3c", "bafybeigqr3hysz43pfinxopryk5w2yirwfvkzeyhslb7mb47evvkp4atk6"),
    *("watch?v=x&list=PLx0sYbCqOb8TBPRdmBHs5Iftvv9TPboYG", "bh=ywzpX8cI9AbCc2tsXHwRnOHzUVx3v+FQhvLGso4jpqG=;"),
    *('W/"5e8-GKvG68Zmrz6n4DrFvl5G7u9nMGT"', "https://facebook.com/?fbclid=IwAR0Zq7Tn5Xw2Lk9Rb4Vc8Mh1JaB3dE6gH9"),
    *(
        "boarding pass: LH1234/12A",
        "Pass: 4711-4712",
        "git push -u origin:Feature-12345x",
        "pk_live_Zq7Tn5Xw2Lk9Rb4Vc8Mh1JaB",
    ),
    *("secrets=/run/secrets/db2_pw_file", "password=/run/secrets/db2_pw", '"nextToken": "Zq7Tn5Xw2Lk9Rb4Vc8Mh1J"'),
    *("next_page_token=Zq7Tn5Xw2Lk9Rb4V", "continuationToken: Zq7Tn5Xw2Lk9Rb4V", "input_token=Zq7Tn5Xw2Lk9Rb4V"),
    *("token = await get(1)", "secret = settings.secret", "auth_token = self.auth_token", "pwd = context.hash(pw, 2)"),
    *(
        f"-----BEGIN {kind}-----\nMIIDZq7Tn5Xw2Lk9Rb4Vc8Mh1JaB3dE6gH9\n-----END {kind}-----"
        for kind in ("CERTIFICATE", "PUBLIC KEY")
    ),
    *("in 2024 12 345 678 items", "2026-11-24 09:30", "24.11.2026", "sku 6777246137", "id 1732261200000"),
    *("call 42 of 100", "message 12345678901", "00000000", "$ 12 345 678", "1 2 3 4 5 6 7 8"),
    *("connect(user, password=name, timeout=5)", "password=get_password()", "password: str", "token=None"),
    *("Authorization: Bearer <key>", "Authorization: Bearer $TOKEN", "Authorization: Bearer {token}", "password=%PW%"),
    *("API_KEY=your-api-key", "API_KEY=<your key>", "password=${DB_PASSWORD}", "secret: {{ secret }}", "token: ***"),
    *('password="changeme"', "password=args.password)", "api_key=os.environ[", "password = xxxxxxxx", "key=..."),
]


@pytest.mark.cases(("kind", "text", "expected"), FOUND)
def test_it_is_found_and_called_what_it_is(kind: str, text: str, expected: str) -> None:
    assert [(each.kind, text[each.start : each.end]) for each in scan(text)] == [(kind, expected)]


@pytest.mark.cases("text", HARMLESS)
def test_what_only_looks_like_it_is_left(text: str) -> None:
    assert scan(text) == ()


def with_secrets(part: str) -> Iterator[tuple[str, str]]:
    """Each text of a part, filled ten times from a fixed seed, and the secret in it."""
    draw = random.Random(38)

    def drawn(match: re.Match[str]) -> str:
        return "".join(draw.choices(CLASSES[match[1]], k=int(match[2])))

    for template in SECRETS[part]:
        for _ in range(10):
            text = re.sub(r"\{([hluawbd])(\d+)\}", drawn, template)
            yield re.sub("[«»]", "", text), re.findall("«(.+?)»", text)[0]


@pytest.mark.cases(("part", "least"), [("known", 0.97), ("aside", 0.95)])
def test_most_secrets_are_found_whose_shape_nobody_told(part: str, least: float) -> None:
    found = [secret not in redacted(text, ("secret",)) for text, secret in with_secrets(part)]
    assert sum(found) / len(found) >= least


def test_of_kinds_that_overlap_the_one_with_the_strictest_action_counts() -> None:
    text = "password=ab/jo@mail.test/853-37-1694"
    assert [each.kind for each in scan(text)] == ["secret"]
    for strict in ("secret", "email", "ssn"):
        rules: dict[str, Action] = {"secret": "flag", "email": "flag", "ssn": "flag", strict: "block"}
        assert [each.kind for each in scan(text, rules)] == [strict]
        assert check("input", text, rules).blocked_for == (strict,)
        assert check("input", text, {**rules, strict: "redact"}).kept != text
        stream = StreamFilter(rules)
        assert stream.feed(text) + stream.end() == f"password={marker_of(strict)}"
        assert (stream.found[0], set(stream.found)) == (strict, set(rules))
        assert {(each["name"], each["outcome"]) for each in check("input", text, rules).decisions} == {
            (f"input.{kind}", action) for kind, action in rules.items()
        }


def test_of_two_numbers_in_a_row_both_are_found() -> None:
    assert redacted("phone 450 0840 0341 8387176") == "phone [redacted phone] [redacted phone]"
    assert len(scan("phone 450 0840 0341 8387176")) == 2


def test_only_what_was_asked_for_is_found() -> None:
    text = "jo@example.org, 853-37-1694"
    assert [each.kind for each in scan(text, ("ssn",))] == ["ssn"]
    assert redacted(text, ("email",)) == "[redacted email], 853-37-1694"
    assert scan(text, ()) == ()


texts = st.lists(st.one_of(st.sampled_from([text for _, text, _ in FOUND] + HARMLESS), st.text(max_size=8)), max_size=8)


@given(texts.map(" ".join))
def test_findings_come_in_order_and_none_overlaps_another(text: str) -> None:
    found = scan(text)
    assert all(one.end <= two.start for one, two in pairwise(found))
    assert all(each.kind in SENSITIVE and each.start < each.end for each in found)


@given(texts.map(" ".join))
def test_nothing_is_found_in_what_was_redacted(text: str) -> None:
    assert scan(MARKER.sub("\0", redacted(text, SENSITIVE))) == ()
