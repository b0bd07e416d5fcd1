"""Where a webhook may go, in the words of who submitted its URL."""

from loom_worker.core.errors import Flaw, Invalid
from loom_worker.core.values.turns import Webhook
from loom_worker.guard.net.address import Private, target
from loom_worker.webhook.sign import check_secret


def check(webhook: Webhook, *, allow_private: bool) -> None:
    """Refuse a webhook that would never be served: a private target, no URL, a bad secret.

    Raises:
        Invalid: ``webhook-url-refused``, with the reason.
    """
    try:
        check_url(webhook.url, allow_private=allow_private)
        if webhook.secret is not None:
            check_secret(webhook.secret)
    except Invalid as error:
        raise Invalid(str(error), error.flaws, "webhook-url-refused") from error


def check_url(url: str, *, allow_private: bool) -> None:
    """Refuse what can be refused without asking a name server.

    Raises:
        Invalid: with the reason, at ``/webhook/url``.
    """
    try:
        target(url, allow_private=allow_private)
    except Invalid as error:
        detail = reason(error)
        raise Invalid(f"webhook URL refused: {detail}", (Flaw("/webhook/url", detail),)) from error


def reason(error: Invalid) -> str:
    """Why a URL or an address is refused, and what would open it."""
    hint = " (LOOM_ALLOW_PRIVATE_WEBHOOKS=1 opens private ones)" if isinstance(error, Private) else ""
    return f"{error}{hint}"
