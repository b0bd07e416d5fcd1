"""What a call costs, from the dated table in prices.json."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from loom_worker.core.values.chat import Reply, Usage
from loom_worker.core.values.json import Json

OLLAMA = "ollama/"
"""What the names of Ollama's models begin with here."""
FREE = re.compile(rf"scripted|{OLLAMA}(?!.*\bcloud\Z)")
"""Models of Loom's own and on one's own machine, which cost nothing; Ollama's ``cloud`` models run elsewhere."""
BEDROCK = re.compile(
    r"(?:arn:aws[\w-]*:bedrock:[\w-]*:\d*:[\w-]+/)?(?:[a-z-]{2,10}\.)?anthropic\.(claude-[\w-]+?)(?:-v\d+(?::\d+)?)?"
)
"""Bedrock's name for a model: perhaps an ARN, perhaps where it runs, the vendor's own name, perhaps a version."""
BEDROCK_PLACE = re.compile(r"(?:[a-z-]{2,10}\.)?anthropic\.(?=claude-)")
"""What stands before the vendor's own name there; it says which regions may run a model."""
SNAPSHOT = re.compile(r"[-@](?:\d{8}|latest)\Z")
"""What may follow a family's name; ``-4-9`` after ``claude-opus`` is another family, whose price is not known."""


@dataclass(frozen=True, slots=True)
class Rates:
    """USD per million tokens."""

    input: float
    output: float
    cache_write: float
    cache_read: float

    def cost_usd(self, usage: Usage) -> float:
        """The price of these tokens."""
        millionths = (
            usage.input_tokens * self.input
            + usage.output_tokens * self.output
            + usage.cache_write_tokens * self.cache_write
            + usage.cache_read_tokens * self.cache_read
        )
        return millionths / 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """A family's rates, and those that hold for a whole call with a longer prompt."""

    rates: Rates
    long_rates: Rates | None = None
    above_tokens: int = 0

    def cost_usd(self, usage: Usage) -> float:
        """The price of one call."""
        prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        is_long = self.long_rates is not None and prompt > self.above_tokens
        return (self.long_rates if self.long_rates and is_long else self.rates).cost_usd(usage)


def cost_usd(model: str, usage: Usage) -> float | None:
    """Price one call (not a sum over several: some rates depend on the call's length); None if there is no price."""
    if FREE.match(model):
        return 0.0
    price = _price(plain_name(model), table())
    return None if price is None else price.cost_usd(usage)


def plain_name(model: str) -> str:
    """The vendor's own name of a model that Bedrock names; other names as they are."""
    found = BEDROCK.fullmatch(model)
    return found[1] if found else model


def small_model(name: str) -> str | None:
    """The provider's small model beside one of its models, named as that is: for summaries and for ranking.

    Returns:
        None where none is known: another vendor's model, a name that says nothing of its model, or one that is no
        dearer itself.
    """
    vendors, prices = plain_name(name), table()
    own, small = _price(vendors, prices), prices[small_name()]
    if not vendors.startswith("claude-") or (own and own.rates.input <= small.rates.input):
        return None
    where = BEDROCK_PLACE.search(name)
    return f"{where[0]}{small_name()}" if where else small_name()


def with_cost(reply: Reply) -> Reply:
    """The reply with its usage priced by the model that answered."""
    return replace(reply, usage=replace(reply.usage, cost_usd=cost_usd(reply.model, reply.usage)))


@cache
def small_name() -> str:
    """The current small model of the packaged table."""
    return str(json.loads(files(__package__).joinpath("prices.json").read_text(encoding="utf-8"))["small"])


@cache
def table() -> Mapping[str, Price]:
    """The packaged table, family name to price; read once."""
    raw = json.loads(files(__package__).joinpath("prices.json").read_text(encoding="utf-8"))
    return {family: _read(entry) for family, entry in raw["models"].items()}


def _read(entry: Json) -> Price:
    long = entry.get("long_prompt")
    return Price(_rates(entry), _rates(long), long["above_tokens"]) if long else Price(_rates(entry))


def _rates(entry: Json) -> Rates:
    return Rates(**{name: float(entry[name]) for name in Rates.__slots__})


def _price(model: str, prices: Mapping[str, Price]) -> Price | None:
    return prices.get(model) or prices.get(SNAPSHOT.sub("", model))
