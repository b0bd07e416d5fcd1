"""What was spent and what may be, by the harness' own arithmetic. Pure."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any

Json = Mapping[str, Any]
TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
Spent = Counter[str]
"""Tokens by their kind, ``llm_calls`` and ``nano_usd``, billionths of a USD; what is 0 is left out."""
PERIODS = {"": 0, "day": 10, "month": 7}
"""Periods of budgets, each with the length of its windows' names: ``2026-11-24``, ``2026-11``."""


@dataclass(frozen=True)
class Limit:
    """The most that may be spent on one account."""

    level: str
    key: str
    window: str = ""
    tokens: int | None = None
    nano_usd: int | None = None

    @property
    def name(self) -> str:
        """For people."""
        return " ".join(filter(None, ("budget of", self.level, self.key, self.window)))

    def exceeded(self, spent: Spent) -> str:
        """What is exceeded; empty: nothing."""
        over = []
        if self.tokens is not None and tokens(spent) > self.tokens:
            over.append(f"{tokens(spent)} of {self.tokens} tokens")
        if self.nano_usd is not None and spent["nano_usd"] > self.nano_usd:
            over.append(f"{spent['nano_usd']} of {self.nano_usd} billionths of a USD")
        return ", ".join(over)


def of_usage(usage: Json) -> Spent:
    """An object ``usage``, as turns, sessions, replies and verdicts have it."""
    figures = {name: int(usage.get(name) or 0) for name in (*TOKENS, "llm_calls")}
    return _without_zeros({**figures, "nano_usd": _nano(usage.get("cost_usd"))})


def of_entry(row: Json) -> Spent:
    """A row of the ledger."""
    figures = {name: int(row[name]) for name in (*TOKENS, "llm_calls")}
    return _without_zeros({**figures, "nano_usd": int(row["cost_nano"] or 0)})


def total(parts: Iterable[Spent]) -> Spent:
    """The sum."""
    found: Spent = Counter()
    for part in parts:
        found.update(part)
    return found


def price_of(model: str, spent: Spent) -> int:
    """Billionths of a USD for these tokens, by the packaged table; nothing for a model that is not in it."""
    rates = _prices().get(model, {})
    return int(sum(spent[name] * Decimal(str(rates.get(name.removesuffix("_tokens"), 0))) * 1000 for name in TOKENS))


@cache
def _prices() -> Json:
    table: Json = json.loads(files("loom_worker.llm").joinpath("prices.json").read_text())["models"]
    return table


def tokens(spent: Spent) -> int:
    """Everything that was sent and received."""
    return sum(spent[name] for name in TOKENS)


def limits(level: str, key: str, budget: Json | None, windows: Iterable[str] = ("",)) -> Iterator[Limit]:
    """What a budget limits.

    Args:
        windows: those that something was spent in.
    """
    for period, length in PERIODS.items():
        most = (budget or {}).get(period) if period else budget
        if most and (most.get("tokens") is not None or most.get("usd") is not None):
            nano_usd = None if most.get("usd") is None else _nano(most["usd"])
            for window in windows:
                if len(window) == length:
                    yield Limit(level, key, window, most.get("tokens"), nano_usd)


def is_in(window: str, at_ms: int) -> bool:
    """Whether a moment falls into a window; any moment into the one without a name."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d").startswith(window)


def _nano(usd: Any) -> int:
    return int((Decimal(str(usd or 0)) * 10**9).to_integral_value())


def _without_zeros(figures: Mapping[str, int]) -> Spent:
    return Counter({name: figure for name, figure in figures.items() if figure})
