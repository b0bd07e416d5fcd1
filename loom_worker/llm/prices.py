"""What a call costs, from the dated table in prices.json."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import cast

from loom_worker.core.values.budgets import usd
from loom_worker.core.values.chat import Reply, Usage
from loom_worker.core.values.json import Json

OLLAMA = "ollama/"
"""Prefix of the names of Ollama's models in Loom."""
A2A = "a2a/"
"""Prefix of the names of agents elsewhere."""
FREE = re.compile(rf"scripted|local/|{A2A}|{OLLAMA}(?!.*\bcloud\Z)")
"""Scripted models and those on the user's own machine cost nothing; Ollama's ``cloud`` models run elsewhere. Agents
elsewhere are paid for there."""
BEDROCK = re.compile(
    r"(?:arn:aws[\w-]*:bedrock:[\w-]*:\d*:[\w-]+/)?(?:[a-z-]{2,10}\.)?anthropic\.(claude-[\w-]+?)(?:-v\d+(?::\d+)?)?"
)
"""Bedrock's name for a model: the vendor's own name, after an optional ARN and region, before an optional version."""
PROFILE = ":application-inference-profile/"
BEDROCK_REGION = re.compile(r"(?:[a-z-]{2,10}\.)?anthropic\.(?=claude-)")
"""The part before the vendor's own name; it says which regions may run a model."""
NANO_PER_TOKEN = 1000
"""Billionths of a USD for a token at 1 USD per million."""
SNAPSHOT = re.compile(r"[-@](?:\d{8}|latest)\Z")
"""What may follow a family's name; ``claude-opus-4-9`` is another family than ``claude-opus``, of unknown price."""


@dataclass(frozen=True, slots=True)
class TokenPrices:
    """USD per million tokens."""

    input: Decimal
    output: Decimal
    cache_write: Decimal
    cache_read: Decimal

    def cost_usd(self, usage: Usage) -> Decimal:
        """The price of these tokens, to a billionth."""
        millionths = (
            usage.input_tokens * self.input
            + usage.output_tokens * self.output
            + usage.cache_write_tokens * self.cache_write
            + usage.cache_read_tokens * self.cache_read
        )
        return usd(millionths / 1_000_000)


@dataclass(frozen=True, slots=True)
class Price:
    """A family's prices, and those of a whole call with a long prompt."""

    tokens: TokenPrices
    long_tokens: TokenPrices | None = None
    above_tokens: int = 0
    """A prompt of more tokens is a long one."""

    def cost_usd(self, usage: Usage) -> Decimal:
        """The price of one call."""
        prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        prices = self.long_tokens if self.long_tokens and prompt > self.above_tokens else self.tokens
        return prices.cost_usd(usage)


def cost_usd(model: str, usage: Usage) -> Decimal | None:
    """Price one call (not a sum over several: some rates depend on the call's length); None if there is no price."""
    if FREE.match(model):
        return Decimal(0)
    price = _price(plain_name(model), table())
    return None if price is None else price.cost_usd(usage)


def rates(model: str, input_tokens: int) -> tuple[Decimal, Decimal] | None:
    """The most that an input token and an output token of a call may cost, in billionths of a USD; None: no price.

    Args:
        input_tokens: of the call, at most.
    """
    if FREE.match(model):
        return Decimal(0), Decimal(0)
    price = _price(plain_name(model), table())
    if price is None:
        return None
    prices = price.long_tokens if price.long_tokens and input_tokens > price.above_tokens else price.tokens
    return max(prices.input, prices.cache_write, prices.cache_read) * NANO_PER_TOKEN, prices.output * NANO_PER_TOKEN


def has_price(model: str) -> bool:
    """False for a model whose calls cannot be counted in USD."""
    return rates(model, 0) is not None


def plain_name(model: str) -> str:
    """The vendor's own name of a model that Bedrock names; other names as they are."""
    found = BEDROCK.fullmatch(model)
    return found[1] if found else model


def small_model(name: str) -> str | None:
    """The small model of the provider of a model, named in the same way: for summaries and for ranking.

    Returns:
        None if none is known: for another vendor's model, a name that does not say which model it is, or a model that
        is no more expensive itself.
    """
    vendors, prices = plain_name(name), table()
    own, small = _price(vendors, prices), prices[small_name()]
    if not vendors.startswith("claude-") or (own and own.tokens.input <= small.tokens.input):
        return None
    region = BEDROCK_REGION.search(name)
    return f"{region[0]}{small_name()}" if region else small_name()


def with_cost(reply: Reply) -> Reply:
    """The reply with its usage priced by the model that was asked; of Bedrock's profiles only the server names it."""
    model = reply.served if PROFILE in reply.model else reply.model
    return replace(reply, usage=replace(reply.usage, cost_usd=cost_usd(model, reply.usage)))


@cache
def _file() -> Json:
    text = files(__package__).joinpath("prices.json").read_text(encoding="utf-8")
    return cast("Json", json.loads(text, parse_float=Decimal))


def small_name() -> str:
    """The current small model of the packaged table."""
    return str(_file()["small"])


@cache
def table() -> Mapping[str, Price]:
    """The packaged table, family name to price; read once."""
    found = {}
    for family, entry in _file()["models"].items():
        long = entry.get("long_prompt")
        found[family] = Price(_tokens(entry), _tokens(long), long["above_tokens"]) if long else Price(_tokens(entry))
    return found


@cache
def _embeddings() -> Mapping[str, Price]:
    """Embedding models by their names in agents' files; they write nothing, and have no cache."""
    free = Decimal(0)
    return {
        name: Price(TokenPrices(Decimal(usd_per_million), free, free, free))
        for name, usd_per_million in _file()["embeddings"].items()
    }


def _tokens(entry: Json) -> TokenPrices:
    return TokenPrices(**{name: Decimal(entry[name]) for name in TokenPrices.__slots__})


def _price(model: str, prices: Mapping[str, Price]) -> Price | None:
    return prices.get(model) or prices.get(SNAPSHOT.sub("", model)) or _embeddings().get(model)
