"""A webhook in its three columns."""

import pytest

from loom_worker.core.values.webhooks import Webhook

HOOKS = [
    Webhook("https://h.example"),
    Webhook("https://h.example", "whsec_x"),
    Webhook("https://h.example", format="a2a-0.3", headers={"b": "2", "a": "1"}, name="n"),
]


@pytest.mark.parametrize("hook", HOOKS)
def test_a_webhook_is_read_as_it_was_stored(hook: Webhook) -> None:
    assert Webhook.stored(hook.url, hook.secret, hook.form) == hook


def test_a_plain_one_has_no_form_and_equal_ones_the_same() -> None:
    assert HOOKS[0].form is None
    turned = Webhook("https://h.example", format="a2a-0.3", headers={"a": "1", "b": "2"}, name="n")
    assert turned.form == HOOKS[2].form


def test_no_url_is_no_webhook() -> None:
    assert Webhook.stored(None, None, None) is None
