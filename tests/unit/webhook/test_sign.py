import base64
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from loom_worker.core.errors import Flaw, Invalid
from loom_worker.webhook.send import check_secret, headers

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_the_published_vector_is_met() -> None:
    signed = headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body=b'{"test": 2432232314}', secret=SECRET)
    assert signed == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


@given(
    entropy=st.binary(min_size=24, max_size=64),
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
)
def test_another_implementation_verifies_every_signature(entropy: bytes, text: str) -> None:
    secret, body = (
        "whsec_" + base64.b64encode(entropy).decode(),
        json.dumps({"text": text}, ensure_ascii=False).encode(),
    )
    signed = headers("dlv_1", int(time.time()), body=body, secret=secret)
    assert Webhook(secret).verify(body, signed) == {"text": text}


@pytest.mark.parametrize(
    ("name", "value"),
    [("webhook-id", "dlv_2"), ("webhook-timestamp", str(int(time.time()) - 7))],
    ids=["id", "timestamp"],
)
def test_a_changed_header_breaks_the_signature(name: str, value: str) -> None:
    signed = headers("dlv_1", int(time.time()), body=b"{}", secret=SECRET)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(b"{}", {**signed, name: value})


def test_a_changed_body_breaks_the_signature() -> None:
    signed = headers("dlv_1", int(time.time()), body=b"{}", secret=SECRET)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(b"{ }", signed)


@pytest.mark.cases(
    "secret",
    [
        "",
        "whsec_",
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "WHSEC_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa-_",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSé",
        "whsec_" + base64.b64encode(bytes(23)).decode(),
        "whsec_" + base64.b64encode(bytes(65)).decode(),
    ],
)
def test_a_malformed_secret_is_refused_and_never_repeated(secret: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_secret(secret)
    assert [flaw.pointer for flaw in refused.value.flaws] == ["/webhook/secret"]
    assert not secret.removeprefix("whsec_") or secret not in str(refused.value)
    assert isinstance(refused.value.flaws[0], Flaw)


@pytest.mark.parametrize("size", [24, 32, 64])
def test_a_secret_of_24_to_64_bytes_is_accepted(size: int) -> None:
    check_secret("whsec_" + base64.b64encode(bytes(size)).decode())
