"""Limits of keys in answers: 429 beyond them, and the headers ``RateLimit`` and ``RateLimit-Policy``.

The headers are those of draft-ietf-httpapi-ratelimit-headers-10: structured fields with one item for each limit.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flask import Response, g

from web import problems

if TYPE_CHECKING:
    from loom_worker.service.allowances import Quota

WINDOW_S = 60


def admit(quota: "Quota | None") -> None:
    """Let the request pass, and have its answer tell what is left.

    Raises:
        Refused: 429, nothing is left.
    """
    if quota is None:
        return
    g.quotas = (*_quotas(), quota)
    if quota.wait_s > 0:
        detail = f"this key may use {quota.limit:,} {quota.what} in any {WINDOW_S} seconds; try again later"
        raise problems.busy("rate-limited", detail, status=429, retry_s=quota.wait_s)


def sign(answer: Response) -> None:
    """Add the headers, if the key has limits."""
    if quotas := _quotas():
        policies = (f'"{quota.what}";q={quota.limit};w={WINDOW_S}' for quota in quotas)
        answer.headers["RateLimit-Policy"] = ", ".join(policies)
        states = (f'"{quota.what}";r={quota.left};t={math.ceil(quota.more_in_s)}' for quota in quotas)
        answer.headers["RateLimit"] = ", ".join(states)


def _quotas() -> "Sequence[Quota]":
    found: Sequence[Quota] = g.get("quotas", ())
    return found
