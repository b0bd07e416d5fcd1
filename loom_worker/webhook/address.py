"""Where a webhook may go, in the words of who submitted its URL."""

from loom_worker.errors import Flaw, Invalid
from loom_worker.net.address import Private, target


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
